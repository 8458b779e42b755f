"""Acknowledgements that arrive together: those of one check point become one record.

Most clients acknowledge a pop message by message, and many of these requests come in one read. Nothing is answered before
the read is served, so they can share what is written for them: one record with all their offsets instead of thirty-two,
which the timer would have to carry to the revive queue one by one. A record is written before the first of them is
answered, and when it cannot be written all of them are told so.
"""

from __future__ import annotations

from typing import NamedTuple

from rocketline.broker.pop.checkpoints import PopCheckpoints
from rocketline.broker.pop.records import PopKey
from rocketline.store.message_store import AppendResult


class AckedCheckpoint(NamedTuple):
    """What acknowledgements must have in common to be written as one."""

    key: PopKey
    revive_queue_id: int
    revive_ms: int


class AckedTogether:
    """Acknowledged messages of one check point; first not written yet, then what became of that."""

    __slots__ = ("_gathering", "error", "is_written", "offsets", "result")

    def __init__(self, gathering: AckGathering) -> None:
        self._gathering = gathering
        self.offsets: list[int] = []
        self.is_written = False
        self.result: AppendResult | None = None
        self.error: Exception | None = None

    def settle(self) -> AppendResult | None:
        """What has to be durable before any of them is answered, None when they only changed memory. Whatever keeps
        them from being written is raised for each of them."""
        if not self.is_written:
            self._gathering.write()
        if self.error is not None:
            raise self.error
        return self.result


class AckGathering:
    def __init__(self, checkpoints: PopCheckpoints) -> None:
        self._checkpoints = checkpoints
        self._open: dict[AckedCheckpoint, AckedTogether] = {}

    def add(self, place: AckedCheckpoint, offset: int) -> AckedTogether:
        """Acknowledge one message; whoever gets the result has to settle it before anything is answered."""
        together = self._open.get(place)
        if together is None:
            together = self._open[place] = AckedTogether(self)
        together.offsets.append(offset)
        return together

    def write(self) -> None:
        """Write all that was gathered. Those of one read wait for the disk together: for the last record of them."""
        gathered, self._open = self._open, {}
        last = None
        for place, together in gathered.items():
            together.is_written = True
            try:
                together.result = self._write(place, together.offsets)
            except Exception as error:
                together.error = error
            last = together.result or last
        for together in gathered.values():
            if together.result is not None:
                together.result = last

    def _write(self, place: AckedCheckpoint, offsets: list[int]) -> AppendResult | None:
        return self._checkpoints.ack(place.key, offsets, place.revive_queue_id, place.revive_ms, batch=len(offsets) > 1)
