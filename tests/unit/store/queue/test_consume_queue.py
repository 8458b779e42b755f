from collections import deque
from pathlib import Path

import pytest
from tests.unit.store.samples import HOST, message, tiny

from rocketline.clock import ManualClock
from rocketline.errors import StoreError
from rocketline.store.config import UNIT_BYTES
from rocketline.store.files.segmented_file import SegmentedFile
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.queue.consume_queue import FILLER_SIZE, UNIT, ConsumeQueue
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.testing.disks import MemoryDisk

QUEUE = Path("/data/consumequeue/orders/0")


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def new_queue(disk: MemoryDisk, load: bool = False) -> ConsumeQueue:
    """Ten units to a file."""
    file = SegmentedFile(disk, QUEUE, 200)
    if load:
        file.load()
    return ConsumeQueue(file, deque())


def filled(disk: MemoryDisk, count: int, first: int = 0) -> ConsumeQueue:
    queue = new_queue(disk)
    for number in range(first, first + count):
        queue.put(number, 1000 + number * 100, 100, number)
    return queue


def file_bytes(disk: MemoryDisk, base: int) -> bytes:
    found = disk.read(QUEUE / f"{base:020d}")
    assert found is not None
    return found


def test_unit_n_lies_at_byte_20_n(disk: MemoryDisk) -> None:
    filled(disk, 13)
    assert file_bytes(disk, 0)[40:60] == UNIT.pack(1200, 100, 2)
    assert file_bytes(disk, 200)[40:60] == UNIT.pack(2200, 100, 12)
    assert file_bytes(disk, 200)[60:] == bytes(140)


def test_a_record_is_listed_once(disk: MemoryDisk) -> None:
    queue = filled(disk, 5)
    queue.put(2, 1200, 100, 99)
    queue.put(4, 1400, 100, 99)
    assert queue.max_offset == 5
    assert queue.unit(4) == (1400, 100, 4)


def test_a_queue_that_starts_late_begins_with_filler(disk: MemoryDisk) -> None:
    queue = filled(disk, 2, first=23)
    assert file_bytes(disk, 400)[:60] == UNIT.pack(0, FILLER_SIZE, 0) * 3
    assert (queue.min_offset, queue.max_offset) == (23, 25)
    again = new_queue(disk, load=True)
    again.find_end()
    again.follow_log_minimum(0)
    assert (again.min_offset, again.max_offset, again.next_log_offset) == (23, 25, 3500)


def test_a_gap_is_filled_inside_its_file_only(disk: MemoryDisk) -> None:
    queue = filled(disk, 2)
    queue.put(5, 9000, 100, 1)
    assert [queue.unit(number) for number in (1, 2, 4, 5)] == [
        (1100, 100, 1),
        (0, FILLER_SIZE, 0),
        (0, FILLER_SIZE, 0),
        (9000, 100, 1),
    ]
    queue.put(42, 9500, 100, 2)
    assert queue.max_offset == 43
    assert queue.unit(20) is None
    assert queue.next_file_offset(20) == 30
    assert len(queue.file) == 2


def test_a_topic_made_anew_restarts_its_numbers(disk: MemoryDisk) -> None:
    queue = filled(disk, 15)
    queue.put(0, 90_000, 100, 7)
    assert (queue.min_offset, queue.max_offset) == (0, 1)
    assert queue.unit(0) == (90_000, 100, 7)
    again = new_queue(disk, load=True)
    again.find_end()
    assert again.max_offset == 1


def test_units_end_with_their_file(disk: MemoryDisk) -> None:
    queue = filled(disk, 25)
    assert len(queue.units(7, 16_000) or b"") == 3 * UNIT_BYTES
    assert len(queue.units(10, 16_000) or b"") == 10 * UNIT_BYTES
    assert len(queue.units(20, 16_000) or b"") == 5 * UNIT_BYTES
    assert len(queue.units(10, 40) or b"") == 2 * UNIT_BYTES
    assert queue.unit(25) is None
    assert queue.unit(-1) is None


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 25])
def test_the_end_is_found_again(disk: MemoryDisk, count: int) -> None:
    filled(disk, count)
    again = new_queue(disk, load=True)
    again.find_end()
    assert again.max_offset == count
    assert again.next_log_offset == (1000 + count * 100 if count else 0)
    again.put(count, 90_000, 50, 1)
    assert again.unit(count) == (90_000, 50, 1)


def test_an_empty_file_at_the_end_does_not_hide_it(disk: MemoryDisk) -> None:
    filled(disk, 10).file.add(200)
    again = new_queue(disk, load=True)
    again.find_end()
    assert again.max_offset == 10
    assert len(again.file) == 1


@pytest.mark.parametrize(
    ("log_minimum", "expected"), [(0, 0), (1000, 0), (1001, 1), (1500, 5), (2300, 13), (3400, 24), (99_999, 25)]
)
def test_the_minimum_follows_the_log(disk: MemoryDisk, log_minimum: int, expected: int) -> None:
    queue = filled(disk, 25)
    queue.follow_log_minimum(log_minimum)
    assert queue.min_offset == expected


def test_truncating_forgets_units_for_good(disk: MemoryDisk) -> None:
    queue = filled(disk, 25)
    queue.truncate(12)
    assert (queue.max_offset, queue.next_log_offset) == (12, 2200)
    assert file_bytes(disk, 200)[40:] == bytes(160)
    queue.put(12, 5000, 10, 0)
    again = new_queue(disk, load=True)
    again.find_end()
    assert again.max_offset == 13


def test_a_queue_is_marked_dirty_once_until_it_is_flushed(disk: MemoryDisk) -> None:
    dirty: deque[ConsumeQueue] = deque()
    queue = ConsumeQueue(SegmentedFile(disk, QUEUE, 200), dirty)
    for number in range(12):
        queue.put(number, number * 100, 100, 0)
    assert list(dirty) == [queue]
    assert queue.dirty_bytes() == 240
    dirty.clear()
    queue.flush()
    assert queue.dirty_bytes() == 0
    assert disk.crash().read(QUEUE / f"{200:020d}") == file_bytes(disk, 200)
    queue.put(12, 1200, 100, 0)
    assert list(dirty) == [queue]


class TestAfterACrash:
    """The log holds eight records; units are made for them and then damaged."""

    def test_units_below_the_safe_offset_stay(self, disk: MemoryDisk) -> None:
        log, ends = self.log_and_queue(disk, 25)
        queue = new_queue(disk, load=True)
        queue.find_end_below(log, ends[13])
        assert queue.max_offset == 14
        assert queue.next_log_offset == ends[13]

    @pytest.mark.parametrize("torn", [11, 13])
    @pytest.mark.parametrize("part", [slice(0, 20), slice(0, 12), slice(8, 20), slice(4, 8)])
    def test_torn_units_end_what_is_kept(self, disk: MemoryDisk, torn: int, part: slice) -> None:
        log, ends = self.log_and_queue(disk, 25)
        queue = new_queue(disk, load=True)
        segment = queue.file.segment_at(torn * UNIT_BYTES)
        assert segment is not None
        start = torn * UNIT_BYTES - segment.base
        segment.open()[start + part.start : start + part.stop] = bytes(part.stop - part.start)
        queue.find_end_below(log, ends[-1])
        assert queue.max_offset == torn

    @pytest.mark.parametrize("change", [3, -3, 100])
    def test_a_last_unit_that_points_between_records_goes(self, disk: MemoryDisk, change: int) -> None:
        log, ends = self.log_and_queue(disk, 25)
        queue = new_queue(disk, load=True)
        unit = ends[13] + change, ends[14] - ends[13] - 200, 5
        segment = queue.file.segment_at(14 * UNIT_BYTES)
        assert segment is not None
        UNIT.pack_into(segment.open(), 14 * UNIT_BYTES - segment.base, *unit)
        queue.find_end_below(log, ends[14])
        assert queue.max_offset == 14

    def test_nothing_stays_when_nothing_is_safe(self, disk: MemoryDisk) -> None:
        log, _ = self.log_and_queue(disk, 25)
        queue = new_queue(disk, load=True)
        queue.find_end_below(log, 0)
        assert queue.max_offset == 0
        assert disk.list(QUEUE) == []

    def test_units_of_deleted_log_files_keep_the_numbering(self, disk: MemoryDisk) -> None:
        log, ends = self.log_and_queue(disk, 25)
        queue = new_queue(disk, load=True)
        while len(log.file) > 1:
            log.file.remove_first()
        assert log.min_offset > ends[12]
        queue.find_end_below(log, ends[12])
        assert queue.max_offset == 13

    def log_and_queue(self, disk: MemoryDisk, count: int) -> tuple[CommitLog, list[int]]:
        log = CommitLog(disk, Path("/data/commitlog"), tiny(), HOST, ManualClock())
        queue = new_queue(disk)
        ends = []
        for number in range(count):
            result = log.append(message(bytes(700)))
            queue.put(number, result.log_offset, result.size, 5)
            ends.append(int(result.next_log_offset))
        return log, ends


class TestSearchByTime:
    """Stored at 1000, 2000, 2000, 2000, 3000 ms."""

    @pytest.fixture
    def log(self, disk: MemoryDisk) -> CommitLog:
        clock = ManualClock(0)
        log = CommitLog(disk, Path("/data/commitlog"), tiny(), HOST, clock)
        for seconds in (1, 1, 0, 0, 1):
            clock.advance(seconds)
            log.append(message(bytes(1000)))
        return log

    @pytest.fixture
    def queue(self, disk: MemoryDisk, log: CommitLog) -> ConsumeQueue:
        queue = new_queue(disk)
        for entry in (entry for found in log.appended for entry in log.entries_of(found)):
            queue.put(entry.queue_offset, entry.log_offset, entry.size, 0)
        return queue

    @pytest.mark.parametrize(
        ("timestamp_ms", "lower", "upper"),
        [(0, 0, 0), (999, 0, 0), (1000, 0, 0), (1001, 1, 0), (2000, 1, 3), (2001, 4, 3), (3000, 4, 4), (3001, 5, 4)],
    )
    def test_bounds(self, log: CommitLog, queue: ConsumeQueue, timestamp_ms: int, lower: int, upper: int) -> None:
        assert queue.offset_at_time(log, timestamp_ms, upper=False) == lower
        assert queue.offset_at_time(log, timestamp_ms, upper=True) == upper

    def test_deleted_messages_do_not_count(self, log: CommitLog, queue: ConsumeQueue) -> None:
        queue.min_offset = 2
        assert queue.offset_at_time(log, 0, upper=False) == 2
        assert queue.offset_at_time(log, 0, upper=True) == 0


class TestConsumeQueues:
    def queues(self, disk: MemoryDisk, load: bool = False) -> ConsumeQueues:
        queues = ConsumeQueues(disk, QUEUE.parent.parent, tiny(open_queue_files=2))
        if load:
            queues.load(after_crash=False)
        return queues

    def test_they_are_found_again(self, disk: MemoryDisk) -> None:
        queues = self.queues(disk)
        for topic, queue_id in (("orders", 0), ("orders", 12), ("%RETRY%g", 0)):
            queues.obtain(topic, queue_id).put(0, 0, 10, 0)
        disk.make_folder(QUEUE.parent / "notes")
        disk.write_atomic(QUEUE.parent.parent / "file", b"")
        again = self.queues(disk, load=True)
        assert sorted(again.by_key) == [("%RETRY%g", 0), ("orders", 0), ("orders", 12)]
        assert again.topics() == {"orders", "%RETRY%g"}

    def test_more_queues_than_may_be_mapped_still_work(self, disk: MemoryDisk) -> None:
        queues = self.queues(disk)
        for number in range(3):
            for queue_id in range(5):
                queues.obtain("orders", queue_id).put(number, number * 1000 + queue_id * 100, 100, queue_id)
        for queue_id in range(5):
            assert queues.obtain("orders", queue_id).unit(2) == (2000 + queue_id * 100, 100, queue_id)

    def test_a_topic_is_taken_out_with_all_its_queues(self, disk: MemoryDisk) -> None:
        queues = self.queues(disk)
        queues.obtain("orders", 0).put(0, 0, 10, 0)
        queues.obtain("orders", 1).put(0, 10, 10, 0)
        queues.obtain("other", 0).put(0, 20, 10, 0)
        folder = QUEUE.parent
        extended = folder.parent.with_name("consumequeue_ext")
        assert queues.take_topic("orders") == ([0, 1], [extended / "orders", folder])
        assert queues.take_topic("nothing") == ([], [extended / "nothing", folder.parent / "nothing"])
        assert queues.topics() == {"other"}

    @pytest.mark.parametrize(("topic", "queue_id"), [("../x", 0), ("", 0), ("orders", -1)])
    def test_no_folder_is_made_for_a_hostile_name(self, disk: MemoryDisk, topic: str, queue_id: int) -> None:
        with pytest.raises(StoreError, match="no consume queue can be made"):
            self.queues(disk).obtain(topic, queue_id)
        queues = self.queues(disk)
        assert queues.take_topic("..") == ([], [])
        assert not disk.exists(QUEUE.parent.parent)
