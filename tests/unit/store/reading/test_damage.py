"""Damage to stored bytes: it is found, reported and skipped, and queues and index are rebuilt."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

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
    split,
    tiny,
    write,
)

from rocketline.errors import StoreError
from rocketline.protocol.records import decode_record
from rocketline.store.message_store import MessageStore
from rocketline.store.reading.read_result import ReadStatus
from rocketline.testing.disks import MemoryDisk

LOG = ROOT / "commitlog"
QUEUE = ROOT / "consumequeue" / "orders" / "0"


def served(store: MessageStore, topic: str = "orders", queue_id: int = 0) -> list[int]:
    """Queue offsets a consumer gets, reading on as a consumer does."""
    offset = store.min_offset(topic, queue_id)
    found: list[int] = []
    while True:
        result = store.read(topic, queue_id, offset, 32)
        for raw in split(result.chunks):
            record = decode_record(raw, 0, len(raw), check_crc=True)
            found.append(record.queue_offset)
        if result.next_queue_offset <= offset:
            return found
        offset = result.next_queue_offset


def queue_files(disk: MemoryDisk) -> dict[str, bytes]:
    return {str(path): disk.read(path) or b"" for path in sorted(disk._files) if "consumequeue" in str(path)}


def flip_live(store: MessageStore, log_offset: int, bit: int = 1) -> None:
    segment = store._log.file.segment_at(log_offset)
    assert segment is not None
    segment.open()[log_offset - segment.base] ^= bit


def body_of(store: MessageStore, queue_offset: int) -> int:
    """Log offset of the middle of a message's body."""
    unit = store.unit_at("orders", 0, queue_offset)
    assert unit is not None
    return unit.log_offset + 88 + 100


class TestRead:
    def test_a_damaged_body_is_not_served_and_its_neighbours_are(self, caplog: pytest.LogCaptureFixture) -> None:
        store = filled(opened(), 20)
        flip_live(store, body_of(store, 7))
        for _ in range(2):
            assert served(store) == [n for n in range(20) if n != 7]
        assert store.damage.records == 1
        unit = store.unit_at("orders", 0, 7)
        assert unit is not None
        assert any(f"log offset {unit.log_offset} is damaged" in line for line in caplog.messages)
        assert store.record_at(unit.log_offset) is None
        assert keys_found(store, 20) == [n for n in range(20) if n != 7]
        store.close()

    def test_a_read_that_finds_only_damage_goes_on_behind_it(self) -> None:
        store = filled(opened(), 3)
        flip_live(store, body_of(store, 1))
        result = store.read("orders", 0, 1, 1)
        assert result.status is ReadStatus.FOUND
        assert decode_record(result.chunks[0], 0, len(result.chunks[0])).queue_offset == 2
        flip_live(store, body_of(store, 2))
        result = store.read("orders", 0, 1, 1)
        assert (result.status, result.next_queue_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 3)
        store.close()

    @pytest.mark.parametrize("at", [0, 2, 4, 6, 12, 15, 20, 27, 28, 33])
    def test_so_is_a_record_whose_head_is_damaged(self, at: int) -> None:
        store = filled(opened(), 20)
        unit = store.unit_at("orders", 0, 7)
        assert unit is not None
        flip_live(store, unit.log_offset + at)
        assert served(store) == [n for n in range(20) if n != 7]
        assert store.damage.records == 1
        store.close()

    @pytest.mark.parametrize("back", [0, 1])
    def test_so_is_a_record_whose_lengths_do_not_add_up(self, back: int) -> None:
        store = filled(opened(), 20)
        unit = store.unit_at("orders", 0, 7)
        assert unit is not None
        view = store.record_at(unit.log_offset)
        assert view is not None
        flip_live(store, unit.log_offset + len(view) - len(decode_record(view, 0, len(view)).properties) - 1 - back)
        assert served(store) == [n for n in range(20) if n != 7]
        store.close()

    def test_checking_can_be_switched_off(self) -> None:
        store = filled(opened(config=tiny(check_crc_on_read=False)), 5)
        flip_live(store, body_of(store, 2))
        result = store.read("orders", 0, 0, 32)
        assert (result.message_count, store.damage.records) == (5, 0)
        store.close()


class TestUnits:
    @pytest.mark.parametrize("part", [slice(0, 8), slice(8, 12), slice(0, 20), slice(6, 7)])
    @pytest.mark.parametrize("number", [0, 7, 19])
    def test_a_wrong_unit_is_mended_from_the_log(self, part: slice, number: int) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk), 20)
        before = queue_files(disk)
        queue = store._queues.by_key["orders", 0]
        segment = queue.file.segment_at(number * 20)
        assert segment is not None
        start = number * 20 - segment.base
        view = segment.open()
        for position in range(part.start, part.stop):
            view[start + position] ^= 0x5A
        assert served(store) == list(range(20))
        assert (store.damage.units, store.damage.records) == (1, 0)
        assert queue_files(disk) == before
        store.close()

    def test_a_unit_that_points_at_another_message_is_mended(self) -> None:
        store = filled(opened(), 20)
        queue = store._queues.by_key["orders", 0]
        segment = queue.file.segment_at(0)
        assert segment is not None
        view = segment.open()
        view[2 * 20 : 3 * 20] = bytes(view[4 * 20 : 5 * 20])
        assert served(store) == list(range(20))
        assert (store.damage.units, store.damage.records) == (1, 0)
        store.close()

    def test_a_lost_sector_of_units_is_mended(self) -> None:
        store = opened(config=tiny(queue_segment_bytes=2000))
        for number in range(60):
            store.append(message(bytes([number]) * 50, queue_id=number % 2))
        store.dispatch()
        segment = store._queues.by_key["orders", 1].file.segment_at(0)
        assert segment is not None
        segment.open()[64:576] = bytes(512)
        assert served(store, queue_id=1) == list(range(30))
        store.close()


class TestRecovery:
    def crashed(self, count: int = 30, flush_at: int = 20) -> tuple[MemoryDisk, list[int]]:
        """A killed store of small files, flushed in between, and where its records begin."""
        disk = MemoryDisk()
        store = filled(opened(disk), flush_at)
        store.flush_now()
        filled(store, count - flush_at, first=flush_at)
        assert store._threads is not None
        store._threads.log_flusher.run_round(everything=True)
        units = [store.unit_at("orders", 0, number) for number in range(count)]
        return killed(disk, store), [unit.log_offset for unit in units if unit is not None]

    def log_byte(self, disk: MemoryDisk, offset: int, value: bytes) -> None:
        path = LOG / f"{offset // 4096 * 4096:020d}"
        write(disk, path, offset % 4096, value)

    @pytest.mark.parametrize("number", [3, 19, 20, 25, 28, 29])
    def test_a_body_that_rotted_costs_that_message_only(self, number: int) -> None:
        disk, offsets = self.crashed()
        files = {entry.name for entry in disk.list(LOG)}
        self.log_byte(disk, offsets[number] + 150, b"\xee")
        store = new_store(disk)
        report = store.open()
        assert served(store) == [n for n in range(30) if n != number]
        assert store.damage.records == 1
        assert report.damaged_records == (1 if number >= 20 else 0), "only what came after the mark is read at start"
        assert store.append(message()).queue_offset == 30
        assert {entry.name for entry in disk.list(LOG)} >= files
        store.close()

    @pytest.mark.parametrize("number", [20, 22, 25, 28])
    def test_a_head_that_rotted_costs_that_message_only(self, number: int) -> None:
        disk, offsets = self.crashed()
        self.log_byte(disk, offsets[number], b"\xff" * 24)
        store = new_store(disk)
        report = store.open()
        assert report.damaged_records == 1
        assert served(store) == [n for n in range(30) if n != number]
        assert store.append(message()).queue_offset == 30
        store.close()
        again = opened(disk)
        assert served(again) == [n for n in range(31) if n != number]
        again.close()

    def test_the_log_is_never_shorter_than_what_was_on_disk(self) -> None:
        disk, offsets = self.crashed()
        log_file = disk.read(LOG / f"{offsets[29] // 4096 * 4096:020d}") or b""
        end = offsets[29] + int.from_bytes(log_file[offsets[29] % 4096 :][:4], "big")
        self.log_byte(disk, offsets[29], b"\xff" * 24)
        store = new_store(disk)
        report = store.open()
        assert (report.log_next_offset, report.damaged_records) == (end, 1)
        result = store.append(message(b"next"))
        assert result.log_offset == end
        store.dispatch()
        store.close()
        again = opened(disk)
        assert again.record_at(end) is not None
        again.close()

    def test_bytes_that_never_were_on_disk_are_cut_off(self) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk), 20)
        store.flush_now()
        end = store.log_next_offset
        filled(store, 10, first=20)
        unit = store.unit_at("orders", 0, 22)
        assert unit is not None
        after = killed(disk, store)
        self.log_byte(after, unit.log_offset, b"\xff" * 24)
        again = new_store(after)
        report = again.open()
        assert unit.log_offset > end
        assert (report.log_next_offset, report.damaged_records) == (unit.log_offset, 0)
        assert "no sound record" in report.ended_by
        assert bodies(again) == list(range(22))
        again.close()

    def test_without_a_progress_file_the_checkpoint_tells_rot_from_a_torn_end(self) -> None:
        disk, offsets = self.crashed()
        disk.remove(ROOT / "rocketline.progress")
        now = (1_900_000_000_000).to_bytes(8, "big")
        write(disk, ROOT / "checkpoint", 0, now)
        self.log_byte(disk, offsets[5], b"\xff" * 24)
        store = new_store(disk)
        report = store.open()
        assert report.damaged_records == 1
        assert served(store) == [n for n in range(30) if n != 5]
        store.close()


class TestRebuilding:
    """Queues and index are made from the log: whatever happens to them, a start makes them what they were."""

    def stopped(self, clean: bool) -> tuple[MemoryDisk, dict[str, bytes]]:
        disk = MemoryDisk()
        store = opened(disk)
        for number in range(45):
            topic = "orders" if number % 3 else "bills"
            store.append(message(bytes([number]) * 60, topic, number % 2, KEYS=f"k{number}", TAGS="red"))
        store.dispatch()
        store.flush_now()
        if not clean:
            disk = killed(disk, store)
        store.close()
        return disk, queue_files(disk)

    def reopened(self, disk: MemoryDisk, before: dict[str, bytes], **changes: object) -> tuple[str, ...]:
        store = new_store(disk, tiny(**changes))
        report = store.open()
        assert queue_files(disk) == before
        for number in range(45):
            topic = "orders" if number % 3 else "bills"
            assert len(store.query(topic, f"k{number}", 10).records) == 1, number
        assert sum(len(served(store, t, q)) for t in ("orders", "bills") for q in (0, 1)) == 45
        store.close()
        return report.rebuilt

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_queue_that_is_gone(self, clean: bool) -> None:
        disk, before = self.stopped(clean)
        disk.remove_tree(ROOT / "consumequeue" / "bills" / "1")
        assert self.reopened(disk, before) == ("bills/1",)

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("name", [f"{0:020d}", f"{200:020d}"])
    def test_a_file_that_is_gone(self, clean: bool, name: str) -> None:
        disk, before = self.stopped(clean)
        disk.remove(QUEUE / name)
        assert self.reopened(disk, before) == ("orders/0",)

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("size", [0, 1, 100, 199])
    def test_a_file_that_was_cut_short(self, clean: bool, size: int) -> None:
        disk, before = self.stopped(clean)
        path = QUEUE / f"{0:020d}"
        disk.write_atomic(path, (disk.read(path) or b"")[:size])
        assert self.reopened(disk, before) == ("orders/0",)

    @pytest.mark.parametrize("clean", [True, False])
    def test_files_of_two_queues_exchanged(self, clean: bool) -> None:
        disk, before = self.stopped(clean)
        one, two = QUEUE / f"{0:020d}", ROOT / "consumequeue" / "bills" / "0" / f"{0:020d}"
        first, second = disk.read(one) or b"", disk.read(two) or b""
        disk.write_atomic(one, second)
        disk.write_atomic(two, first)
        # After a crash the shorter one is emptied, and filled with the rest while the other one is built anew.
        assert {"orders/0"} <= set(self.reopened(disk, before)) <= {"bills/0", "orders/0"}

    @pytest.mark.parametrize("clean", [True, False])
    def test_files_of_one_queue_exchanged(self, clean: bool) -> None:
        disk, before = self.stopped(clean)
        one, two = QUEUE / f"{0:020d}", QUEUE / f"{200:020d}"
        first, second = disk.read(one) or b"", disk.read(two) or b""
        disk.write_atomic(one, second)
        disk.write_atomic(two, first)
        assert self.reopened(disk, before) == ("orders/0",)

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_file_of_zeros(self, clean: bool) -> None:
        disk, before = self.stopped(clean)
        disk.write_atomic(QUEUE / f"{0:020d}", bytes(200))
        assert self.reopened(disk, before) == ("orders/0",)

    @pytest.mark.parametrize("clean", [True, False])
    def test_the_index_gone(self, clean: bool) -> None:
        disk, before = self.stopped(clean)
        disk.remove_tree(ROOT / "index")
        assert self.reopened(disk, before) == ("index",)

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("which", [0, 1, -1])
    def test_an_index_file_gone_or_cut_short(self, clean: bool, which: int) -> None:
        for size in (None, 0, 50):
            disk, before = self.stopped(clean)
            path = ROOT / "index" / disk.list(ROOT / "index")[which].name
            if size is None:
                disk.remove(path)
            else:
                disk.write_atomic(path, (disk.read(path) or b"")[:size])
            assert self.reopened(disk, before) == ("index",), size

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("name", ["checkpoint", "rocketline.progress", "rocketline.queues", "abort"])
    def test_the_notes_gone(self, clean: bool, name: str) -> None:
        disk, before = self.stopped(clean)
        disk.remove(ROOT / name)
        assert self.reopened(disk, before) == ()

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("name", ["checkpoint", "rocketline.progress", "rocketline.queues", "abort"])
    def test_the_notes_filled_with_garbage(self, clean: bool, name: str) -> None:
        disk, before = self.stopped(clean)
        size = len(disk.read(ROOT / name) or b"x" * 10)
        disk.write_atomic(ROOT / name, Random(7).randbytes(size))
        assert self.reopened(disk, before) == ()

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("seed", range(8))
    def test_a_flipped_bit_anywhere_in_a_queue_when_everything_is_verified(self, clean: bool, seed: int) -> None:
        disk, before = self.stopped(clean)
        random = Random(seed)
        name = random.choice([name for name, content in before.items() if any(content)])
        used = len(before[name].rstrip(b"\0"))
        position = random.randrange(used)
        write(disk, Path(name), position, bytes([before[name][position] ^ 1 << random.randrange(8)]))
        rebuilt = self.reopened(disk, before, verify_on_start=True)
        assert "index" in rebuilt

    def test_files_of_another_size_are_left_alone_when_the_settings_changed(self) -> None:
        disk, before = self.stopped(clean=True)
        with pytest.raises(StoreError, match="start with the setting the files were written with"):
            opened(disk, tiny(queue_segment_bytes=400))
        with pytest.raises(StoreError, match="start with the settings it was written with"):
            opened(disk, tiny(index_slots=60))
        assert self.reopened(disk, before) == ()


class TestForeign:
    @pytest.mark.parametrize("start", [b"\x00\x00\x01\x00\xda\xa3\x20\xaf", b"SQLite f", b"\x7fELF\x02\x01\x01\x00"])
    def test_a_log_of_an_unknown_format_is_left_untouched(self, start: bytes) -> None:
        disk = MemoryDisk()
        disk.make_folder(LOG)
        disk.write_atomic(LOG / f"{0:020d}", start + Random(1).randbytes(4096 - len(start)))
        before = {path: bytes(content.cached) for path, content in disk._files.items()}
        with pytest.raises(StoreError, match=r"does not begin with a message .* nothing was changed"):
            opened(disk)
        after = {path: bytes(content.cached) for path, content in disk._files.items()}
        assert after == {**before, ROOT / "lock": b"lock"}

    def test_a_damaged_first_record_does_not_make_it_foreign(self) -> None:
        disk = MemoryDisk()
        filled(opened(disk), 10).close()
        write(disk, LOG / f"{0:020d}", 4, b"\xff\xff")
        store = opened(disk)
        assert served(store) == list(range(1, 10))
        store.close()


def test_what_start_up_found_is_told_in_words(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    caplog.set_level(logging.WARNING)
    filled(opened(disk), 10).close()
    disk.remove_tree(ROOT / "consumequeue")
    store = new_store(disk)
    report = str(store.open())
    assert "after a clean stop" in report
    assert "10 records read from 0 to the end of the log" in report
    assert "rebuilt: orders/0" in report
    assert "rebuilding consume queues from the log: orders/0" in caplog.text
    store.close()
