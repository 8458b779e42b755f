"""Extended units in a store: written at dispatch, read by their addresses, removed with their consume queue units."""

from __future__ import annotations

import errno
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.store.samples import HOST, ROOT, message, opened, read_all, split, tiny
from tests.unit.store.test_golden_store import CONFIG, Golden

from rocketline.broker.delays.delay_levels import deliver_time_codes
from rocketline.broker.tables.topics import SCHEDULE_TOPIC
from rocketline.clock import ManualClock
from rocketline.errors import DiskFull
from rocketline.message import QueueOffset
from rocketline.protocol.bloom import BloomFilter, has_bits, set_bits
from rocketline.protocol.hashing import tag_hash
from rocketline.protocol.records import LogEntry, decode_record, log_entry
from rocketline.store.config import ExtQueueConfig, StoreConfig
from rocketline.store.files.disk import Disk
from rocketline.store.message_store import MessageStore, ReadStatus, StoreMessage
from rocketline.store.queue.consume_queue import ConsumeQueue
from rocketline.store.queue.ext_queue import ADDRESS_MAX, ADDRESS_MIN, ExtUnit
from rocketline.testing.disks import FaultyDisk, MemoryDisk

EXT = ROOT / "consumequeue_ext"
ON = ExtQueueConfig(enabled=True, segment_bytes=256)
LEVELS_MS = (1000, 5000, 10_000)


def extended(**changes: object) -> StoreConfig:
    return tiny(ext=ON, **changes)


def queue_of(store: MessageStore, topic: str = "orders", queue_id: int = 0) -> ConsumeQueue:
    queue = store._queues.get(topic, queue_id)
    assert queue is not None
    return queue


def codes(store: MessageStore, topic: str = "orders") -> list[int]:
    """What stands in the units."""
    queue = queue_of(store, topic)
    units = [queue.unit(number) for number in range(queue.min_offset, queue.max_offset)]
    return [unit[2] for unit in units if unit]


def units(store: MessageStore, topic: str = "orders") -> list[ExtUnit | None]:
    ext = queue_of(store, topic).ext
    assert ext is not None
    return [ext.get(code) for code in codes(store, topic)]


def real_codes(store: MessageStore, topic: str = "orders") -> list[int]:
    found = [store.unit_at(topic, 0, number) for number in range(store.max_offset(topic, 0))]
    return [unit.tags_code for unit in found if unit]


def tagged(number: int) -> StoreMessage:
    return message(f"message {number}".encode(), TAGS=f"tag{number % 3}")


def filled(store: MessageStore, count: int, first: int = 0) -> MessageStore:
    for number in range(first, first + count):
        store.append(tagged(number))
    store.dispatch()
    return store


def tag_hashes(count: int) -> list[int]:
    return [tag_hash(f"tag{number % 3}") for number in range(count)]


def offsets_read(store: MessageStore, tag: str) -> list[int]:
    """Queue offsets of the messages with a tag, by filtered reads over the whole queue."""
    found: list[int] = []
    offset = 0
    while offset < store.max_offset("orders", 0):
        result = store.read("orders", 0, offset, 32, {tag_hash(tag)}.__contains__)
        found += [decode_record(record, 0, len(record)).queue_offset for record in split(result.chunks)]
        offset = result.next_queue_offset
    return found


def abandon(store: MessageStore) -> None:
    """End the threads of a store whose machine has lost power."""
    assert store._threads is not None
    store._threads.log_flusher.stop()
    store._threads.queue_flusher.stop()


class TestWriting:
    def test_units_hold_addresses_and_extended_units_the_rest(self) -> None:
        clock = ManualClock()
        store = opened(config=extended(), clock=clock)
        filled(store, 4)
        clock.advance(5)
        filled(store, 1, first=4)
        assert codes(store) == [ADDRESS_MIN + number * 20 for number in range(5)]
        assert real_codes(store) == tag_hashes(5)
        times = [unit.store_ms for unit in units(store) if unit]
        assert times == [store.store_ms_of("orders", 0, number) for number in range(5)]
        assert times[4] == times[3] + 5000
        store.close()

    def test_off_by_default(self) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk), 4)
        assert codes(store) == tag_hashes(4)
        assert not disk.exists(EXT)
        store.close()

    def test_a_message_without_tag_gets_one_too(self) -> None:
        store = opened(config=extended())
        store.append(message())
        store.dispatch()
        assert codes(store) == [ADDRESS_MIN]
        assert real_codes(store) == [0]
        store.close()

    def test_bitmaps_come_from_the_hook(self) -> None:
        seen: list[LogEntry] = []

        def bitmap_for(entry: LogEntry) -> bytes | None:
            seen.append(entry)
            return bytes([entry.queue_offset] * 3) if entry.queue_offset % 2 else None

        store = MessageStore(ROOT, extended(), HOST, disk=MemoryDisk(), bitmap_for=bitmap_for)
        store.open()
        filled(store, 4)
        assert [unit.bitmap for unit in units(store) if unit] == [b"", b"\1\1\1", b"", b"\3\3\3"]
        assert [entry.properties["TAGS"] for entry in seen] == ["tag0", "tag1", "tag2", "tag0"]
        store.close()

    def test_every_queue_has_its_own_files(self) -> None:
        disk = MemoryDisk()
        store = opened(disk, extended())
        for queue_id in (0, 3):
            store.append(message(queue_id=queue_id))
        store.append(message(topic="others"))
        store.dispatch()
        store.close()
        assert [entry.name for entry in disk.list(EXT)] == ["orders", "others"]
        assert [entry.name for entry in disk.list(EXT / "orders")] == ["0", "3"]

    def test_without_room_the_plain_code_is_stored(self, caplog: pytest.LogCaptureFixture) -> None:
        disk = FaultyDisk(MemoryDisk())
        store = filled(opened(disk, extended()), 10)
        disk.fail("reserve", errno.ENOSPC, part="consumequeue_ext", forever=True)
        with caplog.at_level(logging.WARNING):
            filled(store, 10, first=10)
        assert len(caplog.records) == 1, "not one for each message"
        assert "message at" in caplog.text
        assert "No space left" in caplog.text
        disk.heal()
        filled(store, 5, first=20)
        plain = [code > ADDRESS_MAX for code in codes(store)]
        assert plain[:10] == [False] * 10
        assert plain[12:20] == [True] * 8
        assert plain[20:] == [False] * 5
        assert real_codes(store) == tag_hashes(25)
        assert offsets_read(store, "tag1") == list(range(1, 25, 3))
        store.close()

    def test_a_bitmap_too_large_costs_nothing_but_itself(self) -> None:
        store = MessageStore(
            ROOT, extended(), HOST, disk=MemoryDisk(), bitmap_for=lambda entry: bytes(1000 * (entry.queue_offset == 1))
        )
        store.open()
        filled(store, 3)
        assert [code > ADDRESS_MAX for code in codes(store)] == [False, True, False]
        assert real_codes(store) == tag_hashes(3)
        store.close()


class TestReading:
    def test_filters_see_real_codes(self) -> None:
        store = filled(opened(config=extended(log_segment_bytes=8192)), 60)
        assert offsets_read(store, "tag2") == list(range(2, 60, 3))
        result = store.read("orders", 0, 0, 3, {tag_hash("tag0")}.__contains__)
        assert (result.message_count, result.next_queue_offset) == (3, 9), "units looked at, up to the next match"
        assert store.read("orders", 0, 0, 32, lambda code: False).status is ReadStatus.NO_MATCHED_MESSAGE
        assert len(read_all(store)) == 60
        store.close()

    def test_the_extended_unit_is_what_counts(self) -> None:
        store = filled(opened(config=extended()), 3)
        segment = queue_of(store).ext.file.first  # type: ignore[union-attr]
        assert segment is not None
        segment.open()[22:30] = (4242).to_bytes(8, "big")
        assert store.unit_at("orders", 0, QueueOffset(1)).tags_code == 4242  # type: ignore[union-attr]
        result = store.read("orders", 0, 0, 32, {4242}.__contains__)
        assert result.message_count == 1
        store.close()

    @pytest.mark.parametrize("damage", ["zeroed", "removed", "torn"])
    def test_the_record_answers_for_a_lost_unit(self, damage: str) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk, extended()), 30)
        ext = queue_of(store).ext
        assert ext is not None
        if damage == "removed":
            del ext.file._segments[0]
        else:
            assert ext.file.first is not None
            view = ext.file.first.open()
            view[:] = bytes(len(view)) if damage == "zeroed" else bytes(view[7:]) + bytes(7)
        assert real_codes(store) == tag_hashes(30)
        assert offsets_read(store, "tag1") == list(range(1, 30, 3))
        store.close()

    def test_a_deleted_message_cannot_answer(self) -> None:
        store = filled(opened(config=extended(queue_segment_bytes=2000)), 60)
        queue = queue_of(store)
        assert queue.ext is not None
        del queue.ext.file._segments[0]
        store._log.file.remove_first()
        result = store.read("orders", 0, 0, 32, {tag_hash("tag1")}.__contains__)
        assert result.message_count
        assert store.unit_at("orders", 0, QueueOffset(0)).tags_code == ADDRESS_MIN  # type: ignore[union-attr]
        store.close()

    def test_a_damaged_record_cannot_answer_either(self) -> None:
        store = filled(opened(config=extended()), 2)
        queue = queue_of(store)
        assert queue.ext is not None
        del queue.ext.file._segments[0]
        view = store.record_at(0)
        assert view is not None
        view[84:88] = b"\x7f\xff\xff\xff"  # body length
        assert store.unit_at("orders", 0, QueueOffset(0)).tags_code == ADDRESS_MIN  # type: ignore[union-attr]
        assert store.read("orders", 0, 1, 1, {tag_hash("tag1")}.__contains__).message_count == 1
        store.close()

    def test_a_filter_of_extended_units(self) -> None:
        store = MessageStore(
            ROOT, extended(), HOST, disk=MemoryDisk(), bitmap_for=lambda entry: bytes([entry.queue_offset % 2])
        )
        store.open()
        filled(store, 10)
        asked: list[tuple[int, int, bytes]] = []

        def accept(tags_code: int, store_ms: int, bitmap: bytes) -> bool:
            asked.append((tags_code, store_ms, bitmap))
            return bitmap == b"\1"

        result = store.read("orders", 0, 0, 32, accept_ext=accept)
        assert [decode_record(record, 0, len(record)).queue_offset for record in split(result.chunks)] == [
            1,
            3,
            5,
            7,
            9,
        ]
        assert asked == [tuple(unit) for unit in units(store) if unit]
        both = store.read("orders", 0, 0, 32, {tag_hash("tag1")}.__contains__, accept_ext=accept)
        assert both.message_count == 2, "numbers 1 and 7"
        store.close()

    def test_such_a_filter_is_not_asked_about_plain_units(self) -> None:
        store = filled(opened(), 10)
        assert store.read("orders", 0, 0, 32, accept_ext=lambda *unit: False).message_count == 10
        store.close()


class TestDelayedMessages:
    def store(self, disk: Disk, config: StoreConfig | None = None) -> MessageStore:
        store = MessageStore(
            ROOT,
            config or extended(),
            HOST,
            disk=disk,
            clock=ManualClock(),
            tags_code_for=deliver_time_codes(LEVELS_MS),
        )
        store.open()
        return store

    def deliver_times(self, store: MessageStore) -> list[int]:
        found = [store.unit_at(SCHEDULE_TOPIC, 1, QueueOffset(number)) for number in range(3)]
        return [unit.tags_code for unit in found if unit]

    def test_the_deliver_time_is_in_the_extended_unit(self) -> None:
        disk = MemoryDisk()
        store = self.store(disk)
        for _ in range(3):
            store.append(message(topic=SCHEDULE_TOPIC, queue_id=1, TAGS="red"))
        store.dispatch()
        due = [store.store_ms_of(SCHEDULE_TOPIC, 1, number) + 5000 for number in range(3)]
        assert self.deliver_times(store) == due
        assert queue_of(store, SCHEDULE_TOPIC, 1).unit(0)[2] == ADDRESS_MIN  # type: ignore[index]
        store.close()
        for config in (extended(), tiny()):
            again = self.store(disk, config)
            assert self.deliver_times(again) == due
            again.close()
        disk.remove_tree(EXT)
        lost = self.store(disk)
        assert self.deliver_times(lost) == due, "worked out again from the record, not its tag"
        lost.close()


class TestSwitching:
    def test_off_again(self) -> None:
        disk = MemoryDisk()
        filled(opened(disk, extended()), 20).close()
        store = filled(opened(disk), 10, first=20)
        assert [code > ADDRESS_MAX for code in codes(store)] == [False] * 20 + [True] * 10
        assert real_codes(store) == tag_hashes(30)
        assert offsets_read(store, "tag1") == list(range(1, 30, 3))
        store.close()

    def test_on_later(self) -> None:
        disk = MemoryDisk()
        filled(opened(disk), 10).close()
        store = filled(opened(disk, extended()), 10, first=10)
        assert codes(store)[9:12] == [tag_hash("tag0"), ADDRESS_MIN, ADDRESS_MIN + 20]
        assert real_codes(store) == tag_hashes(20)
        store.close()

    def test_on_off_on_uses_no_address_twice(self) -> None:
        disk = MemoryDisk()
        count = 0
        for config in (extended(), tiny(), extended(), tiny(), extended()):
            filled(opened(disk, config), 7, first=count).close()
            count += 7
        store = opened(disk, extended())
        addresses = [code for code in codes(store) if code <= ADDRESS_MAX]
        assert len(set(addresses)) == len(addresses) == 21
        assert all(unit is not None for unit in units(store)[28:])
        assert real_codes(store) == tag_hashes(35)
        store.close()

    def test_with_the_folder_gone_old_addresses_lead_nowhere(self) -> None:
        disk = MemoryDisk()
        filled(opened(disk, extended()), 20).close()
        disk.remove_tree(EXT)
        store = filled(opened(disk, extended()), 20, first=20)
        assert units(store)[:20] == [None] * 20
        assert None not in units(store)[20:]
        assert real_codes(store) == tag_hashes(40)
        store.close()


class TestInStep:
    def test_a_clean_stop(self) -> None:
        disk = MemoryDisk()
        filled(opened(disk, extended()), 25).close()
        store = filled(opened(disk, extended()), 5, first=25)
        assert [unit.tags_code for unit in units(store) if unit] == tag_hashes(30)
        # Twelve units to a file of 256 bytes, one after the other across the restart.
        assert codes(store) == [ADDRESS_MIN + number // 12 * 256 + number % 12 * 20 for number in range(30)]
        store.close()

    def test_a_killed_process_writes_no_unit_twice(self) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk, extended()), 25)
        before = codes(store)
        abandon(store)
        disk._locked.clear()
        again = opened(disk, extended())
        assert codes(again) == before
        assert [unit.tags_code for unit in units(again) if unit] == tag_hashes(25)
        again.close()

    def test_a_message_dispatched_again_gets_no_second_unit(self) -> None:
        disk = FaultyDisk(MemoryDisk())
        store = opened(disk, extended())
        disk.fail("open", errno.ENOSPC, part="/index/")
        store.append(message(KEYS="k1", TAGS="tag0"))
        with pytest.raises(DiskFull):
            store.dispatch()
        assert codes(store) == [ADDRESS_MIN], "listed before the index failed"
        filled(store, 1, first=1)
        assert codes(store) == [ADDRESS_MIN, ADDRESS_MIN + 20]
        assert [unit.tags_code for unit in units(store) if unit] == tag_hashes(2)
        store.close()

    def test_units_nobody_points_to_are_cut(self) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk, extended()), 5)
        ext = queue_of(store).ext
        assert ext is not None
        for _ in range(20):
            ext.put(666, 1)
        store.close()
        again = opened(disk, extended())
        assert queue_of(again).ext.end == 100  # type: ignore[union-attr]
        content = disk.read(EXT / "orders" / "0" / f"{0:020d}")
        assert content is not None
        assert content[100:] == bytes(156), "Apache's broker would walk on into them"
        assert len(disk.list(EXT / "orders" / "0")) == 1
        again.close()

    def test_a_topic_is_deleted_with_its_extended_units(self) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk, extended()), 25)
        store.append(message(topic="others"))
        store.dispatch()
        store.delete_topic("orders")
        assert [entry.name for entry in disk.list(EXT)] == ["others"]
        filled(store, 3)
        assert codes(store) == [ADDRESS_MIN, ADDRESS_MIN + 20, ADDRESS_MIN + 40]
        assert real_codes(store) == tag_hashes(3)
        store.close()

    def test_a_topic_made_anew_in_a_replayed_log(self) -> None:
        """Replay lists the messages of the former topic first; then the numbers start again."""
        disk = MemoryDisk()
        store = filled(opened(disk, extended()), 5)
        store.delete_topic("orders")
        filled(store, 3, first=1)
        abandon(store)
        disk._locked.clear()
        again = opened(disk, extended())
        expected = [tag_hash("tag1"), tag_hash("tag2"), tag_hash("tag0")]
        assert [unit.tags_code for unit in units(again) if unit] == expected
        assert real_codes(again) == expected
        again.close()

    def test_old_files_go_with_the_start_of_the_log(self) -> None:
        disk = MemoryDisk()
        store = filled(opened(disk, extended()), 200)
        store.close()
        store = opened(disk, extended())
        queue = queue_of(store)
        assert queue.ext is not None
        files = len(queue.ext.file)
        for _ in range(3):
            store._log.file.remove_first()
        queue.follow_log_minimum(store.log_min_offset)
        queue.take_ext_files()
        assert queue.min_offset > 60
        first = codes(store)[0] - ADDRESS_MIN
        assert queue.ext.file.min_offset == first // 256 * 256
        assert len(queue.ext.file) == files - first // 256
        assert None not in units(store)
        store.close()

    def test_without_any_message_left_only_the_last_file_stays(self) -> None:
        store = filled(opened(config=extended()), 50)
        queue = queue_of(store)
        assert queue.ext is not None
        queue.follow_log_minimum(1 << 40)
        queue.take_ext_files()
        assert queue.min_offset == queue.max_offset == 50
        assert len(queue.ext.file) == 1
        filled(store, 1, first=50)
        queue.follow_log_minimum(0)
        assert None not in units(store)[48:]
        store.close()

    def test_files_of_another_size_are_refused(self) -> None:
        disk = MemoryDisk()
        filled(opened(disk, extended()), 5).close()
        with pytest.raises(Exception, match="has 256 bytes, but files of 512 bytes"):
            opened(disk, tiny(ext=ExtQueueConfig(enabled=True, segment_bytes=512)))
        filled(opened(disk, extended()), 1, first=5).close()


class TestPowerCut:
    def test_an_address_is_never_on_disk_before_its_unit(self) -> None:
        inner = MemoryDisk()
        disk = FaultyDisk(inner)
        store = filled(opened(disk, extended()), 5)
        disk.fail("sync", part="consumequeue_ext")
        queue = queue_of(store)
        with pytest.raises(Exception, match="sync"):
            queue.flush()
        after = inner.crash()
        assert after.read(ROOT / "consumequeue" / "orders" / "0" / f"{0:020d}") is None
        queue.flush()
        after = inner.crash()
        content = after.read(ROOT / "consumequeue" / "orders" / "0" / f"{0:020d}")
        assert content is not None
        assert content[12:20] == ADDRESS_MIN.to_bytes(8, "big", signed=True)
        assert after.read(EXT / "orders" / "0" / f"{0:020d}") is not None
        abandon(store)

    @pytest.mark.parametrize("seed", range(40))
    def test_whatever_survives_every_address_leads_to_its_unit(self, seed: int) -> None:
        disk, clock = MemoryDisk(), ManualClock()
        config = extended(queue_segment_bytes=2000)
        store = opened(disk, config, clock)
        count = 0
        for _ in range(6):
            filled(store, 20 + seed, first=count)
            count += 20 + seed
            clock.advance(4)
            store.flush_now()
        filled(store, 15, first=count)
        store._threads.log_flusher.run_round(everything=True)  # type: ignore[union-attr]
        after = disk.crash(seed)
        abandon(store)
        again = MessageStore(ROOT, config, HOST, disk=after, clock=clock)
        report = again.open()
        assert report.after_crash
        assert report.records_scanned < count + 15, "some units were kept, not made again"
        kept = again.max_offset("orders", 0)
        assert kept == count + 15
        assert [unit.tags_code if unit else None for unit in units(again)] == tag_hashes(kept)
        filled(again, 5, first=kept)
        assert [unit.tags_code if unit else None for unit in units(again)] == tag_hashes(kept + 5)
        assert len(set(codes(again))) == kept + 5
        again.close()


class TestApachesFolder:
    """Written by Apache's broker with enableConsumeQueueExt and enableCalcFilterBitMap, files of 16 KiB."""

    LEVELS_MS = tuple(
        1000 * seconds
        for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
    )
    BLOOM = BloomFilter.for_error_rate(20, 32)
    BITS = BLOOM.positions("CG_sql#F_sql")
    ON = replace(CONFIG, ext=ExtQueueConfig(enabled=True, segment_bytes=16384))

    @pytest.fixture
    def features(self, tmp_path: Path) -> Golden:
        return Golden("features", tmp_path)

    def is_wanted(self, entry: LogEntry) -> bool:
        """What the group's filter says: a BETWEEN 2 AND 6 AND s = 'even'."""
        return 2 <= int(entry.properties.get("a", "0")) <= 6 and entry.properties.get("s") == "even"

    def bitmap_for(self, entry: LogEntry) -> bytes | None:
        if entry.topic != "F_sql":
            return None
        bitmap = bytearray(self.BLOOM.bitmap_bytes)
        if self.is_wanted(entry):
            set_bits(bitmap, self.BITS)
        return bytes(bitmap)

    def open(self, golden: Golden, config: StoreConfig) -> MessageStore:
        store = MessageStore(
            golden.root,
            config,
            HOST,
            tags_code_for=deliver_time_codes(self.LEVELS_MS),
            bitmap_for=self.bitmap_for,
        )
        store.open()
        return store

    @pytest.mark.parametrize("config", [CONFIG, ON], ids=["off", "on"])
    def test_every_unit_is_read(self, features: Golden, config: StoreConfig) -> None:
        store = self.open(features, config)
        checked = 0
        own_code = deliver_time_codes(self.LEVELS_MS)
        for topic, queue_id in list(store._queues.by_key):
            queue = queue_of(store, topic, queue_id)
            for number, raw in enumerate(read_all(store, topic, queue_id)):
                unit = queue.unit(number)
                assert unit is not None
                if unit[2] > ADDRESS_MAX:
                    continue
                assert queue.ext is not None
                found = queue.ext.get(unit[2])
                entry = log_entry(decode_record(raw, 0, len(raw)))
                assert found is not None
                assert found[:2] == (own_code(entry), entry.store_ms)
                assert store.unit_at(topic, queue_id, number).tags_code == found.tags_code  # type: ignore[union-attr]
                checked += 1
        assert checked > 90
        store.close()

    def test_bitmaps_pick_what_the_filter_wanted(self, features: Golden) -> None:
        store = self.open(features, CONFIG)

        def accept(tags_code: int, store_ms: int, bitmap: bytes) -> bool:
            return len(bitmap) != self.BLOOM.bitmap_bytes or has_bits(bitmap, self.BITS)

        count = 0
        for queue_id in (0, 1):
            everything = [log_entry(decode_record(raw, 0, len(raw))) for raw in read_all(store, "F_sql", queue_id)]
            picked = store.read("F_sql", queue_id, 0, 32, accept_ext=accept)
            offsets = [log_entry(decode_record(raw, 0, len(raw))).log_offset for raw in split(picked.chunks)]
            assert offsets == [entry.log_offset for entry in everything if self.is_wanted(entry)]
            count += len(offsets)
        assert count == 6, "as many as the group consumed from Apache's broker"
        store.close()

    def test_rebuilt_files_equal_apaches_byte_for_byte(self, features: Golden) -> None:
        before = features.files("consumequeue"), features.files("consumequeue_ext")
        for part in ("consumequeue", "consumequeue_ext", "index"):
            shutil.rmtree(features.root / part)
        self.open(features, self.ON).close()
        after = features.files("consumequeue"), features.files("consumequeue_ext")
        for ours, apaches in zip(after, before):
            # Apache keeps queues of that topic in a format of their own.
            assert {name: data for name, data in ours.items() if not name.startswith("F_bcq/")} == apaches

    def test_it_is_written_on(self, features: Golden) -> None:
        store = self.open(features, self.ON)
        queue = queue_of(store, "F_pop")
        assert queue.ext is not None
        end, last = queue.ext.end, store.max_offset("F_pop", 0)
        store.append(message(topic="F_pop", TAGS="new"))
        store.dispatch()
        assert queue.unit(last)[2] == ADDRESS_MIN + end == ADDRESS_MIN + 20 * last  # type: ignore[index]
        assert store.unit_at("F_pop", 0, QueueOffset(last)).tags_code == tag_hash("new")  # type: ignore[union-attr]
        store.close()
