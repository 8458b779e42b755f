"""Which ranges of a log the tasks read: without Spark, and mostly without files."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.store_files import walk_log

from rocketline.spark.log.plan import EVERYTHING, LogRange, LogWindow, StoredLog, plan_ranges
from rocketline.store.files.disk import Disk
from rocketline.store.tools.folder import ChainFile, find_stores
from rocketline.store.tools.read_only import ReadOnlyDisk

from .records import record


@dataclass
class PlainLog:
    """A log of files of 1000 bytes, with a record every `step` bytes."""

    files: list[ChainFile]
    next_offset: int
    step: int = 10
    first_times: dict[int, int] = field(default_factory=dict)

    def first_ms(self, file: ChainFile) -> int:
        return self.first_times.get(file.base, 0)

    def start_before(self, file: ChainFile, log_offset: int) -> int:
        return max(file.base, log_offset // self.step * self.step)


def plain_log(files: int = 3, next_offset: int | None = None, **more: object) -> PlainLog:
    made = [ChainFile(Path(f"/log/{base:020d}"), base, 1000) for base in range(0, files * 1000, 1000)]
    return PlainLog(made, files * 1000 if next_offset is None else next_offset, **more)  # type: ignore[arg-type]


def spans(ranges: list[LogRange]) -> list[tuple[int, int]]:
    return [(part.start, part.end) for part in ranges]


def test_a_file_is_a_range_when_it_is_small_enough() -> None:
    assert spans(plan_ranges(plain_log(), EVERYTHING, 1000)) == [(0, 1000), (1000, 2000), (2000, 3000)]


def test_a_large_file_is_cut_into_even_pieces_where_records_begin() -> None:
    ranges = plan_ranges(plain_log(1), EVERYTHING, 300)
    assert spans(ranges) == [(0, 250), (250, 500), (500, 750), (750, 1000)]
    assert spans(plan_ranges(plain_log(1, step=400), EVERYTHING, 300)) == [(0, 400), (400, 1000)]


def test_nothing_behind_the_end_of_the_log_is_read() -> None:
    ranges = plan_ranges(plain_log(3, next_offset=1200), EVERYTHING, 1000)
    assert spans(ranges) == [(0, 1000), (1000, 1200)]
    assert [part.limit for part in ranges] == [1000, 1200]


def test_an_empty_log_has_no_ranges() -> None:
    assert plan_ranges(PlainLog([], 0), EVERYTHING, 1000) == []
    assert plan_ranges(plain_log(2, next_offset=0), EVERYTHING, 1000) == []


def test_offsets_within_records_begin_with_the_record_and_end_behind_it() -> None:
    ranges = plan_ranges(plain_log(), LogWindow(start_offset=1234, end_offset=1567), 1000)
    assert spans(ranges) == [(1230, 1567)]
    assert ranges[0].limit == 2000


def test_offsets_outside_the_log_leave_nothing_or_everything() -> None:
    assert plan_ranges(plain_log(), LogWindow(start_offset=9000), 1000) == []
    assert spans(plan_ranges(plain_log(1), LogWindow(start_offset=0, end_offset=9000), 1000)) == [(0, 1000)]


def test_files_are_left_out_by_the_time_of_their_first_record() -> None:
    hour = 3_600_000
    log = plain_log(4, first_times={number * 1000: number * hour for number in range(1, 4)})
    window = LogWindow(since_ms=2 * hour + hour // 2, until_ms=2 * hour + 2 * hour // 3)
    assert spans(plan_ranges(log, window, 1000)) == [(2000, 3000)]
    # The clock may have been set back a little.
    assert spans(plan_ranges(log, LogWindow(since_ms=2 * hour + 1), 1000))[0] == (1000, 2000)


@pytest.mark.parametrize("name", ["clean", "killed", "features"])
@pytest.mark.parametrize("with_queues", [True, False])
def test_ranges_of_apaches_logs_begin_where_records_do(
    golden: Callable[[str], Path], name: str, with_queues: bool
) -> None:
    root = golden(name)
    walk = walk_log(root)
    if not with_queues:
        (root / "consumequeue").rename(root / "elsewhere")
    (store,) = find_stores(ReadOnlyDisk(), root)
    log = StoredLog(store, ReadOnlyDisk())
    ranges = plan_ranges(log, EVERYTHING, 50_000)
    starts = {entry.log_offset for entry in walk.records} | set(walk.blanks)
    assert {part.start for part in ranges} <= starts
    assert all(one.end == other.start for one, other in pairwise(ranges))
    assert (ranges[0].start, ranges[-1].end) == (walk.min_offset, walk.next_offset)
    assert len(ranges) >= (walk.next_offset - walk.min_offset) // 150_000
    log.close()


def write_log(folder: Path, content: bytes, size: int = 20_000) -> Path:
    (folder / "commitlog").mkdir(parents=True)
    (folder / "commitlog" / f"{0:020d}").write_bytes(content.ljust(size, b"\0"))
    return folder


def ten_records() -> bytes:
    size = len(record(body=bytes(500)))
    return b"".join(record(body=bytes(500), log_offset=size * number) for number in range(10))


@pytest.fixture
def disk() -> Disk:
    return ReadOnlyDisk()


def end_of(root: Path, disk: Disk) -> int:
    (store,) = find_stores(disk, root)
    return StoredLog(store, disk).next_offset


@pytest.mark.parametrize("lost", [0, 1, 300])
def test_a_record_that_is_being_written_does_not_count(tmp_path: Path, disk: Disk, lost: int) -> None:
    whole = ten_records()
    torn = bytearray(record(body=b"x" * 500, properties=b"TAGS\x01a\x02", log_offset=len(whole)))
    torn[len(torn) - 1 - lost :] = bytes(lost + 1)
    root = write_log(tmp_path, whole + bytes(torn))
    (root / "abort").touch()
    assert end_of(root, disk) == len(whole)


def test_what_lies_behind_a_log_at_rest_is_damage_that_a_reader_shall_meet(tmp_path: Path, disk: Disk) -> None:
    root = write_log(tmp_path, ten_records() + b"something that is no record")
    assert end_of(root, disk) == 20_000


def test_damage_in_the_middle_is_not_the_end(tmp_path: Path, disk: Disk) -> None:
    content = bytearray(ten_records())
    content[len(content) // 2 : len(content) // 2 + 200] = bytes(200)
    root = write_log(tmp_path, bytes(content))
    assert end_of(root, disk) == len(content)


def test_a_queue_that_points_at_nothing_is_not_believed(tmp_path: Path, disk: Disk) -> None:
    content = ten_records()
    root = write_log(tmp_path, content)
    (root / "consumequeue" / "orders" / "0").mkdir(parents=True)
    units = struct.pack(">qiq", 7, 100, 0) + struct.pack(">qiq", 1234, 100, 0)
    (root / "consumequeue" / "orders" / "0" / f"{0:020d}").write_bytes(units)
    (store,) = find_stores(disk, root)
    log = StoredLog(store, disk)
    size = len(content) // 10
    assert {part.start for part in plan_ranges(log, EVERYTHING, 2000)} <= {size * number for number in range(10)}
    assert log.next_offset == len(content)
