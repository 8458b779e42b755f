"""Timer log, wheel and checkpoint together: messages that wait, by the moment they are due.

Rules kept here:

- A flush goes log, wheel, checkpoint; each only speaks of what the ones before it have on disk. It runs in a thread on a
  snapshot taken by the owner, so nothing waits for it.
- At start the wheel is completed with the entries after the flushed part of the log, or made from all of them when it is
  missing. Slots that lead past the end of the log (a damaged or lost file) are made anew from what is left of it, and the
  owner is told to read the queue again.
- `read_ms` is never past a slot that still has something to deliver; entries never go into a slot before it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path

from rocketline.errors import WrongFiles
from rocketline.store.config import TimerConfig
from rocketline.store.disk import Disk
from rocketline.store.timer.checkpoint import TimerCheckpoint, TimerMark
from rocketline.store.timer.timer_log import NO_POSITION, RECALLS, ROLLS, TimerEntry, TimerLog
from rocketline.store.timer.wheel import SLOT_COUNT, Slot, TimerWheel

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TimerSnapshot:
    """What one flush brings to the disk."""

    slots: Mapping[int, bytes]
    mark: TimerMark


class TimerFiles:
    def __init__(self, disk: Disk, root: Path, config: TimerConfig, slot_count: int = SLOT_COUNT) -> None:
        self._precision_ms = config.precision_ms
        self._reach_ms = slot_count // 2 * config.precision_ms
        self._wheel = TimerWheel(disk, root / "timerwheel", config.precision_ms, slot_count)
        self._log = TimerLog(disk, root / "timerlog", config.log_segment_bytes)
        self._checkpoint = TimerCheckpoint(disk, root / "config" / "timercheck")
        self.mark = TimerMark()
        """As saved last."""
        self.read_ms = 0
        self.is_complete = True
        """Whether at start the log had all that was once flushed."""
        self._firing_ms = 0
        self._waiting: list[int] = []

    def open(self, log_end: int) -> None:
        """Take up the files; `log_end` is where the commit log ends."""
        try:
            self._load(log_end)
        except BaseException:
            self.close()
            raise

    def _load(self, log_end: int) -> None:
        self.mark = mark = self._checkpoint.load()
        self.read_ms = mark.read_ms
        self._wheel.load()
        self._log.load()
        waiting = self._read_wheel()
        for entry in self._log.recover(mark.flushed if self._wheel.is_there else 0, log_end):
            if entry.slot_ms >= mark.read_ms:
                self._link(entry)
                waiting.add(self._moment(entry.slot_ms))
        self.is_complete = self._log.end >= mark.flushed
        self._waiting = sorted(waiting - self._repair(waiting))

    def _read_wheel(self) -> set[int]:
        """The moments somebody waits for, by the wheel."""
        times = {slot.time_ms for slot in self._wheel.slots()}
        # A slot counts precisions, and any two of those allowed differ by a factor of two or more.
        plausible = {time_ms for time_ms in times if 0.6 < time_ms / (self.read_ms or time_ms) < 1.6}
        if times and not plausible:
            raise WrongFiles(
                f"the timer wheel was written with another timerPrecisionMs than {self._precision_ms}; start with that one "
                "until all timers are delivered"
            )
        return {time_ms for time_ms in plausible if time_ms >= self.read_ms}

    def _repair(self, waiting: set[int]) -> set[int]:
        """Make slots anew that lead to no entry of theirs; returns those that have none left."""
        broken = {time_ms for time_ms in waiting if not self._leads_home(time_ms)}
        if not broken:
            return broken
        log.warning("%d slots of the timer wheel lead to entries that are lost: looking for what is left", len(broken))
        for time_ms in broken:
            self._wheel.free(time_ms)
        for entry in self._log.entries(0):
            if entry.position < self._log.end and entry.slot_ms in broken:
                self._link(entry)
        return {time_ms for time_ms in broken if self._wheel.slot(time_ms) is None}

    def _leads_home(self, time_ms: int) -> bool:
        slot = self._wheel.slot(time_ms)
        if slot is None or slot.last >= self._log.end:
            return False
        entry = self._log.entry(slot.last)
        return entry is not None and self._moment(entry.slot_ms) == time_ms

    def _moment(self, time_ms: int) -> int:
        return time_ms - time_ms % self._precision_ms

    def _link(self, entry: TimerEntry) -> None:
        """Let the slot of an entry lead to it, unless it already does."""
        time_ms = self._moment(entry.slot_ms)
        slot = self._wheel.slot(time_ms)
        change = -1 if entry.kind & RECALLS else 1
        if slot is None:
            self._wheel.put(Slot(time_ms, entry.position, entry.position, change))
        elif entry.position > slot.last:
            self._wheel.put(Slot(time_ms, slot.first, entry.position, slot.size + change))

    @property
    def newest(self) -> TimerEntry | None:
        """The entry that was made last."""
        return self._log.last

    def count_at(self, time_ms: int) -> int:
        """How many messages wait for a moment."""
        slot = self._wheel.slot(self._moment(time_ms))
        return slot.size if slot is not None else 0

    def add(self, slot_ms: int, kind: int, written_ms: int, log_offset: int, size: int, topic_hash: int) -> None:
        """Let a message wait; a moment that is over means the next one to be delivered."""
        # Not further back than the wheel reaches: an entry has room for the distance, and no slot is another's.
        slot_ms = max(slot_ms, self.read_ms, written_ms - self._reach_ms)
        if slot_ms == self._firing_ms:
            # Its messages have been read already: a clock was set back while they were delivered.
            slot_ms += self._precision_ms
        while self._wheel.is_taken(slot_ms, self.read_ms):
            # Two weeks apart: only after a clock was set back by days. An earlier slot will do to try again from there.
            slot_ms -= self._precision_ms
            kind |= ROLLS
        slot = self._wheel.slot(slot_ms)
        previous = slot.last if slot is not None else NO_POSITION
        self._log.append(previous, kind, written_ms, slot_ms - written_ms, log_offset, size, topic_hash)
        assert self._log.last is not None
        self._link(self._log.last)
        if slot is None:
            heappush(self._waiting, slot_ms)

    @property
    def next_ms(self) -> int | None:
        """The first moment somebody waits for."""
        return self._waiting[0] if self._waiting else None

    def moments_until(self, time_ms: int) -> list[int]:
        """Those not after a time, in no order; as much work as there are of them, however many wait behind."""
        heap, places, found = self._waiting, [0], []
        while places:
            place = places.pop()
            if place < len(heap) and heap[place] <= time_ms:
                found.append(heap[place])
                places += (2 * place + 1, 2 * place + 2)
        return found

    def begin(self) -> list[TimerEntry]:
        """The entries of the first moment, oldest first; they count as waiting until `finish`."""
        self._firing_ms = time_ms = heappop(self._waiting)
        entries: list[TimerEntry] = []
        slot = self._wheel.slot(time_ms)
        position = slot.last if slot is not None else NO_POSITION
        while position != NO_POSITION:
            entry = self._log.entry(position)
            # A chain only goes back. One that does not is damaged, and following it could deliver something early.
            if entry is None or self._moment(entry.slot_ms) != time_ms or entry.previous >= position:
                log.error("the timers of %d ms end at a damaged entry at %d of the timer log", time_ms, position)
                break
            entries.append(entry)
            position = entry.previous
        entries.reverse()
        return entries

    def finish(self) -> None:
        """The messages of the moment begun last are delivered."""
        self._wheel.free(self._firing_ms)
        self._firing_ms = 0

    def note_clock(self, now_ms: int) -> None:
        """Let entries go into slots that came and went before the clock was set back: they come again."""
        self.read_ms = min(self.read_ms, self._moment(now_ms))

    def note_time(self, now_ms: int) -> None:
        """Everything due is delivered up to now, except for what is waiting or being delivered."""
        self.read_ms = self._moment(now_ms)
        if self._firing_ms:
            self.read_ms = min(self.read_ms, self._firing_ms)
        if self._waiting:
            self.read_ms = min(self.read_ms, self._waiting[0])

    # To the disk

    def has_changes(self, queue_offset: int) -> bool:
        return self._wheel.has_changes or queue_offset != self.mark.queue_offset or self._log.end != self.mark.flushed

    def snapshot(self, queue_offset: int, now_ms: int) -> TimerSnapshot:
        """What a flush would have to write now; it must be given to `write` before the next one is taken."""
        mark = TimerMark(
            self.read_ms,
            self._log.end,
            queue_offset,
            queue_offset,
            self.mark.state_version,
            now_ms,
            self.mark.counter + 1,
        )
        return TimerSnapshot(self._wheel.freeze(), mark)

    def write(self, snapshot: TimerSnapshot) -> None:
        """Blocking; any thread."""
        self._log.flush(snapshot.mark.flushed)
        self._wheel.write(snapshot.slots)
        self._checkpoint.save(snapshot.mark)
        self._wheel.written()
        self.mark = snapshot.mark

    def trim(self, log_min_offset: int) -> None:
        self._log.trim(log_min_offset)

    def close(self) -> None:
        self._wheel.close()
        self._log.close()
        self._checkpoint.close()
