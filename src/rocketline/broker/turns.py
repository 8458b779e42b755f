"""Work that is done in turns: at once, when something arrives, and when the next work is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def take_turns(turn: Callable[[], int | None], arrived: asyncio.Event) -> None:
    """Call `turn` for ever. It returns in how many milliseconds the next call is due, None when nothing waits; `arrived` is
    set when there is work earlier."""
    while True:
        arrived.clear()
        wait_ms = turn()
        try:
            async with asyncio.timeout(None if wait_ms is None else max(0.001, wait_ms / 1000)):
                await arrived.wait()
        except TimeoutError:
            continue
