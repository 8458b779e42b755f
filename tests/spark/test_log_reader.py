"""Reading ranges of a log: every record once, selected, and damage handled by the policy."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.store_files import walk_log

from rocketline.clock import ManualClock
from rocketline.errors import CorruptRecord, StoreError
from rocketline.protocol.message_ids import encode_host
from rocketline.spark.columns import ColumnPlan
from rocketline.spark.log.plan import EVERYTHING, LogRange, LogWindow, plan_folder
from rocketline.spark.log.reader import FAIL, REPORT, SKIP, LogReading
from rocketline.store.config import StoreConfig
from rocketline.store.message_store import MessageStore, StoreMessage
from rocketline.store.tools.folder import find_stores
from rocketline.store.tools.read_only import ReadOnlyDisk

from .records import record

PLACE = ColumnPlan(("commitLogOffset",))
SIZE = len(record())


def rows(
    root: Path, reading: LogReading, window: LogWindow = EVERYTHING, partition_bytes: int = 50_000
) -> list[dict[str, Any]]:
    (store,) = find_stores(ReadOnlyDisk(), root)
    parts = plan_folder(store, ReadOnlyDisk(), window, partition_bytes)
    return [row for part in parts for batch in reading.read(part) for row in batch.to_pylist()]


def places(root: Path, reading: LogReading, window: LogWindow = EVERYTHING, partition_bytes: int = 50_000) -> list[int]:
    return [row["commitLogOffset"] for row in rows(root, reading, window, partition_bytes)]


def write_log(folder: Path, content: bytes, size: int = 20_000) -> Path:
    (folder / "commitlog").mkdir(parents=True)
    (folder / "commitlog" / f"{0:020d}").write_bytes(content.ljust(size, b"\0"))
    return folder


def log_of(count: int, **changes: Any) -> bytearray:
    return bytearray(
        b"".join(record(log_offset=SIZE * number, store_ms=1000 + number, **changes) for number in range(count))
    )


@pytest.mark.parametrize("name", ["clean", "killed", "features"])
@pytest.mark.parametrize("chunk_bytes", [1 << 22, 5000, 100])
def test_every_record_of_apaches_logs_is_read_once(golden: Callable[[str], Path], name: str, chunk_bytes: int) -> None:
    root = golden(name)
    expected = [(entry.log_offset, entry.topic, entry.queue_id, entry.queue_offset) for entry in walk_log(root).records]
    plan = ColumnPlan(("commitLogOffset", "topic", "queueId", "queueOffset"))
    reading = LogReading(plan, chunk_bytes=chunk_bytes)
    assert [tuple(row.values()) for row in rows(root, reading)] == expected


def test_topics_are_picked(golden: Callable[[str], Path]) -> None:
    root = golden("clean")
    wanted = ("S_Alpha", "S_Gamma", "nobody")
    expected = [entry.log_offset for entry in walk_log(root).records if entry.topic in wanted]
    assert places(root, LogReading(PLACE, topics=wanted)) == expected


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (LogWindow(start_offset=SIZE * 3), range(3, 10)),
        (LogWindow(start_offset=SIZE * 3 - 1, end_offset=SIZE * 5 + 1), range(3, 6)),
        (LogWindow(start_offset=SIZE * 3 + 1, end_offset=SIZE * 5), range(4, 5)),
        (LogWindow(since_ms=1004, until_ms=1006), range(4, 6)),
        (LogWindow(start_offset=SIZE * 5, since_ms=1004, until_ms=1006), range(5, 6)),
        (LogWindow(since_ms=2000), range(0)),
    ],
)
def test_a_window_of_offsets_and_times(tmp_path: Path, window: LogWindow, expected: range) -> None:
    root = write_log(tmp_path, bytes(log_of(10)))
    for partition_bytes in (20_000, 2 * SIZE, 1):
        found = places(root, LogReading(PLACE, window=window), window, partition_bytes)
        assert found == [SIZE * number for number in expected]


def damaged_log(folder: Path) -> Path:
    """Ten records: the third has a flipped bit in its body, the sixth and seventh are no records any more."""
    content = log_of(10)
    content[SIZE * 2 + 88] ^= 1
    content[SIZE * 5 : SIZE * 6 + 8] = b"\xee" * (SIZE + 8)
    return write_log(folder, bytes(content))


def test_damage_fails_with_place_reason_and_remedy(tmp_path: Path) -> None:
    root = damaged_log(tmp_path)
    with pytest.raises(CorruptRecord, match=rf"0000: .*log offset {SIZE * 2} to {SIZE * 3}.*CRC.*onDamage=skip"):
        places(root, LogReading(PLACE, on_damage=FAIL))
    with pytest.raises(CorruptRecord, match=rf"log offset {SIZE * 5} to {SIZE * 7}.*magic"):
        places(root, LogReading(ColumnPlan(("commitLogOffset",), check_crc=False), on_damage=FAIL))


def test_damage_is_skipped_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = places(damaged_log(tmp_path), LogReading(PLACE, on_damage=SKIP))
    assert found == [SIZE * number for number in (0, 1, 3, 4, 7, 8, 9)]
    assert len(caplog.records) == 2


@pytest.mark.parametrize("chunk_bytes", [1 << 22, 3 * SIZE, 10])
def test_damage_is_reported_as_rows(tmp_path: Path, chunk_bytes: int) -> None:
    plan = ColumnPlan(("commitLogOffset", "body"))
    found = rows(damaged_log(tmp_path), LogReading(plan, on_damage=REPORT, chunk_bytes=chunk_bytes))
    # Where a chunk ends decides whether a damaged record is told before or after its sound neighbours.
    found.sort(key=lambda row: row["commitLogOffset"])
    sound = [row for row in found if row["damage"] is None]
    told = [row for row in found if row["damage"] is not None]
    assert [row["commitLogOffset"] for row in sound] == [SIZE * number for number in (0, 1, 3, 4, 7, 8, 9)]
    assert {row["damagedBytes"] for row in sound} == {None}
    assert [(row["commitLogOffset"], row["damagedBytes"], row["body"]) for row in told] == [
        (SIZE * 2, SIZE, None),
        (SIZE * 5, 2 * SIZE, None),
    ]


def test_damage_up_to_the_end_of_a_range(tmp_path: Path) -> None:
    content = log_of(10)
    content[SIZE * 8 :] = b"\xee" * 2 * SIZE
    found = rows(write_log(tmp_path, bytes(content)), LogReading(PLACE, on_damage=REPORT))
    assert [row["commitLogOffset"] for row in found] == [SIZE * number for number in range(9)]
    assert found[-1]["damagedBytes"] == 20_000 - SIZE * 8


def test_a_file_that_went_away_is_told_with_its_likely_cause(tmp_path: Path) -> None:
    gone = LogRange(tmp_path / "00000000000000000000", 0, 0, 100, 100)
    with pytest.raises(StoreError, match="retention removed it, or this executor does not see"):
        list(LogReading(PLACE).read(gone))


def test_a_reading_travels_to_executors() -> None:
    reading = LogReading(PLACE, ("orders",), LogWindow(since_ms=3), SKIP)
    assert pickle.loads(pickle.dumps(reading)) == reading


def test_a_log_is_read_while_a_broker_writes_it(tmp_path: Path) -> None:
    host = encode_host("127.0.0.1", 10911)
    config = StoreConfig(log_segment_bytes=1 << 16, queue_segment_bytes=2000, index_slots=50, index_entries=20)
    store = MessageStore(tmp_path / "store", config, host, clock=ManualClock())
    store.open()
    try:
        for number in range(1000):
            store.append(StoreMessage("orders", 0, b"%d" % number, {}, b"", 0, 0, 1_600_000_000_000, host))
            if number in (0, 10, 600, 999):
                plan = ColumnPlan(("queueOffset", "body"))
                found = rows(tmp_path / "store", LogReading(plan), partition_bytes=10_000)
                assert [(row["queueOffset"], row["body"]) for row in found] == [
                    (offset, b"%d" % offset) for offset in range(number + 1)
                ]
    finally:
        store.close()


def test_batches_have_the_schema_of_the_plan(tmp_path: Path) -> None:
    root = write_log(tmp_path, bytes(log_of(3)))
    (store,) = find_stores(ReadOnlyDisk(), root)
    (part,) = plan_folder(store, ReadOnlyDisk(), EVERYTHING, 1 << 20)
    (batch,) = LogReading(ColumnPlan(("body", "topic")), on_damage=REPORT).read(part)
    assert batch.schema == pa.schema(
        {"body": pa.binary(), "topic": pa.string(), "damage": pa.string(), "damagedBytes": pa.int64()}
    )
