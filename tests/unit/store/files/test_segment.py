from pathlib import Path

import pytest
from tests.support.patching import patch_here

from rocketline.errors import StoreError
from rocketline.store.files import disk as disk_module
from rocketline.store.files import mapped_file
from rocketline.store.files.disk import RealDisk
from rocketline.store.files.segment import SMALL_FILE_BYTES, MapPool, Segment
from rocketline.testing.disks import FaultyDisk, MemoryDisk

DATA = Path("/data")


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_folder(DATA)
    return disk


def test_it_is_mapped_when_needed_and_again_after_close(disk: MemoryDisk) -> None:
    segment = Segment(disk, DATA / "0", 0, 100)
    assert segment.view is None
    segment.open()[:3] = b"abc"
    assert segment.open() is segment.view
    segment.close()
    assert segment.view is None
    assert segment.open()[:3] == b"abc"


def test_a_small_file_is_reserved_at_once_and_a_large_one_in_steps(tmp_path: Path) -> None:
    small = Segment(RealDisk(), tmp_path / "small", 0, 10_000)
    small.reserve(1, 4096)
    assert small.reserved == 10_000
    large = Segment(RealDisk(), tmp_path / "large", 0, SMALL_FILE_BYTES + 100)
    large.reserve(1, 65536)
    assert large.reserved == 65536
    large.reserve(65537, 65536)
    assert large.reserved == 2 * 65536
    large.reserve(SMALL_FILE_BYTES + 100, 65536)
    assert large.reserved == SMALL_FILE_BYTES + 100
    small.close()
    large.close()


def test_a_failed_reservation_can_be_tried_again(disk: MemoryDisk) -> None:
    faulty = FaultyDisk(disk)
    faulty.fail("reserve")
    segment = Segment(faulty, DATA / "0", 0, 100)
    with pytest.raises(StoreError):
        segment.reserve(10, 10)
    assert segment.reserved == 0
    segment.reserve(10, 10)
    assert segment.reserved == 100


def test_erasing_is_durable(disk: MemoryDisk) -> None:
    segment = Segment(disk, DATA / "0", 0, 100)
    segment.reserve(100, 10)
    segment.open()[:] = b"x" * 100
    segment.sync()
    segment.erase(40)
    assert disk.crash().read(DATA / "0") == b"x" * 40 + bytes(60)


def test_a_segment_can_be_synced_while_it_is_not_mapped(disk: MemoryDisk) -> None:
    segment = Segment(disk, DATA / "0", 0, 100)
    segment.reserve(100, 10)
    segment.open()[:3] = b"abc"
    segment.close()
    segment.sync()
    assert disk.crash().read(DATA / "0")[:3] == b"abc"


def test_delete_removes_the_file(disk: MemoryDisk) -> None:
    segment = Segment(disk, DATA / "0", 0, 100)
    segment.open()
    segment.delete()
    assert segment.deleted
    assert not disk.exists(DATA / "0")


def test_a_pool_unmaps_the_oldest(disk: MemoryDisk) -> None:
    pool = MapPool(2)
    segments = [Segment(disk, DATA / str(number), 0, 100, pool=pool) for number in range(3)]
    for segment in segments:
        segment.open()
    assert [segment.view is None for segment in segments] == [True, False, False]
    segments[0].open()
    assert [segment.view is None for segment in segments] == [False, True, False]


def test_a_pool_never_unmaps_what_was_just_asked_for(disk: MemoryDisk) -> None:
    pool = MapPool(2)
    first, second = (Segment(disk, DATA / str(number), 0, 100, pool=pool) for number in range(2))
    first.open()
    first.close()
    second.open()
    assert len(first.open()) == 100
    assert first.view is not None


def test_a_new_file_that_was_unmapped_before_its_first_flush_gets_its_name_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a power failure could take the whole file, although its bytes were flushed."""
    synced: list[Path] = []
    for module in (disk_module, mapped_file):
        patch_here(monkeypatch, module, "sync_folder", synced.append)
    for reopened in (False, True):
        segment = Segment(RealDisk(), tmp_path / str(reopened), 0, 4096)
        segment.open()
        segment.close()
        if reopened:
            segment.open()
        synced.clear()
        segment.sync()
        assert synced == [tmp_path]
        segment.sync()
        assert synced == [tmp_path], "once is enough"
        segment.close()
