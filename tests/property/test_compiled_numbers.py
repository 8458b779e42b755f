"""Numbers at the ends of 64 bits, in arguments and in what is read: compiled code refuses them or leaves them to Python.

A sum that does not fit is not only wrong in C: the compiler may take it for granted that there is none. What these tests do
not see, `make sanitize` reports, which runs them too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from tests.support.compiled import needs_compiled

from rocketline._impl import compiled_only
from rocketline.broker.fastpath.answers import send_answer_parts
from rocketline.broker.fastpath.grants import ANY_TIME
from rocketline.protocol.command import Command
from rocketline.protocol.connection import frame_bytes
from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.record_layout import MAGIC_V1, TRANSACTION_PREPARED
from rocketline.protocol.records import BatchItem, LogEntry, RecordHead, encode_batch, encode_record, topic_part
from rocketline.store.index.index_file import IndexState
from rocketline.store.log.commit_log import Room
from rocketline.store.queue.consume_queue import UNIT, QueueRun
from rocketline.store.queue.dispatcher import Dispatched

pytestmark = needs_compiled

LAST, FIRST = (1 << 63) - 1, -(1 << 63)
ENDS = (FIRST, FIRST + 1, -1, 0, 1, (1 << 31) - 1, 1 << 31, 1 << 62, LAST - 200, LAST - 1, LAST)
HOST = encode_host("10.9.8.7", 10911)
TOPIC = topic_part("orders")[1]
REFUSED = (ValueError, TypeError, OverflowError, struct.error)


def record(
    queue_offset: int = 0, log_offset: int = 0, store_ms: int = 0, properties: bytes = b"TAGS\x01a\x02"
) -> bytes:
    head = RecordHead(MAGIC_V1, TOPIC, 0, queue_offset, log_offset, 0, 0, 1, HOST, store_ms, HOST)
    return encode_record(head, b"body", properties)


def row(queue_offset: int = 0, log_offset: int = 0, store_ms: int = 0) -> LogEntry:
    properties = {"UNIQ_KEY": "U", "KEYS": "a b", "TAGS": "t"}
    return LogEntry(log_offset, 100, "orders", 0, queue_offset, 0, store_ms, 0, properties)  # type: ignore[arg-type]


def compiled(name: str) -> Callable[..., Any]:
    found = compiled_only(name)
    assert found is not None
    return found  # type: ignore[no-any-return]


def tried(name: str, *args: Any) -> Any:
    """What a function gives, or None when it refuses."""
    try:
        return compiled(name)(*args)
    except REFUSED:
        return None


def shared(queue_offset: int = 0, log_offset: int = 0, sys_flag: int = 0) -> RecordHead:
    """What the records of a call have in common."""
    return RecordHead(MAGIC_V1, TOPIC, 0, queue_offset, log_offset, 0, sys_flag, 1, HOST, 2, HOST)


# Dispatch


@pytest.mark.parametrize("start", ENDS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_units_of_rows(start: int, count: int) -> None:
    numbers = [number for number in range(start, start + count) if number <= LAST]
    made = tried("pack_run", [row(number, place * 100) for place, number in enumerate(numbers)], QueueRun)
    units = b"".join(UNIT.pack(place * 100, 100, 0) for place in range(len(numbers)))
    assert made == QueueRun(start, 0, units, 100 * len(numbers))


def test_places_of_rows() -> None:
    for first, second in product(ENDS, ENDS):
        tried("pack_run", [row(0, first), row(1, second)], QueueRun)


def test_units_of_a_range() -> None:
    for first, second in product(ENDS, ENDS):
        log = record(first)
        log += record(second, len(log))
        found = compiled("range_runs")(log, 0, 0, len(log), QueueRun, Dispatched)
        assert (found is not None) == (second == first + 1)
        entries = compiled("range_entries")(log, 0, 0, len(log), LogEntry)
        assert [entry.queue_offset for entry in entries] == [first, second]


def test_where_a_range_is() -> None:
    state = IndexState(memoryview(bytearray(40 + 4 * 5 + 20 * 10)), 5, 1, 9, 0)
    for base, start, end in product(ENDS, ENDS, ENDS):
        log = record(log_offset=max(base, 0))
        tried("range_runs", log, base, start, end, QueueRun, Dispatched)
        tried("range_entries", log, base, start, end, LogEntry)
        tried("index_range", state, log, base, start, end)


def test_numbers_of_index_entries() -> None:
    index = memoryview(bytearray(40 + 4 * 5 + 20 * 10))
    for number, limit, begin_ms, store_ms in product(ENDS, ENDS, ENDS, ENDS):
        state = IndexState(index, 5, number, limit, begin_ms)
        tried("index_rows", state, [row(0, store_ms, store_ms)], 0)
        log = record(store_ms=store_ms)
        tried("index_range", state, log, 0, 0, len(log))


def test_slots_and_places_of_index_entries() -> None:
    for slots, start in product(ENDS, ENDS):
        tried("index_rows", IndexState(memoryview(bytearray(1000)), slots, 1, 9, 0), [row()], start)


# Reading


def test_where_a_run_is_read() -> None:
    for position, chunk_at in product(ENDS, ENDS):
        rows: list[Any] = []
        chunk = record(log_offset=chunk_at)
        after = tried("read_run", chunk, position, chunk_at, rows, True)
        if position == 0 and chunk_at <= LAST - len(chunk):
            assert (after, len(rows)) == (len(chunk), 1)


@pytest.mark.parametrize("place", range(7))
def test_limits_of_a_read(place: int) -> None:
    log = record(log_offset=64)
    units = UNIT.pack(64, len(log), 0)
    for number, other in product(ENDS, ENDS):
        numbers = [1, 1 << 20, 64, 64 + len(log), 0, 0, 0]
        numbers[place] = number
        numbers[(place + 1) % 7] = other
        count, size, base, end, queue_id, queue_offset, oldest = numbers
        args = units, count, size, memoryview(log), base, end, queue_id, queue_offset, True
        tried("verified_run", *args, None, oldest)
        tried("verified_run", *args, struct.pack("=i", 0), oldest)
    for log_offset, size in product(ENDS, (-(1 << 31), -1, 0, len(log), (1 << 31) - 1)):
        units = UNIT.pack(log_offset, size, 0)
        tried("verified_run", units, 9, LAST, memoryview(log), 0, LAST, 0, 0, True, None, 0)


def test_where_a_record_is_checked() -> None:
    data = record()
    for position, size, log_offset in product(ENDS, ENDS, ENDS):
        assert not tried("is_sound_record", data, position, size, log_offset, 0, 0)
        tried("is_sound_record", data, 0, len(data), log_offset, 0, position)


def test_columns() -> None:
    data = record()
    numbers = [struct.pack("=q", number) for number in ENDS]
    for log_offset in ENDS:
        tried("locate_run", data, log_offset)
    for begin, end in product(numbers, numbers):
        tried("wrong_bodies", data, begin, end, bytes(4))
        tried("lay_out", data, begin, end)


# Writing


def test_where_a_record_is_written() -> None:
    for position, number, log_offset in product(ENDS, ENDS, ENDS):
        tried("write_record", bytearray(1000), position, shared(number, log_offset), b"body", b"")


@pytest.mark.parametrize("sys_flag", [0, TRANSACTION_PREPARED])
def test_numbers_of_a_batch(sys_flag: int) -> None:
    items = [BatchItem(0, b"a", b""), BatchItem(0, b"b", b"")]
    total = 2 * len(encode_record(shared(), b"a", b""))
    numbered = not sys_flag
    for first, log_offset in product(ENDS, ENDS):
        entries = tried("write_batch", bytearray(total), shared(first, log_offset, sys_flag), items, "orders", LogEntry)
        if log_offset <= LAST - total and (first < LAST or not numbered):
            assert [entry.queue_offset for entry in entries] == [first, first + numbered]
    for size in ENDS:
        tried("measure_batch", items, size)


def send(batch: bool) -> bytes:
    body = encode_batch([BatchItem(0, b"a", b""), BatchItem(0, b"b", b"")]) if batch else b"body"
    properties = "" if batch else "UNIQ_KEY\x017F0000012A1E14C214797DF6A2140000\x02"
    header = SendMessageHeader("group", "orders", "TBW102", 4, 0, 0, 1, 0, properties, batch=batch)
    return frame_bytes(Command(320 if batch else 310, header.encode(), body))


def context(*limits: int) -> tuple[Any, ...]:
    max_frame, max_header, max_body, max_record = limits or (1 << 20,) * 4
    places = {"orders": ("orders", TOPIC, (("orders", 0),))}
    answer = send_answer_parts(HOST, "DefaultRegion", True)
    return max_frame, max_header, places, False, b"X\x01y\x02", HOST, max_body, max_record, *answer


def room(base: int = 0, start: int = 0, limit: int = 4096, store_ms: int = 0) -> Room:
    return Room(memoryview(bytearray(4096)), base, start, limit, store_ms, {})


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("number", ENDS)
def test_numbers_of_a_queue_on_the_fast_path(number: int, batch: bool) -> None:
    place = room()
    place.queue_offsets["orders", 0] = number
    sent = tried("serve_sends", [(send(batch), HOST, None)], context(), place, ANY_TIME)
    taken = (2 if batch else 1) if sent is not None else 0
    assert place.queue_offsets == {("orders", 0): number + taken}
    if 0 <= number < LAST - 10_000:
        assert taken


def test_where_the_fast_path_writes() -> None:
    frame = send(False)
    for base, limit, start in product(ENDS, ENDS, ENDS):
        tried("serve_sends", [(frame, HOST, None)], context(), room(base, start, limit, LAST), ANY_TIME)


def limits_of_frames() -> Iterator[tuple[int, ...]]:
    for place, number in product(range(4), ENDS):
        limits = [1 << 20] * 4
        limits[place] = number
        yield tuple(limits)


def test_limits_of_frames() -> None:
    for limits in limits_of_frames():
        tried("serve_sends", [(send(True), HOST, None)], context(*limits), room(), ANY_TIME)
        tried("take_frames", send(False), limits[2], *limits[:2], dict, Command)
        tried("take_pulls", send(False), *limits[:2], {})


def test_answers() -> None:
    for opaque, log_offset in product(ENDS, ENDS):
        tried("offset_ids", "0A090807", (log_offset, opaque))
