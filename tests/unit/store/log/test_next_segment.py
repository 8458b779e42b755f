"""The next log file is created, reserved and warmed in the background before it is needed."""

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.store.samples import message, opened, tiny

from rocketline.clock import ManualClock
from rocketline.store.files.disk import MappedFile
from rocketline.store.files.segmented_file import PREPARE_FROM_BYTES
from rocketline.store.log.log_memory import RESERVE_BYTES, WARM_BYTES
from rocketline.store.message_store import AppendStatus, MessageStore
from rocketline.testing.disks import FaultyDisk, MemoryDisk

SECOND = f"{PREPARE_FROM_BYTES:020d}"
BODY = bytes(1 << 20)


class WatchedFile:
    """A mapped file that notes what is done to it and by which thread."""

    def __init__(self, inner: MappedFile, notes: list[tuple[str, int, int, str]]) -> None:
        self.path, self.size, self.buffer, self.is_new = inner.path, inner.size, inner.buffer, inner.is_new
        self._inner = inner
        self._notes = notes
        self.is_closed = False

    def _note(self, what: str, start: int, end: int) -> None:
        if self.path.name == SECOND:
            self._notes.append((what, start, end, threading.current_thread().name))

    def reserve(self, start: int, end: int) -> None:
        self._note("reserve", start, end)
        self._inner.reserve(start, end)

    def warm(self, start: int, end: int, at_once: bool = False) -> None:
        self._note("warm", start, end)

    def write(self, position: int, data: memoryview) -> None:
        self._inner.write(position, data)

    def forget(self, start: int, end: int) -> None:
        pass

    def erase(self, start: int, end: int) -> None:
        self._inner.erase(start, end)

    def sync(self) -> None:
        self._note("sync", 0, 0)
        self._inner.sync()

    def close(self) -> None:
        self.is_closed = True
        self._inner.close()


class WatchedDisk(FaultyDisk):
    def __init__(self) -> None:
        super().__init__(MemoryDisk())
        self.notes: list[tuple[str, int, int, str]] = []
        self.files: list[WatchedFile] = []

    def open_mapped(self, path: Path, size: int, pinned: bool = False, scattered: bool = False) -> MappedFile:
        file = WatchedFile(super().open_mapped(path, size, pinned, scattered), self.notes)
        self.files.append(file)
        return file

    def in_background(self) -> list[tuple[str, int, int]]:
        return [note[:3] for note in self.notes if note[3].startswith("rocketline-next-segment")]

    def in_the_owner(self) -> list[tuple[str, int, int]]:
        return [note[:3] for note in self.notes if note[3] == threading.current_thread().name]


@pytest.fixture
def disk() -> Iterator[WatchedDisk]:
    yield WatchedDisk()


def store_on(disk: WatchedDisk, **changes: object) -> MessageStore:
    settings = {"log_segment_bytes": PREPARE_FROM_BYTES, "max_message_bytes": 4 << 20, **changes}
    return opened(disk, tiny(**settings))


def fill(store: MessageStore, end: int) -> None:
    while store.log_next_offset + len(BODY) < end:
        assert store.append(message(BODY)).status is AppendStatus.OK


def wait_until_prepared(store: MessageStore) -> None:
    prepared = store._log.file._next
    assert prepared is not None
    prepared.exception(PATIENCE_S)


@pytest.mark.parametrize("pooled", [False, True])
def test_a_roll_finds_its_first_blocks_and_pages_ready(disk: WatchedDisk, pooled: bool) -> None:
    store = store_on(disk, transient_pool=pooled, transient_pool_size=2)
    fill(store, PREPARE_FROM_BYTES)
    wait_until_prepared(store)
    assert disk.in_background()[:2] == [("sync", 0, 0), ("reserve", 0, RESERVE_BYTES)]
    # A buffer is written in one go with its pages; through the map each page would be faulted in.
    assert disk.in_background()[2:] == ([] if pooled else [("warm", 0, WARM_BYTES)])
    fill(store, PREPARE_FROM_BYTES + 2 * len(BODY))
    assert store.log_next_offset > PREPARE_FROM_BYTES
    assert not [note for note in disk.in_the_owner() if note[0] in ("sync", "reserve")]
    store.close()


def test_pages_are_asked_for_before_the_owner_writes_there(disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_on(disk)
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(store._log.file, "run_in_background", lambda work, start, end: asked.append((start, end)))
    for number in range(160):
        asked_before = asked[-1][1] if asked else 0
        assert store.append(message(bytes(100_000))).status is AppendStatus.OK
        assert number < 2 or store.log_next_offset <= asked_before, "and one step earlier than it is needed"
    store.close()
    assert [end for _, end in asked[:-1]] == [start for start, _ in asked[1:]], "each page once"
    assert (asked[0][0], asked[-1][1]) == (0, PREPARE_FROM_BYTES)


def test_who_writes_quickly_has_them_made_at_once(disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    store = opened(disk, tiny(log_segment_bytes=PREPARE_FROM_BYTES, max_message_bytes=4 << 20), clock)
    ways: list[bool] = []
    monkeypatch.setattr(
        store._log.file, "run_in_background", lambda work, start, end: ways.append(work.keywords["at_once"])
    )
    for pause_s in (1.0, 1.0, 0.01, 0.01, 1.0):
        clock.advance(pause_s)
        asked = len(ways)
        while len(ways) == asked:
            assert store.append(message(bytes(100_000))).status is AppendStatus.OK
    store.close()
    assert ways == [False, False, True, True, False]


def test_another_thread_faults_them_in(disk: WatchedDisk) -> None:
    store = store_on(disk)
    fill(store, PREPARE_FROM_BYTES + RESERVE_BYTES)
    store.close()
    warmed = [note for note in disk.in_background() if note[0] == "warm"]
    assert warmed[0] == ("warm", 0, WARM_BYTES)
    assert warmed[-1][2] >= RESERVE_BYTES
    assert not [note for note in disk.in_the_owner() if note[0] == "warm"]


def test_the_last_blocks_of_a_disk_are_used_though_there_are_no_more(disk: WatchedDisk) -> None:
    store = store_on(disk)
    fill(store, 2 << 20)
    disk.fail("reserve", errno.ENOSPC, part=f"{0:020d}", forever=True)
    fill(store, RESERVE_BYTES)
    assert store.log_next_offset > 3 << 20
    assert store.append(message(BODY)).status is AppendStatus.NOT_AVAILABLE
    disk.heal()
    assert store.append(message(BODY)).status is AppendStatus.OK
    store.close()


def test_without_warming_only_blocks_are_reserved(disk: WatchedDisk) -> None:
    store = store_on(disk, warm=False)
    fill(store, PREPARE_FROM_BYTES)
    wait_until_prepared(store)
    assert [note[0] for note in disk.in_background()] == ["sync", "reserve"]
    store.close()


@pytest.mark.parametrize("operation", ["open", "sync", "reserve"])
def test_a_failure_in_the_background_is_made_up_for_at_the_roll(disk: WatchedDisk, operation: str) -> None:
    store = store_on(disk)
    disk.fail(operation, errno.ENOSPC, part=SECOND)
    fill(store, PREPARE_FROM_BYTES)
    wait_until_prepared(store)
    assert store.is_writable
    assert all(file.is_closed for file in disk.files if file.path.name == SECOND), "nothing half made stays open"
    fill(store, PREPARE_FROM_BYTES + 3 * len(BODY))
    assert store.log_next_offset > PREPARE_FROM_BYTES
    store.close()


def test_a_failure_that_lasts_is_told_at_the_roll(disk: WatchedDisk) -> None:
    store = store_on(disk)
    disk.fail("reserve", errno.ENOSPC, part=SECOND, forever=True)
    fill(store, PREPARE_FROM_BYTES)
    wait_until_prepared(store)
    result = store.append(message(bytes(2 << 20)))
    assert (result.status, "No space left" in result.reason) == (AppendStatus.NOT_AVAILABLE, True)
    disk.heal()
    assert store.append(message(bytes(2 << 20))).log_offset == PREPARE_FROM_BYTES
    store.close()


def test_a_failed_flush_in_the_background_is_final(disk: WatchedDisk) -> None:
    """The next one of the same file could succeed although its name never reached the disk."""
    store = store_on(disk)
    disk.fail("sync", errno.EIO, part=SECOND)
    fill(store, PREPARE_FROM_BYTES)
    wait_until_prepared(store)
    result = store.append(message(bytes(2 << 20)))
    assert (result.status, "Input/output error" in result.reason) == (AppendStatus.NOT_AVAILABLE, True)
    assert "read-only since a flush failed" in store.reason
    assert not store.append(message()).next_log_offset > 0
    store.close()


def test_the_first_file_is_made_before_the_first_message() -> None:
    memory = MemoryDisk()
    config = tiny(log_segment_bytes=PREPARE_FROM_BYTES)
    store = opened(memory, config)
    store.wait_prepared()
    assert [entry.name for entry in memory.list(store.root / "commitlog")] == [f"{0:020d}"]
    after_kill = memory.after_kill()
    store.close()
    assert memory.list(store.root / "commitlog") == [], "nobody used it"
    again = opened(after_kill, config)
    assert again.append(message()).log_offset == 0
    again.dispatch()
    assert again.max_offset("orders", 0) == 1
    again.close()
