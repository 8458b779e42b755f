"""Reads a broker's queues through the broker and holds them against the ledger.

I1 what was acknowledged is at its place with equal body and properties. I2 nothing is readable that was not sent. I3 a place
never changes its content. I4 offsets are dense, and one producer's attempts in a queue are in the order it sent them. I5 an
attempt is there once at most. I6 no group's offset is past the end of its queue. I9 messages found twice are counted.

Between two full checks only what came since the last one is read, so that thousands of kills of one store fit into an hour.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from zlib import crc32

from rocketline.errors import CorruptRecord, QueryNotFound, TopicNotExist
from rocketline.message import UNIQ_KEY
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.records import Record, decode_record

from .ledger import ATTEMPT, BROKERS_OWN, PRODUCER, Attempt, Ledger, Queue
from .wire import Wire

OVERLAP = 8
"""Records before the last check's end that are read again."""


class Misread(Exception):
    """A record that no ledger explains."""


@dataclass
class Checker:
    """Checks one store over all its lives."""

    ledger: Ledger
    readers: str = ""
    """The consumer group whose offsets are checked."""
    violations: list[str] = field(default_factory=list)
    records_read: int = 0
    _checked: dict[Queue, int] = field(default_factory=dict)
    _places: dict[tuple[int, int], tuple[Queue, int]] = field(default_factory=dict)
    _found: Counter[str] = field(default_factory=Counter)

    @property
    def duplicates(self) -> int:
        """I9: messages found more than once, each counted for every time too many."""
        return sum(count - 1 for count in self._found.values() if count > 1)

    async def check(self, address: str, *, full: bool = False, lossy: bool = False) -> list[str]:
        """New violations. After a power cut without sync flush (`lossy`) what was read before may be gone."""
        before = len(self.violations)
        async with Wire(address) as wire:
            for queue in self.ledger.queues():
                await self._check_queue(wire, queue, full, lossy)
        self.violations += self.ledger.take_problems()
        return self.violations[before:]

    async def _check_queue(self, wire: Wire, queue: Queue, full: bool, lossy: bool) -> None:
        try:
            low, high = await wire.ends(queue)
        except TopicNotExist:
            low = high = 0
        self._check_seen(queue, high, lossy)
        start = low if full else max(low, min(self._checked.get(queue, 0), high) - OVERLAP)
        found = self._read_records(queue, start, await wire.read(queue, start, high, "checkers"))
        if [offset for offset, _ in found] != list(range(start, high)):
            offsets = [offset for offset, _ in found]
            missing = sorted(set(range(start, high)) - set(offsets))
            self._violated("I4", f"{queue} from {start} to {high} has holes at {missing[:10]} or is out of order")
        self._check_order(queue, [attempt for _, attempt in found])
        self._check_acknowledged(queue, start, high, dict(found))
        self._checked[queue] = high
        if self.readers and high:
            await self._check_committed(wire, queue, high)

    def _check_seen(self, queue: Queue, high: int, lossy: bool) -> None:
        seen = self.ledger.seen[queue]
        gone = [offset for offset in seen if offset >= high]
        if gone and not lossy:
            self._violated("I3", f"{queue} was read up to {max(gone)}, and now ends at {high}")
        for offset in gone:
            del seen[offset]
        for key in [key for key, (place, offset) in self._places.items() if place == queue and offset >= high]:
            del self._places[key]

    def _read_records(self, queue: Queue, start: int, records: list[memoryview]) -> list[tuple[int, Attempt]]:
        ledger, found = self.ledger, []
        for index, raw in enumerate(records):
            self.records_read += 1
            try:
                record, attempt = explain(ledger, queue, raw)
            except Misread as problem:
                self._violated("I2", f"record {index} after {start} of {queue}: {problem}")
                continue
            ledger.note_read(queue, record.queue_offset, crc32(raw))
            key = (attempt.producer, attempt.number)
            if key not in self._places:
                self._found[attempt.properties[UNIQ_KEY]] += 1
            place = self._places.setdefault(key, (queue, record.queue_offset))
            if place != (queue, record.queue_offset):
                self._violated("I5", f"{attempt} is at {place} and at {record.queue_offset} of {queue}")
            found.append((int(record.queue_offset), attempt))
        return found

    def _check_order(self, queue: Queue, attempts: list[Attempt]) -> None:
        last: dict[int, int] = {}
        for attempt in attempts:
            if last.get(attempt.producer, -1) >= attempt.number:
                self._violated("I4", f"{attempt} comes after attempt {last[attempt.producer]} in {queue}")
            last[attempt.producer] = attempt.number

    def _check_acknowledged(self, queue: Queue, start: int, high: int, found: dict[int, Attempt]) -> None:
        for offset, attempt in self.ledger.acked[queue].items():
            if offset >= high:
                self._violated("I1", f"{attempt} is lost: the queue ends at {high}")
            elif offset >= start and found.get(offset) is not attempt:
                self._violated("I1", f"{attempt} is not at its place, which has {found.get(offset)}")

    async def _check_committed(self, wire: Wire, queue: Queue, high: int) -> None:
        try:
            committed = await wire.committed(queue, self.readers)
        except QueryNotFound:
            return
        if committed > high:
            self._violated("I6", f"{self.readers} has committed {committed} of {queue}, which ends at {high}")

    def _violated(self, invariant: str, text: str) -> None:
        self.violations.append(f"{invariant}: {text}")


def explain(ledger: Ledger, queue: Queue, raw: memoryview) -> tuple[Record, Attempt]:
    """A record and the attempt it came from; Misread when the record is damaged or not what was sent."""
    try:
        record = decode_record(raw, 0, len(raw), check_crc=True)
    except CorruptRecord as error:
        raise Misread(str(error)) from error
    properties = decode_properties(record.properties.decode("utf-8", "replace"))
    attempt = ledger.find(properties.get(PRODUCER), properties.get(ATTEMPT))
    if attempt is None:
        raise Misread(f"nobody sent the message with properties {properties}")
    if attempt.queue != queue or (record.topic, record.queue_id) != queue:
        raise Misread(f"{attempt} is in {queue} and says ({record.topic}, {record.queue_id})")
    if record.body != attempt.body:
        raise Misread(f"the body of {attempt} is not what was sent")
    own = {name: value for name, value in properties.items() if name not in BROKERS_OWN}
    if own != attempt.properties:
        raise Misread(f"{attempt} was sent with {attempt.properties} and has {own}")
    return record, attempt


def judge(ledger: Ledger, queue: Queue, raw: memoryview) -> int:
    """The queue offset of a record a consumer got; what is wrong with it becomes a problem of the ledger."""
    try:
        return explain(ledger, queue, raw)[0].queue_offset
    except Misread as problem:
        ledger.problems.append(f"I2: a consumer of {queue} got a bad record: {problem}")
        return -1
