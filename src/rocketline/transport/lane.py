"""A quick road beside the handlers, for requests of which many come at once and nothing is special about most.

A lane is shown what a connection read, when that begins with a frame. It serves the requests at its start as far as they are
plain; the rest goes the general road. Served one read at a time, the way from the read to the store and back costs more than
the work itself. So when a turn of the loop brings the reads of several connections, those of the next are kept and served
together at its end; with a few, each is answered at once, which is sooner.

What is kept is served before anything else happens to its connection: each has at most one read here, and one that ends, or
reads again, has it served first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketline.transport.channel import Channel

log = logging.getLogger(__name__)

Read = tuple[bytes, bytes, "Channel"]
"""What was read, the host it came from as records have it, and the connection."""

MANY = 4
"""Reads of so many connections with something for the lane in one turn of the loop, and those of the next are kept."""

MISSES = 4
EVERY = 8
"""After so many reads in a row with nothing for the lane, it looks at every so-manieth read of a connection only."""


Served = tuple[Sequence[bytes | None], Sequence[tuple[int, int]], int, int]
"""What became of some reads: for each the answers to the requests at its start, as far as they are to be written now, and
None where none was served; which reads have more in them, and where that begins; how many were served and answered now (310,
320)."""
Serve = Callable[[list[Read]], Served | None]
"""Serves the plain requests that reads begin with; None when it served none."""


class Lane:
    """Belongs to one router; its connections show it what they read."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._reads: list[Read] = []
        self._keeps = False
        self._count = 0
        self._last: Channel | None = None

    def take(self, channel: Channel, data: bytes) -> int:
        """How many bytes of a read were taken: served, or kept to be served at the end of this turn of the loop."""
        if channel.kept_in is self._reads:
            self.serve_kept()
            if channel.is_inside_frame:
                return 0
        misses = channel.lane_misses
        if misses >= MISSES:
            channel.lane_misses = misses + 1
            if misses % EVERY:
                return 0
        if self._keeps:
            if not self._reads:
                asyncio.get_running_loop().call_soon(self._end_turn)
                channel.router.note_kept()
            channel.kept_in = self._reads
            self._reads.append((data, channel.remote_host, channel))
            return len(data)
        served = self._try([(data, channel.remote_host, channel)])
        if served is None:
            channel.lane_misses = misses + 1
            return 0
        if channel is not self._last:
            if self._last is None:
                asyncio.get_running_loop().call_soon(self._end_turn)
            self._last = channel
            self._count += 1
        channel.lane_misses = 0
        (answers,), rests, sends, batches = served
        channel.router.count_sends(channel, sends, batches)
        if answers:
            channel.write(answers)
        return rests[0][1] if rests else len(data)

    def _end_turn(self) -> None:
        self.serve_kept()
        self._keeps = self._count >= MANY
        self._count = 0
        self._last = None

    def serve_kept(self) -> None:
        """Serve what was kept, now."""
        reads, self._reads = self._reads, []
        if reads:
            channel = reads[0][2]
            channel.router.serve_kept(channel, partial(self._serve_all, reads))

    def _try(self, reads: list[Read]) -> Served | None:
        """A lane that breaks is our mistake: nobody whose read is here must miss an answer for it."""
        try:
            return self._serve(reads)
        except Exception:
            log.exception("the lane broke at what %d connections sent; it goes the general road", len(reads))
            return None

    def _serve_all(self, reads: list[Read]) -> None:
        served = self._try(reads)
        if served is None:
            for data, _, channel in reads:
                _receive(channel, data)
            reads.clear()  # connections still know the list
            return
        found, rests, sends, batches = served
        for (_, _, channel), answers in zip(reads, found):
            if answers is None:
                channel.lane_misses += 1
            else:
                self._count += 1
                channel.lane_misses = 0
                channel.write(answers)
        channel.router.count_sends(channel, sends, batches)
        for number, position in rests:
            data, _, channel = reads[number]
            _receive(channel, data[position:])
        reads.clear()


def _receive(channel: Channel, data: bytes) -> None:
    """The general road; what goes wrong there ends that connection and no other."""
    try:
        channel.receive(data)
    except Exception:
        log.exception("closing %s: what it sent cannot be served", channel.remote)
        channel.abort()
