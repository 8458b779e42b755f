"""The disks for tests in `rocketline.testing` behave as they say."""

import errno
from pathlib import Path

import pytest

from rocketline.clock import ManualClock
from rocketline.errors import DiskFull, StoreError
from rocketline.store.files.disk import RealDisk
from rocketline.testing.disks import SECTOR_BYTES, FaultyDisk, MemoryDisk

DATA = Path("/data")


def disk_with_file(size: int = 4 * SECTOR_BYTES) -> tuple[MemoryDisk, memoryview]:
    disk = MemoryDisk()
    disk.make_folder(DATA)
    file = disk.open_mapped(DATA / "file", size)
    file.reserve(0, size)
    return disk, file.buffer


def test_a_crash_keeps_only_what_was_synced() -> None:
    disk, buffer = disk_with_file()
    buffer[:5] = b"first"
    disk.sync(DATA / "file")
    buffer[:5] = b"later"
    assert disk.read(DATA / "file")[:5] == b"later"
    assert disk.crash().read(DATA / "file")[:5] == b"first"
    assert disk.read(DATA / "file")[:5] == b"later"


def test_a_file_that_was_never_synced_is_lost() -> None:
    disk, _ = disk_with_file()
    assert disk.crash().read(DATA / "file") is None


def test_a_seeded_crash_keeps_whole_sectors_and_repeats() -> None:
    outcomes = set()
    for seed in range(60):
        disk, buffer = disk_with_file()
        disk.sync(DATA / "file")
        buffer[:] = b"n" * len(buffer)
        found = disk.crash(seed).read(DATA / "file")
        assert found == disk.crash(seed).read(DATA / "file")
        sectors = tuple(found[start : start + SECTOR_BYTES] for start in range(0, len(found), SECTOR_BYTES))
        assert set(sectors) <= {b"n" * SECTOR_BYTES, bytes(SECTOR_BYTES)}
        outcomes.add(sectors)
    assert len(outcomes) > 4


def test_a_seeded_crash_may_leave_a_new_file_missing_empty_or_whole() -> None:
    disk, _ = disk_with_file()
    sizes = {len(found) if (found := disk.crash(seed).read(DATA / "file")) is not None else None for seed in range(30)}
    assert sizes == {None, 0, 4 * SECTOR_BYTES}


def test_files_replaced_atomically_survive() -> None:
    disk, _ = disk_with_file()
    disk.write_atomic(DATA / "topics.json", b"{}")
    assert disk.crash(1).read(DATA / "topics.json") == b"{}"


def test_the_nth_matching_call_fails_once() -> None:
    inner, _ = disk_with_file()
    disk = FaultyDisk(inner)
    disk.fail("sync", errno.EIO, nth=2, part="file")
    disk.sync(DATA / "file")
    with pytest.raises(StoreError, match="cannot sync /data/file: Input/output error"):
        disk.sync(DATA / "file")
    disk.sync(DATA / "file")


def test_a_fault_may_last_until_healed() -> None:
    inner, _ = disk_with_file()
    disk = FaultyDisk(inner)
    disk.fail("reserve", errno.ENOSPC, forever=True)
    file = disk.open_mapped(DATA / "file", 4 * SECTOR_BYTES)
    for _ in range(2):
        with pytest.raises(DiskFull):
            file.reserve(0, 10)
    disk.heal()
    file.reserve(0, 10)


def test_a_file_in_memory_is_as_old_as_its_last_change() -> None:
    clock = ManualClock(1000)
    disk = MemoryDisk(clock)
    disk.make_folder(DATA)
    file = disk.open_mapped(DATA / "file", SECTOR_BYTES)
    clock.advance(1)
    file.reserve(0, SECTOR_BYTES)
    assert disk.modified_ms(DATA / "file") == 2000
    clock.advance(1)
    file.buffer[:3] = b"new"
    file.sync()
    clock.advance(1)
    file.sync()
    assert disk.modified_ms(DATA / "file") == 3000, "a sync without a change is none"
    assert disk.crash().modified_ms(DATA / "file") == 3000


def test_a_disk_in_memory_has_the_room_it_is_told() -> None:
    disk, _ = disk_with_file(1000)
    disk.total_bytes, disk.used_elsewhere = 10_000, 4000
    assert disk.usage(DATA) == (10_000, 5000)
    assert disk.crash().usage(DATA).total_bytes == 10_000
    disk.used_elsewhere = 20_000
    assert disk.usage(DATA) == (10_000, 0)


def test_a_folder_can_be_moved_with_everything_in_it(tmp_path: Path) -> None:
    for disk, root in ((MemoryDisk(), Path("/data")), (RealDisk(), tmp_path)):
        disk.make_folder(root / "a" / "b")
        disk.write_atomic(root / "a" / "b" / "file", b"x")
        disk.move_folder(root / "a", root / "c")
        assert disk.read(root / "c" / "b" / "file") == b"x"
        assert not disk.exists(root / "a")
        with pytest.raises(StoreError, match="cannot rename"):
            disk.move_folder(root / "a", root / "d")
        disk.make_folder(root / "e" / "f")
        with pytest.raises(StoreError, match="cannot rename"):
            disk.move_folder(root / "e", root / "c")
