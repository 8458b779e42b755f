import struct
from pathlib import Path

import pytest
from tests.unit.store.samples import tiny

from rocketline.clock import ManualClock
from rocketline.errors import StoreError
from rocketline.store.files.disk import Disk
from rocketline.store.index.index_file import IndexFile, index_file_bytes
from rocketline.store.index.key_index import KeyIndex
from rocketline.testing.disks import FaultyDisk, MemoryDisk

INDEX = Path("/data/index")
FOREVER = (0, 10**15)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_folder(INDEX)
    return disk


def new_index(disk: Disk, load: bool = False, entries: int = 20, slots: int = 50) -> KeyIndex:
    index = KeyIndex(disk, INDEX, tiny(index_entries=entries, index_slots=slots), ManualClock())
    if load:
        index.load()
    return index


def filled(disk: MemoryDisk, count: int, entries: int = 20) -> KeyIndex:
    index = new_index(disk, entries=entries)
    for number in range(count):
        index.put("orders", number * 100, 1_000_000 + number * 1000, {"UNIQ_KEY": f"unique-id-{number}"})
    return index


def found(index: KeyIndex, key: str, begin_ms: int = 0, end_ms: int = 10**15) -> list[int]:
    return index.find("orders", key, begin_ms, end_ms, 64)


def test_the_bytes_of_a_file() -> None:
    disk = MemoryDisk()
    disk.make_folder(INDEX)
    file = IndexFile(disk, INDEX / "1", 10, 5)
    file.put(27, 1234, 5000)
    file.put(17, 2345, 7999)
    file.put(27, 3456, 4000)
    file.flush()
    raw = disk.crash().read(INDEX / "1")
    assert raw is not None
    assert len(raw) == index_file_bytes(10, 5) == 40 + 40 + 100
    assert struct.unpack_from(">qqqqii", raw) == (5000, 4000, 1234, 3456, 1, 4)
    assert struct.unpack_from(">10i", raw, 40) == (0, 0, 0, 0, 0, 0, 0, 3, 0, 0)
    units = [struct.unpack_from(">iqii", raw, 80 + number * 20) for number in range(5)]
    assert units == [(0, 0, 0, 0), (27, 1234, 0, 0), (17, 2345, 2, 1), (27, 3456, 0, 2), (0, 0, 0, 0)]


def test_a_file_that_is_cut_back_ends_with_its_last_entry() -> None:
    disk = MemoryDisk()
    disk.make_folder(INDEX)
    file = IndexFile(disk, INDEX / "1", 10, 6)
    for number, store_ms in enumerate((5000, 7500, 9000, 9000), 1):
        file.put(number, number * 100, store_ms)
    file.cut_back(3)
    file.flush()
    raw = disk.crash().read(INDEX / "1")
    assert raw is not None
    assert struct.unpack_from(">qqqqii", raw) == (5000, 7999, 100, 200, 3, 3)


def test_a_message_is_filed_under_id_keys_and_tag(disk: MemoryDisk) -> None:
    index = new_index(disk)
    index.put("orders", 700, 1, {"UNIQ_KEY": "U1", "KEYS": "k1 k2  k3", "TAGS": "red", "OTHER": "x"})
    for key in ("U1", "k1", "k2", "k3", "T#red"):
        assert found(index, key) == [700]
    for key in ("red", "x", "", "k1 k2"):
        assert found(index, key) == []
    assert index.find("other", "U1", *FOREVER, 64) == []
    assert index.files[-1].count == 6


def test_newest_first_and_no_more_than_asked_for(disk: MemoryDisk) -> None:
    index = new_index(disk)
    for number in range(10):
        index.put("orders", number, 1, {"KEYS": "same"})
    assert index.find("orders", "same", *FOREVER, 4) == [9, 8, 7, 6]


def test_full_files_are_followed_by_new_ones(disk: MemoryDisk) -> None:
    index = filled(disk, 50)
    assert [file.count for file in index.files] == [20, 20, 13]
    names = [int(file.path.name) for file in index.files]
    assert names == sorted(set(names)), "made in the same millisecond, still in order"
    for number in (0, 18, 19, 37, 38, 49):
        assert found(index, f"unique-id-{number}") == [number * 100]


def test_a_message_may_be_filed_in_two_files(disk: MemoryDisk) -> None:
    index = filled(disk, 17)
    index.put("orders", 9000, 1_017_000, {"KEYS": "a b c d"})
    assert [file.count for file in index.files] == [20, 3]
    assert [found(index, key) for key in "abcd"] == [[9000]] * 4


def test_only_entries_of_the_asked_time_are_found(disk: MemoryDisk) -> None:
    index = new_index(disk)
    for number in range(5):
        index.put("orders", number, 10_000 + number * 1000, {"KEYS": "same"})
    assert found(index, "same", 11_000, 12_999) == [2, 1]
    assert found(index, "same", 20_000, 30_000) == []
    assert found(index, "same", 0, 9_999) == []


def test_it_is_found_again_and_goes_on(disk: MemoryDisk) -> None:
    index = filled(disk, 25)
    index.flush()
    index.close()
    again = new_index(disk, load=True)
    assert found(again, "unique-id-24") == [2400]
    again.put("orders", 2400, 1, {"UNIQ_KEY": "again"})
    assert found(again, "again") == [], "a message is filed once"
    again.put("orders", 2500, 2_000_000, {"UNIQ_KEY": "unique-id-24"})
    assert found(again, "unique-id-24") == [2500, 2400]
    assert again.updated == (2_000_000, 2500)


def test_a_file_of_another_size_refuses_to_load(disk: MemoryDisk) -> None:
    filled(disk, 1).close()
    with pytest.raises(StoreError, match=r"has 640 bytes, but index files of 660 bytes .* 21 entries"):
        new_index(disk, load=True, entries=21)


def test_strange_names_and_empty_files_are_passed_over(disk: MemoryDisk) -> None:
    disk.write_atomic(INDEX / "notes", b"x")
    disk.write_atomic(INDEX / "20200101000000000", b"")
    index = new_index(disk, load=True)
    assert index.files == []
    assert not disk.exists(INDEX / "20200101000000000")
    assert index.updated == (0, 0)


def test_files_that_know_only_what_is_gone_are_given_away(disk: MemoryDisk) -> None:
    index = filled(disk, 60)
    first, second, third, fourth = [file.path for file in index.files]
    assert index.take_below(10**9) == [], "not before they are flushed"
    index.flush()
    end = index.files[1].end_log_offset
    assert index.take_below(index.files[0].end_log_offset) == []
    assert index.take_below(end) == [first]
    assert index.take_below(end + 1) == [second]
    assert found(index, "unique-id-5") == []
    assert found(index, "unique-id-59") == [5900]
    assert index.take_below(10**9) == [third], "the last one stays"
    index.flush()
    assert [file.path for file in index.files] == [fourth]
    assert disk.exists(first)


def test_damage_does_not_go_round_for_ever(disk: MemoryDisk) -> None:
    index = new_index(disk)
    for number in range(5):
        index.put("orders", number, 1, {"KEYS": "same"})
    view = index.files[0]._view
    struct.pack_into(">i", view, 40 + 50 * 4 + 3 * 20 + 16, 5)
    assert found(index, "same") == [4, 3, 2]


class TestAfterACrash:
    def crashed(self, disk: MemoryDisk, index: KeyIndex, seed: int | None = None, safe_ms: int = 10**15) -> KeyIndex:
        del index
        again = new_index(disk.crash(seed), load=True)
        self.missing_from = again.recover_from_crash(safe_ms)
        return again

    @pytest.mark.parametrize("seed", [None, *range(20)])
    def test_dropped_entries_do_not_hide_older_ones_of_their_slot(self, disk: MemoryDisk, seed: int | None) -> None:
        index = new_index(disk, slots=3, entries=100)
        for number in range(60):
            if number == 30:
                index.flush()
            index.put("orders", number * 100, 1_000_000, {"KEYS": f"key{number}"})
        again = new_index(disk.crash(seed), load=True, slots=3, entries=100)
        again.recover_from_crash(10**15)
        assert [found(again, f"key{number}") for number in range(30)] == [[number * 100] for number in range(30)]
        assert [found(again, f"key{number}") for number in range(30, 60)] == [[]] * 30

    def test_the_header_counts_only_what_was_synced(self, disk: MemoryDisk) -> None:
        faulty = FaultyDisk(disk)
        index = new_index(faulty)
        index.put("orders", 100, 1_000_000, {"KEYS": "k1"})
        index.flush()
        index.put("orders", 200, 2_000_000, {"KEYS": "k2"})
        faulty.fail("sync")
        with pytest.raises(StoreError):
            index.flush()
        header = (disk.read(index.files[0].path) or b"")[:40]
        assert struct.unpack(">qqqqii", header) == (1_000_000, 1_000_000, 100, 100, 1, 2)

    @pytest.mark.parametrize("seed", [None, *range(20)])
    def test_entries_since_the_last_flush_are_dropped(self, disk: MemoryDisk, seed: int | None) -> None:
        index = filled(disk, 8)
        index.flush()
        for number in range(8, 15):
            index.put("orders", number * 100, 1_000_000, {"UNIQ_KEY": f"unique-id-{number}"})
        again = self.crashed(disk, index, seed)
        assert self.missing_from is None
        assert [found(again, f"unique-id-{number}") for number in range(8)] == [[number * 100] for number in range(8)]
        assert [found(again, f"unique-id-{number}") for number in range(8, 15)] == [[]] * 7
        for number in range(8, 15):
            again.put("orders", number * 100, 1_000_000, {"UNIQ_KEY": f"unique-id-{number}"})
        assert [found(again, f"unique-id-{number}") for number in range(15)] == [[number * 100] for number in range(15)]

    def test_the_last_flushed_message_may_be_filed_again(self, disk: MemoryDisk) -> None:
        index = filled(disk, 3)
        index.flush()
        again = self.crashed(disk, index)
        again.put("orders", 200, 1_002_000, {"UNIQ_KEY": "unique-id-2", "KEYS": "second-key"})
        assert found(again, "second-key") == [200]

    def test_a_file_younger_than_the_checkpoint_is_made_again(self, disk: MemoryDisk) -> None:
        index = filled(disk, 30)
        index.flush()
        again = self.crashed(disk, index, safe_ms=1_025_000)
        assert self.missing_from == 1900
        assert len(again.files) == 1
        assert found(again, "unique-id-18") == [1800]

    def test_files_after_one_that_is_not_full_are_made_again(self, disk: MemoryDisk) -> None:
        index = filled(disk, 10)
        index.flush()
        for number in range(10, 30):
            index.put("orders", number * 100, 1_000_000, {"UNIQ_KEY": f"unique-id-{number}"})
        index.files[1].flush()
        again = self.crashed(disk, index)
        assert self.missing_from == 1900
        assert [file.count for file in again.files] == [11]

    def test_destroy_removes_all(self, disk: MemoryDisk) -> None:
        index = filled(disk, 30)
        index.destroy()
        assert disk.list(INDEX) == []
        index.put("orders", 0, 1, {"KEYS": "k"})
        assert found(index, "k") == [0]
