import threading
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.store.samples import ROOT, message, new_store, opened, sync_flush, tiny

from rocketline.clock import ManualClock
from rocketline.errors import StoreError, StoreReadOnly
from rocketline.store.config import FlushConfig, FlushDiskType
from rocketline.store.message_store import AppendStatus, MessageStore, StoreEvents
from rocketline.testing.disks import FaultyDisk, MemoryDisk


class GatedDisk(FaultyDisk):
    """Lets a test hold up syncs of the log, and counts them."""

    def __init__(self) -> None:
        super().__init__(MemoryDisk())
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Semaphore(0)
        self.log_syncs = 0

    def check(self, operation: str, path: Path) -> None:
        if operation == "sync" and "commitlog" in str(path):
            self.waiting.release()
            assert self.gate.wait(PATIENCE_S)
            self.log_syncs += 1
        super().check(operation, path)


class Flushed:
    """Waits for reports of the flusher."""

    def __init__(self) -> None:
        self.reports: list[int] = []
        self.failures: list[StoreError] = []
        self._changed = threading.Condition()
        self.events = StoreEvents(flushed=self._flushed, flush_failed=self._failed)

    def _flushed(self, next_log_offset: int) -> None:
        with self._changed:
            self.reports.append(next_log_offset)
            self._changed.notify_all()

    def _failed(self, error: StoreError) -> None:
        with self._changed:
            self.failures.append(error)
            self._changed.notify_all()

    def wait_for(self, next_log_offset: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.reports and self.reports[-1] >= next_log_offset, PATIENCE_S)

    def wait_for_failure(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.failures, PATIENCE_S)


def flush_config(**changes: object) -> FlushConfig:
    return FlushConfig(**{"log_interval_ms": 10**9, "queue_interval_ms": 10**9, **changes})  # type: ignore[arg-type]


class TestSyncFlush:
    def test_an_append_is_flushed_without_being_asked(self) -> None:
        disk = MemoryDisk()
        flushed = Flushed()
        store = opened(disk, sync_flush(), events=flushed.events)
        result = store.append(message(b"precious"))
        flushed.wait_for(result.next_log_offset)
        assert store.flushed_offset == result.next_log_offset
        assert b"precious" in (disk.crash().read(ROOT / "commitlog" / f"{0:020d}") or b"")
        assert store.dispatch() == 1
        store.close()

    def test_one_sync_serves_all_who_wait(self) -> None:
        disk = GatedDisk()
        flushed = Flushed()
        store = opened(disk, sync_flush(log_segment_bytes=1 << 20), events=flushed.events)
        flushed.wait_for(store.append(message()).next_log_offset)
        disk.waiting = threading.Semaphore(0)
        disk.gate.clear()
        first = store.append(message())
        assert disk.waiting.acquire(timeout=PATIENCE_S), "a sync is under way"
        rest = [store.append(message()) for _ in range(100)]
        assert store.flushed_offset < first.next_log_offset
        before = disk.log_syncs
        disk.gate.set()
        flushed.wait_for(rest[-1].next_log_offset)
        assert disk.log_syncs == before + 2, "one for the first, one for the hundred that came meanwhile"
        assert flushed.reports[-2:] == [first.next_log_offset, rest[-1].next_log_offset]
        store.close()

    def test_readers_see_only_what_is_on_disk(self) -> None:
        disk = GatedDisk()
        flushed = Flushed()
        store = opened(disk, sync_flush(), events=flushed.events)
        flushed.wait_for(store.append(message()).next_log_offset)
        store.dispatch()
        disk.gate.clear()
        second = store.append(message())
        assert store.dispatch() == 0
        assert store.max_offset("orders", 0) == 1
        disk.gate.set()
        flushed.wait_for(second.next_log_offset)
        assert store.dispatch() == 1
        assert store.max_offset("orders", 0) == 2
        store.close()

    def test_a_batch_and_a_roll_are_covered(self) -> None:
        disk = MemoryDisk()
        flushed = Flushed()
        store = opened(disk, sync_flush(), events=flushed.events)
        for number in range(12):
            last = store.append(message(bytes([number]) * 1000))
        flushed.wait_for(last.next_log_offset)
        again = opened(disk.crash(), sync_flush())
        assert again.max_offset("orders", 0) == 12
        again.close()
        store.close()


class TestAsyncFlush:
    def store(
        self,
        clock: ManualClock,
        disk: FaultyDisk | MemoryDisk | None = None,
        events: StoreEvents | None = None,
        **changes: object,
    ) -> MessageStore:
        return opened(disk, tiny(log_segment_bytes=1 << 20, flush=flush_config(**changes)), clock, events=events)

    def test_few_dirty_pages_wait_for_the_thorough_interval(self) -> None:
        clock = ManualClock()
        store = self.store(clock)
        end = store.append(message()).next_log_offset
        assert store._threads is not None
        flusher = store._threads.log_flusher
        flusher.run_round()
        clock.advance(9.9)
        flusher.run_round()
        assert store.flushed_offset == 0
        clock.advance(0.2)
        flusher.run_round()
        assert store.flushed_offset == end
        store.close()

    def test_many_dirty_pages_are_flushed_in_the_next_round(self) -> None:
        store = self.store(ManualClock())
        assert store._threads is not None
        flusher = store._threads.log_flusher
        while store.log_next_offset < 4 * 4096:
            flusher.run_round()
            assert store.flushed_offset == 0
            store.append(message(bytes(500)))
        flusher.run_round()
        assert store.flushed_offset == store.log_next_offset
        store.close()

    def test_rounds_come_by_the_clock(self) -> None:
        flushed = Flushed()
        store = self.store(ManualClock(), log_interval_ms=1, log_least_pages=0, events=flushed.events)
        flushed.wait_for(store.append(message()).next_log_offset)
        store.close()

    def test_appends_wake_the_flusher_when_not_timed(self) -> None:
        flushed = Flushed()
        store = self.store(ManualClock(), log_timed=False, log_least_pages=0, events=flushed.events)
        flushed.wait_for(store.append(message()).next_log_offset)
        flushed.wait_for(store.append(message()).next_log_offset)
        store.close()

    def test_consume_queues_wait_for_pages_or_for_long(self) -> None:
        clock = ManualClock()
        disk = MemoryDisk()
        store = self.store(clock, disk)
        flusher = store._threads.queue_flusher
        queue_file = ROOT / "consumequeue" / "orders" / "0" / f"{0:020d}"
        assert flusher is not None
        store.append(message(KEYS="k"))
        store.dispatch()
        flusher.run_round()
        clock.advance(59)
        flusher.run_round()
        assert disk.crash().read(queue_file) is None
        clock.advance(2)
        flusher.run_round()
        assert disk.crash().read(queue_file) == disk.read(queue_file)
        assert store._files.checkpoint is not None
        assert store._files.checkpoint.queues_ms == store._files.checkpoint.index_ms == store.last_store_ms
        store.close()

    @pytest.mark.parametrize("failing", [False, True])
    def test_many_queues_are_flushed_side_by_side(self, failing: bool) -> None:
        inner = MemoryDisk()
        disk = FaultyDisk(inner)
        store = self.store(ManualClock(), disk)
        for number in range(100):
            store.append(message(queue_id=number))
        store.dispatch()
        assert store._threads is not None
        flusher = store._threads.queue_flusher
        queue_files = [ROOT / "consumequeue" / "orders" / str(number) / f"{0:020d}" for number in range(100)]
        if failing:
            disk.fail("sync", part="orders/55/")
        flusher.run_round(everything=True)
        assert store.is_writable is not failing
        if failing:
            assert "orders/55/" in store.reason
        else:
            after = inner.crash()
            assert [after.read(path) for path in queue_files] == [inner.read(path) for path in queue_files]
        store.close()

    def test_the_checkpoint_follows_what_was_flushed(self) -> None:
        clock = ManualClock(1000)
        disk = MemoryDisk()
        store = self.store(clock, disk)
        store.append(message())
        clock.advance(5)
        store.append(message())
        store.flush_now()
        clock.advance(5)
        store.append(message())
        saved = disk.crash().read(ROOT / "checkpoint")
        assert saved is not None
        assert [int.from_bytes(saved[at : at + 8], "big") for at in (0, 8, 16, 24, 32)] == [6000, 6000, 6000, 0, 0]
        store.close()


class TestAFailedSync:
    @pytest.mark.parametrize("kind", FlushDiskType)
    def test_the_store_becomes_read_only_and_says_why(self, kind: FlushDiskType) -> None:
        disk = FaultyDisk(MemoryDisk())
        config = tiny(
            log_segment_bytes=1 << 20, flush=flush_config(disk_type=kind, log_interval_ms=1, log_least_pages=0)
        )
        flushed = Flushed()
        store = opened(disk, config, events=flushed.events)
        kept = store.append(message(b"kept"))
        flushed.wait_for(kept.next_log_offset)
        disk.fail("sync", part="commitlog")
        store.append(message(b"lost?"))
        flushed.wait_for_failure()
        assert not store.is_writable
        assert "Input/output error" in store.reason
        assert str(ROOT / "commitlog") in store.reason
        assert store.flushed_offset == kept.next_log_offset
        refused = store.append(message())
        assert (refused.status, refused.reason) == (AppendStatus.NOT_AVAILABLE, store.reason)
        assert len(flushed.failures) == 1
        store.dispatch()
        assert store.read("orders", 0, 0, 32).message_count >= 1, "reading goes on"
        store.close()
        assert store.flushed_offset == kept.next_log_offset, "the next sync is not believed"
        assert disk.exists(ROOT / "abort"), "the next start checks everything"
        again = new_store(disk, config)
        assert again.open().after_crash
        again.close()

    def test_a_failure_of_the_queues_counts_too(self) -> None:
        disk = FaultyDisk(MemoryDisk())
        flushed = Flushed()
        store = opened(disk, events=flushed.events)
        store.append(message(KEYS="k"))
        disk.fail("sync", part="index")
        with pytest.raises(StoreReadOnly, match=r"index/.*Input/output error"):
            store.flush_now()
        flushed.wait_for_failure()
        assert not store.is_writable
        store.close()
        assert disk.exists(ROOT / "abort")

    def test_a_listener_that_fails_stops_the_flusher_loudly(self) -> None:
        flushed = Flushed()

        def fails(next_log_offset: int) -> None:
            raise RuntimeError("no loop")

        store = opened(config=sync_flush(), events=flushed.events._replace(flushed=fails))
        store.append(message())
        flushed.wait_for_failure()
        assert "RuntimeError('no loop')" in store.reason
        store.close()
