"""Old files are removed by age, hour and disk usage; messages in the remaining files stay readable."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.leftovers import open_files, threads_since
from tests.unit.store.samples import NEVER, ROOT, item, message, new_store, opened, read_all, split, tiny

from rocketline.clock import ManualClock
from rocketline.errors import ConfigError, StoreClosed, StoreError
from rocketline.protocol.records import decode_record
from rocketline.store.config import ExtQueueConfig, FlushConfig, RetentionConfig, StoreConfig
from rocketline.store.files.disk import Disk, DiskUsage, RealDisk
from rocketline.store.message_store import AppendStatus, MessageStore, ReadStatus
from rocketline.store.retention.retention import ASKED_PASSES, HOUR_MS, count_expired, count_forced, may_expire
from rocketline.testing.disks import FaultyDisk, MemoryDisk

NOON_MS = 1_699_963_200_000
"""2023-11-14 12:00 in Greenwich."""

BODY_BYTES = 1000
PER_FILE = 3
"""So many messages of that size fit into one log file of 4 KiB."""

KEEP_A_DAY = RetentionConfig(reserved_hours=24, delete_when="04;16", files_per_pass=3, file_pause_ms=0)
LOG = ROOT / "commitlog"


@pytest.fixture(autouse=True)
def greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON_MS)


@pytest.fixture
def disk(clock: ManualClock) -> MemoryDisk:
    return MemoryDisk(clock)


def keeping(retention: RetentionConfig = KEEP_A_DAY, **changes: object) -> StoreConfig:
    return tiny(retention=retention, **changes)


def body(number: int) -> bytes:
    return f"{number:06d}".encode().ljust(BODY_BYTES, b".")


def fill(store: MessageStore, files: int, queues: int = 1, start: int = 0) -> None:
    """Messages that fill so many log files, and everything flushed."""
    for number in range(start, start + files * PER_FILE):
        assert (
            store.append(message(body(number), queue_id=number % queues, KEYS=f"k{number}")).status is AppendStatus.OK
        )
    store.flush_now()


def numbers(store: MessageStore, queue_id: int = 0) -> list[int]:
    """Which messages can be read."""
    found = [
        decode_record(record, 0, len(record), check_crc=True).body for record in read_all(store, queue_id=queue_id)
    ]
    return [int(bytes(content[:6])) for content in found]


def log_files(disk: Disk, root: Path = ROOT) -> list[int]:
    """Numbers of the log files on the disk."""
    return [int(entry.name) // 4096 for entry in disk.list(root / "commitlog")]


def use(disk: MemoryDisk, percent: float) -> None:
    """Fill the rest of a disk of a million bytes with something else."""
    disk.total_bytes, disk.used_elsewhere = 1_000_000, 0
    disk.used_elsewhere = round(percent * 10_000) - disk.usage(ROOT).used_bytes


class TestDecisions:
    @pytest.mark.parametrize(
        ("hours_ago", "count"),
        [
            ([], 0),
            ([23.9], 0),
            ([24], 1),
            ([30, 25, 20], 2),
            ([30, 20, 30], 1),
            ([-5, 30], 0),
            ([30, 30, 30, 30, 30], 3),
        ],
    )
    def test_files_are_expired_from_the_oldest_to_the_first_that_is_not(
        self, hours_ago: list[float], count: int
    ) -> None:
        modified_ms = [NOON_MS - round(hours * HOUR_MS) for hours in hours_ago]
        assert count_expired(KEEP_A_DAY, modified_ms, NOON_MS) == count

    def test_no_more_files_are_looked_at_than_needed(self) -> None:
        def ages() -> Iterator[int]:
            yield NOON_MS
            raise AssertionError("looked at")

        assert count_expired(KEEP_A_DAY, ages(), NOON_MS) == 0

    @pytest.mark.parametrize(("hour", "expected"), [(3, False), (4, True), (5, False), (16, True), (17, False)])
    def test_hours(self, hour: int, expected: bool) -> None:
        for minute in (0, 59):
            now_ms = NOON_MS + (hour - 12) * HOUR_MS + minute * 60_000
            assert may_expire(KEEP_A_DAY, DiskUsage(100, 50), now_ms) is expected

    def test_hours_are_local(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TZ", "Asia/Shanghai")
        time.tzset()
        assert may_expire(KEEP_A_DAY, DiskUsage(100, 50), NOON_MS + 8 * HOUR_MS)
        assert not may_expire(KEEP_A_DAY, DiskUsage(100, 50), NOON_MS + 4 * HOUR_MS)

    @pytest.mark.parametrize(("used", "expected"), [(0, False), (750, False), (751, True), (1000, True)])
    def test_above_a_ratio_any_hour_will_do(self, used: int, expected: bool) -> None:
        assert may_expire(KEEP_A_DAY, DiskUsage(1000, 1000 - used), NOON_MS) is expected

    @pytest.mark.parametrize(("used", "count"), [(0, 0), (850, 0), (851, 1), (860, 1), (861, 2), (880, 3), (1000, 3)])
    def test_as_many_are_forced_to_go_as_it_takes(self, used: int, count: int) -> None:
        assert count_forced(KEEP_A_DAY, DiskUsage(1000, 1000 - used), 10) == count
        assert count_forced(replace(KEEP_A_DAY, force_enabled=False), DiskUsage(1000, 1000 - used), 10) == 0

    def test_a_disk_without_a_size_is_not_full(self) -> None:
        usage = DiskUsage(0, 0)
        assert (usage.is_above(0), usage.used_percent) == (False, 0.0)


class TestSettings:
    @pytest.mark.parametrize(
        ("text", "hours"), [("04", {4}), ("4", {4}), ("00;12;23", {0, 12, 23}), ("04;", {4}), (" 3 ; 5", {3, 5})]
    )
    def test_hours(self, text: str, hours: set[int]) -> None:
        assert RetentionConfig(delete_when=text).delete_hours == hours

    @pytest.mark.parametrize("text", ["", ";", "four", "04:00", "04,05", "24", "-1", "4;99"])
    def test_no_hours(self, text: str) -> None:
        with pytest.raises(ConfigError, match=f"deleteWhen='{text}'"):
            RetentionConfig(delete_when=text)

    def test_ratios_need_not_ascend(self) -> None:
        """Apache's broker takes any, and operators' files have them."""
        assert RetentionConfig(expire_ratio=88).force_ratio == 85

    @pytest.mark.parametrize(
        ("settings", "named"),
        [
            ({"expire_ratio": -1}, "diskMaxUsedSpaceRatio=-1 is not a per cent"),
            ({"full_ratio": 101}, "diskSpaceWarningLevelRatio=101 is not a per cent"),
            ({"reserved_hours": -1}, "fileReservedTime=-1"),
            ({"interval_ms": 0}, "cleanResourceInterval=0"),
            ({"files_per_pass": 0}, "deleteFileBatchMax=0"),
            ({"file_pause_ms": -1}, "deleteCommitLogFilesInterval=-1"),
        ],
    )
    def test_what_cannot_work_is_named(self, settings: dict[str, int], named: str) -> None:
        with pytest.raises(ConfigError, match=named):
            RetentionConfig(**settings)  # type: ignore[arg-type]

    def test_equal_ratios_are_fine(self) -> None:
        RetentionConfig(expire_ratio=0, force_ratio=90, full_ratio=90)


class TestLogFiles:
    def test_expired_ones_go_at_the_hour_a_few_at_a_time(self, disk: MemoryDisk, clock: ManualClock) -> None:
        store = opened(disk, keeping(), clock)
        fill(store, 8)
        clock.advance(24 * 3600)
        assert store.clean_up(wait=True).files == 0, "expired, but it is noon"
        clock.advance(4 * 3600)
        done = store.clean_up(wait=True)
        assert (done.log_files, done.log_bytes) == (3, 3 * 4096)
        assert log_files(disk) == [3, 4, 5, 6, 7]
        assert store.log_min_offset == 3 * 4096
        assert numbers(store) == list(range(9, 24))
        for left in ([6, 7], [7], [7]):
            store.clean_up(wait=True)
            assert log_files(disk) == left
        assert numbers(store) == [21, 22, 23]
        assert store.append(message()).queue_offset == 24
        store.close()

    def test_age_counts_from_the_last_change(self, disk: MemoryDisk, clock: ManualClock) -> None:
        store = opened(disk, keeping(), clock)
        fill(store, 2)
        clock.advance(12 * 3600)
        fill(store, 2, start=6)
        clock.advance(16 * 3600)
        store.clean_up(wait=True)
        assert log_files(disk) == [1, 2, 3], "the second file was still written to when the third began"
        store.close()

    def test_none_goes_before_its_time_however_often_one_looks(self, disk: MemoryDisk, clock: ManualClock) -> None:
        store = opened(disk, keeping(), clock)
        fill(store, 4)
        clock.advance(16 * 3600)
        for _ in range(5):
            assert store.clean_up(wait=True).files == 0
        clock.jump_wall(-72 * 3600)
        assert store.clean_up(wait=True).files == 0, "a clock set back makes files younger, not older"
        assert numbers(store) == list(range(12))
        store.close()

    def test_above_the_first_ratio_the_hour_does_not_count(self, disk: MemoryDisk, clock: ManualClock) -> None:
        store = opened(disk, keeping(), clock)
        fill(store, 4)
        use(disk, 80)
        assert store.clean_up(wait=True).log_files == 0
        clock.advance(24 * 3600)
        use(disk, 75)
        assert store.clean_up(wait=True).log_files == 0
        use(disk, 75.1)
        assert store.clean_up(wait=True).log_files == 3
        store.close()

    def test_above_the_second_ratio_the_age_does_not_count(self, disk: MemoryDisk, clock: ManualClock) -> None:
        store = opened(disk, keeping(replace(KEEP_A_DAY, files_per_pass=10)), clock)
        fill(store, 6)
        use(disk, 85)
        assert store.clean_up(wait=True).log_files == 0
        use(disk, 85.5)
        assert store.clean_up(wait=True).log_files == 2, "8192 bytes make room for the 5000 too many"
        assert store.clean_up(wait=True).log_files == 0
        assert log_files(disk) == [2, 3, 4, 5]
        use(disk, 99)
        assert store.clean_up(wait=True).log_files == 3
        assert store.clean_up(wait=True).log_files == 0
        assert numbers(store) == [15, 16, 17]
        store.close()

    def test_nothing_is_forced_to_go_when_that_is_off(self, disk: MemoryDisk, clock: ManualClock) -> None:
        store = opened(disk, keeping(replace(KEEP_A_DAY, force_enabled=False)), clock)
        fill(store, 4)
        use(disk, 99)
        assert store.clean_up(wait=True).files == 0
        clock.advance(24 * 3600)
        assert store.clean_up(wait=True).log_files == 3
        store.close()

    def test_asked_for_expired_ones_go_at_once(self, disk: MemoryDisk, clock: ManualClock) -> None:
        store = opened(disk, keeping(), clock)
        fill(store, 6)
        store.delete_expired()
        assert store.clean_up(wait=True).files == 0, "none is expired, and that was that"
        clock.advance(24 * 3600)
        assert store.clean_up(wait=True).files == 0
        store.delete_expired()
        assert [store.clean_up(wait=True).log_files for _ in range(3)] == [3, 2, 0]
        store.close()

    def test_asking_holds_for_some_passes_only(self, disk: MemoryDisk, clock: ManualClock) -> None:
        store = opened(disk, keeping(replace(KEEP_A_DAY, files_per_pass=1)), clock)
        fill(store, ASKED_PASSES + 5)
        clock.advance(24 * 3600)
        store.delete_expired()
        assert sum(store.clean_up(wait=True).log_files for _ in range(ASKED_PASSES + 5)) == ASKED_PASSES
        store.close()

    @pytest.mark.parametrize("flushed", [False, True])
    def test_what_is_not_flushed_and_listed_stays(self, disk: MemoryDisk, clock: ManualClock, flushed: bool) -> None:
        store = opened(disk, keeping(), clock)
        fill(store, 2)
        for number in range(6, 15):
            store.append(message(body(number)))
        if flushed:
            assert store._threads is not None
            store._threads.log_flusher.run_round(everything=True)
        else:
            store.dispatch()
        use(disk, 99)
        store.clean_up(wait=True)
        assert log_files(disk) == [1, 2, 3, 4], "the last one that a power failure would leave a message in"
        store.flush_now()
        store.clean_up(wait=True)
        assert log_files(disk) == [4]
        assert numbers(store) == [12, 13, 14]
        store.close()

    def test_a_file_that_was_made_and_has_no_message_yet_protects_none(self, clock: ManualClock) -> None:
        inner = MemoryDisk(clock)
        faulty = FaultyDisk(inner)
        store = opened(faulty, keeping(), clock)
        fill(store, 1)
        faulty.fail("reserve", errno.ENOSPC, part="commitlog/00000000000000004096", forever=True)
        assert store.append(message(body(3))).status is AppendStatus.NOT_AVAILABLE
        assert log_files(inner) == [0, 1]
        use(inner, 99)
        store.clean_up(wait=True)
        assert log_files(inner) == [0, 1]
        assert numbers(store) == [0, 1, 2]
        store.close()

    def test_the_last_file_with_a_message_stays_also_when_it_is_full(
        self, disk: MemoryDisk, clock: ManualClock
    ) -> None:
        store = opened(disk, keeping(), clock)
        fill(store, 2)
        store._log._roll(store._log.file.last)
        store.close()
        again = opened(disk, keeping(), clock)
        assert again.log_next_offset == 2 * 4096
        use(disk, 99)
        for _ in range(3):
            again.clean_up(wait=True)
        assert numbers(again) == [3, 4, 5]
        again.close()

    def test_an_empty_store_has_nothing_to_give(self, disk: MemoryDisk, clock: ManualClock) -> None:
        store = opened(disk, keeping(), clock)
        use(disk, 99)
        assert store.clean_up(wait=True).files == 0
        store.close()
        with pytest.raises(StoreClosed):
            store.clean_up()
        with pytest.raises(StoreClosed):
            store.trim_queues()
        with pytest.raises(StoreClosed):
            store.delete_expired()

    def test_a_look_without_work_asks_the_disk_for_its_room_only(self, clock: ManualClock) -> None:
        class Counting(FaultyDisk):
            def __init__(self) -> None:
                super().__init__(MemoryDisk(clock))
                self.calls: list[str] = []

            def check(self, operation: str, path: Path) -> None:
                self.calls.append(operation)

        disk = Counting()
        store = opened(disk, keeping(), clock)
        fill(store, 4)
        disk.calls.clear()
        store.clean_up()
        assert disk.calls == ["usage"]
        store.close()

    def test_real_files(self, tmp_path: Path) -> None:
        clock = ManualClock(time.time_ns() // 1_000_000)
        store = opened(RealDisk(), keeping(replace(KEEP_A_DAY, file_pause_ms=1)), clock, tmp_path)
        fill(store, 5)
        for path in sorted((tmp_path / "commitlog").iterdir())[:3]:
            old = path.stat().st_mtime - 25 * 3600
            os.utime(path, (old, old))
        store.delete_expired()
        assert store.clean_up(wait=True).log_files == 3
        assert log_files(RealDisk(), tmp_path) == [3, 4]
        assert numbers(store) == list(range(9, 15))
        store.close()
        again = opened(RealDisk(), keeping(), clock, tmp_path)
        assert numbers(again) == list(range(9, 15))
        again.close()


class TestQueuesAndIndex:
    def test_they_follow_the_log(self, disk: MemoryDisk, clock: ManualClock) -> None:
        store = opened(disk, keeping(replace(KEEP_A_DAY, files_per_pass=100)), clock)
        fill(store, 20, queues=2)
        store.append(message(b"x", topic="rare"))
        store.flush_now()
        fill(store, 1, queues=2, start=60)
        use(disk, 99)
        done = store.clean_up(wait=True)
        assert (done.log_files, done.queue_files, done.index_files) == (20, 6, 3)
        for queue_id in (0, 1):
            first = disk.list(ROOT / "consumequeue" / "orders" / str(queue_id))[0].name
            assert int(first) == 30 // 10 * 200
            assert store.min_offset("orders", queue_id) == 30
        assert numbers(store, 0) + numbers(store, 1) == [60, 62, 61]
        assert store.read("orders", 0, 29, 1)[:2] == (ReadStatus.OFFSET_TOO_SMALL, 30)
        assert store.query("orders", "k5", 10).records == []
        assert len(store.query("orders", "k61", 10).records) == 1
        assert len(disk.list(ROOT / "index")) == 1
        store.close()

    def test_a_queue_without_newer_messages_keeps_its_number(self, disk: MemoryDisk, clock: ManualClock) -> None:
        store = opened(disk, keeping(), clock)
        for _ in range(25):
            store.append(message(b"x", topic="rare"))
        fill(store, 3)
        clock.advance(28 * 3600)
        store.clean_up(wait=True)
        assert (store.min_offset("rare", 0), store.max_offset("rare", 0)) == (25, 25)
        assert [entry.name for entry in disk.list(ROOT / "consumequeue" / "rare" / "0")] == [f"{400:020d}"]
        assert store.earliest_store_ms("rare", 0) == -1
        store.close()
        again = opened(disk, keeping(), clock)
        assert (again.min_offset("rare", 0), again.max_offset("rare", 0)) == (25, 25)
        assert again.append(message(b"y", topic="rare")).queue_offset == 25
        again.dispatch()
        assert len(read_all(again, "rare")) == 1
        again.close()

    def test_until_the_log_file_is_gone_what_lists_its_messages_stays(self, clock: ManualClock) -> None:
        inner = MemoryDisk(clock)
        faulty = FaultyDisk(inner)
        store = opened(faulty, keeping(replace(KEEP_A_DAY, files_per_pass=100)), clock)
        fill(store, 10)
        clock.advance(28 * 3600)
        faulty.fail("remove", errno.EIO, part="commitlog", forever=True)
        done = store.clean_up(wait=True)
        assert (done.log_files, done.queue_files, done.index_files) == (9, 0, 0)
        assert log_files(inner) == list(range(10))
        assert store.min_offset("orders", 0) == 27, "nobody is sent to what has left the log"
        store.close()
        again = opened(inner, keeping(), clock)
        assert numbers(again) == list(range(30)), "and everything is whole should it come back"
        again.close()

    def test_between_the_two_steps_a_read_skips_what_left_the_log(self, disk: MemoryDisk, clock: ManualClock) -> None:
        store = opened(disk, keeping(), clock)
        fill(store, 5)
        store._log.file.take_first()
        result = store.read("orders", 0, 1, 32)
        assert (result.status, result.next_queue_offset, result.message_count) == (ReadStatus.FOUND, 10, 7)
        for _ in range(3):
            store._log.file.take_first()
        assert store.read("orders", 0, 1, 32)[:2] == (ReadStatus.MESSAGE_WAS_REMOVING, 10)
        store.close()

    def test_many_queues_are_gone_through_in_turns(self, disk: MemoryDisk) -> None:
        class Hurried(ManualClock):
            def monotonic(self) -> float:
                self.advance(0.001)
                return super().monotonic()

        clock = Hurried(NOON_MS)
        store = opened(disk, keeping(replace(KEEP_A_DAY, files_per_pass=100)), clock)
        fill(store, 14, queues=40)
        use(disk, 99)
        store.clean_up()
        turns = 1
        while not store.trim_queues():
            turns += 1
        assert turns >= 5
        assert {store.min_offset("orders", queue_id) for queue_id in range(39)} == {1}
        store.close()

    def test_extended_units_leave_after_the_log_and_in_the_same_thread(self, clock: ManualClock) -> None:
        removed: list[tuple[str, bool]] = []

        class Watched(MemoryDisk):
            def remove(self, path: Path, durably: bool = False) -> None:
                by_owner = threading.current_thread() is threading.main_thread()
                removed.append((path.relative_to(ROOT).parts[0], by_owner))
                super().remove(path, durably)

        disk = Watched(clock)
        ext = ExtQueueConfig(enabled=True, segment_bytes=256)
        store = opened(disk, keeping(replace(KEEP_A_DAY, files_per_pass=100), ext=ext), clock)
        fill(store, 20)
        clock.advance(28 * 3600)
        store.clean_up(wait=True)
        assert [by_owner for kind, by_owner in removed if kind == "consumequeue_ext"] == [False] * 4
        assert max(i for i, (kind, _) in enumerate(removed) if kind == "commitlog") < removed.index(
            ("consumequeue_ext", False)
        )
        assert len(disk.list(ROOT / "consumequeue_ext" / "orders" / "0")) == 1
        assert numbers(store) == [57, 58, 59]
        assert all(store.unit_at("orders", 0, number) for number in (57, 58, 59))
        store.close()

    def test_a_topic_deleted_meanwhile_does_not_come_back(self, disk: MemoryDisk, clock: ManualClock) -> None:
        store = opened(disk, keeping(), clock)
        fill(store, 6)
        clock.advance(28 * 3600)
        store._threads.retention._behind = list(store._queues)  # type: ignore[union-attr]
        store.delete_topic("orders")
        store.clean_up(wait=True)
        assert store.topics() == set()
        assert not disk.exists(ROOT / "consumequeue" / "orders")
        store.close()


class TestWhatFails:
    @pytest.mark.parametrize("nth", [1, 2, 3])
    def test_a_log_file_that_cannot_be_removed_holds_up_the_ones_after_it(
        self, clock: ManualClock, nth: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        inner = MemoryDisk(clock)
        faulty = FaultyDisk(inner)
        store = opened(faulty, keeping(), clock)
        fill(store, 8)
        clock.advance(28 * 3600)
        faulty.fail("remove", errno.EIO, part="commitlog", nth=nth, forever=True)
        assert store.clean_up(wait=True).log_files == 3
        assert log_files(inner) == list(range(nth - 1, 8)), "no hole"
        assert (
            f"cannot remove {LOG / f'{(nth - 1) * 4096:020d}'}: Input/output error; trying again later" in caplog.text
        )
        assert store.clean_up(wait=True).log_files == 0, "first those that wait"
        assert numbers(store) == list(range(9, 24))
        faulty.heal()
        assert store.clean_up(wait=True).log_files == 0
        assert log_files(inner) == [3, 4, 5, 6, 7]
        assert store.clean_up(wait=True).log_files == 3
        store.close()

    def test_a_queue_file_that_cannot_be_removed_holds_up_its_own_queue_only(
        self, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        inner = MemoryDisk(clock)
        faulty = FaultyDisk(inner)
        store = opened(faulty, keeping(replace(KEEP_A_DAY, files_per_pass=100)), clock)
        fill(store, 20, queues=2)
        clock.advance(28 * 3600)
        queues = [ROOT / "consumequeue" / "orders" / str(queue_id) for queue_id in (0, 1)]
        faulty.fail("remove", errno.EACCES, part="orders/0/00000000000000000000")
        assert store.clean_up(wait=True).queue_files == 4
        assert f"cannot remove {queues[0] / f'{0:020d}'}: Permission denied; trying again later" in caplog.text
        assert [len(inner.list(folder)) for folder in queues] == [3, 1], "no hole"
        assert numbers(store) == [58]
        store.flush_now()
        assert store.is_writable
        store.clean_up(wait=True)
        assert [len(inner.list(folder)) for folder in queues] == [1, 1]
        store.close()

    def test_a_queue_that_cannot_be_looked_at_is_looked_at_again(
        self, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        faulty = FaultyDisk(MemoryDisk(clock))
        store = opened(faulty, keeping(replace(KEEP_A_DAY, files_per_pass=100)), clock)
        fill(store, 10)
        clock.advance(28 * 3600)
        store._queues.by_key["orders", 0].file.unmap()
        faulty.fail("open", errno.EMFILE, part="consumequeue", forever=True)
        assert store.clean_up(wait=True).queue_files == 0
        assert f"queue {ROOT}/consumequeue/orders/0 cannot follow the log now: cannot open" in caplog.text
        faulty.heal()
        assert store.clean_up(wait=True).queue_files == 2
        assert numbers(store) == [27, 28, 29]
        store.close()

    @pytest.mark.parametrize("kind", ["consumequeue", "consumequeue_ext"])
    def test_a_file_of_a_topic_made_anew_is_not_taken_for_the_old_one(
        self, clock: ManualClock, kind: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        inner = MemoryDisk(clock)
        faulty = FaultyDisk(inner)
        ext = ExtQueueConfig(enabled=True, segment_bytes=256)
        store = opened(faulty, keeping(replace(KEEP_A_DAY, files_per_pass=100), ext=ext), clock)
        fill(store, 10)
        clock.advance(28 * 3600)
        faulty.fail("remove", errno.EIO, part=f"{kind}/orders/0/00000000000000000000")
        store.clean_up(wait=True)
        assert f"cannot remove {ROOT / kind}" in caplog.text
        store.delete_topic("orders")
        store.append(message(body(7)))
        store.dispatch()
        store.clean_up(wait=True)
        assert [entry.name for entry in inner.list(ROOT / kind / "orders" / "0")] == [f"{0:020d}"]
        assert numbers(store) == [7]
        store.close()

    def test_an_index_file_that_cannot_be_removed_holds_up_nothing(self, clock: ManualClock) -> None:
        inner = MemoryDisk(clock)
        faulty = FaultyDisk(inner)
        store = opened(faulty, keeping(), clock)
        fill(store, 20)
        use(inner, 99)
        faulty.fail("remove", errno.EACCES, part="index", forever=True)
        for _ in range(7):
            store.clean_up(wait=True)
        assert log_files(inner) == [19]
        assert len(inner.list(ROOT / "index")) == 4
        faulty.heal()
        store.clean_up(wait=True)
        assert len(inner.list(ROOT / "index")) == 1
        store.close()

    @pytest.mark.parametrize("operation", ["usage", "modified_ms"])
    def test_a_disk_that_does_not_answer_is_told(self, clock: ManualClock, operation: str) -> None:
        faulty = FaultyDisk(MemoryDisk(clock))
        store = opened(faulty, keeping(), clock)
        fill(store, 3)
        clock.advance(28 * 3600)
        faulty.fail(operation, errno.EIO)
        with pytest.raises(StoreError, match=f"cannot {operation} /data/commitlog.*: Input/output error"):
            store.clean_up(wait=True)
        assert numbers(store) == list(range(9))
        assert store.clean_up(wait=True).log_files == 2
        store.close()

    def test_nothing_goes_from_a_disk_that_lost_a_write(self, clock: ManualClock) -> None:
        inner = MemoryDisk(clock)
        faulty = FaultyDisk(inner)
        store = opened(faulty, keeping(), clock)
        fill(store, 4)
        store.append(message())
        faulty.fail("sync", errno.EIO, part="commitlog")
        with pytest.raises(StoreError):
            store.flush_now()
        use(inner, 99)
        assert store.clean_up(wait=True).files == 0
        assert store.trim_queues()
        use(inner, 10)
        store.clean_up(wait=True)
        assert store.reason.startswith("read-only since a flush failed"), "room on the disk does not heal it"
        store.close()

    def test_no_log_file_goes_when_the_queues_cannot_be_flushed(self, clock: ManualClock) -> None:
        inner = MemoryDisk(clock)
        faulty = FaultyDisk(inner)
        store = opened(faulty, keeping(), clock)
        fill(store, 4)
        store.append(message(b"not yet flushed"))
        store.dispatch()
        use(inner, 99)
        before = log_files(inner)
        faulty.fail("sync", errno.EIO, part="consumequeue")
        assert store.clean_up(wait=True).log_files == 3
        assert log_files(inner) == before
        assert store.reason.startswith("read-only since a flush failed")
        store.close()


class TestReaders:
    def test_a_slice_outlives_its_file(self, tmp_path: Path) -> None:
        clock = ManualClock(time.time_ns() // 1_000_000)
        store = opened(RealDisk(), keeping(), clock, tmp_path)
        fill(store, 5)
        held = store.read("orders", 0, 0, 32)
        record = store.record_at(0)
        clock.advance(25 * 3600)
        store.delete_expired()
        store.clean_up(wait=True)
        assert not (tmp_path / "commitlog" / f"{0:020d}").exists()
        assert store.record_at(0) is None
        store.close()
        bodies = [bytes(decode_record(found, 0, len(found), check_crc=True).body) for found in split(held.chunks)]
        assert bodies == [body(number) for number in range(10)]
        assert record is not None
        assert bytes(decode_record(record, 0, len(record), check_crc=True).body) == body(0)

    def test_a_closed_store_leaves_no_thread_and_no_descriptor(self, tmp_path: Path) -> None:
        before = threading.enumerate()
        clock = ManualClock(time.time_ns() // 1_000_000)
        store = opened(RealDisk(), keeping(replace(KEEP_A_DAY, file_pause_ms=3_600_000)), clock, tmp_path)
        fill(store, 5)
        clock.advance(25 * 3600)
        store.delete_expired()
        store.clean_up()
        store.close()
        assert (threads_since(before), open_files(tmp_path)) == ([], [])
        assert log_files(RealDisk(), tmp_path) == [3, 4], "what had begun is finished, without its pauses"

    def test_appends_flushes_and_reads_go_on_meanwhile(self, tmp_path: Path) -> None:
        busy = FlushConfig(log_interval_ms=1, queue_interval_ms=1, log_least_pages=0, queue_thorough_ms=1)
        always = replace(KEEP_A_DAY, reserved_hours=0, expire_ratio=0, force_ratio=99, full_ratio=100)
        store = MessageStore(tmp_path, tiny(retention=always, flush=busy), b"\x7f\0\0\1\0\0\x2a\x9f")
        store.open()
        held = []
        for number in range(600):
            assert store.append(message(body(number), KEYS=f"k{number}")).status is AppendStatus.OK
            store.dispatch()
            if number % 7 == 0:
                store.clean_up()
                held.append(store.read("orders", 0, store.min_offset("orders", 0), 32))
        assert store.reason == ""
        store.flush_now()
        while store.clean_up(wait=True).files:
            pass
        left = numbers(store)
        assert left == list(range(600 - len(left), 600))
        assert len(left) < 20
        for result in held:
            for found in split(result.chunks):
                decode_record(found, 0, len(found), check_crc=True)
        store.close()


class TestCrashes:
    @pytest.mark.parametrize("queue_flush", [False, True])
    @pytest.mark.parametrize("step", range(1, 16))
    def test_a_power_cut_at_any_step_leaves_a_sound_store(
        self, clock: ManualClock, step: int, queue_flush: bool
    ) -> None:
        inner = MemoryDisk(clock)
        faulty = FaultyDisk(inner)
        config = keeping(replace(KEEP_A_DAY, files_per_pass=7))
        store = opened(faulty, config, clock)
        for number in range(12):
            store.append(message(b"", topic="rare", queue_id=1, UNIQ_KEY=f"r{number}"))
        for number in range(10 * PER_FILE):
            store.append(message(body(number), KEYS=f"k{number}"))
        assert store._threads is not None
        store._threads.log_flusher.run_round(everything=True)
        store.dispatch()
        if queue_flush:
            store.flush_now()
        clock.advance(28 * 3600)
        faulty.fail("remove", errno.EIO, nth=step, forever=True)
        store.clean_up(wait=True)
        for seed in (None, 1, 2, 3):
            after = inner.crash(seed)
            again = new_store(after, config, clock)
            assert again.open().after_crash
            found = numbers(again)
            assert found == list(range(30 - len(found), 30))
            assert len(found) >= 6
            assert again.append(message(topic="rare", queue_id=1)).queue_offset == 12, "a number is given once"
            assert len(again.query("orders", "k29", 9).records) == 1
            again.clean_up(wait=True)
            again.flush_now()
            left = numbers(again)
            assert left == list(range(30 - len(left), 30))
            again.close()
            last = new_store(after, config, clock)
            assert not last.open().after_crash
            assert numbers(last) == left
            last.close()
        faulty.heal()
        store.close()

    def test_files_left_behind_go_after_the_next_start(self, clock: ManualClock) -> None:
        inner = MemoryDisk(clock)
        faulty = FaultyDisk(inner)
        config = keeping(replace(KEEP_A_DAY, files_per_pass=100))
        store = opened(faulty, config, clock)
        fill(store, 20)
        clock.advance(28 * 3600)
        faulty.fail("remove", errno.EIO, part="consumequeue", forever=True)
        faulty.fail("remove", errno.EIO, part="index", forever=True)
        store.clean_up(wait=True)
        assert log_files(inner) == [19]
        store.close()
        assert len(inner.list(ROOT / "index")) == 4
        again = opened(inner, config, clock)
        done = again.clean_up(wait=True)
        assert (done.log_files, done.queue_files, done.index_files) == (0, 5, 3)
        assert numbers(again) == [57, 58, 59]
        again.close()


class TestFullDisk:
    def test_above_the_last_ratio_messages_are_refused_until_there_is_room(
        self, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        disk = MemoryDisk(clock)
        store = opened(disk, keeping(replace(KEEP_A_DAY, force_enabled=False)), clock)
        fill(store, 2)
        use(disk, 90)
        store.clean_up()
        assert store.append(message(body(6))).status is AppendStatus.OK
        use(disk, 90.5)
        for _ in range(3):
            store.clean_up()
        for refused in (store.append(message()), store.append_batch(message(), [item(b"")])):
            assert refused.status is AppendStatus.NOT_AVAILABLE
            assert refused.reason == (
                f"the disk of {LOG} is 90.5 % full, above diskSpaceWarningLevelRatio=90, with 95000 bytes free; "
                "messages are accepted again when there is room"
            )
        assert store.reason == refused.reason
        store.dispatch()
        assert numbers(store) == list(range(7)), "readers go on"
        use(disk, 89)
        store.clean_up()
        assert store.is_writable
        assert store.append(message()).queue_offset == 7
        assert caplog.text.count("messages are refused") == 1
        assert caplog.text.count("messages are taken again, the disk has room") == 1
        store.close()

    def test_forced_deletion_makes_room_by_itself(self, disk: MemoryDisk, clock: ManualClock) -> None:
        store = opened(disk, keeping(replace(KEEP_A_DAY, files_per_pass=100)), clock)
        fill(store, 30)
        use(disk, 91)
        store.clean_up(wait=True)
        assert not store.is_writable
        store.clean_up(wait=True)
        assert store.is_writable
        assert store.append(message()).status is AppendStatus.OK
        store.close()

    def test_a_full_disk_does_not_keep_a_store_from_closing_cleanly(self, disk: MemoryDisk, clock: ManualClock) -> None:
        store = opened(disk, keeping(), clock)
        fill(store, 1)
        use(disk, 99)
        store.clean_up(wait=True)
        store.close()
        again = new_store(disk, keeping(), clock)
        assert not again.open().after_crash
        again.close()

    @pytest.mark.parametrize(
        ("operation", "part"),
        [("sync", "commitlog")]
        + [(operation, part) for operation in ("reserve", "open") for part in ("commitlog", "consumequeue", "index")],
    )
    @pytest.mark.parametrize("nth", [1, 2, 3, 5])
    def test_no_space_at_any_step_loses_nothing_and_passes(
        self, clock: ManualClock, operation: str, part: str, nth: int
    ) -> None:
        inner = MemoryDisk(clock)
        faulty = FaultyDisk(inner)
        store = opened(faulty, keeping(), clock)
        faulty.fail(operation, errno.ENOSPC, part=part, nth=nth, forever=True)
        stored: list[int] = []
        for number in range(60):
            if number == 40:
                faulty.heal()
            result = store.append(message(body(number), KEYS=f"k{number}"))
            if result.status is AppendStatus.OK:
                assert result.queue_offset == len(stored)
                stored.append(number)
            else:
                assert (result.status, number < 40) == (AppendStatus.NOT_AVAILABLE, True)
                assert "No space left on device" in result.reason
            try:
                store.dispatch()
            except StoreError:
                assert number < 40
        assert stored[-20:] == list(range(40, 60))
        assert numbers(store) == stored
        store.flush_now()
        after = inner.crash(nth)
        store.close()
        for disk in (after, inner):
            again = opened(disk, keeping(), clock)
            assert numbers(again) == stored
            assert len(again.query("orders", "k59", 10).records) == 1
            again.close()

    def test_a_disk_that_has_no_room_for_a_new_log_file_costs_no_descriptors(self, tmp_path: Path) -> None:
        faulty = FaultyDisk(RealDisk())
        store = opened(faulty, keeping(), ManualClock(), tmp_path)
        fill(store, 1)
        faulty.fail("sync", errno.ENOSPC, part="commitlog", forever=True)
        before = len(open_files(tmp_path))
        for _ in range(10):
            assert store.append(message(body(3))).status is AppendStatus.NOT_AVAILABLE
        assert len(open_files(tmp_path)) == before
        faulty.heal()
        assert store.append(message(body(3))).status is AppendStatus.OK
        store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of two megabytes, where this is allowed."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "rocketline-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a disk is not permitted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


class TestSmallDisk:
    CONFIG = StoreConfig(
        log_segment_bytes=256 << 10,
        queue_segment_bytes=2000,
        index_slots=100,
        index_entries=1000,
        flush=NEVER,
        retention=RetentionConfig(expire_ratio=60, force_ratio=70, full_ratio=80, file_pause_ms=0),
    )

    def append_until_refused(self, store: MessageStore) -> str:
        for number in range(10_000):
            result = store.append(message(body(number)))
            if result.status is not AppendStatus.OK:
                return result.reason
        raise AssertionError("never refused")

    def test_space_runs_out_and_comes_back(self, small_disk: Path) -> None:
        root = small_disk / "data"
        store = opened(RealDisk(), self.CONFIG, ManualClock(), root)
        other = small_disk / "other"
        other.write_bytes(bytes(900 << 10))
        assert "No space left on device" in self.append_until_refused(store)
        stored = store.log_next_offset
        table = root / "table.json"
        RealDisk().write_atomic(small_disk / "fill", bytes(RealDisk().usage(root).free_bytes))
        with pytest.raises(StoreError, match="No space left"):
            RealDisk().write_atomic(table, bytes(5000), keep_backup=True)
        assert not list(root.glob("table.json*"))
        (small_disk / "fill").unlink()
        assert store.log_next_offset == stored
        other.unlink()
        assert store.append(message(body(0))).status is AppendStatus.OK
        store.flush_now()
        count = store.max_offset("orders", 0)
        assert len(read_all(store)) == count
        store.close()
        again = opened(RealDisk(), self.CONFIG, ManualClock(), root)
        assert len(read_all(again)) == count
        again.close()

    def test_retention_keeps_it_from_running_out(self, small_disk: Path) -> None:
        root = small_disk / "data"
        store = opened(RealDisk(), self.CONFIG, ManualClock(), root)
        for number in range(8000):
            assert store.append(message(body(number), queue_id=0)).status is AppendStatus.OK
            if number % 100 == 99:
                store.flush_now()
                store.clean_up(wait=True)
        left = numbers(store)
        assert left == list(range(8000 - len(left), 8000))
        assert 200 < len(left) < 2000
        assert len(list((root / "consumequeue" / "orders" / "0").iterdir())) <= len(left) // 100 + 2
        store.close()
