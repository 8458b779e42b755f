"""Many dirty queues are flushed with one call where that is as reliable as single flushes, and one by one elsewhere."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.support.patching import patch_here
from tests.unit.store.samples import ROOT, message, opened, tiny

from rocketline.errors import StoreReadOnly
from rocketline.store.config import ExtQueueConfig
from rocketline.store.files import disk as disk_module
from rocketline.store.files import file_system, mapped_file
from rocketline.store.files.disk import RealDisk
from rocketline.store.files.file_system import RealFileSystem, file_system_of, open_file_system
from rocketline.store.flush import flusher as flush
from rocketline.store.message_store import MessageStore
from rocketline.testing.disks import FaultyDisk, MemoryDisk

MANY = 80


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "FLUSH_ALL_FROM", MANY)


class CountingDisk(FaultyDisk):
    """Counts flushes: of single files of queues, and of everything."""

    def __init__(self, memory: MemoryDisk) -> None:
        super().__init__(memory)
        self.single = 0
        self.file_system_syncs = 0

    def check(self, operation: str, path: Path) -> None:
        self.single += operation == "sync" and "consumequeue" in str(path)
        self.file_system_syncs += operation == "sync_file_system"
        super().check(operation, path)


def fill(store: MessageStore, queues: int = MANY) -> None:
    for number in range(queues):
        store.append(message(topic=f"topic-{number // 10}", queue_id=number % 10))
    store.dispatch()


def lengths(store: MessageStore) -> set[int]:
    return {store.max_offset(topic, queue_id) for topic in store.topics() for queue_id in store.queue_ids(topic)}


@pytest.mark.parametrize("ext", [False, True])
def test_many_dirty_queues_are_flushed_at_once_and_survive_a_power_cut(ext: bool) -> None:
    memory = MemoryDisk()
    disk = CountingDisk(memory)
    config = tiny(ext=ExtQueueConfig(enabled=ext, segment_bytes=4096))
    store = opened(disk, config)
    fill(store)
    store.flush_now()
    assert (disk.single, disk.file_system_syncs) == (0, 1)
    after = memory.crash()
    store.close()
    again = opened(after, config)
    assert (len(again.topics()), lengths(again)) == (MANY // 10, {1})
    again.close()


def test_few_dirty_queues_are_flushed_one_by_one() -> None:
    disk = CountingDisk(MemoryDisk())
    store = opened(disk)
    fill(store, 20)
    store.close()
    assert (disk.single, disk.file_system_syncs) == (20, 0)


def test_a_stop_needs_no_more_flushes_for_more_queues() -> None:
    disk = CountingDisk(MemoryDisk())
    store = opened(disk)
    for _ in range(3):
        fill(store)
    store.close()
    assert (disk.single, disk.file_system_syncs) == (0, 1)
    again = opened(disk)
    assert lengths(again) == {3}
    again.close()


def test_when_everything_at_once_fails_each_file_is_asked() -> None:
    """The failure may be another program's; then nothing is wrong here."""
    disk = CountingDisk(MemoryDisk())
    store = opened(disk)
    fill(store)
    disk.fail("sync_file_system")
    store.flush_now()
    assert (disk.single, disk.file_system_syncs) == (MANY, 1)
    assert store.is_writable
    store.close()


def test_a_file_that_then_fails_counts_as_a_failed_flush() -> None:
    memory = MemoryDisk()
    disk = CountingDisk(memory)
    store = opened(disk)
    fill(store)
    disk.fail("sync_file_system", forever=True)
    disk.fail("sync", part="topic-7/3")
    with pytest.raises(StoreReadOnly, match="topic-7/3"):
        store.flush_now()
    store.close()
    assert memory.exists(ROOT / "abort"), "the next start must not believe in a clean stop"


def test_what_is_written_during_the_flush_is_dirty_afterwards() -> None:
    memory = MemoryDisk()
    disk = CountingDisk(memory)
    store = opened(disk)
    fill(store)
    real_check = disk.check

    def write_meanwhile(operation: str, path: Path) -> None:
        real_check(operation, path)
        if operation == "sync_file_system":
            store.append(message(b"late", "topic-0", 0))
            store._dispatcher.dispatch()

    disk.check = write_meanwhile  # type: ignore[method-assign]
    store.flush_now()
    disk.check = real_check  # type: ignore[method-assign]
    queue = store._queues.obtain("topic-0", 0)
    assert (queue.is_dirty, queue.dirty_bytes()) == (True, 20)
    store.flush_now()
    assert queue.dirty_bytes() == 0
    store.close()


def test_new_names_are_flushed_with_the_first_flush_of_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system, "KINDS", frozenset())
    synced: list[str] = []
    store = opened(RealDisk(), root=tmp_path)

    def sync_folder(folder: Path) -> None:
        synced.append(str(folder.relative_to(tmp_path)))

    for module in (disk_module, mapped_file):
        patch_here(monkeypatch, module, "sync_folder", sync_folder)
    fill(store, 1)
    assert "consumequeue" not in synced, "dispatching waits for no flush"
    store.flush_now()
    assert [name for name in synced if name.startswith("consumequeue")] == [
        "consumequeue/topic-0/0",
        "consumequeue",
        "consumequeue/topic-0",
    ]
    synced.clear()
    fill(store, 1)
    store.flush_now()
    assert not any(name.startswith("consumequeue") for name in synced)
    store.close()


def test_it_is_used_only_where_it_tells_of_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = file_system_of(tmp_path)
    monkeypatch.setattr(file_system, "KINDS", frozenset({kind}))
    monkeypatch.setattr("platform.release", lambda: "5.8.0-generic")
    flushed = open_file_system(tmp_path)
    assert flushed is not None
    flushed.close()
    monkeypatch.setattr("platform.release", lambda: "5.7.19")
    assert open_file_system(tmp_path) is None
    monkeypatch.setattr("platform.release", lambda: "unknown")
    assert open_file_system(tmp_path) is None
    monkeypatch.setattr("platform.release", lambda: "6.1")
    monkeypatch.setattr(file_system, "KINDS", frozenset({"overlay"}) - {kind})
    assert open_file_system(tmp_path) is None


def test_a_real_disk_is_flushed_and_a_failure_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"x")
    flushed = RealFileSystem(tmp_path)
    assert flushed.sync()

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    patch_here(monkeypatch, file_system, "syncfs", fail)
    assert not flushed.sync()
    flushed.close()
    flushed.close()
    monkeypatch.undo()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file_system.syncfs(-1)
