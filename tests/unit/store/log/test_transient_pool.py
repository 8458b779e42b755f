"""With a transient pool, messages are written to a buffer; a commit copies them to the file, where they can be read."""

import errno
import logging
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
from tests.support.patching import patch_here
from tests.support.patience import PATIENCE_S
from tests.unit.store.samples import HOST, ROOT, item, locked_bytes, message, new_store, opened, read_all, tiny

from rocketline.clock import ManualClock
from rocketline.errors import ConfigError, StoreError
from rocketline.protocol.records import decode_messages
from rocketline.store.config import FlushConfig, FlushDiskType, StoreConfig
from rocketline.store.files.disk import RealDisk
from rocketline.store.flush.flusher import Committer
from rocketline.store.log.transient_pool import TransientPool
from rocketline.store.message_store import AppendStatus, MessageStore, ReadStatus, StoreEvents
from rocketline.testing.disks import FaultyDisk, MemoryDisk

T = TypeVar("T")

FOREVER_MS = 10**9
FIRST = ROOT / "commitlog" / f"{0:020d}"
PAGE = 4096

# Commits and flushes happen only when a test asks for them.
BY_HAND = FlushConfig(
    log_interval_ms=FOREVER_MS,
    queue_interval_ms=FOREVER_MS,
    commit_interval_ms=FOREVER_MS,
    commit_thorough_ms=FOREVER_MS,
)


def pooled(flush: FlushConfig = BY_HAND, **changes: object) -> StoreConfig:
    return tiny(**{"transient_pool": True, "transient_pool_size": 3, "flush": flush, **changes})


def pooled_sync(**changes: object) -> StoreConfig:
    return pooled(replace(BY_HAND, disk_type=FlushDiskType.SYNC_FLUSH), **changes)


def committer(store: MessageStore) -> Committer:
    assert store._threads is not None
    assert store._threads.committer is not None
    return store._threads.committer


def commit(store: MessageStore) -> None:
    committer(store).run_round(everything=True)


def bodies(store: MessageStore) -> list[bytes]:
    return [found.body for record in read_all(store) for found in decode_messages(record)]


class WatchedDisk(FaultyDisk):
    """Notes what is done to log files, and lets a test hold up the writes."""

    def __init__(self) -> None:
        self.memory = MemoryDisk()
        super().__init__(self.memory)
        self.done: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Semaphore(0)

    def check(self, operation: str, path: Path) -> None:
        if "commitlog" in str(path) and operation in ("write", "sync"):
            if operation == "write":
                self.reached.release()
                assert self.gate.wait(PATIENCE_S)
            super().check(operation, path)
            self.done.append(operation)
        else:
            super().check(operation, path)


class Reports:
    """Waits for what the threads of a store report."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.flushed: list[int] = []
        self.failures: list[StoreError] = []
        self._changed = threading.Condition()
        self.events = StoreEvents(
            flushed=lambda offset: self._note(self.flushed, offset),
            committed=lambda offset: self._note(self.committed, offset),
            flush_failed=lambda error: self._note(self.failures, error),
        )

    def _note(self, reports: list[T], report: T) -> None:
        with self._changed:
            reports.append(report)
            self._changed.notify_all()

    def wait_for_commit(self, offset: int) -> None:
        self._wait(lambda: bool(self.committed) and self.committed[-1] >= offset)

    def wait_for_flush(self, offset: int) -> None:
        self._wait(lambda: bool(self.flushed) and self.flushed[-1] >= offset)

    def wait_for_failure(self) -> None:
        self._wait(lambda: bool(self.failures))

    def _wait(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, PATIENCE_S)


class TestPool:
    def test_buffers_are_lent_and_taken_back(self) -> None:
        pool = TransientPool(3, PAGE)
        first, second, third = (pool.borrow() for _ in range(3))
        assert first and second and third
        assert (len(first), pool.free_count, pool.borrow()) == (PAGE, 0, None)
        second[:3] = b"old"
        first[:3] = b"new"
        pool.give_back(first)
        pool.give_back(second)
        assert pool.free_count == 2
        assert pool.borrow() is second, "the last one back is lent first"
        assert bytes(second[:3]) == b"old"
        pool.close()

    def test_all_memory_is_taken_and_locked_at_once(self) -> None:
        before = locked_bytes()
        pool = TransientPool(4, 64 * PAGE)
        if not pool.is_locked:
            pytest.skip("this process may not lock memory")
        assert locked_bytes() - before == 4 * 64 * PAGE
        pool.close()
        assert locked_bytes() == before

    def test_it_says_when_it_runs_low(self, caplog: pytest.LogCaptureFixture) -> None:
        pool = TransientPool(5, PAGE)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                pool.borrow()
            assert not caplog.records
            pool.borrow()
        assert caplog.messages == ["the transient store pool has only 1 of 5 buffers left"]
        pool.close()

    def test_closing_survives_a_buffer_still_in_use(self) -> None:
        pool = TransientPool(2, PAGE)
        buffer = pool.borrow()
        assert buffer
        pool.close()
        buffer[0] = 1

    def test_more_than_the_machine_has_is_refused_with_the_settings_to_change(self) -> None:
        with pytest.raises(StoreError, match=r"5 buffers.*transientStorePoolSize or mappedFileSizeCommitLog"):
            TransientPool(5, 1 << 50)

    def test_memory_the_system_does_not_give_is_a_clear_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("rocketline.store.log.transient_pool.total_memory_bytes", lambda: 1 << 62)
        with pytest.raises(
            StoreError, match=r"cannot allocate \d+ bytes.*Cannot allocate memory.*transientStorePoolSize"
        ):
            TransientPool(2, 1 << 60)

    def test_a_store_without_its_memory_does_not_open_and_keeps_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        disk = MemoryDisk()
        with monkeypatch.context() as poor:
            poor.setattr("rocketline.store.log.transient_pool.total_memory_bytes", lambda: PAGE)
            with pytest.raises(StoreError, match="transientStorePoolSize"):
                opened(disk, pooled())
        opened(disk, pooled()).close()

    def test_one_buffer_is_not_enough(self) -> None:
        with pytest.raises(ConfigError, match="transientStorePoolSize=1 is below 2"):
            pooled(transient_pool_size=1)
        assert tiny(transient_pool_size=1).transient_pool_size == 1, "without a pool its size does not matter"


class TestCommit:
    def test_only_what_is_committed_can_be_read(self) -> None:
        disk = MemoryDisk()
        arrived: list[int] = []
        events = StoreEvents(arrived=lambda entries: arrived.extend(entry.log_offset for entry in entries))
        store = opened(disk, pooled(), events=events)
        result = store.append(message(b"hidden", KEYS="k"))
        assert store.log_next_offset == result.next_log_offset
        assert (store.committed_offset, store.dispatch(), arrived) == (0, 0, [])
        assert store.read("orders", 0, 0, 32).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
        assert store.record_at(result.log_offset) is None
        assert store._log.store_ms_at(result.log_offset) == -1
        assert not store.query("orders", "k", 32).records
        assert not any(disk.read(FIRST) or b"")
        commit(store)
        assert store.committed_offset == result.next_log_offset
        assert (store.dispatch(), arrived) == (1, [result.log_offset])
        assert bodies(store) == [b"hidden"]
        assert store.record_at(result.log_offset) is not None
        assert store.store_ms_of("orders", 0, 0) == result.store_ms
        assert len(store.query("orders", "k", 32).records) == 1
        assert b"hidden" in (disk.read(FIRST) or b"")
        store.close()

    def test_three_ends_follow_each_other(self) -> None:
        store = opened(config=pooled())
        ends = []

        def note() -> None:
            ends.append((store.log_next_offset, store.committed_offset, store.flushed_offset))

        one = store.append(message()).next_log_offset
        note()
        commit(store)
        two = store.append(message()).next_log_offset
        note()
        assert store._threads is not None
        store._threads.log_flusher._last_flush = -FOREVER_MS
        store._threads.log_flusher.run_round()
        note()
        store.flush_now()
        note()
        assert ends == [(one, 0, 0), (two, one, 0), (two, one, one), (two, two, two)]
        store.close()

    def test_a_part_of_a_dispatch_may_be_committed(self) -> None:
        store = opened(config=pooled())
        store.append(message(b"1"))
        commit(store)
        store.append(message(b"2"))
        assert store.dispatch() == 1
        assert bodies(store) == [b"1"]
        commit(store)
        assert store.dispatch() == 1
        assert bodies(store) == [b"1", b"2"]
        store.close()

    def test_batches_are_staged_too(self) -> None:
        disk = MemoryDisk()
        store = opened(disk, pooled())
        store.append_batch(message(), [item(b"a"), item(b"b")])
        assert not any(disk.read(FIRST) or b"")
        commit(store)
        store.dispatch()
        assert bodies(store) == [b"a", b"b"]
        store.close()

    def test_the_files_are_the_same_with_and_without_a_pool(self) -> None:
        disks = MemoryDisk(), MemoryDisk()
        for disk, config in zip(disks, (pooled(), tiny())):
            store = opened(disk, config)
            for number in range(100):
                store.append(message(b"%d" % number * (number * 37 % 700), TAGS="t"))
                if number % 7 == 0 and config.transient_pool:
                    commit(store)
            store.close()
        for folder in ("commitlog", "consumequeue/orders/0"):
            names = [entry.name for entry in disks[0].list(ROOT / folder)]
            assert len(names) > 6, "every buffer was used several times"
            for name in names:
                assert disks[0].read(ROOT / folder / name) == disks[1].read(ROOT / folder / name)

    def test_nothing_a_buffer_held_before_reaches_another_file(self) -> None:
        disk = MemoryDisk()
        store = opened(disk, pooled(transient_pool_size=2))
        while store.log_next_offset < 3 * PAGE:
            store.append(message(b"\xee" * 300))
            commit(store)
        changed = store.log_next_offset // PAGE + 1
        while store.log_next_offset < (changed + 3) * PAGE:
            store.append(message(b"\x11" * 1300))
            commit(store)
        store.close()
        for number in range(changed, changed + 3):
            content = disk.read(ROOT / "commitlog" / f"{number * PAGE:020d}") or b""
            assert b"\x11" in content
            assert b"\xee" not in content, "not even behind the blank"

    def test_few_pages_wait_for_the_thorough_interval(self) -> None:
        clock = ManualClock()
        flush = replace(BY_HAND, commit_thorough_ms=200)
        store = opened(config=pooled(flush, log_segment_bytes=1 << 20), clock=clock)
        end = store.append(message()).next_log_offset
        committer(store).run_round()
        clock.advance(0.19)
        committer(store).run_round()
        assert store.committed_offset == 0
        clock.advance(0.02)
        committer(store).run_round()
        assert store.committed_offset == end
        store.close()

    def test_many_pages_are_committed_in_the_next_round(self) -> None:
        store = opened(config=pooled(log_segment_bytes=1 << 20))
        while store.log_next_offset < 4 * PAGE:
            committer(store).run_round()
            assert store.committed_offset == 0
            store.append(message(bytes(500)))
        committer(store).run_round()
        assert store.committed_offset == store.log_next_offset
        store.close()

    def test_rounds_come_by_the_clock_and_are_reported(self) -> None:
        reports = Reports()
        store = opened(
            config=pooled(replace(BY_HAND, commit_interval_ms=1, commit_least_pages=0)), events=reports.events
        )
        for _ in range(3):
            reports.wait_for_commit(store.append(message()).next_log_offset)
            assert store.dispatch() == 1
        store.close()

    def test_a_full_file_is_committed_without_waiting_for_the_clock(self) -> None:
        reports = Reports()
        store = opened(config=pooled(), events=reports.events)
        while (result := store.append(message(bytes(700)))).log_offset < PAGE:
            assert store.committed_offset == 0
        reports.wait_for_commit(PAGE)
        assert store.committed_offset in (PAGE, result.next_log_offset)
        store.close()

    def test_the_flusher_is_woken_after_a_commit_when_it_is_not_timed(self) -> None:
        flush = replace(BY_HAND, log_timed=False, log_least_pages=0)
        reports = Reports()
        store = opened(config=pooled(flush), events=reports.events)
        for _ in range(3):
            end = store.append(message()).next_log_offset
            commit(store)
            reports.wait_for_flush(end)
            assert store.flushed_offset == end
        store.close()

    def test_the_checkpoint_is_not_younger_than_what_is_committed(self) -> None:
        clock = ManualClock(1000)
        store = opened(config=pooled(), clock=clock)
        store.append(message())
        commit(store)
        clock.advance(60)
        store.append(message())
        assert store._threads is not None
        assert store._files.checkpoint is not None
        store._threads.log_flusher.run_round()
        assert store._files.checkpoint.log_ms == 1000
        store.flush_now()
        assert store._files.checkpoint.log_ms == 61_000
        store.close()


class TestOrderOnTheDisk:
    """What `strace` would show of the three ways to bring messages to the disk."""

    def test_async_flush_through_the_map_only_syncs(self) -> None:
        disk = WatchedDisk()
        store = opened(disk, tiny())
        store.append(message())
        disk.done.clear()
        store.flush_now()
        assert disk.done == ["sync"]
        store.close()

    def test_async_flush_with_a_pool_writes_then_syncs(self) -> None:
        disk = WatchedDisk()
        store = opened(disk, pooled())
        store.append(message())
        disk.done.clear()
        commit(store)
        assert disk.done == ["write"]
        store.flush_now()
        assert disk.done == ["write", "sync"]
        store.close()

    def test_sync_flush_with_a_pool_writes_and_syncs_before_it_reports(self) -> None:
        disk = WatchedDisk()
        reports = Reports()
        store = opened(disk, pooled_sync(), events=reports.events)
        assert store._threads is not None
        assert store._threads.committer is None
        for count in (1, 2, 3):
            disk.done.clear()
            result = store.append(message(b"precious"))
            reports.wait_for_flush(result.next_log_offset)
            assert disk.done[-2:] == ["write", "sync"]
            assert store.dispatch() == 1
            survived = disk.memory.crash().read(FIRST) or b""
            assert survived.count(b"precious") == count
        store.close()

    def test_one_write_and_one_sync_serve_all_who_wait(self) -> None:
        disk = WatchedDisk()
        reports = Reports()
        store = opened(disk, pooled_sync(log_segment_bytes=1 << 20), events=reports.events)
        disk.gate.clear()
        store.append(message())
        assert disk.reached.acquire(timeout=PATIENCE_S), "a commit is under way"
        for _ in range(100):
            last = store.append(message())
        assert (store.dispatch(), store.committed_offset) == (0, 0)
        disk.done.clear()
        disk.gate.set()
        reports.wait_for_flush(last.next_log_offset)
        assert disk.done == ["write", "sync"] * 2
        assert store.dispatch() == 101
        store.close()


class TestBuffers:
    def test_without_a_pool_apaches_number_is_told(self) -> None:
        store = opened()
        assert store.free_buffers == 2_147_483_647
        store.append(message())
        assert store.free_buffers == 2_147_483_647
        store.close()

    def test_they_come_back_with_each_committed_file(self) -> None:
        disk = WatchedDisk()
        reports = Reports()
        store = opened(disk, pooled(), events=reports.events)
        assert store.free_buffers == 3
        store.append(message())
        assert store.free_buffers == 2
        disk.gate.clear()
        while store.log_next_offset < 2 * PAGE:
            store.append(message(bytes(700)))
        assert store.free_buffers == 0, "three files are under way"
        disk.gate.set()
        reports.wait_for_commit(2 * PAGE)
        assert store.free_buffers == 2, "only the file being written has one"
        while store.log_next_offset < 20 * PAGE:
            store.append(message(bytes(700)))
            commit(store)
            assert store.free_buffers == 2
        store.close()

    def stalled(
        self, fail_without_buffer: bool = False, events: StoreEvents | None = None
    ) -> tuple[WatchedDisk, MessageStore]:
        """A store whose three buffers are full but for little room in the last, because nothing is committed."""
        disk = WatchedDisk()
        store = opened(disk, pooled(fail_without_buffer=fail_without_buffer), events=events)
        disk.gate.clear()
        while store.log_next_offset < 2 * PAGE + 3000:
            assert store.append(message(bytes(700))).status is AppendStatus.OK
        return disk, store

    def test_an_append_may_be_refused_when_none_is_left(self) -> None:
        reports = Reports()
        disk, store = self.stalled(fail_without_buffer=True, events=reports.events)
        end = store.log_next_offset
        for result in (store.append(message(bytes(1500))), store.append_batch(message(), [item(bytes(1500))])):
            assert result.status is AppendStatus.BUSY
            assert "no free buffer" in result.reason
            assert f"{3 * PAGE:020d}" in result.reason
        assert store.log_next_offset == end
        assert store.is_writable
        small = store.append(message(b"small"))
        assert small.log_offset == end, "what still fits is taken"
        disk.gate.set()
        commit(store)
        reports.wait_for_commit(small.next_log_offset)
        result = store.append(message(bytes(1500)))
        assert (result.status, result.log_offset) == (AppendStatus.OK, 3 * PAGE)
        commit(store)
        store.dispatch()
        assert len(bodies(store)) == store._log.queue_offsets["orders", 0]
        store.close()

    def test_or_that_file_is_written_through_its_map(self) -> None:
        disk, store = self.stalled()
        mapped = store.append(message(b"m" * 1500))
        assert (mapped.status, mapped.log_offset) == (AppendStatus.OK, 3 * PAGE)
        assert b"m" * 1500 in (disk.read(ROOT / "commitlog" / f"{3 * PAGE:020d}") or b"")
        assert store.free_buffers == 0
        assert (store.dispatch(), store.record_at(mapped.log_offset)) == (0, None), "it has its place behind the others"
        disk.gate.set()
        commit(store)
        assert store.free_buffers == 3
        assert store.record_at(mapped.log_offset) is not None
        while store.log_next_offset < 6 * PAGE:
            store.append(message(b"z" * 900))
            commit(store)
        assert store.free_buffers == 2, "the next file has a buffer again"
        store.dispatch()
        found = bodies(store)
        assert len(found) == store._log.queue_offsets["orders", 0]
        assert found.count(b"m" * 1500) == 1
        store.close()
        again = opened(disk, pooled())
        assert bodies(again) == found
        again.close()

    def test_a_full_disk_refuses_the_append_and_not_the_commit(self) -> None:
        disk = FaultyDisk(MemoryDisk())
        store = opened(disk, pooled())
        for _ in range(4):
            store.append(message(bytes(700)))
        disk.fail("reserve", errno.ENOSPC, part="commitlog", forever=True)
        result = store.append(message(bytes(1500)))
        assert (result.status, "No space left" in result.reason) == (AppendStatus.NOT_AVAILABLE, True)
        commit(store)
        assert store.is_writable
        disk.heal()
        assert store.append(message(bytes(1500))).status is AppendStatus.OK
        commit(store)
        assert store.dispatch() == 5
        store.close()


class TestStopAndStart:
    def test_a_clean_stop_commits_and_flushes_everything(self) -> None:
        disk = MemoryDisk()
        store = opened(disk, pooled())
        for number in range(30):
            store.append(message(b"%d" % number * 100))
        store.close()
        assert store.flushed_offset == store.log_next_offset
        again = new_store(disk.crash(), pooled())
        report = again.open()
        assert (report.after_crash, report.records_scanned) == (False, 0)
        assert bodies(again) == [b"%d" % number * 100 for number in range(30)]
        again.close()

    @pytest.mark.parametrize("first_bytes", [10, 1700])
    def test_the_last_file_is_continued_in_a_buffer(self, first_bytes: int) -> None:
        """Also when the first message after the start does not fit into it any more."""
        disk = MemoryDisk()
        for run in range(6):
            store = opened(disk, pooled())
            store.append(message(b"%d" % run * first_bytes))
            assert store.free_buffers == 2
            assert not store.dispatch()
            commit(store)
            assert store.dispatch() == 1
            assert bodies(store) == [b"%d" % number * first_bytes for number in range(run + 1)]
            store.close()

    def test_a_pool_can_be_switched_on_and_off(self) -> None:
        disk = MemoryDisk()
        for run, config in enumerate((tiny(), pooled(), tiny(), pooled_sync(), tiny())):
            store = opened(disk, config)
            store.append(message(b"%d" % run))
            store.flush_now()
            assert bodies(store) == [b"%d" % number for number in range(run + 1)]
            store.close()


class TestPowerLoss:
    @pytest.mark.parametrize("seed", range(40))
    def test_only_the_end_is_lost_and_nothing_in_between(self, seed: int) -> None:
        random = Random(seed)
        disk = MemoryDisk()
        store = opened(disk, pooled(transient_pool_size=2 + seed % 3))
        sent: list[bytes] = []
        flushed = 0
        for number in range(60):
            sent.append(b"%d|" % number * random.randrange(1, 300))
            assert store.append(message(sent[-1])).status is AppendStatus.OK
            match random.randrange(6):
                case 0:
                    commit(store)
                    store.dispatch()
                case 1 if random.random() < 0.3:
                    store.flush_now()
                    flushed = len(sent)
        after = disk.crash(seed if seed % 2 else None)
        # After the power went: the committer may have done more meanwhile, never less.
        reached = store.committed_offset
        store.close()
        again = opened(after, pooled())
        found = bodies(again)
        assert found == sent[: len(found)]
        assert len(found) >= flushed
        assert again.log_next_offset <= reached
        again.append(message(b"goes on"))
        commit(again)
        again.dispatch()
        assert bodies(again) == [*found, b"goes on"]
        again.close()

    @pytest.mark.parametrize("seed", range(10))
    def test_what_sync_flush_reported_is_there(self, seed: int) -> None:
        disk = MemoryDisk()
        reports = Reports()
        store = opened(disk, pooled_sync(), events=reports.events)
        for number in range(20):
            last = store.append(message(b"%d" % number * 150))
        reports.wait_for_flush(last.next_log_offset)
        again = opened(disk.crash(seed), pooled_sync())
        assert bodies(again) == [b"%d" % number * 150 for number in range(20)]
        again.close()
        store.close()


KILLED = """
import os, sys
from pathlib import Path
from rocketline.clock import SYSTEM_CLOCK
from rocketline.store.message_store import MessageStore
from tests.unit.store.samples import HOST, message
from tests.unit.store.log.test_transient_pool import commit, pooled

store = MessageStore(Path(sys.argv[1]), pooled(), HOST)
store.open()
for number in range(30):
    store.append(message(b"%d|" % number * 100))
commit(store)
print(store.committed_offset, flush=True)
for number in range(30, 33):
    store.append(message(b"%d|" % number * 10))
os._exit(9)
"""


class TestAKilledProcess:
    def test_loses_the_uncommitted_end_only(self, tmp_path: Path) -> None:
        root = Path(__file__).parents[4]
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(root)])},
        )
        assert done.returncode == 9, done.stderr
        store = MessageStore(tmp_path, pooled(), HOST)
        report = store.open()
        assert report.after_crash
        assert report.log_next_offset == int(done.stdout)
        assert bodies(store) == [b"%d|" % number * 100 for number in range(30)]
        store.close()


class TestAFailedCommit:
    @pytest.mark.parametrize("kind", FlushDiskType)
    def test_the_store_becomes_read_only_and_says_why(self, kind: FlushDiskType) -> None:
        disk = WatchedDisk()
        flush = replace(BY_HAND, disk_type=kind, commit_interval_ms=1, commit_least_pages=0)
        config = pooled(flush, log_segment_bytes=1 << 20)
        reports = Reports()
        store = opened(disk, config, events=reports.events)
        kept = store.append(message(b"kept"))
        store.flush_now()
        disk.fail("write", part="commitlog")
        store.append(message(b"lost?"))
        reports.wait_for_failure()
        assert not store.is_writable
        assert f"cannot write {FIRST}: Input/output error" in store.reason
        assert store.committed_offset == store.flushed_offset == kept.next_log_offset
        refused = store.append(message())
        assert (refused.status, refused.reason) == (AppendStatus.NOT_AVAILABLE, store.reason)
        assert store.dispatch() == 0
        assert bodies(store) == [b"kept"], "reading goes on"
        disk.done.clear()
        store.close()
        assert "write" not in disk.done, "it is not tried again"
        assert store.flushed_offset == kept.next_log_offset
        assert len(reports.failures) == 1
        assert disk.exists(ROOT / "abort"), "the next start checks everything"
        again = new_store(disk, config)
        assert again.open().after_crash
        assert bodies(again) == [b"kept"]
        again.close()

    def test_what_was_committed_before_is_still_flushed_by_the_clock(self) -> None:
        disk = WatchedDisk()
        store = opened(disk, pooled())
        kept = store.append(message(b"kept"))
        commit(store)
        disk.fail("write", part="commitlog")
        store.append(message(b"lost"))
        commit(store)
        assert not store.is_writable
        assert store._threads is not None
        store._threads.log_flusher._last_flush = -FOREVER_MS
        store._threads.log_flusher.run_round()
        assert store.flushed_offset == kept.next_log_offset
        store.close()


class TestRealFiles:
    def test_a_write_shows_in_the_map_and_stays_inside_the_file(self, tmp_path: Path) -> None:
        file = RealDisk().open_mapped(tmp_path / "f", 2 * PAGE, pinned=True)
        file.reserve(0, 2 * PAGE)
        file.write(PAGE - 2, memoryview(b"across"))
        assert bytes(file.buffer[PAGE - 3 : PAGE + 5]) == b"\0across\0"
        with pytest.raises(AssertionError):
            file.write(2 * PAGE - 2, memoryview(b"past"))
        file.close()
        assert (tmp_path / "f").stat().st_size == 2 * PAGE

    def test_a_write_that_comes_in_pieces_is_completed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = RealDisk().open_mapped(tmp_path / "f", PAGE, pinned=True)
        pieces: deque[int] = deque()
        whole = os.pwrite

        def piecemeal(fd: int, data: memoryview, position: int) -> int:
            pieces.append(len(data))
            return whole(fd, data[:3], position)

        patch_here(monkeypatch, os, "pwrite", piecemeal)
        file.write(10, memoryview(b"12345678"))
        assert bytes(file.buffer[10:18]) == b"12345678"
        assert list(pieces) == [8, 5, 2]
        file.close()

    def test_a_failed_write_names_the_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = RealDisk().open_mapped(tmp_path / "f", PAGE, pinned=True)

        def fails(*_: object) -> int:
            raise OSError(errno.EIO, "Input/output error")

        patch_here(monkeypatch, os, "pwrite", fails)
        with pytest.raises(StoreError, match=rf"cannot write to {tmp_path}/f: Input/output error"):
            file.write(0, memoryview(b"x"))
        file.close()

    @pytest.mark.parametrize("kind", FlushDiskType)
    def test_threads_and_owner_side_by_side(self, tmp_path: Path, kind: FlushDiskType) -> None:
        """Many small files, two buffers: some files get one and some do not, and everything is there once and in order."""
        flush = FlushConfig(disk_type=kind, commit_interval_ms=1, log_interval_ms=1)
        config = pooled(flush, transient_pool_size=2)
        reports = Reports()
        store = opened(RealDisk(), config, root=tmp_path, events=reports.events)
        sent = [b"%d|" % number * (number % 97) for number in range(1500)]
        for body in sent:
            last = store.append(message(body))
            assert last.status is AppendStatus.OK
            store.dispatch()
        if kind is FlushDiskType.SYNC_FLUSH:
            reports.wait_for_flush(last.next_log_offset)
        else:
            commit(store)
        store.dispatch()
        assert bodies(store) == sent
        store.close()
        assert not reports.failures
        again = opened(RealDisk(), config, root=tmp_path)
        assert bodies(again) == sent
        again.close()

    def test_a_store_with_a_pool(self, tmp_path: Path) -> None:
        reports = Reports()
        store = opened(RealDisk(), pooled(), root=tmp_path, events=reports.events)
        for number in range(50):
            last = store.append(message(b"%d" % number * 100))
        commit(store)
        reports.wait_for_commit(last.next_log_offset)
        store.dispatch()
        assert bodies(store) == [b"%d" % number * 100 for number in range(50)]
        store.close()
        again = opened(RealDisk(), tiny(), root=tmp_path)
        assert len(bodies(again)) == 50
        again.close()
