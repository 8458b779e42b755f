"""Deleting a topic: a thread removes its files, it does not come back, and the same name can be created again at once."""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.patching import patch_here
from tests.support.patience import PATIENCE_S
from tests.unit.store.samples import ROOT, bodies, filled, killed, message, new_store, opened, read_all, tiny

from rocketline.errors import StoreError
from rocketline.store.config import ExtQueueConfig, StoreConfig
from rocketline.store.files.disk import RealDisk
from rocketline.store.flush.checkpoint_writer import TABLE_NAME
from rocketline.store.message_store import MessageStore
from rocketline.store.retention.deletion import FOLDER_NAME
from rocketline.store.retention.removal import RemovalChecks, Remover
from rocketline.testing.disks import FaultyDisk, MemoryDisk

QUEUES = ROOT / "consumequeue"
ASIDE = ROOT / FOLDER_NAME


def with_other(store: MessageStore) -> MessageStore:
    """Ten messages of `orders`, one of `other`, all of it on disk."""
    filled(store, 10)
    store.append(message(topic="other"))
    store.dispatch()
    store.flush_now()
    return store


class HeldUp(MemoryDisk):
    """Removes no folder before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = threading.Event()

    def remove_tree(self, folder: Path) -> None:
        if not self.may_go.wait(PATIENCE_S):
            raise StoreError("nobody let it go")
        super().remove_tree(folder)


def test_nothing_is_left_of_it_after_a_clean_stop() -> None:
    disk = MemoryDisk()
    store = with_other(opened(disk))
    store.delete_topic("orders")
    store.close()
    assert [entry.name for entry in disk.list(QUEUES)] == ["other"]
    assert not disk.exists(ASIDE)
    again = new_store(disk)
    report = again.open()
    assert (report.rebuilt, again.topics()) == ((), {"other"})
    again.close()


STEPS = {
    "before the table is written": ("write", TABLE_NAME, errno.ENOSPC),
    "before the files are removed": ("remove_tree", FOLDER_NAME, errno.EIO),
    "afterwards": None,
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("made_anew", [False, True], ids=["gone", "made anew"])
def test_a_kill_between_the_steps_does_not_bring_it_back(step: str, made_anew: bool) -> None:
    disk = MemoryDisk()
    faulty = FaultyDisk(disk)
    store = with_other(opened(faulty))
    if (fault := STEPS[step]) is not None:
        faulty.fail(fault[0], fault[2], part=fault[1], forever=True)
    store.delete_topic("orders")
    assert store._threads is not None
    store._threads.retention._remover.wait()
    assert disk.exists(ASIDE / "0" / "orders") == (fault is not None)
    if made_anew:
        filled(store, 3, first=50)
        assert bodies(store) == [50, 51, 52]
    after = killed(disk, store)
    again = new_store(after)
    report = again.open()
    assert report.rebuilt == ()
    assert bodies(again) == ([50, 51, 52] if made_anew else [])
    assert again.topics() == ({"orders", "other"} if made_anew else {"other"})
    again.close()
    assert not after.exists(ASIDE), "the rest was removed"
    assert b"orders" in (after.read(ROOT / TABLE_NAME) or b"") or not made_anew


def test_a_kill_before_all_folders_stand_aside_loses_no_message() -> None:
    """The extended units go first: units that point nowhere cost a look at their records."""
    disk = MemoryDisk()
    config = tiny(ext=ExtQueueConfig(enabled=True, segment_bytes=256))
    store = with_other(opened(disk, config))
    assert store._files.deleted.put_aside(ROOT / "consumequeue_ext" / "orders") == ASIDE / "0"
    again = opened(killed(disk, store), config)
    assert bodies(again) == list(range(10))
    again.close()


def test_one_made_anew_at_once_has_nothing_of_the_old_one() -> None:
    disk = HeldUp()
    store = with_other(opened(disk))
    for first in (50, 60, 70):
        store.delete_topic("orders")
        filled(store, 3, first=first)
        store.flush_now()
    assert bodies(store) == [70, 71, 72]
    assert len(disk.list(ASIDE)) == 3, "each time to a place of its own"
    disk.may_go.set()
    store.close()
    assert not disk.exists(ASIDE)
    again = opened(disk)
    assert bodies(again) == [70, 71, 72]
    again.close()


def test_what_cannot_be_moved_is_removed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    faulty = FaultyDisk(disk)
    store = with_other(opened(faulty))
    faulty.fail("rename", errno.EXDEV, forever=True)
    store.delete_topic("orders")
    assert not disk.exists(QUEUES / "orders")
    assert disk.list(ASIDE) == []
    assert f"cannot rename {QUEUES / 'orders'}: {os.strerror(errno.EXDEV)}: it is removed at once" in caplog.text
    again = new_store(killed(disk, store))
    report = again.open()
    assert (report.rebuilt, again.topics()) == ((), {"other"})
    again.close()


def test_names_that_cannot_be_flushed_keep_the_files_and_end_writing() -> None:
    disk = MemoryDisk()
    faulty = FaultyDisk(disk)
    store = with_other(opened(faulty))
    faulty.fail("sync", errno.EIO, part=FOLDER_NAME)
    store.delete_topic("orders")
    assert store._threads is not None
    store._threads.retention._remover.wait()
    assert "read-only since a flush failed" in store.reason
    store.close()
    assert disk.exists(ASIDE / "0" / "orders"), "nobody knows whether its new name lasts"


class TestNobodyWaits:
    @pytest.fixture
    def waits(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
        """What the owner thread itself asked the disk for and had to wait for, counted."""
        counted = Counter[str]()

        def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **named: Any) -> Any:
                counted[name] += 1
                return real(*args, **named)

            return call

        for name in ("fsync", "fdatasync", "unlink", "rmdir"):
            patch_here(monkeypatch, os, name, watched(name, getattr(os, name)))
        yield counted

    def test_a_thousand_queues_go_while_messages_come(self, tmp_path: Path, waits: Counter[str]) -> None:
        config = StoreConfig(log_segment_bytes=1 << 20, queue_segment_bytes=4000, index_enabled=False)
        store = opened(RealDisk(), config, root=tmp_path)
        for queue_id in range(1000):
            store.append(message(queue_id=queue_id))
        store.append(message(topic="other"))
        store.dispatch()
        waits.clear()
        store.delete_topic("orders")
        for number in range(200):
            store.append(message(topic="other"))
            store.append(message(b"%d" % number, queue_id=number % 10))
            store.dispatch()
        assert waits == {}
        assert store.max_offset("other", 0) == 201
        assert [store.max_offset("orders", queue_id) for queue_id in range(11)] == [20] * 10 + [0]
        store.close()
        assert sorted(os.listdir(tmp_path / "consumequeue" / "orders")) == [str(queue_id) for queue_id in range(10)]
        assert not (tmp_path / FOLDER_NAME).exists()
        again = new_store(RealDisk(), config, root=tmp_path)
        assert again.open().rebuilt == ()
        assert len(read_all(again, queue_id=3)) == 20
        again.close()

    def test_not_even_for_an_old_file_that_takes_long_to_go(self) -> None:
        disk = _SlowToRemove()
        remover = Remover(disk, 0, RemovalChecks(lambda: True, lambda: True))
        remover.add([Path("/s/index/1")])
        remover.start()
        assert disk.began.wait(PATIENCE_S)
        remover.forget(Path("/s/consumequeue/orders"))
        disk.may_end.set()
        remover.close()
        assert disk.removed == [Path("/s/index/1")]

    def test_but_for_one_of_its_own_that_goes_at_this_moment(self) -> None:
        """Or the thread would remove the file of the same name that a topic made anew has."""
        disk = _SlowToRemove()
        remover = Remover(disk, 0, RemovalChecks(lambda: True, lambda: True))
        files = [Path("/s/consumequeue/orders/0") / f"{base:020d}" for base in (0, 200)]
        remover.add(files)
        remover.start()
        assert disk.began.wait(PATIENCE_S)
        forgetting = threading.Thread(target=remover.forget, args=(Path("/s/consumequeue/orders"),))
        forgetting.start()
        forgetting.join(0.05)
        assert forgetting.is_alive()
        disk.may_end.set()
        forgetting.join()
        remover.close()
        assert disk.removed == files[:1]


class _SlowToRemove(MemoryDisk):
    def __init__(self) -> None:
        super().__init__()
        self.began, self.may_end = threading.Event(), threading.Event()
        self.removed: list[Path] = []

    def remove(self, path: Path, durably: bool = False) -> None:
        self.began.set()
        assert self.may_end.wait(PATIENCE_S)
        self.removed.append(path)
