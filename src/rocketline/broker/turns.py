"""Work that is done in turns: at once, when something arrives, and when the next work is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LONGEST_WAIT_MS = 3_600_000
"""Event loops do not take any number for a time, and what is due may be far away."""


async def take_turns(turn: Callable[[], int | None], arrived: asyncio.Event) -> None:
    """Call `turn` for ever. It returns in how many milliseconds the next call is due, None when nothing waits; `arrived` is
    set when there is work earlier."""
    while True:
        arrived.clear()
        wait_ms = turn()
        try:
            async with asyncio.timeout(None if wait_ms is None else max(1, min(wait_ms, LONGEST_WAIT_MS)) / 1000):
                await arrived.wait()
        except TimeoutError:
            continue
