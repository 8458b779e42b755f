import errno
from pathlib import Path

import pytest

from rocketline.errors import DiskFull, StoreError
from rocketline.store.files import segmented_file
from rocketline.store.files.segmented_file import SegmentedFile
from rocketline.testing.disks import FaultyDisk, MemoryDisk

LOG = Path("/data/commitlog")


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def chain(disk: MemoryDisk, *offsets: int) -> SegmentedFile:
    file = SegmentedFile(disk, LOG, 100)
    for offset in offsets:
        file.add(offset).reserve(100, 100)
    return file


def names(disk: MemoryDisk) -> list[str]:
    return [entry.name for entry in disk.list(LOG)]


def test_files_are_named_by_their_start(disk: MemoryDisk) -> None:
    file = chain(disk, 0, 100, 250)
    assert names(disk) == ["00000000000000000000", "00000000000000000100", "00000000000000000200"]
    assert len(file) == 3
    assert file.add(299) is file.last


def test_a_chain_may_start_anywhere_and_is_found_again(disk: MemoryDisk) -> None:
    chain(disk, 5_000_000_000, 5_000_000_100)
    disk.write_atomic(LOG / "notes.txt", b"not ours")
    again = SegmentedFile(disk, LOG, 100)
    again.load()
    assert again.min_offset == 5_000_000_000
    assert again.segment_at(5_000_000_150) is again.last
    assert again.segment_at(5_000_000_200) is None
    assert again.segment_at(0) is None


@pytest.mark.parametrize("size", [1, 99, 101])
def test_a_file_of_another_size_refuses_to_load(disk: MemoryDisk, size: int) -> None:
    chain(disk, 0)
    disk.write_atomic(LOG / "00000000000000000100", bytes(size))
    with pytest.raises(StoreError, match=f"00000000000000000100 has {size} bytes, but files of 100 bytes"):
        SegmentedFile(disk, LOG, 100).load()


def test_a_name_between_two_files_refuses_to_load(disk: MemoryDisk) -> None:
    chain(disk, 0)
    disk.write_atomic(LOG / "00000000000000000150", bytes(100))
    with pytest.raises(StoreError, match="00000000000000000150"):
        SegmentedFile(disk, LOG, 100).load()


def test_a_last_file_without_bytes_is_removed(disk: MemoryDisk) -> None:
    chain(disk, 0)
    disk.write_atomic(LOG / "00000000000000000100", b"")
    file = SegmentedFile(disk, LOG, 100)
    file.load()
    assert len(file) == 1
    assert names(disk) == ["00000000000000000000"]


def test_a_middle_file_without_bytes_is_only_forgiven_after_a_crash(disk: MemoryDisk) -> None:
    chain(disk, 0, 200)
    disk.write_atomic(LOG / "00000000000000000100", b"")
    with pytest.raises(StoreError, match="has 0 bytes"):
        SegmentedFile(disk, LOG, 100).load()
    file = SegmentedFile(disk, LOG, 100)
    file.load(after_crash=True)
    assert [segment.base for segment in file] == [0, 200]


def test_a_slice_never_crosses_a_file(disk: MemoryDisk) -> None:
    file = chain(disk, 0, 100)
    file.add(100).open()[:4] = b"data"
    assert file.slice(100, 104) == b"data"
    assert file.slice(96, 104) is None
    assert file.slice(250, 260) is None
    assert file.slice(50, 40) is None


def test_flushing_covers_every_file_up_to_the_end(disk: MemoryDisk) -> None:
    file = chain(disk, 0, 100, 200)
    for base in (0, 100, 200):
        file.add(base).open()[:1] = b"x"
    file.flush(150)
    assert file.flushed == 150
    after = disk.crash()
    assert after.read(LOG / f"{0:020d}")[:1] == after.read(LOG / f"{100:020d}")[:1] == b"x"
    assert after.read(LOG / f"{200:020d}") is None
    file.flush(120)
    assert file.flushed == 150


def test_a_failed_flush_moves_nothing(disk: MemoryDisk) -> None:
    faulty = FaultyDisk(disk)
    file = SegmentedFile(faulty, LOG, 100)
    file.add(0).reserve(1, 100)
    faulty.fail("sync")
    with pytest.raises(StoreError):
        file.flush(10)
    assert file.flushed == 0


def test_flushing_a_deleted_file_is_not_a_failure(disk: MemoryDisk) -> None:
    file = chain(disk, 0, 100)
    first = file.first
    assert first is not None
    first.delete()
    file.flush(150)
    assert file.flushed == 150


def test_truncating_deletes_later_files_and_erases_the_rest(disk: MemoryDisk) -> None:
    file = chain(disk, 0, 100, 200)
    for segment in file:
        segment.open()[:] = b"x" * 100
    file.flush(300)
    assert file.truncate(130) == 1
    assert names(disk) == ["00000000000000000000", "00000000000000000100"]
    assert file.slice(100, 200) == b"x" * 30 + bytes(70)
    assert file.flushed == 130
    assert disk.crash().read(LOG / f"{100:020d}") == b"x" * 30 + bytes(70)
    file.truncate(100)
    assert len(file) == 1
    file.truncate(0)
    assert len(file) == 0


def test_the_first_file_can_go_but_not_the_last(disk: MemoryDisk) -> None:
    file = chain(disk, 0, 100)
    file.remove_first()
    assert file.min_offset == 100
    file.remove_first()
    assert file.min_offset == 100


def test_a_file_taken_out_of_the_chain_is_left_to_the_taker(disk: MemoryDisk) -> None:
    file = chain(disk, 0, 100)
    held = file.slice(0, 5)
    taken = file.take_first()
    assert (taken.base, file.min_offset, len(file), file.slice(0, 5)) == (0, 100, 1, None)
    assert len(names(disk)) == 2
    assert held == bytes(5)
    disk.remove(taken.path)
    file._sync(taken)  # a flusher that found it just before
    file.flush(150)
    assert file.flushed == 150


def test_the_next_file_is_made_ahead(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmented_file, "PREPARE_FROM_BYTES", 100)
    file = chain(disk, 0)
    file.prepare_next()
    file.prepare_next()
    assert file.add(100).base == 100
    assert [segment.base for segment in file] == [0, 100]
    file.prepare_next()
    file.close()
    assert names(disk) == ["00000000000000000000", "00000000000000000100"], "the one made ahead is removed again"


def test_a_file_that_could_not_be_made_ahead_is_made_when_needed(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segmented_file, "PREPARE_FROM_BYTES", 100)
    faulty = FaultyDisk(disk)
    file = SegmentedFile(faulty, LOG, 100)
    file.add(0)
    faulty.fail("open", errno.ENOSPC)
    file.prepare_next()
    assert file.add(100).base == 100
    faulty.fail("open", errno.ENOSPC, forever=True)
    file.prepare_next()
    with pytest.raises(DiskFull):
        file.add(200)
    file.prepare_next()
    file.close()


def test_destroy_removes_the_folder(disk: MemoryDisk) -> None:
    file = chain(disk, 0, 100)
    file.destroy()
    assert not disk.exists(LOG)
    assert len(file) == 0
