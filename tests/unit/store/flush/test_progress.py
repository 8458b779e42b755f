"""The progress file: what it holds, and when recovery uses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.store.samples import ROOT, bodies, filled, keys_found, killed, message, new_store, opened, tiny, write

from rocketline.clock import ManualClock
from rocketline.store.config import FlushConfig
from rocketline.store.flush.checkpoint_writer import TABLE_NAME
from rocketline.store.flush.progress import FILE_NAME, PROGRESS_BYTES, IndexShape, ProgressFile, ProgressMark
from rocketline.testing.disks import MemoryDisk

FOLDER = Path("/p")
PATH = FOLDER / FILE_NAME
MARK = ProgressMark(
    700, (600, 100, 12345), (4096, 200, 256, 50, 20), IndexShape("1", "2", 7), (3, 2, 1), (0, 0, 0), False
)


class _Overtaken:
    """A lock that somebody else gets first, once."""

    def __init__(self, first: Callable[[], None]) -> None:
        self._first: Callable[[], None] | None = first

    def __enter__(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            first()

    def __exit__(self, *error: object) -> None:
        pass


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_folder(FOLDER)
    return disk


def test_what_was_saved_is_found_again(disk: MemoryDisk) -> None:
    progress = ProgressFile(disk, PATH)
    assert (progress.flushed, progress.mark) == (0, None)
    progress.note_flushed(123_456_789_012)
    progress.save(MARK)
    progress.close()
    again = ProgressFile(disk, PATH)
    assert (again.flushed, again.mark) == (123_456_789_012, MARK)


def test_a_mark_survives_a_power_failure_and_a_later_flush_may_not(disk: MemoryDisk) -> None:
    progress = ProgressFile(disk, PATH)
    progress.note_flushed(700)
    progress.save(MARK)
    progress.note_flushed(900)
    again = ProgressFile(disk.crash(), PATH)
    assert (again.flushed, again.mark) == (700, MARK)


@pytest.mark.parametrize("position", [0, 1, 5, 6, 7, 512, 516, 520, 600])
def test_a_flipped_bit_makes_it_worthless(disk: MemoryDisk, position: int) -> None:
    progress = ProgressFile(disk, PATH)
    progress.note_flushed(7_000)
    progress.save(MARK)
    raw = bytearray(disk.read(PATH) or b"")
    raw[position] ^= 4
    disk.write_atomic(PATH, bytes(raw))
    again = ProgressFile(disk, PATH)
    assert again.mark is None


@pytest.mark.parametrize("content", [b"", b"\xff" * PROGRESS_BYTES, b'{"safe":1}' * 100, bytes(100)])
def test_garbage_is_no_mark(disk: MemoryDisk, content: bytes) -> None:
    disk.write_atomic(PATH, content)
    assert ProgressFile(disk, PATH).mark is None


def test_a_mark_holds_for_its_checkpoint_and_the_one_before(disk: MemoryDisk) -> None:
    progress = ProgressFile(disk, PATH)
    progress.save(MARK)
    assert progress.valid_mark((3, 2, 1)) == progress.valid_mark((0, 0, 0)) == MARK
    assert progress.valid_mark((4, 2, 1)) is None


class TestInAStore:
    def test_only_what_came_after_the_mark_is_read_after_a_crash(self) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk), 40)
        store.flush_now()
        mark = store.log_next_offset
        filled(store, 10, first=40)
        again = new_store(killed(disk, store))
        report = again.open()
        assert (report.after_crash, report.scanned_from, report.records_scanned) == (True, mark, 10)
        assert bodies(again) == keys_found(again, 50) == list(range(50))
        again.close()

    def test_a_mark_is_made_whenever_the_log_has_grown_enough(self) -> None:
        clock = ManualClock(1_000_000)
        flush = FlushConfig(log_interval_ms=10**9, queue_interval_ms=10**9, checkpoint_log_bytes=3000)
        disk = MemoryDisk()
        store = opened(disk, tiny(flush=flush), clock)
        filled(store, 4)
        assert store._threads is not None
        store._threads.queue_flusher.run_round()
        assert store._files.progress is not None
        assert store._files.progress.mark is not None
        assert store._files.progress.mark.safe == 0
        filled(store, 4, first=4)
        store._threads.queue_flusher.run_round()
        assert store._files.progress.mark.safe == store.log_next_offset == store.flushed_offset
        store.close()

    def test_a_log_that_is_not_the_marked_one_is_read_by_the_checkpoint(self) -> None:
        disk = MemoryDisk()
        filled(opened(disk), 30).close()
        other = MemoryDisk()
        filled(opened(other), 20, body_bytes=200).close()
        after = killed(disk, opened(disk))
        for path in [path for path in after._files if "rocketline" in str(path)]:
            after._files[path] = other._files[path]
        store = new_store(after)
        report = store.open()
        assert report.scanned_from == 0
        assert bodies(store) == keys_found(store, 30) == list(range(30))
        store.close()

    def test_what_apaches_broker_did_in_between_is_not_overlooked(self) -> None:
        """Its checkpoint has other times then; without this the mark would hide everything that it changed."""
        disk = MemoryDisk()
        filled(opened(disk), 30).close()
        write(disk, ROOT / "checkpoint", 0, (1_700_000_000_001).to_bytes(8, "big"))
        disk.remove_tree(ROOT / "consumequeue")
        store = new_store(disk)
        report = store.open()
        assert report.rebuilt == ()
        assert bodies(store) == list(range(30))
        store.close()

    @pytest.mark.parametrize("seed", range(30))
    def test_marks_are_true_whenever_the_power_fails(self, seed: int) -> None:
        clock = ManualClock(1_000_000)
        disk = MemoryDisk()
        store = opened(disk, clock=clock)
        for round_number in range(5):
            filled(store, 6, first=round_number * 6)
            clock.advance(1.0)
            assert store._threads is not None
            if (seed >> round_number) & 1:
                store._threads.queue_flusher.run_round(everything=True)
        acknowledged = store.flushed_offset
        after = disk.crash(seed)
        store.close()
        again = new_store(after)
        again.open()
        found = bodies(again)
        assert again.log_next_offset >= acknowledged
        assert found == keys_found(again, 30) == list(range(len(found)))
        again.close()

    def test_a_deleted_topic_is_not_built_anew(self) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk), 10)
        store.append(message(topic="other"))
        store.dispatch()
        store.flush_now()
        store.delete_topic("orders")
        again = new_store(killed(disk, store))
        report = again.open()
        assert (report.rebuilt, again.topics()) == ((), {"other"})
        again.close()

    @pytest.mark.parametrize("when", ["it waits to write", "the files go"])
    def test_nor_is_one_deleted_while_the_flusher_writes_its_table(
        self, when: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The table must not speak of queues that are gone, or going, whenever the flusher looked at them."""
        disk = MemoryDisk()
        store = filled(opened(disk), 10)
        store.append(message(topic="other"))
        store.dispatch()
        store.flush_now()
        assert store._threads is not None
        writer, queues = store._threads.checkpoint_writer, store._queues
        if when == "it waits to write":
            monkeypatch.setattr(writer, "_lock", _Overtaken(lambda: store.delete_topic("orders")))
            writer.save_table()
        else:
            take = queues.take_topic

            def take_while_the_table_is_written(topic: str) -> tuple[list[int], list[Path]]:
                taken = take(topic)
                writer.save_table()
                return taken

            monkeypatch.setattr(queues, "take_topic", take_while_the_table_is_written)
            store.delete_topic("orders")
        again = new_store(killed(disk, store))
        report = again.open()
        assert (report.rebuilt, again.topics()) == ((), {"other"})
        again.close()

    def test_a_topic_made_again_is_in_the_table_again(self) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk), 10)
        store.flush_now()
        store.delete_topic("orders")
        assert b"orders" not in (disk.read(ROOT / TABLE_NAME) or b"")
        filled(store, 3)
        store.flush_now()
        assert b"orders" in (disk.read(ROOT / TABLE_NAME) or b"")
        store.close()

    def test_a_queue_flushed_beyond_the_mark_is_not_taken_for_a_damaged_one(self) -> None:
        """The table may know of units that were flushed while the mark was made; reading the log brings them back."""
        disk = MemoryDisk()
        store = filled(opened(disk), 10)
        assert store._threads is not None
        store._threads.queue_flusher.run_round(everything=True)
        filled(store, 5, first=10)
        store._queues.by_key["orders", 0].flush()
        assert store._threads is not None
        store._threads.log_flusher.run_round(everything=True)
        store._threads.checkpoint_writer.save_table()
        again = new_store(killed(disk, store))
        report = again.open()
        assert (report.rebuilt, report.records_scanned) == ((), 5)
        assert bodies(again) == list(range(15))
        again.close()

    def test_a_log_that_somebody_cut_meanwhile_is_not_believed_to_be_longer(self) -> None:
        """Another broker's recovery may leave a shorter log; our word for the longer one must not come back to life."""
        disk = MemoryDisk()
        filled(opened(disk), 30).close()
        first_file = disk.read(ROOT / "commitlog" / f"{0:020d}") or b""
        for entry in disk.list(ROOT / "commitlog")[1:]:
            disk.remove(ROOT / "commitlog" / entry.name)
        write(disk, ROOT / "checkpoint", 0, (1_700_000_000_001).to_bytes(8, "big"))
        store = opened(disk)
        end = store.log_next_offset
        assert end <= len(first_file)
        again = new_store(killed(disk, store))
        report = again.open()
        assert (report.log_next_offset, report.damaged_records) == (end, 0)
        again.close()
