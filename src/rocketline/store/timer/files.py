"""Timer log, wheel and checkpoint together: the messages that wait, by the time they are due.

Rules:

- A flush writes log, wheel and checkpoint in this order; each refers only to what is on disk in those before it. It runs in
  a thread on a snapshot taken by the owner, so nothing waits for it.
- At start the wheel gets the entries after the flushed part of the log, or all entries when the wheel is missing. Slots
  that point past the end of the log (a damaged or lost file) are rebuilt from what is left of it, and `is_complete` tells
  the owner to read the timer queue again.
- `read_ms` is never after a slot that still has something to deliver; entries never go into a slot before it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path

from rocketline.errors import WrongFiles
from rocketline.protocol.timer_mark import TimerMark
from rocketline.store.config import TimerConfig
from rocketline.store.files.disk import Disk
from rocketline.store.timer.checkpoint import TimerCheckpoint
from rocketline.store.timer.timer_log import NO_POSITION, RECALLS, ROLLS, TimerEntry, TimerLog
from rocketline.store.timer.wheel import SLOT_COUNT, Slot, TimerWheel

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TimerSnapshot:
    """What one flush writes."""

    slots: Mapping[int, bytes]
    mark: TimerMark


class TimerFiles:
    """The timer files of one store."""

    def __init__(self, disk: Disk, root: Path, config: TimerConfig, slot_count: int = SLOT_COUNT) -> None:
        self._precision_ms = config.precision_ms
        self._reach_ms = slot_count // 2 * config.precision_ms
        self._wheel = TimerWheel(disk, root / "timerwheel", config.precision_ms, slot_count)
        self._log = TimerLog(disk, root / "timerlog", config.log_segment_bytes)
        self._checkpoint = TimerCheckpoint(disk, root / "config" / "timercheck")
        self.mark = TimerMark()
        """The mark that was saved last."""
        self.read_ms = 0
        self.is_complete = True
        """Whether the timer log had everything at start that was flushed before."""
        self._firing_ms = 0
        self._waiting: list[int] = []

    def open(self, log_end: int) -> None:
        """Load the files; `log_end` is where the commit log ends."""
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

    def follow(self, mark: TimerMark) -> None:
        """Have the progress of a master, without its files: whoever loads these next reads the timer queue again."""
        # A part of the timer log that is on disk, but not there, says that entries are missing.
        self.mark = TimerMark(mark.read_ms, 1, mark.queue_offset, mark.queue_offset)
        self._checkpoint.save(self.mark)

    def forget_entries(self) -> None:
        """Remove log and wheel, for a load that makes them anew from the timer queue."""
        self._log.destroy()
        self._wheel.destroy()

    def _read_wheel(self) -> set[int]:
        """The times of slots in the wheel that are not delivered yet."""
        times = {slot.time_ms for slot in self._wheel.slots()}
        # Slots hold the time in units of the precision, and any two allowed precisions differ by a factor of two or more.
        plausible = {time_ms for time_ms in times if 0.6 < time_ms / (self.read_ms or time_ms) < 1.6}
        if times and not plausible:
            raise WrongFiles(
                f"the timer wheel was written with another timerPrecisionMs than {self._precision_ms}; start with that one "
                "until all timers are delivered"
            )
        return {time_ms for time_ms in plausible if time_ms >= self.read_ms}

    def _repair(self, waiting: set[int]) -> set[int]:
        """Rebuild slots that point to no entry of theirs; returns those without any entry."""
        broken = {time_ms for time_ms in waiting if not self._has_entry(time_ms)}
        if not broken:
            return broken
        log.warning(
            "%d slots of the timer wheel point to lost entries: they are rebuilt from the timer log", len(broken)
        )
        for time_ms in broken:
            self._wheel.free(time_ms)
        for entry in self._log.entries(0):
            if entry.position < self._log.end and entry.slot_ms in broken:
                self._link(entry)
        return {time_ms for time_ms in broken if self._wheel.slot(time_ms) is None}

    def _has_entry(self, time_ms: int) -> bool:
        slot = self._wheel.slot(time_ms)
        if slot is None or slot.last >= self._log.end:
            return False
        entry = self._log.entry(slot.last)
        return entry is not None and self._moment(entry.slot_ms) == time_ms

    def _moment(self, time_ms: int) -> int:
        return time_ms - time_ms % self._precision_ms

    def _link(self, entry: TimerEntry) -> None:
        """Make the slot of an entry point to it, unless it already does."""
        time_ms = self._moment(entry.slot_ms)
        slot = self._wheel.slot(time_ms)
        change = -1 if entry.kind & RECALLS else 1
        if slot is None:
            self._wheel.put(Slot(time_ms, entry.position, entry.position, change))
        elif entry.position > slot.last:
            self._wheel.put(Slot(time_ms, slot.first, entry.position, slot.size + change))

    @property
    def newest(self) -> TimerEntry | None:
        """The entry that was added last."""
        return self._log.last

    def count_at(self, time_ms: int) -> int:
        """How many messages wait for a time."""
        slot = self._wheel.slot(self._moment(time_ms))
        return slot.size if slot is not None else 0

    def add(self, slot_ms: int, kind: int, written_ms: int, log_offset: int, size: int, topic_hash: int) -> None:
        """Add a message; a time in the past means the next slot to be delivered."""
        # Not further back than the wheel reaches: an entry has room for the distance, and no slot is another's.
        slot_ms = max(slot_ms, self.read_ms, written_ms - self._reach_ms)
        if slot_ms == self._firing_ms:
            # Its messages were read already: the clock was set back during their delivery.
            slot_ms += self._precision_ms
        while self._wheel.is_taken(slot_ms, self.read_ms):
            # In use for a time two weeks away: the clock was set back by days. An earlier slot adds the message again.
            slot_ms -= self._precision_ms
            kind |= ROLLS
        slot = self._wheel.slot(slot_ms)
        previous = slot.last if slot is not None else NO_POSITION
        delay_ms = slot_ms - written_ms
        entry = TimerEntry(NO_POSITION, previous, kind, written_ms, delay_ms, log_offset, size, topic_hash)
        self._link(self._log.append(entry))
        if slot is None:
            heappush(self._waiting, slot_ms)

    @property
    def next_ms(self) -> int | None:
        """The first time that messages wait for."""
        return self._waiting[0] if self._waiting else None

    def moments_until(self, time_ms: int) -> list[int]:
        """Times of slots not after a time, unordered; the work does not grow with the number of later ones."""
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
        """Note that the messages of the slot begun last are delivered."""
        self._wheel.free(self._firing_ms)
        self._firing_ms = 0

    def note_clock(self, now_ms: int) -> None:
        """Allow entries in slots that were delivered before the clock was set back: their time comes again."""
        self.read_ms = min(self.read_ms, self._moment(now_ms))

    def note_time(self, now_ms: int) -> None:
        """Note that everything up to now is delivered, except what still waits or is being delivered."""
        self.read_ms = self._moment(now_ms)
        if self._firing_ms:
            self.read_ms = min(self.read_ms, self._firing_ms)
        if self._waiting:
            self.read_ms = min(self.read_ms, self._waiting[0])

    # To the disk

    def has_changes(self, queue_offset: int) -> bool:
        return self._wheel.has_changes or queue_offset != self.mark.queue_offset or self._log.end != self.mark.flushed

    def snapshot(self, queue_offset: int, now_ms: int) -> TimerSnapshot:
        """What a flush has to write now; it must be given to `write` before the next snapshot is taken."""
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
