"""Rebuilt queues and index equal the old ones; an interrupted rebuild never leaves a mix of old and new."""

from __future__ import annotations

import errno
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.store.samples import ROOT, item, message, opened, read_all, tiny

from rocketline.clock import ManualClock
from rocketline.errors import DiskFull, StoreError, StoreInUse
from rocketline.protocol.record_layout import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rocketline.protocol.records import LogEntry
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import Disk
from rocketline.store.message_store import MessageStore
from rocketline.store.tools.folder import StoreFolder
from rocketline.store.tools.inspection import Verdict, verify
from rocketline.store.tools.rebuild import BUILDING, READY, RebuildResult, rebuild
from rocketline.testing.disks import FaultyDisk, MemoryDisk

GOLDEN = Path(__file__).parents[3] / "golden" / "store"
FOLDER = StoreFolder(ROOT / "commitlog", ROOT)


def fill(store: MessageStore, count: int = 60, first: int = 0) -> MessageStore:
    for number in range(first, first + count):
        store.append(
            message(number.to_bytes(2, "big") * 100, f"t{number % 3}", number % 2, KEYS=f"key-{number}", TAGS="x")
        )
    store.append_batch(message(b"", "t1"), [item(b"1", KEYS="b1"), item(b"2", UNIQ_KEY="u" * 32)])
    for flag in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
        half = message(b"half", KEYS="half")
        half.sys_flag = flag
        store.append(half)
    store.dispatch()
    return store


def stored() -> MemoryDisk:
    disk = MemoryDisk()
    fill(opened(disk)).close()
    return disk


def built(disk: Disk, **options: object) -> RebuildResult:
    return rebuild(FOLDER, tiny(), disk=disk, clock=ManualClock(), **options)  # type: ignore[arg-type]


def content(disk: MemoryDisk, *parts: str) -> dict[str, bytes]:
    """Bytes by name; of index files, which are named by the clock, by order."""
    found = {str(path.relative_to(ROOT)): bytes(disk.read(path) or b"") for path in disk._files if ROOT in path.parents}
    kept = {name: raw for name, raw in sorted(found.items()) if name.startswith(parts)}
    index = [name for name in kept if name.startswith("index/")]
    return {name: raw for name, raw in kept.items() if name not in index} | {
        f"index {number}": kept[name] for number, name in enumerate(index)
    }


EVERYTHING = ("consumequeue/", "index/")


def test_what_is_built_equals_what_was_there() -> None:
    disk = stored()
    before = content(disk, "")
    result = built(disk)
    # What our notes said about the old ones went with them.
    assert content(disk, "c", "i", "l") == {name: raw for name, raw in before.items() if "rocketline" not in name}
    assert (result.records, result.queues, result.units) == (64, 6, 62)
    assert result.index_entries == 60 * 2 + 2 + 1
    assert result.gaps == []


def test_it_does_not_matter_what_state_the_old_ones_are_in() -> None:
    disk = stored()
    before = content(disk, *EVERYTHING)
    for path in list(disk._files):
        if "consumequeue" in str(path):
            disk.write_atomic(path, b"\xff" * 200)
    disk.remove_tree(ROOT / "index")
    built(disk)
    assert content(disk, *EVERYTHING) == before


def test_queues_of_topics_made_again_and_numbers_that_do_not_begin_at_zero() -> None:
    disk = MemoryDisk()
    store = fill(opened(disk))
    store.delete_topic("t1")
    fill(store, 20, first=60).close()
    disk.remove(ROOT / "commitlog" / f"{0:020d}")
    built(disk)
    store = opened(disk)
    assert [len(read_all(store, "t1", queue_id)) for queue_id in (0, 1)] == [3 + 2, 4]
    assert store.min_offset("t0", 0) > 0
    assert len(read_all(store, "t0", 0)) == store.max_offset("t0", 0) - store.min_offset("t0", 0)
    store.close()


def test_deliver_times_take_the_place_of_tags_where_they_belong() -> None:
    disk = stored()

    def code(entry: LogEntry) -> int:
        return entry.store_ms + 7 if entry.topic == "t2" else entry.tags_code

    built(disk, tags_code_for=code)
    store = opened(disk)
    units = [store.unit_at("t2", 0, 0), store.unit_at("t1", 0, 1)]
    assert [unit.tags_code if unit else None for unit in units] == [store.store_ms_of("t2", 0, 0) + 7, ord("x")]
    store.close()


def test_a_damaged_stretch_is_passed_over() -> None:
    disk = stored()
    path = ROOT / "commitlog" / f"{4096:020d}"
    raw = bytearray(disk.read(path) or b"")
    raw[4] ^= 0xFF
    disk.write_atomic(path, bytes(raw))
    result = built(disk)
    assert result.records == 63
    ((start, end, reason),) = result.gaps
    assert start == 4096 < end
    assert "magic" in reason
    store = opened(disk)
    assert store.max_offset("t0", 0) == 10
    store.close()


def test_a_record_whose_body_is_damaged_keeps_its_place() -> None:
    disk = stored()
    before = content(disk, *EVERYTHING)
    path = ROOT / "commitlog" / f"{4096:020d}"
    raw = bytearray(disk.read(path) or b"")
    raw[100] ^= 0xFF
    disk.write_atomic(path, bytes(raw))
    assert built(disk).records == 64
    assert content(disk, *EVERYTHING) == before


def test_a_store_in_use_is_refused() -> None:
    disk = MemoryDisk()
    store = fill(opened(disk))
    with pytest.raises(StoreInUse, match="stop the broker first"):
        built(disk)
    assert len(read_all(store, "t0", 0)) == 10
    store.close()


def test_what_cannot_be_built_from_is_refused_before_anything_is_touched() -> None:
    disk = stored()
    disk.remove(ROOT / "commitlog" / f"{4096:020d}")
    before = content(disk, "")
    with pytest.raises(StoreError, match=f"is there, but {4096:020d} before it is missing"):
        built(disk)
    assert content(disk, "") == before
    with pytest.raises(StoreError, match="without a store root"):
        rebuild(StoreFolder(ROOT / "commitlog", None), disk=disk)
    empty = MemoryDisk()
    opened(empty).close()
    with pytest.raises(StoreError, match="nothing can be rebuilt"):
        built(empty)


@pytest.mark.parametrize("operation", ["open", "reserve", "sync", "rename", "remove_tree", "make_folder"])
def test_interrupted_anywhere_it_leaves_the_old_or_the_new(operation: str) -> None:
    """The old ones are spoilt here, so that it shows which of the two is there."""
    interrupted = 0
    for nth in range(1, 200):
        disk = stored()
        good = content(disk, *EVERYTHING)
        spoilt = ROOT / "consumequeue" / "t0" / "0" / f"{0:020d}"
        disk.write_atomic(spoilt, b"\x01" * 200)
        old = content(disk, *EVERYTHING)
        faulty = FaultyDisk(disk)
        faulty.fail(operation, errno.EIO, nth=nth)
        try:
            built(faulty)
        except StoreError:
            interrupted += 1
        else:
            assert content(disk, *EVERYTHING) == good
            break
        after = disk.crash()
        if not after.exists(ROOT / READY):
            assert content(after, *EVERYTHING) == old
        else:
            opened(after).close()
            assert content(after, *EVERYTHING) == good
        again = disk.crash()
        assert built(again).records == 64
        assert content(again, *EVERYTHING) == good
        for left in (BUILDING, READY):
            assert not again.exists(ROOT / left)
    assert interrupted


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_the_next_open_ends_what_was_interrupted(nth: int) -> None:
    disk = stored()
    good = content(disk, *EVERYTHING)
    disk.write_atomic(ROOT / "consumequeue" / "t0" / "0" / f"{0:020d}", b"\x01" * 200)
    faulty = FaultyDisk(disk)
    faulty.fail("rename", errno.EIO, nth=nth)
    with pytest.raises(StoreError):
        built(faulty)
    assert disk.exists(ROOT / (BUILDING if nth == 1 else READY))
    if nth == 1:
        disk.write_atomic(ROOT / "consumequeue" / "t0" / "0" / f"{0:020d}", good[f"consumequeue/t0/0/{0:020d}"])
    store = opened(disk)
    assert sum(len(read_all(store, f"t{topic}", queue_id)) for topic in range(3) for queue_id in range(2)) == 62
    store.close()
    assert content(disk, *EVERYTHING) == good
    assert not disk.exists(ROOT / BUILDING)
    assert not disk.exists(ROOT / READY)


def test_a_full_disk_is_told_and_the_old_ones_stay() -> None:
    disk = stored()
    before = content(disk, *EVERYTHING)
    faulty = FaultyDisk(disk)
    faulty.fail("reserve", errno.ENOSPC, part=BUILDING)
    with pytest.raises(DiskFull):
        built(faulty)
    assert content(disk, *EVERYTHING) == before
    store = opened(disk)
    assert len(read_all(store, "t0", 0)) == 10
    store.close()


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], Path]:
    def unpack(name: str) -> Path:
        with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
            archive.extractall(tmp_path, filter="data")
        return tmp_path / name / "store"

    return unpack


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_apaches_queues_and_index_are_built_byte_for_byte(golden: Callable[[str], Path]) -> None:
    root = golden("clean")
    before = tree(root)
    result = rebuild(StoreFolder(root / "commitlog", root), StoreConfig())
    after = tree(root)
    assert {name: raw for name, raw in after.items() if not name.startswith("index/")} == {
        name: raw for name, raw in before.items() if not name.startswith("index/")
    }
    assert [raw for name, raw in after.items() if name.startswith("index/")] == [
        raw for name, raw in before.items() if name.startswith("index/")
    ], "names differ: they are the time of making"
    assert (result.records, result.units, result.index_entries) == (1974, 1974, 5167)


def test_a_killed_store_can_be_rebuilt(golden: Callable[[str], Path]) -> None:
    root = golden("killed")
    folder = StoreFolder(root / "commitlog", root)
    rebuild(folder)
    report = verify(folder)
    assert (report.verdict, report.units, report.notes) == (Verdict.RECOVERABLE, 1503, [])
