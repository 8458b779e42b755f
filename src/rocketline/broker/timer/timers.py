"""Timer messages after they were stored: read from the timer queue, put on the wheel, delivered when due.

Rules:

- Nothing is delivered before every message stored so far is on the wheel: a recall that was answered is obeyed.
- A step of the wheel is done when all its messages are stored under their topics. Only then it is freed, and that is saved
  only when the log has them on disk: a crash repeats what was delivered since, and loses nothing.
- What lies further ahead than the window of the wheel is stored again after half a window or a whole one.
- A disk that refuses an entry or a delivery stops the turn, not the timer: it is tried again.
- A message that can never be entered or delivered is set aside (`set_aside.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

from rocketline.broker.detours import real_place
from rocketline.broker.set_aside import SetAside, store_own
from rocketline.broker.timer.counts import TimerTopicCounts, TimerTraffic
from rocketline.broker.timer.redirect import TIMER_DEL_UNIQKEY, TIMER_OUT_MS, TIMER_TOPIC, TimerRedirect
from rocketline.broker.turns import take_turns
from rocketline.clock import Clock
from rocketline.errors import BAD_ITEM, StoreError
from rocketline.message import UNIQ_KEY
from rocketline.protocol.hashing import java_string_hash
from rocketline.protocol.numbers import read_number
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.records import Record, decode_record
from rocketline.protocol.timer_mark import TimerMark
from rocketline.store.config import TimerConfig
from rocketline.store.files.disk import Disk
from rocketline.store.message_store import MessageStore, StoreMessage, copy_of
from rocketline.store.timer.files import TimerFiles, TimerSnapshot
from rocketline.store.timer.timer_log import RECALLS, ROLLS, WAITS, TimerEntry
from rocketline.store.timer.wheel import SLOT_COUNT

log = logging.getLogger(__name__)

WORKER = "timers"
ENTRIES_A_TURN = 256
"""Messages put on the wheel, and messages delivered, before other work gets its turn."""
TRY_AGAIN_MS = 1000
LOOK_AGAIN_MS = 1000
"""A clock that is set forward does not end a sleep: while something waits, the time is checked this often."""


MessageKey = tuple[str, str]
"""Real topic and unique id."""


class TimerMessage(NamedTuple):
    """A message of the timer queue."""

    record: Record
    properties: dict[str, str]
    out_ms: int
    topic: str
    queue_id: int

    @property
    def key(self) -> MessageKey:
        return self.topic, self.properties.get(UNIQ_KEY, "")

    @property
    def recalled(self) -> MessageKey:
        """The message that this one recalls: always one of its own topic, where its sender may publish. It is named by its
        unique id, or by topic and id as some brokers write it."""
        named = self.properties.get(TIMER_DEL_UNIQKEY, "")
        return self.topic, named.removeprefix(f"{self.topic}+")


@dataclass(frozen=True)
class TimerSave:
    """What one save writes, once the log is on disk up to an offset."""

    files: TimerSnapshot
    counts: bytes
    log_offset: int


class Timers:
    """The timer messages of a broker."""

    def __init__(
        self,
        config: TimerConfig,
        store: MessageStore,
        disk: Disk,
        root: Path,
        clock: Clock,
        stored: Callable[[], None],
        random: Random,
        aside: SetAside,
        slot_count: int = SLOT_COUNT,
    ) -> None:
        self._config = config
        self._aside = aside
        self._store = store
        self._clock = clock
        self._stored = stored
        self._files = TimerFiles(disk, root, config, slot_count)
        self.counts = TimerTopicCounts(disk, root / "config" / "timermetrics", clock)
        self.seen = TimerTraffic()
        self._rules = TimerRedirect(config, clock, random, self._files.count_at)
        self._next = 0
        """Queue offset of the next message to put on the wheel."""
        self._known_next = 0
        self._firing: deque[TimerEntry] | None = None
        """Entries of the step being delivered that are left."""
        self._recalled: set[MessageKey] = set()
        """Of that step: messages not to be delivered."""
        self._unsaved: TimerSave | None = None
        self._failure: StoreError | None = None
        self._arrived = asyncio.Event()

    def load(self) -> None:
        """Load files and progress; the store is open."""
        if not self._config.enabled:
            return
        files, store = self._files, self._store
        files.open(store.log_next_offset)
        self.counts.load()
        self._known_next = known = files.mark.queue_offset
        newest = self._after_newest()
        if files.is_complete:
            self._next = max(known, newest)
        else:
            log.warning("the timer log lost entries: the timer queue is read again from %d", newest)
            self._next = min(known, newest)
        limit = store.max_offset(TIMER_TOPIC, 0)
        if self._next > limit:
            log.warning("timers were taken in up to %d, but the log has only %d", self._next, limit)
            self._next = limit

    def _after_newest(self) -> int:
        """The queue offset after the message of the newest entry; 0 when it is not known."""
        entry = self._files.newest
        if entry is None:
            return 0
        try:
            offset = self._message_at(entry.log_offset).record.queue_offset
        except BAD_ITEM:
            return 0
        unit = self._store.unit_at(TIMER_TOPIC, 0, offset)
        return offset + 1 if unit is not None and unit.log_offset == entry.log_offset else 0

    def redirect(self, message: StoreMessage) -> None:
        """Redirect a timer message whose time is to come to the timer topic; RequestRejected when it is not valid."""
        self._rules.redirect(message)

    def is_behind(self, time_ms: int) -> bool:
        """Whether something that was to be delivered by a time may still wait."""
        next_ms = self._files.next_ms
        if self._firing is not None or (next_ms is not None and next_ms <= time_ms):
            return True
        return self._store.max_offset(TIMER_TOPIC, 0) > self._next

    def on_arrivals(self) -> None:
        if not self._arrived.is_set() and self._store.max_offset(TIMER_TOPIC, 0) > self._next:
            self._arrived.set()

    async def run(self) -> None:
        """Deliver for ever: sleep until the next step is over or a new message arrives."""
        await take_turns(self.turn, self._arrived)

    def turn(self) -> int | None:
        """Put some messages on the wheel, deliver some; milliseconds until the next turn, None when nothing waits."""
        if not self._config.enabled:
            return None
        self._files.note_clock(self._clock.now_ms())
        try:
            if not self._fill_wheel():
                return 0
            return self._deliver_due()
        except StoreError as error:
            log.error("timer messages have to wait: %s", error)
            return TRY_AGAIN_MS

    # From the queue to the wheel

    def _fill_wheel(self) -> bool:
        """Put new messages on the wheel; False when there are more."""
        if self._config.stop_taking:
            return True
        store = self._store
        self._next = max(self._next, store.min_offset(TIMER_TOPIC, 0))
        for _ in range(ENTRIES_A_TURN):
            unit = store.unit_at(TIMER_TOPIC, 0, self._next)
            if unit is None:
                return True
            try:
                waiting = self._message_at(unit.log_offset)
                if not self._was_delivered(waiting):
                    self._enter(waiting, unit.log_offset, unit.size)
            except BAD_ITEM as error:
                self._aside.message(WORKER, unit.log_offset, error)
            self._next += 1
        return False

    def _was_delivered(self, waiting: TimerMessage) -> bool:
        """Whether a message read again, after the timer log lost entries, is one of those that are done."""
        return self._next < self._known_next and waiting.out_ms < self._files.mark.read_ms

    def _enter(self, waiting: TimerMessage, log_offset: int, size: int) -> None:
        precision_ms = self._config.precision_ms
        written_ms = self._clock.now_ms() // precision_ms * precision_ms
        slot_ms, kind = waiting.out_ms, WAITS
        window = self._config.roll_window_slots
        beyond_ms = slot_ms - written_ms - window * precision_ms
        if beyond_ms >= 0:
            kind |= ROLLS
            # What lies just beyond goes half the way: the rest then fits into the window.
            slot_ms = written_ms + (window // 2 if beyond_ms < window // 3 * precision_ms else window) * precision_ms
        is_recall = TIMER_DEL_UNIQKEY in waiting.properties
        if is_recall:
            kind |= RECALLS
        self._files.add(slot_ms, kind, written_ms, log_offset, size, java_string_hash(waiting.topic))
        self.counts.add(waiting.topic, -1 if is_recall else 1)
        self.seen.entered(waiting.topic, waiting.out_ms - waiting.record.born_ms)

    def _message_at(self, log_offset: int) -> TimerMessage:
        """The timer message at a log offset; one of BAD_ITEM when there is none."""
        view = self._store.record_at(log_offset)
        if view is None:
            raise LookupError("it is no longer in the log")
        record = decode_record(view, 0, len(view))
        properties = decode_properties(record.properties.decode("utf-8", "replace"))
        out_ms = read_number(properties.get(TIMER_OUT_MS))
        if record.topic != TIMER_TOPIC or out_ms is None:
            raise ValueError(f"it is no timer message: {TIMER_OUT_MS} is no time")
        return TimerMessage(record, properties, out_ms, *real_place(properties))

    # From the wheel to where messages belong

    def _deliver_due(self) -> int | None:
        files, precision_ms = self._files, self._config.precision_ms
        left = ENTRIES_A_TURN
        now_ms = self._clock.now_ms()
        while not self._config.stop_delivering:
            if self._firing is None:
                next_ms = files.next_ms
                if next_ms is None or next_ms + precision_ms > now_ms:
                    break
                self._begin()
            left -= self._deliver_some(left)
            if left <= 0:
                return 0
            self._finish()
        files.note_time(now_ms)
        next_ms = files.next_ms
        return None if next_ms is None else max(1, min(next_ms + precision_ms - now_ms, LOOK_AGAIN_MS))

    def _begin(self) -> None:
        """Read the first step, recalls first: they apply to its messages."""
        self._firing = deque()
        for entry in self._files.begin():
            if entry.kind & RECALLS and not entry.kind & ROLLS:
                self._note_recall(entry)
            else:
                self._firing.append(entry)

    def _note_recall(self, entry: TimerEntry) -> None:
        try:
            waiting = self._message_at(entry.log_offset)
        except BAD_ITEM as error:
            self._aside.item(WORKER, f"the recall at {entry.log_offset}", error)
        else:
            self._recalled.add(waiting.recalled)

    def _deliver_some(self, limit: int) -> int:
        """How many messages were handled; a StoreError when the store takes no more now."""
        firing = self._firing
        assert firing is not None
        done = 0
        while firing and done < limit:
            self._deliver(firing[0])
            firing.popleft()
            done += 1
        return done

    def _finish(self) -> None:
        if self._firing:
            return
        self._files.finish()
        self._firing = None
        for topic, _ in self._recalled:
            self.counts.add(topic, 1)  # it was subtracted when the recall came, but there was nothing to recall
        self._recalled.clear()

    def _deliver(self, entry: TimerEntry) -> None:
        """Store the real message, unless it was recalled."""
        waiting = None
        try:
            waiting = self._message_at(entry.log_offset)
            is_rolled = bool(entry.kind & ROLLS)
            if not is_rolled and self._is_recalled(waiting):
                return
            store_own(self._store, self._copy(waiting, entry, is_rolled))
            self._stored()
            self.seen.delivered[waiting.topic] += 1
        except BAD_ITEM as error:
            self._aside.message(WORKER, entry.log_offset, error)
        if waiting is not None:
            self.counts.add(waiting.topic, 1 if TIMER_DEL_UNIQKEY in waiting.properties else -1)

    def _is_recalled(self, waiting: TimerMessage) -> bool:
        if not self._recalled or waiting.key not in self._recalled:
            return False
        self._recalled.remove(waiting.key)
        return True

    def _copy(self, waiting: TimerMessage, entry: TimerEntry, is_rolled: bool) -> StoreMessage:
        properties = waiting.properties
        properties["TIMER_ENQUEUE_MS"] = str(entry.written_ms)
        if is_rolled:
            properties["TIMER_ROLL_TIMES"] = str((read_number(properties.get("TIMER_ROLL_TIMES")) or 0) + 1)
        properties["TIMER_DEQUEUE_MS"] = str(self._clock.now_ms())
        # RocketMQ's copies keep REAL_TOPIC and REAL_QID; TIMER_OUT_MS keeps them from going round again.
        if is_rolled:
            return copy_of(waiting.record, TIMER_TOPIC, 0, properties)
        return copy_of(waiting.record, waiting.topic, waiting.queue_id, properties)

    # To the disk

    def backlog(self) -> tuple[int, int, int]:
        """For operators: seconds that delivery is behind, messages not on the wheel yet, messages that wait."""
        if not self._config.enabled:
            return 0, 0, 0
        next_ms = self._files.next_ms
        due_ms = None if next_ms is None else next_ms + self._config.precision_ms
        behind_s = 0 if due_ms is None else max(0, self._clock.now_ms() - due_ms) // 1000
        return behind_s, max(0, self._store.max_offset(TIMER_TOPIC, 0) - self._next), self.counts.total

    @property
    def enabled(self) -> bool:
        return self._config.enabled

    def enqueue_behind_ms(self) -> int:
        """How long the next message has been waiting to be put on the wheel."""
        stored_ms = self._store.store_ms_of(TIMER_TOPIC, 0, self._next) if self._config.enabled else -1
        return 0 if stored_ms < 0 else max(0, self._clock.now_ms() - stored_ms)

    def dequeue_behind(self) -> tuple[int, int]:
        """(messages that are due and not delivered, milliseconds since the first of them was due)."""
        due_ms = self._clock.now_ms() - self._config.precision_ms
        due = self._files.moments_until(due_ms)
        messages = sum(map(self._files.count_at, due)) + len(self._firing or ())
        return messages, due_ms - min(due) if due else 0

    def moments_within(self, seconds: int) -> list[int]:
        """Delivery times within the next seconds that messages wait for."""
        return self._files.moments_until(self._clock.now_ms() + seconds * 1000)

    def waiting_at(self, moment_ms: int) -> tuple[int, int]:
        """(seconds until a moment, messages that wait for it)."""
        return max(0, moment_ms - self._clock.now_ms()) // 1000, max(0, self._files.count_at(moment_ms))

    def use(self, config: TimerConfig) -> None:
        """Work by these settings from now on; those that the files depend on must be as they were."""
        self._config = config
        self._arrived.set()

    def checkpoint(self) -> bytes:
        """What was saved last, as another broker asks for it."""
        return self._files.mark.encode()

    def take_changes(self) -> TimerSave | None:
        """What to write next, when anything changed and nothing takes away the messages it calls delivered."""
        if self._failure is not None or not self._config.enabled:
            return None
        files, store = self._files, self._store
        if self._unsaved is None and files.has_changes(self._next):
            snapshot = files.snapshot(self._next, self._clock.now_ms())
            self._unsaved = TimerSave(snapshot, self.counts.encode(), store.log_next_offset)
        if self._unsaved is None or store.lasting_offset < self._unsaved.log_offset:
            return None
        files.trim(store.log_min_offset)
        return self._unsaved

    def write(self, save: TimerSave) -> None:
        """Blocking; any thread."""
        try:
            self._files.write(save.files)
            self.counts.write(save.counts)
        except StoreError as error:
            # What a failed flush left on disk is not known: the next start begins with the last save that worked.
            self._failure = error
            log.error("timers go on, but their progress is not saved any more: %s", error)
            raise
        self._unsaved = None

    def follow(self, mark: TimerMark) -> None:
        """Note how far a master is. Blocking; any thread; not while these timers run."""
        if self._config.enabled:
            self._files.follow(mark)

    def forget_entries(self) -> None:
        """Before `load`: have it put all messages on the wheel that are not delivered yet, from the timer queue."""
        if self._config.enabled:
            self._files.forget_entries()

    def close(self) -> None:
        self._files.close()
