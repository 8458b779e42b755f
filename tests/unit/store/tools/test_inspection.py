"""Inspecting a store: every kind of damage is reported with its place, and nothing is changed."""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import tarfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.json import decode, encode
from tests.support.patching import patch_here
from tests.unit.store.samples import HOST, message, opened, tiny

from rocketline.clock import ManualClock
from rocketline.errors import StoreError
from rocketline.protocol.record_layout import TRANSACTION_PREPARED
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import RealDisk
from rocketline.store.index.index_file import IndexFile
from rocketline.store.message_store import MessageStore
from rocketline.store.tools.findings import CHECKPOINT, CONFIG, INDEX, LOG, QUEUES, StoreFinding
from rocketline.store.tools.folder import StoreFolder, chain_files
from rocketline.store.tools.inspection import Verdict, VerifyReport, verify
from rocketline.store.tools.log_check import LogPart, RangeReport, check_links, check_range
from rocketline.store.tools.queue_check import CheckLimits
from rocketline.store.tools.read_only import ReadOnlyDisk

GOLDEN = Path(__file__).parents[3] / "golden" / "store"


def fill(store: MessageStore, count: int = 64, first: int = 0) -> MessageStore:
    for number in range(first, first + count):
        body = number.to_bytes(2, "big") * 100
        store.append(
            message(body, "orders" if number % 3 else "payments", number % 2, KEYS=f"key-{number}", TAGS="red")
        )
    store.dispatch()
    return store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of 64 messages, stopped cleanly: several log, queue and index files."""
    root = tmp_path / "store"
    fill(opened(RealDisk(), tiny(), ManualClock(), root)).close()
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"orders":{},"payments":{}}}')
    return root


def looked_at(root: Path) -> VerifyReport:
    """The report, which must not depend on whether the log is walked in one go or file by file."""
    folder = StoreFolder(root / "commitlog", root)
    report = verify(folder, tiny())
    in_parts = verify(folder, tiny(), walk=file_by_file)
    assert sorted(map(str, in_parts.findings)) == sorted(map(str, report.findings))
    assert {**vars(in_parts), "findings": []} == {**vars(report), "findings": []}
    return report


def file_by_file(
    folder: StoreFolder, config: StoreConfig, limits: CheckLimits
) -> tuple[list[RangeReport], list[StoreFinding]]:
    disk = ReadOnlyDisk()
    cuts = [None, *(file.base for file in chain_files(disk, folder.log)[1:]), None]
    stretches = [LogPart(start, end) for start, end in pairwise(cuts)]
    links = [found for number in range(9) for found in check_links(folder, config, disk, limits, number)]
    # As if a cluster had done it.
    done = [encode(check_range(folder, config, disk, limits, stretch)) for stretch in stretches]
    return [decode(report, type=RangeReport) for report in done], links


def write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def files(root: Path, part: str) -> list[Path]:
    return sorted(path for path in (root / part).rglob("*") if path.is_file())


def found(report: VerifyReport, part: str) -> list[str]:
    return [f"{finding.place}: {finding.problem}" for finding in report.findings if finding.part == part]


def snapshot(root: Path) -> dict[str, tuple[int, int, str]]:
    """Name, time of change, size and content of everything."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            path.stat().st_size,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(root.rglob("*"))
    }


def test_a_sound_store_is_sound(root: Path) -> None:
    report = looked_at(root)
    assert report.findings == []
    assert report.verdict is Verdict.SOUND
    assert (report.records, report.units, report.queues, report.index_entries) == (64, 64, 4, 128)
    assert (report.is_open, report.was_killed, report.config_files) == (False, False, 1)
    assert report.log_files == len(files(root, "commitlog"))
    assert report.notes == []


def test_nothing_is_changed(root: Path) -> None:
    before = snapshot(root)
    looked_at(root)
    assert snapshot(root) == before


def test_a_read_only_folder_can_be_looked_at(root: Path) -> None:
    for path in [root, *root.rglob("*")]:
        path.chmod(stat.S_IRUSR | (stat.S_IXUSR if path.is_dir() else 0))
    try:
        assert looked_at(root).verdict is Verdict.SOUND
    finally:
        for path in [root, *root.rglob("*")]:
            path.chmod(stat.S_IRWXU)


def test_the_disk_it_uses_cannot_write(tmp_path: Path) -> None:
    disk, path = ReadOnlyDisk(), tmp_path / "x"
    for attempt in (
        lambda: disk.write_atomic(path, b""),
        lambda: disk.remove(path),
        lambda: disk.remove_tree(path),
        lambda: disk.make_folder(path),
        lambda: disk.move_folder(path, path),
        lambda: disk.lock(path),
    ):
        with pytest.raises(StoreError, match="cannot be changed"):
            attempt()
    with pytest.raises(StoreError, match="No such file"):
        disk.open_mapped(path, 10)
    path.write_bytes(b"12345")
    with pytest.raises(StoreError, match="has 5 bytes, 10 were expected"):
        disk.open_mapped(path, 10)
    with pytest.raises(TypeError, match="read-only"):
        disk.open_mapped(path, 5).buffer[0] = 1


class TestTheLog:
    def test_a_damaged_body_is_named_and_its_neighbours_are_sound(self, root: Path) -> None:
        write(files(root, "commitlog")[1], 100, b"\xff\xff")
        report = looked_at(root)
        assert report.verdict is Verdict.DAMAGED
        (line,) = found(report, LOG)
        assert line.startswith("log offset 4096 to 4")
        assert "does not match its CRC" in line
        assert (report.records, report.damaged_stretches) == (63, 1)
        assert len(found(report, QUEUES)) == 1
        assert "unit" in found(report, QUEUES)[0]
        assert "where no sound record is" in found(report, QUEUES)[0]
        assert len(found(report, INDEX)) == 2, "its key and its tag"

    def test_a_missing_file_is_named(self, root: Path) -> None:
        files(root, "commitlog")[2].unlink()
        report = looked_at(root)
        lines = found(report, LOG)
        assert lines[0] == f"file {12288:020d}: is there, but {8192:020d} before it is missing"
        assert "no file holds log offset 8192" in lines[1]
        assert any("log offset 8" in line and "is in no file" in line for line in found(report, QUEUES))

    def test_a_file_cut_short_is_named(self, root: Path) -> None:
        os.truncate(files(root, "commitlog")[-1], 1000)
        report = looked_at(root)
        assert "has 1000 bytes, the other files have 4096" in found(report, LOG)[0]
        assert report.verdict is Verdict.DAMAGED

    def test_files_that_changed_places_are_named(self, root: Path) -> None:
        first, second = files(root, "commitlog")[:2]
        first.rename(root / "x")
        second.rename(first)
        (root / "x").rename(second)
        lines = found(looked_at(root), LOG)
        assert len(lines) == 1
        assert "it says that it belongs at 4096" in lines[0]

    def test_a_foreign_file_in_its_place_is_named(self, root: Path) -> None:
        files(root, "commitlog")[1].write_bytes(b"this is no log " * 274)
        report = looked_at(root)
        assert "has 4110 bytes" in found(report, LOG)[0]
        assert any("magic" in line for line in found(report, LOG))

    def test_garbage_behind_the_end_is_damage_after_a_clean_stop_only(self, root: Path) -> None:
        report = looked_at(root)
        write(files(root, "commitlog")[-1], report.log_next_offset % 4096 + 200, b"garbage")
        lines = found(looked_at(root), LOG)
        assert lines == [
            f"log offset {report.log_next_offset} to the end: something that is no record follows the log's end"
        ]
        (root / "abort").write_text("1")
        again = looked_at(root)
        assert again.verdict is Verdict.RECOVERABLE
        assert [finding.heals for finding in again.findings] == [True]


class TestQueues:
    @pytest.fixture
    def queue(self, root: Path) -> Path:
        return files(root, "consumequeue/orders/0")[0]

    @pytest.mark.parametrize(
        ("at", "data", "problem"),
        [
            (12, struct.pack(">q", 77), "unit 2: has tags code 77, its record 112785"),
            (
                0,
                struct.pack(">q", 5),
                "unit 2: points at log offset 5 (317 bytes), but the log has a record of that number at",
            ),
            (0, struct.pack(">q", 10**12), "unit 2: points at log offset 1000000000000, where no sound record is"),
            (8, struct.pack(">i", 12), "unit 2: points at log offset"),
            (0, bytes(20), "unit 2: is empty, but the log has a record of that number at"),
            (
                0,
                struct.pack(">qiq", 0, 0x7FFFFFFF, 0),
                "unit 2: is a filler, but the log has a record of that number at",
            ),
        ],
    )
    def test_a_wrong_unit_is_named(self, root: Path, queue: Path, at: int, data: bytes, problem: str) -> None:
        write(queue, 2 * 20 + at, data)
        report = looked_at(root)
        (line,) = found(report, QUEUES)
        assert line.startswith(f"orders/0 {problem}")
        assert report.verdict is Verdict.DAMAGED
        assert found(report, LOG) == found(report, INDEX) == []

    def test_an_address_of_an_extended_unit_is_right(self, root: Path, queue: Path) -> None:
        write(queue, 2 * 20 + 12, struct.pack(">q", -(1 << 63) + 4000))
        assert looked_at(root).verdict is Verdict.SOUND

    def test_two_units_that_changed_places_are_named(self, root: Path, queue: Path) -> None:
        raw = queue.read_bytes()
        write(queue, 40, raw[60:80] + raw[40:60])
        assert len(found(looked_at(root), QUEUES)) == 2

    def test_a_unit_too_many_is_named(self, root: Path) -> None:
        last = files(root, "consumequeue/orders/1")[-1]
        units = len(last.read_bytes().rstrip(b"\0"))
        position = -(-units // 20) * 20
        write(last, position, struct.pack(">qiq", 0, 300, 5))
        (line,) = found(looked_at(root), QUEUES)
        assert "points at log offset 0, where the record of payments/0 number 0 is" in line

    def test_a_missing_file_and_a_missing_queue_are_named(self, root: Path, queue: Path) -> None:
        queue.unlink()
        for path in files(root, "consumequeue/payments/1"):
            path.unlink()
        lines = found(looked_at(root), QUEUES)
        assert any(line.startswith("orders/0 unit 0: is empty, but the log has a record") for line in lines)
        assert any(line.startswith("payments/1: the queue is missing") for line in lines)

    def test_a_deleted_topic_may_be_without_queues(self, root: Path) -> None:
        for path in files(root, "consumequeue/payments"):
            path.unlink()
        (root / "config" / "topics.json").write_text('{"topicConfigTable":{"orders":{}}}')
        report = looked_at(root)
        assert report.verdict is Verdict.SOUND
        assert report.notes == ["22 records belong to topics that were deleted"]

    def test_a_topic_made_again_is_sound(self, tmp_path: Path) -> None:
        store = fill(opened(RealDisk(), tiny(), ManualClock(), tmp_path))
        store.delete_topic("orders")
        fill(store, 9, first=64).close()
        report = looked_at(tmp_path)
        assert report.findings == []
        assert report.units == 22 + 9

    def test_messages_in_no_queue_are_not_missed(self, tmp_path: Path) -> None:
        store = opened(RealDisk(), tiny(), ManualClock(), tmp_path)
        half = message(b"half")
        half.sys_flag = TRANSACTION_PREPARED
        store.append(half)
        fill(store, 3).close()
        assert looked_at(tmp_path).findings == []

    def test_a_wrong_file_size_is_named(self, root: Path, queue: Path) -> None:
        os.truncate(queue, 190)
        assert any("has 190 bytes" in line for line in found(looked_at(root), QUEUES))


class TestTheIndex:
    @pytest.fixture
    def index(self, root: Path) -> Path:
        return files(root, "index")[0]

    entries_at = 40 + 50 * 4

    @pytest.mark.parametrize(
        ("at", "data", "problem"),
        [
            (
                entries_at + 5 * 20 + 4,
                struct.pack(">q", 3),
                "entry 5: points at log offset 3, where no sound record is",
            ),
            (entries_at + 5 * 20, struct.pack(">i", 12345), "entry 5: lists a key that the record at log offset"),
            (entries_at + 5 * 20 + 16, struct.pack(">i", 4), "entry 5: is linked to entry 4, entry"),
            (36, struct.pack(">i", 99), "header: counts 99 entries, 20 is the most there can be"),
        ],
    )
    def test_a_wrong_entry_is_named(self, root: Path, index: Path, at: int, data: bytes, problem: str) -> None:
        write(index, at, data)
        report = looked_at(root)
        assert any(line.startswith(f"{index.name} {problem}") for line in found(report, INDEX)), report.findings
        assert report.verdict is Verdict.DAMAGED
        assert found(report, LOG) == found(report, QUEUES) == []

    def test_a_record_that_is_not_found_is_named(self, root: Path, index: Path) -> None:
        write(index, self.entries_at + 5 * 20 + 4, struct.pack(">q", 3))
        lines = found(looked_at(root), INDEX)
        assert any("record at log offset" in line and "is not found by 'key-2'" in line for line in lines)

    def test_a_wrong_slot_is_named(self, root: Path, index: Path) -> None:
        raw = index.read_bytes()
        slot = next(number for number in range(50) if raw[40 + number * 4 : 44 + number * 4] != bytes(4))
        write(index, 40 + slot * 4, bytes(4))
        assert any(
            line.startswith(f"{index.name} slot {slot}: leads to entry 0") for line in found(looked_at(root), INDEX)
        )

    def test_a_missing_file_is_seen_by_what_is_not_found(self, root: Path, index: Path) -> None:
        index.unlink()
        lines = found(looked_at(root), INDEX)
        assert len(lines) == 10, "19 entries of 10 records"
        assert lines[0] == "record at log offset 0: is not found by 'key-0', 'T#red'"

    def test_a_file_that_is_no_index_is_named(self, root: Path, index: Path) -> None:
        index.write_bytes(b"\x7f" * 1000)
        assert any("1000 bytes fit no number of slots" in line for line in found(looked_at(root), INDEX))

    def test_an_index_without_tags_is_of_an_older_version(
        self, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = opened(RealDisk(), tiny(), ManualClock(), tmp_path / "old")
        store._index.put = _without_tags(store._index.put)  # type: ignore[method-assign, union-attr]
        patch_here(monkeypatch, IndexFile, "put_rows", lambda self, rows, start: start)
        fill(store, 10).close()
        report = looked_at(tmp_path / "old")
        assert report.verdict is Verdict.SOUND
        assert report.notes == ["10 records are not indexed by their tag, as RocketMQ before 5.4 does it"]

    def test_no_index_is_a_note(self, root: Path) -> None:
        for path in files(root, "index"):
            path.unlink()
        report = looked_at(root)
        assert (report.verdict, report.notes) == (Verdict.SOUND, ["there is no key index"])

    def test_an_index_that_stopped_early_is_damage(self, root: Path) -> None:
        files(root, "index")[-1].unlink()
        (line,) = found(looked_at(root), INDEX)
        assert "are in queues but not in the index" in line


def _without_tags(put: Callable[..., None]) -> Callable[..., None]:
    def changed(topic: str, log_offset: int, store_ms: int, properties: dict[str, str]) -> None:
        put(topic, log_offset, store_ms, {name: value for name, value in properties.items() if name != "TAGS"})

    return changed


class TestSmallFiles:
    def test_a_checkpoint_of_a_wrong_size_is_named(self, root: Path) -> None:
        (root / "checkpoint").write_bytes(b"short")
        assert found(looked_at(root), CHECKPOINT) == ["checkpoint: has 5 bytes instead of 4096"]

    def test_a_missing_checkpoint_is_a_note(self, root: Path) -> None:
        (root / "checkpoint").unlink()
        report = looked_at(root)
        assert report.verdict is Verdict.SOUND
        assert "there is no checkpoint" in report.notes[0]

    def test_a_broken_table_is_named_and_its_backup_counts(self, root: Path) -> None:
        table = root / "config" / "consumerOffset.json"
        table.write_text('{"offsetTable":{')
        (line,) = found(looked_at(root), CONFIG)
        assert line.startswith("consumerOffset.json: cannot be read")
        assert line.endswith("and it has no good backup")
        table.with_suffix(".json.bak").write_text('{"offsetTable":{}}')
        report = looked_at(root)
        assert report.verdict is Verdict.RECOVERABLE
        assert found(report, CONFIG)[0].endswith("its backup is good")


class TestStoresInUse:
    def test_a_live_store_is_sound_and_said_to_be_in_use(self, tmp_path: Path) -> None:
        store = fill(opened(RealDisk(), tiny(), ManualClock(), tmp_path))
        report = looked_at(tmp_path)
        assert (report.verdict, report.is_open, report.records) == (Verdict.SOUND, True, 64)
        assert not report.was_killed, "a running broker has the file that a clean stop removes"
        with pytest.raises(StoreError, match="already open"):
            opened(RealDisk(), tiny(), ManualClock(), tmp_path)
        fill(store, 5, first=64).close()
        assert looked_at(tmp_path).records == 69, "looking did not take the lock away"

    def test_what_is_not_dispatched_yet_does_not_count(self, tmp_path: Path) -> None:
        store = fill(opened(RealDisk(), tiny(), ManualClock(), tmp_path))
        store.append(message(b"later"))
        report = looked_at(tmp_path)
        assert report.verdict is Verdict.SOUND
        assert report.notes[0] == "1 records at the log's end are in no queue yet; a broker adds them when it starts"
        store.close()

    def test_another_process_that_has_it_is_seen(self, root: Path) -> None:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            RealDisk().lock(root / "lock")
            os.write(writer, b"x")
            os.read(os.pipe()[0], 1)
        try:
            os.read(reader, 1)
            assert looked_at(root).is_open
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
            os.close(reader)
            os.close(writer)
        assert not looked_at(root).is_open


@pytest.fixture
def golden(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    def unpack(name: str) -> Path:
        with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
            archive.extractall(tmp_path, filter="data")
        return tmp_path / name / "store"

    yield unpack


class TestApachesStores:
    def test_one_that_was_stopped_is_sound(self, golden: Callable[[str], Path]) -> None:
        report = looked_at(golden("clean"))
        assert (report.findings, report.notes) == ([], [])
        assert (report.verdict, report.records, report.units, report.index_entries) == (Verdict.SOUND, 1974, 1974, 5167)

    def test_one_that_was_killed_is_recoverable(self, golden: Callable[[str], Path]) -> None:
        root = golden("killed")
        report = looked_at(root)
        assert (report.verdict, report.was_killed, report.records) == (Verdict.RECOVERABLE, True, 1503)
        assert report.notes == ["1 records at the log's end are in no queue yet; a broker adds them when it starts"]
        assert report.findings == []

    def test_one_with_everything_in_it_is_sound(self, golden: Callable[[str], Path]) -> None:
        report = looked_at(golden("features"))
        assert report.findings == []
        assert report.notes == ["queues in batch format are not checked: F_bcq"]

    def test_its_log_alone_can_be_looked_at(self, golden: Callable[[str], Path]) -> None:
        report = verify(StoreFolder(golden("clean") / "commitlog", None))
        assert (report.verdict, report.records, report.queues) == (Verdict.SOUND, 1974, 0)


def test_an_empty_store_is_sound(tmp_path: Path) -> None:
    MessageStore(tmp_path, tiny(), HOST).open()
    report = looked_at(tmp_path)
    assert (report.verdict, report.records, report.is_open) == (Verdict.SOUND, 0, True)
