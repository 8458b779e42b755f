"""Notes of ended transactions: queue offsets of half messages, several to a record, in RMQ_SYS_TRANS_OP_HALF_TOPIC.

A record has the tag "d" and the body `12,13,`; Apache's brokers up to 4.9 wrote a single number. Offsets gather in memory
until they fill a record or have waited long enough. What a crash takes with it is asked about again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from rocketline.clock import Clock
from rocketline.message import TAGS, WAIT
from rocketline.protocol.properties import decode_properties, encode_properties
from rocketline.protocol.records import decode_record
from rocketline.protocol.transactions import OP_TOPIC
from rocketline.store.message_store import AppendStatus, MessageStore, StoreMessage

log = logging.getLogger(__name__)

ENDED_TAG = "d"
MAX_WAITING = 20_000
"""Notes that may wait for the store to take messages again."""

_PROPERTIES = {WAIT: "true", TAGS: ENDED_TAG}
_PROPERTIES_RAW = encode_properties(_PROPERTIES).encode()


class OpWriter:
    """Gathers notes and writes them."""

    def __init__(
        self, store: MessageStore, clock: Clock, own_host: bytes, stored: Callable[[], None], max_bytes: int
    ) -> None:
        self._store = store
        self._clock = clock
        self._own_host = own_host
        self._stored = stored
        self._max_bytes = max_bytes
        self._waiting: list[str] = []
        self._waiting_bytes = 0

    @property
    def has_room(self) -> bool:
        return len(self._waiting) < MAX_WAITING

    def add(self, queue_offset: int) -> None:
        """Note that the half message at this offset needs no more attention."""
        note = f"{queue_offset},"
        self._waiting.append(note)
        self._waiting_bytes += len(note)
        if self._waiting_bytes >= self._max_bytes:
            self.write()

    def write(self) -> None:
        """Write what waits; what the store does not take stays."""
        while self._waiting:
            count = self._fitting()
            result = self._store.append(self._record("".join(self._waiting[:count]).encode()))
            if result.status is not AppendStatus.OK:
                log.error("%d ended transactions cannot be noted now: %s", len(self._waiting), result.reason)
                return
            self._waiting_bytes -= sum(map(len, self._waiting[:count]))
            del self._waiting[:count]
            self._stored()

    def _fitting(self) -> int:
        total = 0
        for count, note in enumerate(self._waiting, 1):
            total += len(note)
            if total >= self._max_bytes:
                return count
        return len(self._waiting)

    def _record(self, body: bytes) -> StoreMessage:
        return StoreMessage(
            topic=OP_TOPIC,
            queue_id=0,
            body=body,
            properties=dict(_PROPERTIES),
            properties_raw=_PROPERTIES_RAW,
            flag=0,
            sys_flag=0,
            born_ms=self._clock.now_ms(),
            born_host=self._own_host,
        )


class OpReader:
    """Follows the notes, and knows up to which one they are of no more use."""

    def __init__(self, store: MessageStore, start: int) -> None:
        self._store = store
        self._next = start
        self._noted_in: dict[int, int] = {}
        """Half messages that were ended and not passed yet, and the note that says so."""
        self._left: dict[int, int] = {}
        """How many such half messages each note still speaks of, oldest first."""

    def read(self, next_half: int) -> list[int]:
        """Read what is new; the half messages it speaks of. Those before `next_half` were passed already."""
        store, found = self._store, []
        self._next = max(self._next, store.min_offset(OP_TOPIC, 0))
        while (unit := store.unit_at(OP_TOPIC, 0, self._next)) is not None:
            ended = self._ended(unit.log_offset)
            found += ended
            self._note(self._next, (offset for offset in ended if offset >= next_half))
            self._next += 1
        return found

    def _note(self, at: int, ahead: Iterable[int]) -> None:
        new = {offset for offset in ahead if offset not in self._noted_in}
        self._noted_in.update(dict.fromkeys(new, at))
        if new:
            self._left[at] = len(new)

    def _ended(self, log_offset: int) -> list[int]:
        view = self._store.record_at(log_offset)
        if view is None:
            log.error("the note of ended transactions at %d cannot be read", log_offset)
            return []
        record = decode_record(view, 0, len(view))
        if decode_properties(record.properties.decode("utf-8", "replace")).get(TAGS) != ENDED_TAG:
            log.error("the note of ended transactions at %d has another tag than %r", log_offset, ENDED_TAG)
            return []
        items = bytes(record.body).split(b",")
        return [int(item) for item in items if item.isdigit() and len(item) < 20]

    def passed(self, half_offset: int) -> bool:
        """The half message at this offset was looked at; whether a note says that it was ended."""
        at = self._noted_in.pop(half_offset, None)
        if at is None:
            return False
        self._left[at] -= 1
        if not self._left[at]:
            del self._left[at]
        return True

    @property
    def done(self) -> int:
        """The first note that is still needed."""
        return next(iter(self._left), self._next)
