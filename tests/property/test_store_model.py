"""The store against a model of lists and dicts, with tiny files: everything a broker does with it, and everything that can
happen to a machine meanwhile.

After each step: what was acknowledged is readable at its queue and offset with equal content, nothing else is, offsets are
dense and in order, and store times never go back. Under ASYNC_FLUSH a power cut may take messages, but only from the end of
the log and never what was flushed.

`HYPOTHESIS_PROFILE=soak pytest tests/property/test_store_model.py` tries for half an hour.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.ledger import Key, Ledger, Sent

from rocketline.clock import ManualClock
from rocketline.errors import StoreError, StoreReadOnly
from rocketline.protocol.hashing import tag_hash
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.record_layout import BORN_IPV6, TRANSACTION_PREPARED
from rocketline.protocol.records import BatchItem, Record, decode_record, record_size, topic_part
from rocketline.store.config import FlushConfig, FlushDiskType, StoreConfig
from rocketline.store.message_store import (
    AppendResult,
    AppendStatus,
    MessageStore,
    ReadStatus,
    StoreEvents,
    StoreMessage,
)
from rocketline.store.queue.dispatcher import Arrivals
from rocketline.testing.disks import FaultyDisk, MemoryDisk

ROOT = Path("/data")
HOST = encode_host("127.0.0.1", 10911)
BORN = encode_host("127.0.0.1", 5555)
BORN_V6 = encode_host("fe80::1", 5555)
BORN_MS = 1_600_000_000_000
MAX_MESSAGE_BYTES = 3000
NEVER_MS = 10**9

TOPICS = st.sampled_from(["a", "topic-b", "%RETRY%" + "g" * 140])
QUEUE_IDS = st.integers(0, 1)
# Some sizes come again and again, so that old bytes after a new end can look like the next record.
SIZES = st.one_of(
    st.sampled_from([0, 40, 700]),
    st.integers(0, 1300),
    st.integers(500, 1300),
    st.integers(MAX_MESSAGE_BYTES - 900, MAX_MESSAGE_BYTES + 1),
)
SAME_HASH = ("Aa", "BB")
KEYS = st.sampled_from(["", "k1", "k1 k2", "größe k1", "k1 k1", "k3 " + "long" * 60, *SAME_HASH])
TAGS = st.sampled_from(["", "red", "blue"])
PARTS = st.sampled_from(["", "commitlog", "consumequeue", "index", "checkpoint"])
PICKS = st.integers(0, 10**6)
SEEDS = st.one_of(st.integers(0, 2**32), st.integers(0, 2**32), st.none())
"""Which of the sectors that were not synced survive a power cut; None: no one does."""
POWER_STAYS = -1


class WatchedDisk(FaultyDisk):
    """Counts the syncs that failed."""

    failed_syncs = 0

    def check(self, operation: str, path: Path) -> None:
        try:
            super().check(operation, path)
        except StoreError:
            self.failed_syncs += operation == "sync"
            raise


class Outgoing(NamedTuple):
    topic: str
    queue_id: int
    size: int
    has_zeros: bool
    keys: str
    tags: str
    host: bytes
    is_half: bool


MESSAGES = st.builds(
    Outgoing,
    TOPICS,
    QUEUE_IDS,
    SIZES,
    st.sampled_from([False, False, False, True]),
    KEYS,
    TAGS,
    st.sampled_from([BORN, BORN_V6]),
    st.sampled_from([False] * 7 + [True]),
)


class StoreModel(RuleBasedStateMachine):
    """Under ASYNC_FLUSH, where an append is an acknowledgement."""

    disk_type = FlushDiskType.ASYNC_FLUSH

    @initialize(
        log_bytes=st.sampled_from([4096, 1501, 1024]),
        queue_bytes=st.sampled_from([40, 200, 2000]),
        index_entries=st.integers(2, 40),
    )
    def start(self, log_bytes: int, queue_bytes: int, index_entries: int) -> None:
        self.config = StoreConfig(
            log_segment_bytes=log_bytes,
            queue_segment_bytes=queue_bytes,
            index_slots=7,
            index_entries=index_entries,
            max_message_bytes=MAX_MESSAGE_BYTES,
            flush=FlushConfig(self.disk_type, log_interval_ms=NEVER_MS, queue_interval_ms=NEVER_MS),
        )
        self.clock = ManualClock()
        self.ledger = Ledger()
        self.sent_count = 0
        self.plug_in(MemoryDisk())
        self.open_store()

    # Opening, and what ends a store

    def plug_in(self, memory: MemoryDisk) -> None:
        self.memory = memory
        self.disk = WatchedDisk(memory)
        self.is_faulty = False

    def open_store(self) -> None:
        """Open, and when a fault prevents that, again without it."""
        self.has_failed = False
        self.arrived: list[tuple[int, str, int]] = []
        events = StoreEvents(arrived=self.add_arrivals, flush_failed=self.note_failure)
        self.store = MessageStore(ROOT, self.config, HOST, disk=self.disk, clock=self.clock)
        try:
            self.report = self.store.open(events)
        except StoreError:
            assert self.is_faulty
            self.heal()
            self.has_failed = False
            self.store = MessageStore(ROOT, self.config, HOST, disk=self.disk, clock=self.clock)
            self.report = self.store.open(events)
        self.stop_threads()

    def stop_threads(self) -> None:
        """Flushes happen where a rule says so, and a store that was killed does nothing any more."""
        if self.store._threads is not None:
            self.store._threads.log_flusher.stop()
            self.store._threads.queue_flusher.stop()

    def add_arrivals(self, entries: Arrivals) -> None:
        self.arrived += [(entry.log_offset, entry.topic, entry.queue_id) for entry in entries]

    def note_failure(self, error: StoreError) -> None:
        assert self.is_faulty
        self.has_failed = True

    def reopen(self, safe_end: int) -> None:
        """Open what is left. Everything below `safe_end` must be there, and of the rest an unbroken run."""
        self.open_store()
        lost = self.ledger.lose_after(self.store.log_next_offset)
        assert not [sent for sent in lost if sent.end <= safe_end]
        assert self.store.dispatched_offset == self.store.log_next_offset == self.store.flushed_offset
        for key in self.ledger.queues:
            self.ledger.admit_returned(key, self.store.min_offset(*key), self.store.max_offset(*key))

    @rule(is_healed=st.booleans(), seed=st.one_of(st.just(POWER_STAYS), SEEDS))
    def restart(self, is_healed: bool, seed: int | None) -> None:
        """A stop in order, after which a power cut takes nothing."""
        if is_healed:
            self.heal()
        is_clean = not self.is_faulty and not self.has_failed
        end = self.store.log_next_offset
        with suppress(StoreError) if self.is_faulty else nullcontext():
            self.store.close()
        safe_end = end if is_clean or seed == POWER_STAYS else self.store.flushed_offset
        if seed != POWER_STAYS:
            self.plug_in(self.memory.crash(seed))
        self.reopen(safe_end)
        if is_clean:
            assert not self.report.after_crash
            assert self.store.log_next_offset == end

    @rule()
    def kill(self) -> None:
        """The process dies, the machine does not: what was written is in the page cache."""
        end = self.store.log_next_offset
        self.memory._locked.clear()
        self.reopen(safe_end=end)
        assert self.report.after_crash
        assert self.store.log_next_offset == end

    @rule(messages=st.lists(MESSAGES, max_size=8), seed=SEEDS)
    def cut_power(self, messages: list[Outgoing], seed: int | None) -> None:
        """In the middle of some appends."""
        self.send_all(messages)
        safe_end = self.store.flushed_offset
        self.plug_in(self.memory.crash(seed))
        self.reopen(safe_end)

    @rule(
        operation=st.sampled_from(["open", "sync", "reserve", "write", "read", "make_folder"]),
        nth=st.integers(1, 12),
        part=PARTS,
        seed=st.one_of(st.just(POWER_STAYS), SEEDS),
    )
    def die_while_recovering(self, operation: str, nth: int, part: str, seed: int | None) -> None:
        """A kill, a start that the disk ends somewhere, and perhaps a power cut after that."""
        safe_end = self.store.log_next_offset if seed == POWER_STAYS else self.store.flushed_offset
        self.memory._locked.clear()
        self.disk.fail(operation, nth=nth, part=part, forever=True)
        self.store = MessageStore(ROOT, self.config, HOST, disk=self.disk, clock=self.clock)
        with suppress(StoreError):
            self.store.open()
        self.stop_threads()
        self.memory._locked.clear()
        self.plug_in(self.memory if seed == POWER_STAYS else self.memory.crash(seed))
        self.reopen(safe_end)

    # Faults and time

    @rule(part=PARTS)
    def fill_disk(self, part: str) -> None:
        self.is_faulty = True
        self.disk.fail("reserve", errno.ENOSPC, part=part, forever=True)

    @rule(part=PARTS, nth=st.integers(1, 3), is_flushed=st.booleans())
    def break_sync(self, part: str, nth: int, is_flushed: bool) -> None:
        self.is_faulty = True
        self.disk.fail("sync", part=part, nth=nth)
        if is_flushed:
            self.flush("everything")

    @precondition(lambda self: self.is_faulty)
    @rule()
    def heal(self) -> None:
        self.is_faulty = False
        self.disk.heal()

    @rule(seconds=st.sampled_from([-86_400, -3_600, -30, -2, 5, 100, 3_600, 86_400]))
    def set_clock(self, seconds: int) -> None:
        self.clock.jump_wall(seconds)

    # Writing

    def unique_body(self, size: int) -> bytes:
        self.sent_count += 1
        return (self.sent_count.to_bytes(4, "big") * (size // 4 + 1))[:size]

    @rule(messages=st.lists(MESSAGES, min_size=1, max_size=10), is_served=st.booleans(), step_ms=st.integers(0, 2000))
    def append(self, messages: list[Outgoing], is_served: bool, step_ms: int) -> None:
        self.send_all(messages, step_ms)
        if is_served:
            self.serve()

    def send_all(self, messages: list[Outgoing], step_ms: int = 1) -> None:
        for message in messages:
            body = bytes(message.size) if message.has_zeros else self.unique_body(message.size)
            properties = {"KEYS": message.keys, "TAGS": message.tags}
            self.send((message.topic, message.queue_id), body, properties, message.host, message.is_half)
            self.clock.advance(step_ms / 1000)

    def serve(self) -> None:
        """What a broker does after an append."""
        self.dispatch()

    @rule(topic=TOPICS, left=st.integers(0, 130))
    def fill_file(self, topic: str, left: int) -> None:
        """A message after which so many bytes of the log file are left, or would be if it went there."""
        file_bytes = self.config.log_segment_bytes
        room = file_bytes - self.store.log_next_offset % file_bytes
        size = room - left - record_size(0, len(topic_part(topic)[1]), 0)
        if 0 <= size <= MAX_MESSAGE_BYTES:
            self.send((topic, 0), self.unique_body(size), {}, BORN, False)

    def send(self, key: Key, body: bytes, properties: dict[str, str], host: bytes, is_half: bool) -> None:
        properties = {name: value for name, value in properties.items() if value}
        raw = encode_properties(properties).encode()
        sys_flag = TRANSACTION_PREPARED if is_half else 0
        message = StoreMessage(*key, body, properties, raw, 5, sys_flag, BORN_MS, host)
        host_flag = BORN_IPV6 if host is BORN_V6 else 0
        size = record_size(len(body), len(topic_part(key[0])[1]), len(raw), host_flag)
        before = self.store.log_next_offset
        result = self.store.append(message)
        if len(body) > MAX_MESSAGE_BYTES or size > self.config.log_segment_bytes - 8:
            self.assert_refused(result, before, AppendStatus.MESSAGE_ILLEGAL)
        elif result.status is not AppendStatus.OK:
            assert self.is_faulty or self.has_failed
            self.assert_refused(result, before, AppendStatus.NOT_AVAILABLE)
        else:
            self.record(key, [(body, properties)], [result.log_offset], size, result, is_half)

    def assert_refused(self, result: AppendResult, before: int, status: AppendStatus) -> None:
        assert (result.status in (status, AppendStatus.NOT_AVAILABLE)) and result.reason
        assert self.store.log_next_offset == before

    @rule(topic=TOPICS, queue_id=QUEUE_IDS, sizes=st.lists(st.integers(0, 300), min_size=1, max_size=6))
    def append_batch(self, topic: str, queue_id: int, sizes: list[int]) -> None:
        common = StoreMessage(topic, queue_id, b"", {}, b"", 0, 0, BORN_MS, BORN)
        parts = [(self.unique_body(size), {"UNIQ_KEY": f"u{self.sent_count}"}) for size in sizes]
        items = [BatchItem(0, body, encode_properties(own).encode()) for body, own in parts]
        before = self.store.log_next_offset
        result = self.store.append_batch(common, items)
        topic_bytes = len(topic_part(topic)[1])
        total = sum(record_size(len(item.body), topic_bytes, len(item.properties)) for item in items)
        if total > self.config.log_segment_bytes - 8:
            self.assert_refused(result, before, AppendStatus.MESSAGE_ILLEGAL)
        elif result.status is not AppendStatus.OK:
            assert self.is_faulty or self.has_failed
            self.assert_refused(result, before, AppendStatus.NOT_AVAILABLE)
        else:
            self.record((topic, queue_id), parts, list(result.log_offsets), total, result, False)

    def record(
        self,
        key: Key,
        parts: list[tuple[bytes, dict[str, str]]],
        log_offsets: list[int],
        size: int,
        result: AppendResult,
        is_half: bool,
    ) -> None:
        """Check what the store answered and write it down."""
        assert not self.has_failed
        first = 0 if is_half else self.ledger.next_offset(key)
        assert result.queue_offset == first
        assert result.next_log_offset == result.log_offset + size == self.store.log_next_offset
        ends = [*log_offsets[1:], result.next_log_offset]
        for number, ((body, properties), log_offset, end) in enumerate(zip(parts, log_offsets, ends)):
            offset = first + number
            self.ledger.add(Sent(*key, offset, body, properties, log_offset, end, result.store_ms, is_half))

    # Dispatching and flushing

    @rule()
    def dispatch(self) -> None:
        try:
            self.store.dispatch()
        except StoreError:
            assert self.is_faulty
            self.note_arrivals(is_complete=False)
        else:
            self.note_arrivals()

    def note_arrivals(self, is_complete: bool = True) -> None:
        """What became readable is the next of the log, in order, and everything unless the disk was full."""
        ledger = self.ledger
        fresh = ledger.log[ledger.dispatched : ledger.dispatched + len(self.arrived)]
        assert self.arrived == [(sent.log_offset, sent.topic, sent.queue_id) for sent in fresh]
        self.arrived.clear()
        ledger.dispatched += len(fresh)
        ledger.ahead.clear()
        waiting = [sent for sent in ledger.log[ledger.dispatched :] if self.is_ready(sent)]
        if is_complete:
            assert not waiting
        else:
            # Some of what was appended together may be listed already; it is reported together, later.
            for sent in waiting:
                key = (sent.topic, sent.queue_id)
                if not sent.is_half and ledger.readable_end(key) <= sent.queue_offset < self.store.max_offset(*key):
                    ledger.ahead[key] = sent.queue_offset + 1

    def is_ready(self, sent: Sent) -> bool:
        return True

    @rule(what=st.sampled_from(["everything", "log", "queues"]))
    def flush(self, what: str) -> None:
        before = self.disk.failed_syncs
        if what == "log":
            self.flush_log()
        elif what == "queues":
            assert self.store._threads is not None
            flusher = self.store._threads.queue_flusher
            flusher.run_round(everything=True)
        else:
            self.flush_everything()
        assert self.has_failed or self.disk.failed_syncs == before

    def flush_everything(self) -> None:
        try:
            self.store.flush_now()
        except StoreReadOnly:
            assert self.has_failed
            self.note_arrivals()
        except StoreError:
            assert self.is_faulty
            self.note_arrivals(is_complete=False)
        else:
            assert self.store.flushed_offset == self.store.log_next_offset
            self.note_arrivals()

    def flush_log(self) -> None:
        before = self.store.flushed_offset
        assert self.store._threads is not None
        flusher = self.store._threads.log_flusher
        flusher.run_round(everything=True)
        assert self.store.flushed_offset == (self.store.log_next_offset if flusher.failure is None else before)

    # Deleting

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        self.dispatch()
        if self.ledger.dispatched == len(self.ledger.log):
            self.store.delete_topic(topic)
            self.ledger.delete_topic(topic)
            assert topic not in self.store.topics()

    @precondition(lambda self: not self.is_faulty and not self.has_failed)
    @rule()
    def remove_oldest_file(self) -> None:
        # A number must not be given out twice, so queues are on disk before what they are numbered by goes.
        self.flush_everything()
        trim(self.store)
        self.ledger.log_min = self.store.log_min_offset

    # Reading

    @precondition(lambda self: self.ledger.log)
    @rule(pick=PICKS, shift=st.integers(-3, 3), max_messages=st.integers(1, 40))
    def read(self, pick: int, shift: int, max_messages: int) -> None:
        chosen = self.picked(pick)
        key, offset = (chosen.topic, chosen.queue_id), chosen.queue_offset + shift
        result = self.store.read(*key, offset, max_messages)
        queue = {sent.queue_offset: sent for sent in self.ledger.visible(key)}
        if offset not in queue:
            assert result.status in self.reasons_for_nothing(key, offset)
            assert not result.chunks
            return
        assert result.status is ReadStatus.FOUND
        records = list(decoded(result.chunks))
        assert 1 <= len(records) == result.message_count <= max_messages
        assert result.next_queue_offset == offset + len(records)
        assert result.total_bytes == sum(record.size for record in records)
        assert all(queue[record.queue_offset].is_like(record) for record in records)

    def reasons_for_nothing(self, key: Key, offset: int) -> set[ReadStatus]:
        end = self.ledger.readable_end(key)
        if not end:
            return {ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE}
        if offset > end:
            return {ReadStatus.OFFSET_OVERFLOW_BADLY}
        return {ReadStatus.OFFSET_OVERFLOW_ONE if offset == end else ReadStatus.OFFSET_TOO_SMALL}

    def picked(self, pick: int) -> Sent:
        return self.ledger.log[pick % len(self.ledger.log)]

    @precondition(lambda self: self.ledger.log)
    @rule(pick=PICKS, tag=st.sampled_from(["red", "blue", "none"]), max_messages=st.integers(1, 9))
    def read_with_tag(self, pick: int, tag: str, max_messages: int) -> None:
        chosen = self.picked(pick)
        key, code = (chosen.topic, chosen.queue_id), tag_hash(tag)
        wanted = [sent for sent in self.ledger.visible(key) if sent.properties.get("TAGS") == tag]
        offset = self.store.min_offset(*key)
        found: list[Record] = []
        while offset < self.store.max_offset(*key):
            result = self.store.read(*key, offset, max_messages, accept_tags=lambda tags_code: tags_code == code)
            assert result.next_queue_offset > offset
            assert result.message_count <= max_messages
            found += decoded(result.chunks)
            offset = result.next_queue_offset
        assert len(found) == len(wanted)
        assert all(sent.is_like(record) for sent, record in zip(wanted, found))

    @precondition(lambda self: self.ledger.log)
    @rule(
        pick=PICKS, max_count=st.sampled_from([1, 2, 3, 64]), since_ms=st.sampled_from([0, 0, 0, 1_000, 5_000, 200_000])
    )
    def query(self, pick: int, max_count: int, since_ms: int) -> None:
        chosen = self.picked(pick)
        key = next(iter(chosen.keys), "k1")
        begin_ms = chosen.store_ms - since_ms if since_ms else 0
        indexed = self.ledger.indexed(with_ahead=True)
        with_key = {sent.log_offset: sent for sent in indexed if sent.topic == chosen.topic and key in sent.keys}
        records = self.store.query(chosen.topic, key, max_count, begin_ms).records
        found = [decode_record(record, 0, len(record)).log_offset for record in records]
        assert found == sorted(set(found))
        # Times in the index are rounded down to seconds.
        assert all(with_key[log_offset].store_ms >= begin_ms for log_offset in found)
        surely = [log_offset for log_offset, sent in with_key.items() if sent.store_ms - 1_000 >= begin_ms]
        if self.ledger.ahead:
            return
        if key in SAME_HASH:
            # Strangers with the same hash take places in the result.
            assert found or not surely or max_count < 64
        else:
            assert set(surely[-max_count:]) <= set(found)

    @precondition(lambda self: self.ledger.log and not self.ledger.ahead)
    @rule(pick=PICKS, tag=st.sampled_from(["red", "blue"]))
    def query_tag(self, pick: int, tag: str) -> None:
        topic = self.picked(pick).topic
        tagged = [s.log_offset for s in self.ledger.indexed() if s.topic == topic and s.properties.get("TAGS") == tag]
        records = self.store.query(topic, tag, 64, index_type="T").records
        assert [decode_record(record, 0, len(record)).log_offset for record in records] == tagged[-64:]

    @precondition(lambda self: self.ledger.log)
    @rule(pick=PICKS, shift_ms=st.sampled_from([-90_000_000, -1, 0, 1, 90_000_000]))
    def find_by_time(self, pick: int, shift_ms: int) -> None:
        chosen = self.picked(pick)
        key = (chosen.topic, chosen.queue_id)
        queue = self.ledger.visible(key)
        if chosen in queue:
            assert self.store.store_ms_of(*key, chosen.queue_offset) == chosen.store_ms
        time_ms = chosen.store_ms + shift_ms
        later = [sent.queue_offset for sent in queue if sent.store_ms >= time_ms]
        assert self.store.offset_at_time(*key, time_ms) == (later[0] if later else self.ledger.readable_end(key))
        until = [sent.queue_offset for sent in queue if sent.store_ms <= time_ms]
        assert self.store.offset_at_time(*key, time_ms, upper=True) == (until[-1] if until else 0)

    # What always holds

    @invariant()
    def every_queue_is_as_it_should_be(self) -> None:
        for key in self.ledger.queues:
            queue = self.ledger.visible(key)
            assert self.store.max_offset(*key) == self.ledger.readable_end(key)
            expected_min = queue[0].queue_offset if queue else self.store.max_offset(*key)
            assert self.store.min_offset(*key) == expected_min
            offset = expected_min
            for sent in queue:
                assert sent.queue_offset == offset
                offset += 1
            self.assert_reads(key, queue)

    def assert_reads(self, key: Key, queue: list[Sent]) -> None:
        records: list[Record] = []
        offset = self.store.min_offset(*key)
        while (result := self.store.read(*key, offset, 32)).message_count:
            records += decoded(result.chunks)
            offset = result.next_queue_offset
        assert len(records) == len(queue)
        assert all(sent.is_like(record) for sent, record in zip(queue, records))

    @invariant()
    def positions_are_in_order(self) -> None:
        store = self.store
        assert store.log_min_offset <= store.flushed_offset <= store.log_next_offset
        assert store.dispatched_offset <= store.log_next_offset
        assert all(one.store_ms <= other.store_ms for one, other in pairwise(self.ledger.log))
        if self.has_failed:
            assert not store.is_writable
            assert "read-only since a flush failed" in store.reason

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.heal()
            self.store.close()


class SyncFlushModel(StoreModel):
    """Under SYNC_FLUSH, where a producer is told once its message is on the disk, and nobody reads it before that."""

    disk_type = FlushDiskType.SYNC_FLUSH

    def serve(self) -> None:
        self.flush_log()
        self.dispatch()

    def is_ready(self, sent: Sent) -> bool:
        return sent.end <= self.store.flushed_offset

    @invariant()
    def nobody_reads_what_may_be_lost(self) -> None:
        ledger = self.ledger
        if ledger.dispatched:
            assert ledger.log[ledger.dispatched - 1].end <= self.store.flushed_offset


def trim(store: MessageStore) -> None:
    """Delete the oldest log file, unless it is the one being written, and let the queues follow."""
    first = store._log.file.first
    if first is not None and first.next_base <= store.log_next_offset:
        store._log.file.remove_first()
    for queue in store._queues:
        queue.follow_log_minimum(store.log_min_offset)
        for path in queue.take_ext_files():
            store._disk.remove(path)


def decoded(chunks: list[memoryview]) -> Iterator[Record]:
    for chunk in chunks:
        position = 0
        while position < len(chunk):
            record = decode_record(chunk, position, len(chunk), check_crc=True)
            position += record.size
            yield record


IS_SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
EFFORT = settings(
    max_examples=5_000 if IS_SOAK else 150,
    stateful_step_count=60 if IS_SOAK else 40,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = EFFORT
TestSyncFlushModel = SyncFlushModel.TestCase
TestSyncFlushModel.settings = EFFORT
