"""The timer files: their bytes, the order of writes in a flush, and recovery at start."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from rocketline.errors import ConfigError, StoreError, WrongFiles
from rocketline.protocol.timer_mark import TimerMark
from rocketline.store.config import TimerConfig
from rocketline.store.timer.checkpoint import TimerCheckpoint
from rocketline.store.timer.files import TimerFiles
from rocketline.store.timer.timer_log import ENTRY_BYTES, NO_POSITION, RECALLS, ROLLS, WAITS, TimerEntry, TimerLog
from rocketline.store.timer.wheel import SLOT_BYTES, Slot, TimerWheel
from rocketline.testing.disks import FaultyDisk, MemoryDisk

ROOT = Path("/data")
NOW_MS = 1_700_000_000_000
LOG_BYTES = ENTRY_BYTES * 3 + 20
"""Three entries and an end mark."""
LOG_END = 1 << 40
SLOTS = 200


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_folder(ROOT / "config")
    return disk


def opened(disk: MemoryDisk | FaultyDisk, log_end: int = LOG_END) -> TimerFiles:
    files = TimerFiles(disk, ROOT, TimerConfig(log_segment_bytes=LOG_BYTES), SLOTS)
    files.open(log_end)
    return files


def add(files: TimerFiles, seconds: int, log_offset: int, kind: int = WAITS) -> None:
    files.add(NOW_MS + seconds * 1000, kind, NOW_MS, log_offset, 100, 7)


def save(files: TimerFiles, queue_offset: int = 0) -> None:
    files.write(files.snapshot(queue_offset, NOW_MS))


def taken(files: TimerFiles) -> dict[int, list[int]]:
    """Log offsets by second, as they would be delivered."""
    found: dict[int, list[int]] = {}
    while (next_ms := files.next_ms) is not None:
        found[(next_ms - NOW_MS) // 1000] = [entry.log_offset for entry in files.begin()]
        files.finish()
    return found


def test_an_entry_has_rocketmqs_bytes(disk: MemoryDisk) -> None:
    files = opened(disk)
    add(files, 10, 111)
    add(files, 10, 222, WAITS | RECALLS)
    data = disk.read(ROOT / "timerlog" / f"{0:020d}")
    assert data is not None
    assert data[:52] == struct.pack(">iqiqiqiiq", 52, -1, 1, NOW_MS, 10_000, 111, 100, 7, 0)
    assert data[52:104] == struct.pack(">iqiqiqiiq", 52, 0, 5, NOW_MS, 10_000, 222, 100, 7, 0)


def test_the_end_of_a_file_is_marked(disk: MemoryDisk) -> None:
    files = opened(disk)
    for number in range(4):
        add(files, number, 100 * number)
    data = disk.read(ROOT / "timerlog" / f"{0:020d}")
    assert data is not None
    assert data[156:172] == struct.pack(">iqI", 20, 0, 0xCBD43194)
    assert [entry.name for entry in disk.list(ROOT / "timerlog")] == [f"{0:020d}", f"{LOG_BYTES:020d}"]
    save(files)
    assert taken(opened(disk)) == {0: [0], 1: [100], 2: [200], 3: [300]}


def test_a_slot_has_rocketmqs_bytes_and_is_zeroed_when_it_is_done(disk: MemoryDisk) -> None:
    files = opened(disk)
    add(files, 10, 111)
    add(files, 10, 222)
    save(files)
    start = (NOW_MS // 1000 + 10) % SLOTS * SLOT_BYTES
    wheel = disk.read(ROOT / "timerwheel")
    assert wheel is not None
    assert len(wheel) == SLOTS * SLOT_BYTES
    assert wheel[start : start + 32] == struct.pack(">qqqii", NOW_MS // 1000 + 10, 0, 52, 2, 0)
    taken(files)
    save(files)
    assert not any(disk.read(ROOT / "timerwheel") or b"x")


def test_the_checkpoint_has_rocketmqs_bytes(disk: MemoryDisk) -> None:
    checkpoint = TimerCheckpoint(disk, ROOT / "config" / "timercheck")
    assert checkpoint.load() == TimerMark()
    mark = TimerMark(1, 2, 3, 4, 5, 6, 7)
    checkpoint.save(mark)
    data = disk.read(ROOT / "config" / "timercheck")
    assert data == struct.pack(">7q", 1, 2, 3, 4, 5, 6, 7) + bytes(4096 - 56)
    assert TimerCheckpoint(disk, ROOT / "config" / "timercheck").load() == mark


@pytest.mark.parametrize("content", [b"", b"short", struct.pack(">7q", -1, 0, 0, 0, 0, 0, 0)])
def test_a_checkpoint_that_cannot_be_true_counts_for_nothing(disk: MemoryDisk, content: bytes) -> None:
    disk.write_atomic(ROOT / "config" / "timercheck", content)
    assert TimerCheckpoint(disk, ROOT / "config" / "timercheck").load() == TimerMark()


def test_a_checkpoint_that_is_too_long_is_refused(disk: MemoryDisk) -> None:
    disk.write_atomic(ROOT / "config" / "timercheck", bytes(5000))
    with pytest.raises(StoreError, match="timercheck has 5000 bytes"):
        opened(disk)


def test_a_wheel_of_another_size_is_refused(disk: MemoryDisk) -> None:
    disk.write_atomic(ROOT / "timerwheel", bytes(100))
    with pytest.raises(WrongFiles, match="timerwheel has 100 bytes"):
        opened(disk)


def test_the_wheel_on_disk_never_leads_to_an_entry_that_is_not(disk: MemoryDisk) -> None:
    """Whatever of the unsaved reaches the disk: a slot that is there leads to an entry that is there."""
    files = opened(disk)
    add(files, 1, 0)
    save(files)
    for number in range(1, 20):
        add(files, number % 5, 100 * number)
    for seed in range(30):
        wheel = TimerWheel(disk.crash(seed), ROOT / "timerwheel", 1000, SLOTS)
        wheel.load()
        assert [slot.last for slot in wheel.slots()] == [0]


@pytest.mark.parametrize("seed", [None, *range(20)])
def test_after_a_power_cut_saved_entries_are_there_and_later_ones_come_as_a_prefix(
    disk: MemoryDisk, seed: int | None
) -> None:
    files = opened(disk)
    for number in range(5):
        add(files, number % 2, 100 * number)
    save(files)
    for number in range(5, 12):
        add(files, number % 2, 100 * number)
    after = opened(disk.crash(seed))
    assert after.is_complete
    found = sorted(offset for offsets in taken(after).values() for offset in offsets)
    assert found == [100 * number for number in range(len(found))]
    assert len(found) >= 5


def test_entries_of_messages_that_are_lost_are_cut_off(disk: MemoryDisk) -> None:
    files = opened(disk)
    for number in range(5):
        add(files, number, 100 * number)
    files = opened(disk, log_end=320)
    assert taken(files) == {0: [0], 1: [100], 2: [200]}
    assert files.newest is not None
    assert files.newest.log_offset == 200


def test_entries_after_the_saved_ones_complete_the_wheel(disk: MemoryDisk) -> None:
    files = opened(disk)
    add(files, 1, 0)
    add(files, 2, 100)
    save(files)
    add(files, 1, 200)
    add(files, 3, 300, WAITS | ROLLS)
    after = opened(disk)
    assert (after.count_at(NOW_MS + 1000), after.count_at(NOW_MS + 9000)) == (2, 0)
    assert taken(after) == {1: [0, 200], 2: [100], 3: [300]}


def test_a_lost_wheel_is_made_from_the_log(disk: MemoryDisk) -> None:
    files = opened(disk)
    for number in range(7):
        add(files, number % 3, 100 * number)
    save(files)
    disk.remove(ROOT / "timerwheel")
    assert taken(opened(disk)) == {0: [0, 300, 600], 1: [100, 400], 2: [200, 500]}


def test_a_slot_that_leads_nowhere_is_made_from_what_is_left(disk: MemoryDisk) -> None:
    files = opened(disk)
    for number in range(6):
        add(files, number % 2, 100 * number)
    save(files, queue_offset=6)
    disk.remove(ROOT / "timerlog" / f"{LOG_BYTES:020d}")
    after = opened(disk)
    assert not after.is_complete
    assert taken(after) == {0: [0, 200], 1: [100]}


def test_a_damaged_chain_ends_there(disk: MemoryDisk) -> None:
    files = opened(disk)
    for number in range(3):
        add(files, 1, 100 * number)
    save(files)
    path = ROOT / "timerlog" / f"{0:020d}"
    data = bytearray(disk.read(path) or b"")
    data[:4] = b"\xff" * 4
    disk.write_atomic(path, bytes(data))
    assert taken(opened(disk)) == {1: [100, 200]}


def test_delivered_seconds_do_not_come_back_from_a_wheel_that_keeps_them(disk: MemoryDisk) -> None:
    """RocketMQ leaves slots as they are; its checkpoint says which are done."""
    files = opened(disk)
    add(files, 1, 0)
    add(files, 5, 100)
    save(files)
    mark = TimerMark(NOW_MS + 3000, 104, 2, 2)
    TimerCheckpoint(disk, ROOT / "config" / "timercheck").save(mark)
    assert taken(opened(disk)) == {5: [100]}


@pytest.mark.parametrize("operation", ["open", "reserve"])
def test_a_full_disk_leaves_everything_as_it_was(disk: MemoryDisk, operation: str) -> None:
    faulty = FaultyDisk(disk)
    files = opened(faulty)
    faulty.fail(operation, errno.ENOSPC, part="timerlog")
    with pytest.raises(StoreError, match="timerlog"):
        add(files, 1, 0)
    assert files.next_ms is None
    add(files, 1, 0)
    assert taken(files) == {1: [0]}


def test_files_go_once_the_messages_of_their_entries_have(disk: MemoryDisk) -> None:
    log = TimerLog(disk, ROOT / "timerlog", LOG_BYTES)
    for number in range(9):
        log.append(TimerEntry(NO_POSITION, NO_POSITION, WAITS, NOW_MS, 0, 100 * number, 100, 0))
    log.trim(200)
    assert len(disk.list(ROOT / "timerlog")) == 3
    log.trim(501)
    assert [entry.name for entry in disk.list(ROOT / "timerlog")] == [f"{2 * LOG_BYTES:020d}"]
    log.trim(10_000)
    assert len(disk.list(ROOT / "timerlog")) == 1


def test_slots_are_read_back(disk: MemoryDisk) -> None:
    wheel = TimerWheel(disk, ROOT / "timerwheel", 1000, SLOTS)
    slot = Slot(NOW_MS, 5, 6, 2)
    wheel.put(slot)
    assert wheel.slot(NOW_MS) == slot
    changes = wheel.freeze()
    assert wheel.slot(NOW_MS) == slot
    wheel.write(changes)
    wheel.written()
    assert wheel.slot(NOW_MS) == slot
    assert wheel.slot(NOW_MS + SLOTS * 1000) is None
    assert wheel.is_taken(NOW_MS + SLOTS * 1000, NOW_MS)
    assert not wheel.is_taken(NOW_MS + SLOTS * 1000, NOW_MS + 1000)
    wheel.free(NOW_MS)
    assert wheel.slot(NOW_MS) is None


@pytest.mark.parametrize(("asked", "used"), [(1, 100), (100, 100), (199, 100), (500, 500), (999, 500), (5000, 1000)])
def test_the_precision_is_one_of_four(asked: int, used: int) -> None:
    assert TimerConfig(precision_ms=asked).precision_ms == used


@pytest.mark.parametrize("asked", [0, 1, 604_741, 10**9])
def test_a_window_the_wheel_cannot_hold_becomes_the_largest_it_can(asked: int) -> None:
    assert TimerConfig(roll_window_slots=asked).roll_window_slots == 604_740


@pytest.mark.parametrize("settings", [{"max_delay_s": 0}, {"log_segment_bytes": 67}, {"congested_count": 0}])
def test_settings_without_sense_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        TimerConfig(**settings)


def test_moments_up_to_a_time(disk: MemoryDisk) -> None:
    files = opened(disk)
    seconds = [50, 3, 17, 99, 42, 8, 61, 17, 5, 70]
    for number, second in enumerate(seconds):
        add(files, second, number)
    for limit in (0, 3, 16, 17, 60, 99, 150):
        found = files.moments_until(NOW_MS + limit * 1000)
        assert sorted(found) == sorted({NOW_MS + second * 1000 for second in seconds if second <= limit})
    files.close()


def test_what_was_forgotten_does_not_come_back_and_is_made_anew(disk: MemoryDisk) -> None:
    files = opened(disk)
    for seconds in (10, 20):
        add(files, seconds, seconds)
    save(files)
    files.forget_entries()
    assert not disk.exists(ROOT / "timerwheel")
    assert list(disk.list(ROOT / "timerlog")) == []
    files.open(LOG_END)
    assert (files.next_ms, files.is_complete) == (None, False), "the checkpoint says that there were some"
    add(files, 30, 30)
    save(files)
    assert taken(opened(disk.after_kill())) == {30: [30]}


def test_the_progress_of_a_master_has_the_timer_queue_read_again(disk: MemoryDisk) -> None:
    files = opened(disk)
    add(files, 10, 10)
    save(files, queue_offset=1)
    files.follow(TimerMark(NOW_MS + 5000, 52, 7, 7))
    files.forget_entries()
    again = opened(disk.after_kill())
    assert (again.mark.read_ms, again.mark.queue_offset, again.is_complete) == (NOW_MS + 5000, 7, False)
    assert taken(again) == {}
