"""Makes guessing names and passwords slow, for who does it and for nobody else.

A connection is closed after some refused signatures. When many come from one address, its refusals come late. Signatures
from there that may be guesses are then checked one a second, the others are refused unseen: those for an account that was
guessed at lately, on a connection on which that account has not signed well before. So a right guess is answered as late as
a wrong one, and new connections do not help. An IPv6 network of 64 bits counts as one address: whoever has one has them all.
Everything that is remembered of peers is bounded.
"""

from __future__ import annotations

import asyncio
from ipaddress import IPv6Address
from typing import NamedTuple

from rocketline.clock import Clock
from rocketline.protocol.command import Command
from rocketline.system.networks import address
from rocketline.transport import Channel

MAX_GUESSES = 10
"""Of one connection."""
MAX_GUESSES_A_MINUTE = 100
"""Of one address."""
WINDOW_S = 60.0
DELAY_S = 1.0
CHECK_PAUSE_S = 1.0
"""Between two checks of signatures that may be guesses, for an address with many guesses."""
MAX_LATE = 1000
"""Answers that wait at once. Connections of further ones are closed."""
MAX_ADDRESSES = 10_000
MAX_ACCOUNTS = 10_000
"""Names that were guessed at, whether they exist or not."""


class Pace(NamedTuple):
    """What follows a guess."""

    closes: bool = False
    is_late: bool = False


class _Guesses:
    """Of one address."""

    __slots__ = ("began", "checked_at", "count")

    def __init__(self, now: float) -> None:
        self.began = now
        """When its minute began."""
        self.count = 0
        self.checked_at = now - CHECK_PAUSE_S
        """When a signature that may be a guess was checked last, since it is busy."""


class Brake:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_channel: dict[Channel, int] = {}
        self._by_address: dict[str, _Guesses] = {}
        self._guessed_at: dict[str, float] = {}
        """Accounts for which a signature was refused, and when the last one was; the oldest comes first."""
        self._signed_well: dict[Channel, str] = {}
        """The account that signed last on a connection."""
        self._late = 0

    def note_good(self, channel: Channel, account: str) -> None:
        """A signature was right."""
        if self._signed_well.get(channel) != account:
            if channel not in self._signed_well:
                channel.on_close.append(self._forget)
            self._signed_well[channel] = account

    def may_check(self, channel: Channel, account: str) -> bool:
        """Whether a signature for an account may be looked at now: it may be one guess of many."""
        if not self._by_address or not self._is_guessed_at(account) or self._signed_well.get(channel) == account:
            return True
        now = self._clock.monotonic()
        guesses = self._guesses_of(channel.remote_ip, now)
        if guesses is None or guesses.count < MAX_GUESSES_A_MINUTE:
            return True
        if now - guesses.checked_at < CHECK_PAUSE_S:
            return False
        guesses.checked_at = now
        return True

    def note_guess(self, channel: Channel, account: str) -> Pace:
        """Count a refused signature."""
        count = self._by_channel.get(channel, 0) + 1
        if count == 1:
            channel.on_close.append(self._forget)
        self._by_channel[channel] = count
        self._note_account(account)
        is_busy = self._count_address(channel.remote_ip) > MAX_GUESSES_A_MINUTE
        if count >= MAX_GUESSES:
            return Pace(closes=True)
        return self.late_or_closed() if is_busy else Pace()

    def late_or_closed(self) -> Pace:
        """How somebody is refused who is to wait."""
        return Pace(closes=True) if self._late >= MAX_LATE else Pace(is_late=True)

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
        self._signed_well.pop(channel, None)

    def _is_guessed_at(self, account: str) -> bool:
        at = self._guessed_at.get(account)
        return at is not None and self._clock.monotonic() - at < WINDOW_S

    def _note_account(self, account: str) -> None:
        self._guessed_at.pop(account, None)
        if len(self._guessed_at) >= MAX_ACCOUNTS:
            self._guessed_at.pop(next(iter(self._guessed_at)))
        self._guessed_at[account] = self._clock.monotonic()

    def _guesses_of(self, ip: str, now: float) -> _Guesses | None:
        """Those of the minute that runs; None: there is none."""
        found = self._by_address.get(_source(ip))
        return None if found is None or now - found.began >= WINDOW_S else found

    def _count_address(self, ip: str) -> int:
        now, source = self._clock.monotonic(), _source(ip)
        guesses = self._guesses_of(ip, now)
        if guesses is None:
            self._by_address.pop(source, None)
            if len(self._by_address) >= MAX_ADDRESSES:
                self._by_address.pop(next(iter(self._by_address)))
            guesses = self._by_address[source] = _Guesses(now)
        guesses.count += 1
        return guesses.count


def _source(ip: str) -> str:
    """What counts as one address.

    >>> _source("10.1.2.3"), _source("2001:db8:0:1::7") == _source("2001:db8:0:1:ffff::9")
    ('10.1.2.3', True)
    """
    found = address(ip)
    if isinstance(found, IPv6Address):
        return f"{int(found) >> 64:x}/64"
    return ip if found is None else str(found)
