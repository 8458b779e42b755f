"""The fast path as transport sees it: reads of connections in, answers out.

Served one read at a time, the way from the read to the store and back costs more than the work itself. So when one turn of
the loop brings sends on several connections, the reads of the next turn are kept and served together at its end; with a few
connections each read is answered at once, which is sooner. What is kept is served before anything else happens to its
connection: each has at most one read here, and one that ends, or reads again, has it served first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rocketline.broker.fastpath.grants import Read
from rocketline.broker.fastpath.pulls import HEADER_AT, PULL_STARTS, FastPulls
from rocketline.broker.fastpath.sends import FastSends, ServedReads
from rocketline.broker.fastpath.state import EVERY, MISSES, ConnectionState
from rocketline.protocol.records import Buffer
from rocketline.transport import Channel

log = logging.getLogger(__name__)

MANY_CONNECTIONS = 4
"""After a turn of the loop with sends on this many connections, the reads of the next turn are kept."""

_NOTHING: tuple[int, Sequence[Buffer]] = (0, ())


class BrokerFastPath:
    """One per router; its connections show it what they read."""

    def __init__(self, sends: FastSends | None, pulls: FastPulls | None) -> None:
        self._sends = sends
        self._pulls = pulls
        self._kept: list[Read] = []
        self._kept_began = 0.0
        """When the first of the kept reads came."""
        self._keeps = False
        self._count = 0
        """Connections whose sends were served in this turn of the loop."""
        self._last: Channel | None = None

    def serve(self, channel: Channel, data: bytes) -> tuple[int, Sequence[Buffer]]:
        state: ConnectionState | None = channel.fast  # type: ignore[assignment]
        if state is None:
            state = channel.fast = ConnectionState()
        elif state.is_kept:
            self.settle_all()
            if channel.is_inside_frame:
                return _NOTHING
        if self._pulls is not None and data.startswith(PULL_STARTS, HEADER_AT):
            pulled = self._pulls.serve(channel, state, data)
            if pulled is not None:
                position, answers = pulled
                consumed, more = (
                    self._serve_sends(channel, state, data[position:]) if position < len(data) else _NOTHING
                )
                return position + consumed, [*answers, *more]
        return self._serve_sends(channel, state, data)

    def settle(self, channel: Channel) -> None:
        state: ConnectionState | None = channel.fast  # type: ignore[assignment]
        if state is not None and state.is_kept:
            self.settle_all()

    def settle_all(self) -> None:
        reads, self._kept = self._kept, []
        if reads and self._sends is not None:
            router = reads[0][2].router
            # What came in one turn of the loop is as old as the first of it: a turn is short, or worth a look.
            before, router.began = router.began, self._kept_began
            self._serve_kept(self._sends, reads)
            router.began = before

    def _serve_sends(self, channel: Channel, state: ConnectionState, data: bytes) -> tuple[int, Sequence[Buffer]]:
        sends, misses = self._sends, state.send_misses
        if sends is None or (misses >= MISSES and misses % EVERY):
            state.send_misses = misses + 1
            return _NOTHING
        read = data, channel.remote_host, channel
        if self._keeps:
            if not self._kept:
                asyncio.get_running_loop().call_soon(self._end_turn)
                self._kept_began = channel.router.began
            state.is_kept = True
            self._kept.append(read)
            return len(data), ()
        served = self._try(sends, [read])
        if served is None:
            state.send_misses += 1
            sends.learn(channel, data)
            return _NOTHING
        if channel is not self._last:
            if self._last is None:
                asyncio.get_running_loop().call_soon(self._end_turn)
            self._last = channel
            self._count += 1
        state.send_misses = 0
        answers, rests = served
        return (rests[0][1] if rests else len(data)), answers[0:1] if answers[0] else ()  # type: ignore[return-value]

    def _end_turn(self) -> None:
        self.settle_all()
        self._keeps = self._count >= MANY_CONNECTIONS
        self._count = 0
        self._last = None

    def _try(self, sends: FastSends, reads: list[Read]) -> ServedReads | None:
        """A failure here is our mistake: nobody whose read is among these must miss an answer for it."""
        try:
            return sends.serve(reads)
        except Exception:
            log.exception("the fast path failed at what %d connections sent; the general path serves it", len(reads))
            return None

    def _serve_kept(self, sends: FastSends, reads: list[Read]) -> None:
        served = self._try(sends, reads)
        if served is None:
            served = [None] * len(reads), [(number, 0) for number in range(len(reads))]
        for (data, _, channel), answers in zip(reads, served[0]):
            state: ConnectionState = channel.fast  # type: ignore[assignment]
            state.is_kept = False
            if answers is None:
                state.send_misses += 1
                sends.learn(channel, data)
            else:
                self._count += 1
                state.send_misses = 0
                channel.write(answers)
        for number, position in served[1]:
            data, _, channel = reads[number]
            _receive(channel, data[position:])


def _receive(channel: Channel, data: bytes) -> None:
    """Serve what is left of a read on the general path; what goes wrong there ends that connection and no other."""
    try:
        channel.receive(data)
    except Exception:
        log.exception("closing %s: what it sent cannot be served", channel.remote)
        channel.abort()
