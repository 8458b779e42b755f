import errno

import pytest
from tests.unit.store.samples import (
    ROOT,
    bodies,
    filled,
    keys_found,
    killed,
    message,
    new_store,
    opened,
    tiny,
    write,
)

from rocketline.clock import ManualClock
from rocketline.errors import DiskFull, StoreError
from rocketline.protocol.record_layout import TRANSACTION_PREPARED
from rocketline.testing.disks import FaultyDisk, MemoryDisk

LOG = ROOT / "commitlog"


class TestAfterACleanStop:
    def test_only_the_end_is_looked_at(self) -> None:
        disk = MemoryDisk()
        filled(opened(disk), 50).close()
        store = new_store(disk)
        report = store.open()
        assert (report.after_crash, report.records_scanned, report.queue_count) == (False, 0, 1)
        assert report.log_next_offset == store.log_next_offset == report.scanned_from
        assert bodies(store) == list(range(50))
        assert keys_found(store, 50) == list(range(50))
        filled(store, 10, first=50)
        assert bodies(store) == list(range(60))
        store.close()

    def test_messages_in_no_queue_at_the_end_are_kept(self) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk), 3)
        half = message(b"half")
        half.sys_flag = TRANSACTION_PREPARED
        end = store.append(half).next_log_offset
        store.close()
        again = new_store(disk)
        report = again.open()
        assert (report.records_scanned, again.log_next_offset) == (0, end)
        again.close()

    def test_consume_queues_are_rebuilt_when_they_are_gone(self) -> None:
        disk = MemoryDisk()
        filled(opened(disk), 50).close()
        before = {path: disk.read(path) for path in disk._files if "consumequeue" in str(path)}
        disk.remove_tree(ROOT / "consumequeue")
        store = opened(disk)
        assert bodies(store) == list(range(50))
        assert keys_found(store, 50) == list(range(50)), "nothing is indexed twice"
        assert {path: disk.read(path) for path in disk._files if "consumequeue" in str(path)} == before
        store.close()

    def test_queues_without_a_log_stop_the_start(self) -> None:
        """The log may be on a disk that is not mounted: nothing is deleted, and nothing is written in its place."""
        disk = MemoryDisk()
        filled(opened(disk), 50).close()
        disk.remove_tree(LOG)
        before = {path: bytes(content.cached) for path, content in disk._files.items()}
        with pytest.raises(StoreError, match="has no log files, but there are consume queues beside it"):
            opened(disk)
        assert {path: bytes(content.cached) for path, content in disk._files.items()} == before
        disk.remove_tree(ROOT / "consumequeue")
        store = opened(disk)
        assert store.query("orders", "key-number-1", 10).records == []
        assert store.append(message()).queue_offset == 0
        store.close()

    def test_queues_that_do_not_fit_the_log_mean_a_full_recovery(self) -> None:
        disk = MemoryDisk()
        filled(opened(disk), 20).close()
        write(disk, ROOT / "consumequeue" / "orders" / "0" / f"{200:020d}", 180, (10**6).to_bytes(8, "big"))
        store = new_store(disk)
        report = store.open()
        assert report.rebuilt == ("orders/0",)
        assert bodies(store) == list(range(20))
        store.close()

    def test_numbering_and_time_go_on(self) -> None:
        disk = MemoryDisk()
        clock = ManualClock(50_000)
        filled(opened(disk, clock=clock), 5).close()
        store = opened(disk, clock=ManualClock(1_000))
        result = store.append(message())
        assert (result.queue_offset, result.store_ms) == (5, 50_000)
        store.close()


class TestAfterACrash:
    def test_a_log_that_lost_all_its_records_keeps_its_first_file(self) -> None:
        """A power cut right after the start may take all records, and a second one the removal of queue files."""
        disk = MemoryDisk()
        disk = killed(disk, filled(opened(disk), 20))
        queues = {path: disk.read(path) for path in disk._files if "consumequeue" in str(path)}
        first = LOG / f"{0:020d}"
        write(disk, first, 0, bytes(len(disk.read(first))))
        disk = killed(disk, opened(disk))
        for path, content in queues.items():
            write(disk, path, 0, content)
        store = opened(disk)
        assert bodies(store) == []
        assert store.append(message()).log_offset == 0
        store.close()

    def test_a_killed_process_loses_nothing(self) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk), 40)
        for number in range(40, 50):
            store.append(message(number.to_bytes(2, "big") * 100, KEYS=f"key-number-{number}"))
        after = killed(disk, store)
        again = new_store(after)
        report = again.open()
        assert report.after_crash
        assert bodies(again) == list(range(50))
        assert keys_found(again, 50) == list(range(50))
        filled(again, 5, first=50)
        assert bodies(again) == list(range(55))
        again.close()

    @pytest.mark.parametrize("seed", [None, *range(25)])
    def test_what_was_flushed_survives_a_power_failure(self, seed: int | None) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk), 20)
        store.flush_now()
        filled(store, 30, first=20)
        after = disk.crash(seed)
        store.close()
        again = opened(after)
        found = bodies(again)
        assert len(found) >= 20
        assert found == list(range(len(found)))
        assert keys_found(again, 50) == found
        filled(again, 50 - len(found), first=len(found))
        assert keys_found(again, 50) == bodies(again) == list(range(50))
        again.close()
        third = opened(after)
        assert bodies(third) == list(range(50))
        third.close()

    def test_only_what_follows_the_checkpoint_is_read(self) -> None:
        disk = MemoryDisk()
        clock = ManualClock()
        store = opened(disk, clock=clock)
        for number in range(30):
            filled(store, 1, first=number)
            clock.advance(1)
        store.flush_now()
        filled(store, 3, first=30)
        after = killed(disk, store)
        again = new_store(after)
        report = again.open()
        assert report.scanned_from >= 4096
        assert report.records_scanned < 20
        assert bodies(again) == list(range(33))
        assert keys_found(again, 33) == list(range(33))
        again.close()

    def test_an_index_file_younger_than_the_checkpoint_is_made_again_from_its_first_message(self) -> None:
        disk = MemoryDisk()
        clock = ManualClock()
        config = tiny(index_entries=1000)
        store = opened(disk, config, clock)
        for number in range(30):
            filled(store, 1, first=number)
            clock.advance(1)
        store.flush_now()
        index_ms = store.last_store_ms - 5000
        after = killed(disk, store)
        write(after, ROOT / "checkpoint", 16, index_ms.to_bytes(8, "big"))
        again = new_store(after, config)
        report = again.open()
        assert report.scanned_from == 0
        assert keys_found(again, 30) == list(range(30))
        again.close()

    def test_power_may_fail_after_a_killed_process_was_recovered(self) -> None:
        disk = MemoryDisk()
        abandoned = filled(opened(disk), 20)
        disk._locked.clear()
        store = opened(disk)
        assert bodies(store) == list(range(20))
        assert store.flushed_offset == store.log_next_offset
        after = disk.crash()
        store.close()
        abandoned.close()
        again = opened(after)
        assert bodies(again) == list(range(20)), "what was in the page cache counts as flushed only when it was flushed"
        again.close()

    @pytest.mark.parametrize(
        "damage",
        [
            b"\xff" * 8,
            b"\0\0\0\x7f\xda\xa3\x20\xa7",
            bytes(8),
            b"\x7f\xff\xff\xff\xda\xa3\x20\xa7",
            b"\0\0\0\x05\xda\xa3\x20\xa7",
        ],
    )
    def test_garbage_after_the_end_is_cut_off_for_good(self, damage: bytes) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk), 15)
        end = store.log_next_offset
        after = killed(disk, store)
        segment = LOG / f"{end // 4096 * 4096:020d}"
        write(after, segment, end % 4096, damage + b"garbage" * 20)
        again = new_store(after)
        report = again.open()
        assert report.log_next_offset == end
        if any(damage):
            assert f"log offset {end}" in report.ended_by
        assert bodies(again) == list(range(15))
        assert not any((after.read(segment) or b"x")[end % 4096 :])
        again.close()

    @pytest.mark.parametrize("place", ["body", "log offset", "properties length", "topic length"])
    def test_a_damaged_record_ends_the_log(self, place: str) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk), 15)
        unit = store._queues.get("orders", 0).unit(12)  # type: ignore[union-attr]
        assert unit is not None
        log_offset = unit[0]
        at = {"body": 100, "log offset": 30, "topic length": 88 + 300, "properties length": 88 + 300 + 8}[place]
        after = killed(disk, store)
        write(after, LOG / f"{log_offset // 4096 * 4096:020d}", log_offset % 4096 + at, b"\x55")
        again = new_store(after)
        report = again.open()
        assert report.log_next_offset == log_offset
        assert "no sound record" in report.ended_by
        assert bodies(again) == list(range(12))
        assert keys_found(again, 15) == list(range(12))
        filled(again, 1, first=99)
        assert bodies(again) == [*range(12), 99]
        again.close()

    @pytest.mark.parametrize("topic", ["orders", "%RETRY%" + "g" * 240])
    @pytest.mark.parametrize("properties", [{}, {"KEYS": "k" * 2000}, {"KEYS": "k" * 700, "TAGS": "red"}])
    @pytest.mark.parametrize("body_bytes", [0, 100, 380, 900])
    def test_a_record_with_any_sector_lost_ends_the_log(
        self, topic: str, properties: dict[str, str], body_bytes: int
    ) -> None:
        disk = MemoryDisk()
        store = opened(disk)
        first = store.append(message(b"first", topic))
        second = store.append(message(b"b" * body_bytes, topic, **properties))
        after = killed(disk, store)
        whole = new_store(after.crash())
        assert whole.open().records_scanned == 2
        whole.close()
        for sector in range(first.next_log_offset // 512, (second.next_log_offset - 1) // 512 + 1):
            start = max(sector * 512, first.next_log_offset)
            end = min(sector * 512 + 512, second.next_log_offset)
            damaged = after.crash()
            write(damaged, LOG / f"{0:020d}", start, bytes(end - start))
            again = new_store(damaged)
            report = again.open()
            if end - start <= 2 and not properties:
                # Nothing but the length of no properties: zeros either way.
                assert report.records_scanned == 2
            else:
                assert report.log_next_offset == first.next_log_offset
            again.close()

    def test_old_records_behind_a_cut_do_not_come_back(self) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk), 10, body_bytes=300)
        unit = store._queues.get("orders", 0).unit(4)  # type: ignore[union-attr]
        assert unit is not None
        after = killed(disk, store)
        write(after, LOG / f"{0:020d}", unit[0] + 100, b"\x55")
        again = opened(after)
        assert bodies(again) == [0, 1, 2, 3]
        filled(again, 1, first=77)
        assert again.log_next_offset == unit[0] + unit[1] + len("77") - len("4"), "lies where the damaged one lay"
        third = opened(killed(after, again))
        assert bodies(third) == [0, 1, 2, 3, 77]
        third.close()

    def test_a_file_made_ahead_is_removed(self) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk), 5)
        after = killed(disk, store)
        after.write_atomic(LOG / f"{4096:020d}", bytes(4096))
        again = new_store(after)
        assert again.open().files_deleted == 1
        assert bodies(again) == list(range(5))
        again.close()

    def test_a_deleted_topic_that_was_made_anew_shows_its_new_messages(self) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk), 12)
        store.delete_topic("orders")
        filled(store, 3, first=50)
        assert bodies(store) == [50, 51, 52]
        again = opened(killed(disk, store))
        assert bodies(again) == [50, 51, 52]
        again.close()

    def test_units_that_no_record_backs_are_dropped(self) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk), 12)
        unit = store._queues.get("orders", 0).unit(5)  # type: ignore[union-attr]
        assert unit is not None
        after = killed(disk, store)
        for base in range(0, 8192, 4096):
            path = LOG / f"{base:020d}"
            if base + 4096 > unit[0]:
                write(after, path, max(0, unit[0] - base), bytes(4096 - max(0, unit[0] - base)))
        again = opened(after)
        assert bodies(again) == [0, 1, 2, 3, 4]
        again.close()

    def test_a_full_disk_during_recovery_is_reported_and_can_be_repeated(self) -> None:
        disk = MemoryDisk()
        after = killed(disk, filled(opened(disk), 12))
        after.remove_tree(ROOT / "consumequeue")
        faulty = FaultyDisk(after)
        faulty.fail("open", errno.ENOSPC, part="consumequeue")
        with pytest.raises(DiskFull):
            new_store(faulty).open()
        again = opened(after)
        assert bodies(again) == list(range(12))
        again.close()


def test_other_settings_than_the_files_were_written_with_are_refused() -> None:
    disk = MemoryDisk()
    filled(opened(disk), 20).close()
    before = {path: disk.read(path) for path in disk._files}
    for changes, named in (
        ({"log_segment_bytes": 8192}, "commitlog/00000000000000000000 has 4096 bytes, but files of 8192"),
        ({"queue_segment_bytes": 400}, "has 200 bytes, but files of 400"),
        ({"index_slots": 51}, "but index files of"),
    ):
        with pytest.raises(StoreError, match=named):
            new_store(disk, tiny(**changes)).open()
    assert {path: disk.read(path) for path in disk._files} == before, "nothing was touched"
    store = new_store(disk)
    assert not store.open().after_crash
    assert bodies(store) == list(range(20))
    store.close()
