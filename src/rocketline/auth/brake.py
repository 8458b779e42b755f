"""Makes guessing names and passwords slow, for who does it and for nobody else.

A connection is closed after some refused signatures. When many come from one address, its refusals come late. Everything
that is remembered of peers is bounded.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from rocketline.clock import Clock
from rocketline.protocol.command import Command
from rocketline.transport import Channel

MAX_GUESSES = 10
"""Of one connection."""
MAX_GUESSES_A_MINUTE = 100
"""Of one address."""
WINDOW_S = 60.0
DELAY_S = 1.0
MAX_LATE = 1000
"""Answers that wait at once. Connections of further ones are closed."""
MAX_ADDRESSES = 10_000


class Pace(NamedTuple):
    """What follows a guess."""

    closes: bool = False
    is_late: bool = False


class Brake:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_channel: dict[Channel, int] = {}
        self._by_address: dict[str, tuple[float, int]] = {}
        """When the minute of an address began, and its guesses since then."""
        self._late = 0

    def note_guess(self, channel: Channel) -> Pace:
        """Count a refused signature."""
        count = self._by_channel.get(channel, 0) + 1
        if count == 1:
            channel.on_close.append(self._forget)
        self._by_channel[channel] = count
        is_busy = self._count_address(channel.remote_ip) > MAX_GUESSES_A_MINUTE
        if count >= MAX_GUESSES or (is_busy and self._late >= MAX_LATE):
            return Pace(closes=True)
        return Pace(is_late=is_busy)

    def later(self, answer: Command) -> asyncio.Future[Command | None]:
        """The answer, after a while."""
        loop = asyncio.get_running_loop()
        late: asyncio.Future[Command | None] = loop.create_future()
        self._late += 1
        timer = loop.call_later(DELAY_S, late.set_result, answer)
        # Done early when the connection ends.
        late.add_done_callback(lambda _: self._answered(timer))
        return late

    def _answered(self, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._late -= 1

    def _forget(self, channel: Channel) -> None:
        self._by_channel.pop(channel, None)

    def _count_address(self, address: str) -> int:
        now = self._clock.monotonic()
        began, count = self._by_address.get(address, (now, 0))
        if now - began >= WINDOW_S:
            began, count = now, 0
        if address not in self._by_address and len(self._by_address) >= MAX_ADDRESSES:
            self._by_address.pop(next(iter(self._by_address)))
        self._by_address[address] = began, count + 1
        return count + 1
