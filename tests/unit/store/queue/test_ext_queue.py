import logging
from pathlib import Path

import pytest

from rocketline.errors import ConfigError, StoreError
from rocketline.store.config import ExtQueueConfig
from rocketline.store.files.segment import MapPool
from rocketline.store.files.segmented_file import SegmentedFile
from rocketline.store.queue.ext_queue import ADDRESS_MAX, ADDRESS_MIN, ExtQueue, ExtQueues, ExtUnit
from rocketline.testing.disks import FaultyDisk, MemoryDisk

FOLDER = Path("/data/consumequeue_ext/orders/0")
SEGMENT_BYTES = 128
"""Six units without bitmap: 120 bytes, and four to spare."""
NO_ADDRESS = 7
MS = 1_700_000_000_000


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def new_queue(disk: MemoryDisk | FaultyDisk) -> ExtQueue:
    file = SegmentedFile(disk, FOLDER, SEGMENT_BYTES)
    file.load()
    return ExtQueue(file)


def filled(disk: MemoryDisk, count: int) -> ExtQueue:
    queue = new_queue(disk)
    for number in range(count):
        queue.put(number, MS + number)
    return queue


def file_bytes(disk: MemoryDisk, base: int) -> bytes:
    found = disk.read(FOLDER / f"{base:020d}")
    assert found is not None
    return found


class TestUnits:
    def test_layout(self, disk: MemoryDisk) -> None:
        queue = new_queue(disk)
        first = queue.put(-5, 0x0102030405060708)
        second = queue.put(6, 9, b"\xaa\xbb\xcc")
        assert (first, second) == (ADDRESS_MIN, ADDRESS_MIN + 20)
        assert file_bytes(disk, 0).hex() == (
            "0014" "fffffffffffffffb" "0102030405060708" "0000"
            "0017" "0000000000000006" "0000000000000009" "0003" "aabbcc"
        ) + "00" * (SEGMENT_BYTES - 43)  # fmt: skip

    def test_what_was_put_is_got(self, disk: MemoryDisk) -> None:
        queue = new_queue(disk)
        units = [ExtUnit(number - 20, MS + number, bytes([number]) * (number % 15)) for number in range(40)]
        addresses = [queue.put(*unit) for unit in units]
        assert [queue.get(address) for address in addresses] == units
        assert addresses == sorted(set(addresses))
        assert [new_queue(disk).get(address) for address in addresses] == units

    def test_a_unit_never_spans_files(self, disk: MemoryDisk) -> None:
        queue = filled(disk, 7)
        assert file_bytes(disk, 0)[120:] == b"\xff\xff" + bytes(6)
        assert queue.get(ADDRESS_MIN + SEGMENT_BYTES) == ExtUnit(6, MS + 6, b"")
        assert queue.end == SEGMENT_BYTES + 20

    def test_four_bytes_are_to_spare(self, disk: MemoryDisk) -> None:
        queue = filled(disk, 5)
        queue.put(5, MS, b"1234")
        assert queue.end == SEGMENT_BYTES - 4, "the last place"
        assert queue.put(6, MS) == ADDRESS_MIN + SEGMENT_BYTES
        assert file_bytes(disk, 0)[-4:] == b"\xff\xff\0\0"
        other = MemoryDisk()
        queue = filled(other, 5)
        assert queue.put(5, MS, b"12345") == ADDRESS_MIN + SEGMENT_BYTES
        assert file_bytes(other, 0)[100:] == b"\xff\xff" + bytes(26)

    @pytest.mark.parametrize("size", [SEGMENT_BYTES - 4 - 20 + 1, 0x7FFF - 20 + 1, 100_000])
    def test_a_bitmap_that_fits_nowhere_is_refused(self, disk: MemoryDisk, size: int) -> None:
        queue = filled(disk, 2)
        with pytest.raises(StoreError, match="fits into no file"):
            queue.put(1, MS, bytes(size))
        assert queue.put(2, MS) == ADDRESS_MIN + 40

    def test_the_largest_unit(self, disk: MemoryDisk) -> None:
        file = SegmentedFile(disk, FOLDER, 1 << 18)
        queue = ExtQueue(file)
        address = queue.put(1, MS, bytes(range(256)) * 127 + bytes(0x7FFF - 20 - 256 * 127))
        found = queue.get(address)
        assert found is not None
        assert len(found.bitmap) == 0x7FFF - 20
        with pytest.raises(StoreError, match="32768 bytes fits"):
            queue.put(1, MS, bytes(0x7FFF - 19))

    def test_a_full_disk_changes_nothing(self) -> None:
        disk = FaultyDisk(MemoryDisk())
        queue = new_queue(disk)
        for number in range(6):
            queue.put(number, MS)
        disk.fail("reserve", 28, part=f"{SEGMENT_BYTES:020d}", nth=1)
        with pytest.raises(StoreError):
            queue.put(6, MS)
        assert queue.put(6, MS) == ADDRESS_MIN + SEGMENT_BYTES
        assert [queue.get(ADDRESS_MIN + number * 20) for number in range(6)] == [
            ExtUnit(number, MS, b"") for number in range(6)
        ]

    def test_addresses_come_to_an_end(self, disk: MemoryDisk) -> None:
        queue = new_queue(disk)
        queue.end_after(ADDRESS_MAX)
        with pytest.raises(StoreError, match="last address"):
            queue.put(1, MS)
        assert len(queue.file) == 0

    def test_few_files_stay_mapped(self, disk: MemoryDisk) -> None:
        file = SegmentedFile(disk, FOLDER, SEGMENT_BYTES, pool=MapPool(2))
        queue = ExtQueue(file)
        addresses = [queue.put(number, MS) for number in range(60)]
        assert [queue.get(address) for address in addresses] == [ExtUnit(number, MS, b"") for number in range(60)]
        assert sum(segment.view is not None for segment in file) <= 2
        assert queue.get(queue.put(60, MS)) == ExtUnit(60, MS, b"")


class TestDamage:
    @pytest.mark.parametrize("position", [60, 59, 127, 128, 1000, 1 << 40, (1 << 63) - 1])
    def test_no_unit_there(self, disk: MemoryDisk, position: int) -> None:
        assert filled(disk, 3).get(ADDRESS_MIN + position) is None

    def test_the_end_mark_is_no_unit(self, disk: MemoryDisk) -> None:
        queue = filled(disk, 5)
        queue.put(5, MS, bytes(10))
        assert queue.get(ADDRESS_MIN + 100) is None

    @pytest.mark.parametrize(
        ("at", "value"),
        [(20, b"\0\0"), (20, b"\xff\xff"), (20, b"\0\x15"), (38, b"\0\x01"), (38, b"\xff\xff"), (30, bytes(8))],
        ids=["no size", "negative size", "size too large", "bitmap too large", "negative bitmap", "no store time"],
    )
    def test_a_unit_that_does_not_add_up(self, disk: MemoryDisk, at: int, value: bytes) -> None:
        queue = filled(disk, 3)
        segment = queue.file.first
        assert segment is not None
        segment.open()[at : at + len(value)] = value
        assert queue.get(ADDRESS_MIN + 20) is None
        assert queue.get(ADDRESS_MIN + 40) == ExtUnit(2, MS + 2, b"")

    def test_a_bitmap_may_not_leave_its_file(self, disk: MemoryDisk) -> None:
        queue = filled(disk, 3)
        segment = queue.file.first
        assert segment is not None
        segment.open()[40:42] = (20 + 100).to_bytes(2, "big")
        segment.open()[58:60] = (100).to_bytes(2, "big")
        assert queue.get(ADDRESS_MIN + 40) is None


class TestEnd:
    def test_it_is_behind_the_newest_unit_listed(self, disk: MemoryDisk) -> None:
        filled(disk, 15)
        again = new_queue(disk)
        again.end_after(ADDRESS_MIN + 40)
        assert again.end == 60
        assert len(again.file) == 1
        assert file_bytes(disk, 0)[60:] == bytes(SEGMENT_BYTES - 60)
        assert again.put(77, MS, b"bits") == ADDRESS_MIN + 60
        assert again.get(ADDRESS_MIN + 40) == ExtUnit(2, MS + 2, b"")
        assert again.get(ADDRESS_MIN + 60) == ExtUnit(77, MS, b"bits")

    def test_a_bitmap_counts(self, disk: MemoryDisk) -> None:
        queue = new_queue(disk)
        address = queue.put(1, MS, b"four")
        queue.put(2, MS)
        again = new_queue(disk)
        again.end_after(address)
        assert again.end == 24

    def test_when_the_newest_unit_is_lost_no_address_is_used_again(self, disk: MemoryDisk) -> None:
        filled(disk, 3)
        again = new_queue(disk)
        again.end_after(ADDRESS_MIN + 60)
        assert again.put(9, MS) == ADDRESS_MIN + SEGMENT_BYTES
        lost = new_queue(MemoryDisk())
        lost.end_after(ADDRESS_MIN + 5 * SEGMENT_BYTES + 40)
        assert lost.put(9, MS) == ADDRESS_MIN + 6 * SEGMENT_BYTES

    def test_nothing_is_left_behind_a_lost_unit(self, disk: MemoryDisk) -> None:
        queue = filled(disk, 15)
        segment = queue.file.first
        assert segment is not None
        segment.open()[40:42] = b"\0\0"
        queue.end_after(ADDRESS_MIN + 40)
        assert file_bytes(disk, 0)[40:] == bytes(SEGMENT_BYTES - 40)
        assert len(queue.file) == 1
        assert queue.put(9, MS) == ADDRESS_MIN + SEGMENT_BYTES

    def test_when_the_newest_message_has_no_unit_a_new_file_begins(self, disk: MemoryDisk) -> None:
        filled(disk, 3)
        again = new_queue(disk)
        again.end_after(NO_ADDRESS)
        assert again.put(9, MS) == ADDRESS_MIN + SEGMENT_BYTES
        assert again.get(ADDRESS_MIN + 40) == ExtUnit(2, MS + 2, b"")

    def test_before_it_is_known_nothing_is_overwritten(self, disk: MemoryDisk) -> None:
        filled(disk, 3)
        assert new_queue(disk).put(9, MS) == ADDRESS_MIN + SEGMENT_BYTES

    def test_of_an_empty_consume_queue(self, disk: MemoryDisk) -> None:
        queue = filled(disk, 15)
        queue.clear()
        assert len(queue.file) == 0
        assert queue.put(9, MS) == ADDRESS_MIN
        assert file_bytes(disk, 0)[20:] == bytes(SEGMENT_BYTES - 20)


class TestBeginning:
    def test_files_below_the_oldest_unit_listed_go(self, disk: MemoryDisk) -> None:
        queue = filled(disk, 30)
        assert len(queue.file) == 5
        names = [FOLDER / f"{number * SEGMENT_BYTES:020d}" for number in (0, 1)]
        assert queue.take_before(ADDRESS_MIN + 2 * SEGMENT_BYTES) == names
        assert [segment.base for segment in queue.file] == [2 * SEGMENT_BYTES, 3 * SEGMENT_BYTES, 4 * SEGMENT_BYTES]
        assert all(disk.exists(name) for name in names), "whoever took them removes them"
        assert queue.take_before(ADDRESS_MIN + 3 * SEGMENT_BYTES - 8) == queue.take_before(NO_ADDRESS) == []
        assert len(queue.file) == 3
        assert queue.get(ADDRESS_MIN) is None

    def test_the_last_file_stays(self, disk: MemoryDisk) -> None:
        queue = filled(disk, 30)
        assert len(queue.take_before(ADDRESS_MIN + 100 * SEGMENT_BYTES)) == 4
        assert [segment.base for segment in queue.file] == [4 * SEGMENT_BYTES]
        assert queue.put(30, MS) == ADDRESS_MIN + 5 * SEGMENT_BYTES


class TestFlush:
    def test_only_what_was_flushed_survives(self, disk: MemoryDisk) -> None:
        queue = filled(disk, 8)
        queue.flush()
        queue.put(8, MS)
        after = new_queue(disk.crash())
        assert after.get(ADDRESS_MIN + SEGMENT_BYTES + 20) == ExtUnit(7, MS + 7, b"")
        assert after.get(ADDRESS_MIN + SEGMENT_BYTES + 40) is None

    def test_what_is_written_after_a_cut_is_flushed_too(self, disk: MemoryDisk) -> None:
        queue = filled(disk, 15)
        queue.flush()
        for cut in (queue, new_queue(disk)):
            cut.end_after(ADDRESS_MIN + 20)
            address = cut.put(99, MS)
            cut.flush()
            assert new_queue(disk.crash()).get(address) == ExtUnit(99, MS, b"")

    def test_a_failed_sync_is_told(self) -> None:
        disk = FaultyDisk(MemoryDisk())
        queue = new_queue(disk)
        queue.put(1, MS)
        disk.fail("sync")
        with pytest.raises(StoreError, match="sync"):
            queue.flush()
        assert queue.file.flushed == 0


class TestFinding:
    def queues(self, disk: MemoryDisk, enabled: bool, segment_bytes: int = SEGMENT_BYTES) -> ExtQueues:
        return ExtQueues(disk, FOLDER.parent.parent, ExtQueueConfig(enabled, segment_bytes), MapPool())

    def test_switched_off_and_never_used(self, disk: MemoryDisk) -> None:
        off = self.queues(disk, False)
        assert off.find("orders", 0, False) is None
        assert off.make("orders", 0) is None

    def test_switched_off_but_used_before_with_files_of_any_size(self, disk: MemoryDisk) -> None:
        filled(disk, 9)
        found = self.queues(disk, False, 48 << 20).find("orders", 0, False)
        assert found is not None
        assert found.get(ADDRESS_MIN + SEGMENT_BYTES) == ExtUnit(6, MS + 6, b"")

    def test_switched_off_and_damaged(self, disk: MemoryDisk, caplog: pytest.LogCaptureFixture) -> None:
        filled(disk, 9)
        disk.write_atomic(FOLDER / f"{0:020d}", b"short")
        with caplog.at_level(logging.WARNING):
            assert self.queues(disk, False).find("orders", 0, False) is None
        assert "has 5 bytes" in caplog.text

    def test_switched_on_files_must_have_the_configured_size(self, disk: MemoryDisk) -> None:
        filled(disk, 9)
        assert self.queues(disk, True).find("orders", 0, False) is not None
        with pytest.raises(StoreError, match="has 128 bytes, but files of 256 bytes are configured"):
            self.queues(disk, True, 256).find("orders", 0, False)

    def test_a_new_queue_inherits_nothing(self, disk: MemoryDisk) -> None:
        filled(disk, 9)
        made = self.queues(disk, True, 256).make("orders", 0)
        assert made is not None
        assert disk.list(FOLDER) == []
        assert made.put(1, MS) == ADDRESS_MIN

    def test_a_file_without_room_for_a_unit_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="mappedFileSizeConsumeQueueExt=23"):
            ExtQueueConfig(segment_bytes=23)
