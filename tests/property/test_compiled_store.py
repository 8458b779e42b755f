"""Compiled code of the store gives what Python gives, for good bytes and bad: the same result or the same error."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.compiled import (
    any_text,
    compiled,
    few,
    int32,
    int64,
    needs_compiled,
    outcome,
    pure,
    python,
    thorough,
    word,
)

from rocketline import _impl
from rocketline.clock import ManualClock
from rocketline.errors import CorruptRecord
from rocketline.protocol import records
from rocketline.protocol.command import Command
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.record_layout import BORN_IPV6, HEAD_BYTES, HOSTS_MASK, MAGIC_BLANK, STORE_IPV6
from rocketline.protocol.records import (
    BatchItem,
    LogEntry,
    RecordHead,
    decode_batch,
    encode_batch,
    encode_record,
    topic_part,
)
from rocketline.protocol.subscription import build_subscription, tag_test
from rocketline.store.config import UNIT_BYTES, StoreConfig
from rocketline.store.index import index_file
from rocketline.store.index.index_file import IndexState
from rocketline.store.index.key_index import KeyIndex
from rocketline.store.message_store import MessageStore, ReadResult, StoreMessage
from rocketline.store.queue import consume_queue
from rocketline.store.queue.batch_dispatch import put_in_index
from rocketline.store.queue.consume_queue import QueueRun
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.store.queue.dispatcher import Dispatched
from rocketline.store.reading import reader
from rocketline.store.recovery import record_runs
from rocketline.store.recovery.record_runs import FastLogReader, Row
from rocketline.testing.disks import MemoryDisk

pytestmark = needs_compiled
COMPILED = {} if _impl._module is None else vars(_impl._module)
FUNCTIONS = sorted(name for name, found in COMPILED.items() if callable(found) and name[0] != "_") or ["none"]

hosts = st.builds(encode_host, st.ip_addresses().map(str), st.integers(0, 65535))
properties = st.dictionaries(st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "WAIT", "ü"]), word.filter(bool)).map(
    lambda found: encode_properties(found).encode()
) | st.binary(max_size=40)  # fmt: skip


@st.composite
def heads(draw: st.DrawFn) -> RecordHead:
    """What records of one send share."""
    magic, topic = topic_part(draw(st.text("tü/", min_size=1, max_size=120)))
    born, store = draw(hosts), draw(hosts)
    sys_flag = (
        (BORN_IPV6 if len(born) > 8 else 0) | (STORE_IPV6 if len(store) > 8 else 0) | draw(st.sampled_from([0, 4, 8]))
    )
    return RecordHead(
        magic, topic, draw(int32), draw(int64), draw(st.integers(0, 1 << 40)), draw(int32), sys_flag, draw(int64), born,
        draw(int64), store, draw(int32), draw(int64),
    )  # fmt: skip


@thorough
@given(heads(), st.binary(max_size=300), properties, st.integers(0, 50), st.integers(0, 700))
def test_writing_a_record(head: RecordHead, body: bytes, raw: bytes, position: int, size: int) -> None:
    one, other = bytearray(size), bytearray(size)
    assert outcome(compiled("write_record"), memoryview(one), position, head, body, raw) == outcome(
        python("write_record"), memoryview(other), position, head, body, raw
    )
    assert one == other


@pytest.mark.parametrize(
    ("field", "number"),
    [("queue_id", 1 << 31), ("queue_offset", 1 << 63), ("born_ms", -(1 << 63) - 1), ("reconsume_times", 1 << 40)],
)
def test_a_number_that_does_not_fit_a_record(field: str, number: int) -> None:
    host = encode_host("127.0.0.1", 1)
    head = RecordHead(*topic_part("t"), 0, 0, 0, 0, 0, 0, host, 0, host)._replace(**{field: number})
    args = memoryview(bytearray(200)), 0, head, b"b", b""
    assert outcome(compiled("write_record"), *args) is outcome(python("write_record"), *args) is struct.error


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """A stretch of a log from offset 0 on: records of all kinds, and some damage."""
    log = bytearray()
    for number in range(draw(st.integers(1, 5))):
        head = draw(heads())._replace(queue_id=draw(st.integers(0, 1)), queue_offset=number, log_offset=len(log))
        body, raw = draw(st.binary(max_size=200)), draw(properties)
        if draw(st.booleans()):
            raw = raw + b"x\x01" + b"y" * draw(st.integers(0, 1200)) + b"\x02"
        log += encode_record(head, body, raw)
    if draw(st.booleans()):
        log += struct.pack(">ii", 50, MAGIC_BLANK) + bytes(42)
    for place, byte in draw(st.lists(st.tuples(st.integers(0, len(log) - 1), st.integers(0, 255)), max_size=3)):
        log[place] = byte
    if draw(st.integers(0, 3)) == 0:
        sector = draw(st.integers(0, len(log) // 512)) * 512
        log[sector : sector + 512] = bytes(len(log[sector : sector + 512]))
    return bytes(log[: draw(st.integers(0, len(log)) | st.just(len(log)))])


def starts(log: bytes) -> list[tuple[int, int]]:
    """(position, size) of what may be records."""
    found, position = [], 0
    while len(log) - position >= 91:
        size = struct.unpack_from(">i", log, position)[0]
        if size <= 0 or position + size > len(log):
            break
        found.append((position, size))
        position += size
    return found


@thorough
@given(logs(), st.booleans())
def test_reading_a_log_back(log: bytes, check_crc: bool) -> None:
    quick_rows: list[Row] = []
    careful_rows: list[Row] = []
    reader = FastLogReader(check_crc, None)
    quick_end = reader.read(log, 0, 0, quick_rows)
    with pure(record_runs, "read_run"):
        careful_end = reader.read(log, 0, 0, careful_rows)
    assert (quick_end, quick_rows) == (careful_end, careful_rows)


@thorough
@given(logs(), st.data())
def test_soundness(log: bytes, data: st.DataObject) -> None:
    for position, size in starts(log):
        queue_id = data.draw(st.none() | st.integers(0, 1))
        args = (log, position, size, position, queue_id, data.draw(st.integers(0, 4)))
        assert compiled("is_sound_record")(*args) == python("is_sound_record")(*args)


@pytest.mark.parametrize(("position", "size"), [(-1, 91), (0, 92), (1, 91), (0, -5), (1 << 62, 1 << 62), (50, 91)])
def test_no_record_beyond_its_buffer(position: int, size: int) -> None:
    assert compiled("is_sound_record")(bytes(91), position, size, 0) is False


def _joined(found: ReadResult | None) -> tuple[Any, ...] | None:
    return None if found is None else (*found[:4], b"".join(found.chunks), *found[5:])


def tagged_store(tags: list[str], log_segment_bytes: int) -> MessageStore:
    config = StoreConfig(
        log_segment_bytes=log_segment_bytes,
        queue_segment_bytes=UNIT_BYTES * 20,
        index_enabled=False,
        max_message_bytes=1000,
    )
    store = MessageStore(FOLDER, config, encode_host("127.0.0.1", 1), disk=MemoryDisk(), clock=ManualClock())
    store.open()
    for number, tag in enumerate(tags):
        own = {"TAGS": tag} if tag else {}
        raw = encode_properties(own).encode()
        store.append(StoreMessage("t", number % 2, b"x" * (number * 7 % 90), own, raw, 0, 0, 1, encode_host("::1", 1)))
    store.dispatch()
    return store


@thorough
@given(
    st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=1, max_size=60),
    st.sampled_from([4000, 1 << 20]),
    st.lists(st.tuples(st.integers(0, 9999), st.integers(1, 255), st.booleans()), max_size=3),
    st.lists(st.tuples(st.integers(-1, 32), st.integers(0, 40), st.integers(1, 900)), min_size=1, max_size=4),
    st.sampled_from(["*", "*", "a", "a||c", "d", "b||c||d||e||f"]),
    st.sampled_from([1 << 40, 2000]),
)
@example(["a", "a", "", "", "a"], 4000, [(472, 1, False)], [(0, 2, 229)], "*", 1 << 40)  # behind what is read
@example(["a", "a", "", "", "a"], 4000, [(472, 1, False)], [(0, 1, 900)], "a", 1 << 40)
def test_reading_a_queue(
    tags: list[str],
    log_segment_bytes: int,
    damage: list[tuple[int, int, bool]],
    asked: list[tuple[int, int, int]],
    expression: str,
    memory_bytes: int,
) -> None:
    """Of a log and a queue in which some bytes are wrong."""
    test = None if expression == "*" else tag_test(build_subscription("t", expression))
    left = []
    for run in (compiled("verified_run"), python("verified_run")):
        store = tagged_store(tags, log_segment_bytes)
        store._reader._memory_bytes = memory_bytes
        for place, wrong, of_queue in damage:
            file = store._queues.by_key["t", 0].file if of_queue else store._log.file
            segment = file.first
            assert segment is not None
            segment.open()[place % (400 if of_queue else 4000)] ^= wrong
        with patch.object(reader, "verified_run", run):
            left.append([_joined(store.read("t", 0, at, most, test, None, size)) for at, most, size in asked])
        left[-1].append((store.damage.records, store.damage.units))
        store.close()
    assert left[0] == left[1]


items = st.builds(BatchItem, int32, st.binary(max_size=80), properties)


@thorough
@given(st.lists(items, max_size=5).map(encode_batch), st.data())
def test_splitting_a_batch(body: bytes, data: st.DataObject) -> None:
    changed = bytearray(body)
    if body and data.draw(st.booleans()):
        changed[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    raw = bytes(changed[: data.draw(st.integers(0, len(body)) | st.just(len(body)))])
    quickly = outcome(decode_batch, raw)
    with pure(records, "split_batch"):
        assert outcome(decode_batch, raw) == quickly


@thorough
@given(heads(), st.lists(items, max_size=5), st.sampled_from([list, tuple]), st.integers(-200, 2))
def test_writing_a_batch(head: RecordHead, batch: list[BatchItem], kind: Callable[..., Any], lacking: int) -> None:
    shared = HEAD_BYTES[head.sys_flag & HOSTS_MASK] + len(head.topic) + 2
    head = head._replace(queue_offset=abs(head.queue_offset) >> 1)
    messages = kind(BatchItem(flag, memoryview(body), raw) for flag, body, raw in batch)
    measured = python("measure_batch")(messages, shared)
    assert compiled("measure_batch")(messages, shared) == measured
    if measured is None:
        return
    one, other = bytearray(measured[1]), bytearray(measured[1])
    args = head, messages, "topic", LogEntry
    assert compiled("write_batch")(memoryview(one), *args) == python("write_batch")(memoryview(other), *args)
    assert one == other
    if lacking > 0 and batch:
        with pytest.raises(ValueError):
            compiled("write_batch")(memoryview(one)[lacking:], *args)


@pytest.mark.parametrize("raw", [b"a\x01b\0", b"a\x01" + bytes(512) + b"b", b"x" * 32768, bytes(511) + b"x"])
def test_properties_that_cannot_be_stored(raw: bytes) -> None:
    batch = [BatchItem(0, b"", b""), BatchItem(0, b"", raw)]
    assert compiled("measure_batch")(batch, 90) == python("measure_batch")(batch, 90)


FOLDER = Path("/compiled")
CONFIG = StoreConfig(log_segment_bytes=1 << 20, queue_segment_bytes=UNIT_BYTES * 7, index_slots=5, index_entries=11)


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    made: list[Row] = []
    offsets: dict[tuple[str, int], int] = {}
    for number in range(draw(st.integers(0, 30))):
        key = draw(st.tuples(st.sampled_from(["a", "ü"]), st.integers(0, 1)))
        offset = offsets.get(key, 0) + draw(st.sampled_from([0] * 9 + [2]))
        offsets[key] = offset + 1
        found = draw(
            st.dictionaries(st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "x"]), word | st.just(" k1\tk2\u2003ü "))
        )
        flag = draw(st.sampled_from([0, 0, 0, 0, 4, 8, 12, 0x80]))
        made.append((number * 300, 300, *key, offset, draw(int64), draw(st.integers(0, 1 << 40) | int64), flag, found))
    return made


def contents(disk: MemoryDisk) -> dict[Path, bytes]:
    return {path: bytes(disk.read(path) or b"") for path in disk._files}


@few
@given(rows(), st.integers(1, 12))
def test_queues(made: list[Row], step: int) -> None:
    disks = MemoryDisk(), MemoryDisk()
    for disk, choose in zip(disks, (compiled, python)):
        queues = ConsumeQueues(disk, FOLDER, CONFIG)
        with patch.object(consume_queue, "pack_run", choose("pack_run")):
            for start in range(0, len(made), step):
                for key, group in choose("by_queue")(made[start : start + step]).items():
                    queues.obtain(*key).put_rows(group)
    assert contents(disks[0]) == contents(disks[1])


@few
@given(rows(), st.integers(1, 12))
def test_index(made: list[Row], step: int) -> None:
    disks = MemoryDisk(), MemoryDisk()
    indexes = [KeyIndex(disk, FOLDER, CONFIG, ManualClock()) for disk in disks]
    for start in range(0, len(made), step):
        put_in_index(indexes[0], made[start : start + step])
        with pure(index_file, "index_rows"):
            put_in_index(indexes[1], made[start : start + step])
    for index in indexes:
        index.flush()
    assert contents(disks[0]) == contents(disks[1])
    assert [vars(file)["count"] for file in indexes[0].files] == [vars(file)["count"] for file in indexes[1].files]


@thorough
@given(
    st.sampled_from(FUNCTIONS),
    st.lists(
        int64 | st.none() | st.binary(max_size=300) | any_text | st.booleans() | st.just(1 << 70) | rows()
        | st.binary(max_size=300).map(lambda raw: memoryview(bytearray(raw)))
        | st.sampled_from([LogEntry, BatchItem, int, Command])
        | st.lists(st.none() | st.tuples(int32, st.binary(max_size=9), st.binary(max_size=9)), max_size=3),
        max_size=20,
    ),
)  # fmt: skip
def test_nonsense_is_refused(name: str, args: list[Any]) -> None:
    with suppress(TypeError, ValueError, struct.error, BufferError, msgspec.MsgspecError):
        getattr(_impl._module, name)(*args)


def entries_of(log: bytes) -> list[LogEntry] | None:
    """The entries of records that make up all of a log, by Python; None when there is something else in it."""
    found, position = [], 0
    while position < len(log):
        try:
            record = records.decode_record(log, position, len(log))
        except (CorruptRecord, UnicodeDecodeError):
            return None
        found.append(records.log_entry(record))
        position += record.size
    return found


@few
@given(logs())
def test_dispatching_straight_from_the_log(log: bytes) -> None:
    args = memoryview(log), 0, 0, len(log)
    entries = compiled("range_entries")(*args, LogEntry)
    if entries is not None:
        assert entries == entries_of(log)
    found = compiled("range_runs")(*args, QueueRun, Dispatched)
    if found is None:
        return
    rows, count, last = found
    assert count == len(entries)
    assert last == (entries[-1].log_offset, entries[-1].size, entries[-1].store_ms)
    for topic, queue_id, run in rows:
        own = [entry for entry in entries if (entry.topic, entry.queue_id) == (topic, queue_id)]
        assert run == python("pack_run")(own, QueueRun)
    assert sum(len(run.units) for _, _, run in rows) == count * UNIT_BYTES


@few
@given(logs(), st.integers(1, 12), st.integers(0, 3))
def test_indexing_straight_from_the_log(log: bytes, limit: int, begin_ms: int) -> None:
    slots, size = 7, 40 + 7 * 4 + 12 * 20
    one, other = bytearray(size), bytearray(size)
    state = IndexState(memoryview(one), slots, 1, limit, begin_ms)
    done, *told = compiled("index_range")(state, memoryview(log), 0, 0, len(log))
    entries = entries_of(log[:done])
    assert entries is not None
    rows = [tuple(entry) for entry in entries]
    number, count, fresh, last = compiled("index_rows")(state._replace(view=memoryview(other)), rows, 0)
    assert number == len(rows)
    assert told == [count, fresh, *((rows[last][0], rows[last][6]) if last >= 0 else (-1, 0))]
    assert one == other


def test_a_long_stretch_of_the_log_is_indexed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """More entries than are reserved of a file at a time; what does not fit at once needs no object for each message."""
    monkeypatch.setattr(index_file, "_RESERVE_BYTES", 4096)
    monkeypatch.setattr(index_file, "_RECORD_ENTRIES", 50)
    magic, topic = topic_part("orders")
    log = bytearray()
    for number in range(1000):
        head = RecordHead(
            magic=magic, queue_id=0, queue_offset=number, flag=0, sys_flag=0, born_ms=0, born_host=bytes(8),
            store_ms=1000, store_host=bytes(8), reconsume_times=0, log_offset=len(log), topic=topic,
        )  # fmt: skip
        log += encode_record(head, b"body", encode_properties({"KEYS": f"a{number} b{number}"}).encode())
    disk = MemoryDisk()
    disk.make_folder(Path("/index"))
    index = KeyIndex(disk, Path("/index"), StoreConfig(index_entries=3000, index_slots=100), ManualClock())
    first = struct.unpack_from(">i", log)[0]
    index.put("orders", 0, 1000, {"KEYS": "a0 b0"})
    assert index.put_range(memoryview(log), 0, first, len(log))
    assert index.find("orders", "b0", 0, 10**9, 8) == [0]
    assert len(index.find("orders", "a999", 0, 10**9, 8)) == 1


@pytest.mark.parametrize(
    ("base", "start", "end"), [(0, 0, 11), (5, 4, 6), (0, 6, 5), (-1, -1, 20), (1 << 62, 1 << 62, -5)]
)
def test_a_range_outside_its_file_is_an_error(base: int, start: int, end: int) -> None:
    for name, more in (("range_runs", (QueueRun, Dispatched)), ("range_entries", (LogEntry,))):
        with pytest.raises(ValueError, match="not in that file"):
            compiled(name)(memoryview(bytes(10)), base, start, end, *more)
