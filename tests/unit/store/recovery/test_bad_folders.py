"""Folders that are wrong in some way: the store refuses them with a clear message, or repairs them without losing data."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.store.samples import ROOT, message, opened, read_all, tiny

from rocketline.errors import DiskFull, StoreError
from rocketline.protocol.records import decode_record
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import RealDisk
from rocketline.store.flush.checkpoint import CHECKPOINT_BYTES
from rocketline.store.index.index_file import index_file_bytes
from rocketline.store.message_store import MessageStore
from rocketline.testing.disks import FaultyDisk, MemoryDisk

COUNT = 50
Damage = Callable[[Path], None]


def fill(store: MessageStore, first: int = 0, end: int = COUNT) -> MessageStore:
    for number in range(first, end):
        store.append(message(b"%4d" % number * 50, KEYS=f"key-number-{number}", TAGS="red"))
    store.dispatch()
    return store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store in order: several files of each kind."""
    root = tmp_path / "store"
    fill(opened(RealDisk(), root=root)).close()
    assert len(os.listdir(root / "commitlog")) > 3
    assert len(os.listdir(root / "consumequeue" / "orders" / "0")) > 3
    assert len(os.listdir(root / "index")) > 3
    return root


@pytest.fixture
def killed_folder(tmp_path: Path) -> Path:
    """The same, left by a process that was killed some time after a flush."""
    store = fill(opened(RealDisk(), root=tmp_path / "running"), 0, 40)
    store.flush_now()
    fill(store, 40, COUNT)
    shutil.copytree(tmp_path / "running", tmp_path / "killed")
    store.close()
    return tmp_path / "killed"


def numbers(store: MessageStore) -> list[int]:
    found = [decode_record(record, 0, len(record), check_crc=True) for record in read_all(store)]
    return [int(bytes(record.body[:4])) for record in found]


def keys_found(store: MessageStore) -> list[int]:
    return [number for number in range(COUNT) if len(store.query("orders", f"key-number-{number}", 10).records) == 1]


def hashes(folder: Path, *parts: str) -> dict[str, str]:
    """Names and contents of all files below some parts of the store."""
    paths = [path for part in parts for path in sorted((folder / part).rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def log_files(folder: Path) -> list[Path]:
    return sorted((folder / "commitlog").iterdir())


def queue_files(folder: Path) -> list[Path]:
    return sorted((folder / "consumequeue" / "orders" / "0").iterdir())


def open_real(folder: Path, config: StoreConfig | None = None) -> MessageStore:
    return opened(RealDisk(), config, root=folder)


def assert_whole(folder: Path) -> None:
    """Everything can be read and found, and the store goes on."""
    store = open_real(folder)
    try:
        assert numbers(store) == list(range(COUNT))
        assert keys_found(store) == list(range(COUNT))
        assert store.append(message(b"%4d" % COUNT, KEYS="one more")).queue_offset == COUNT
        store.dispatch()
        assert numbers(store) == list(range(COUNT + 1))
        assert len(store.query("orders", "one", 10).records) == 1
    finally:
        store.close()


def assert_refused(folder: Path, *expected: str, config: StoreConfig | None = None) -> None:
    """The folder is refused with a message that has all of that, unlocked, and its log and queues are untouched."""
    before = hashes(folder, "commitlog", "consumequeue")
    with pytest.raises(StoreError) as caught:
        open_real(folder, config)
    for text in expected:
        assert text in str(caught.value)
    assert hashes(folder, "commitlog", "consumequeue") == before


class TestLogFiles:
    @pytest.mark.parametrize("position", [0, 2, -1])
    @pytest.mark.parametrize("size", [1, 4095, 4097])
    def test_of_another_size(self, folder: Path, position: int, size: int) -> None:
        path = log_files(folder)[position]
        whole = path.read_bytes()
        path.write_bytes(whole[:size].ljust(size, b"\0"))
        assert_refused(folder, f"{path} has {size} bytes, but files of 4096 bytes", "bring back a whole copy")
        path.write_bytes(whole)
        assert_whole(folder)

    def test_one_without_bytes_before_others(self, folder: Path) -> None:
        path = log_files(folder)[1]
        whole = path.read_bytes()
        path.write_bytes(b"")
        assert_refused(folder, f"{path} has 0 bytes", "bring back a copy")
        path.write_bytes(whole)
        assert_whole(folder)

    def test_a_last_one_without_bytes_is_one_that_was_being_made(self, folder: Path) -> None:
        following = f"{len(log_files(folder)) * 4096:020d}"
        (folder / "commitlog" / following).write_bytes(b"")
        assert_whole(folder)

    def test_one_missing_in_between(self, folder: Path, tmp_path: Path) -> None:
        path = log_files(folder)[1]
        path.rename(tmp_path / "elsewhere")
        assert_refused(folder, "00000000000000008192 but not 00000000000000004096", "bring the missing file back")
        (tmp_path / "elsewhere").rename(path)
        assert_whole(folder)

    def test_the_first_ones_missing_as_when_they_were_too_old(self, folder: Path) -> None:
        for path in log_files(folder)[:2]:
            path.unlink()
        left = hashes(folder, "commitlog")
        store = open_real(folder)
        assert store.log_min_offset == 8192
        kept = numbers(store)
        assert 0 < len(kept) < COUNT
        assert kept == list(range(COUNT - len(kept), COUNT))
        assert store.min_offset("orders", 0) == kept[0]
        store.close()
        assert hashes(folder, "commitlog") == left

    def test_all_missing_while_there_are_queues(self, folder: Path, tmp_path: Path) -> None:
        """More likely a disk that is not mounted than a store without messages."""
        (folder / "commitlog").rename(tmp_path / "commitlog")
        assert_refused(folder, str(folder / "commitlog"), "bring the log back")
        (folder / "commitlog").mkdir()
        assert_refused(folder, str(folder / "commitlog"), "bring the log back")
        (folder / "commitlog").rmdir()
        (tmp_path / "commitlog").rename(folder / "commitlog")
        assert_whole(folder)

    def test_named_by_an_offset_where_none_begins(self, folder: Path) -> None:
        stray = folder / "commitlog" / "00000000000000004000"
        stray.write_bytes(bytes(4096))
        assert_refused(folder, str(stray), "move this one away")
        stray.unlink()
        assert_whole(folder)

    @pytest.mark.parametrize("base", [(1 << 63) // 4096 * 4096, 10**20 // 4096 * 4096 - 4096])
    def test_named_by_an_offset_no_log_reaches(self, tmp_path: Path, base: int) -> None:
        path = tmp_path / "commitlog" / f"{base:020d}"
        path.parent.mkdir()
        path.write_bytes(bytes(4096))
        assert_refused(tmp_path, str(path), "move it away")

    def test_far_up_but_possible(self, tmp_path: Path) -> None:
        path = tmp_path / "commitlog" / f"{(1 << 62):020d}"
        path.parent.mkdir()
        path.write_bytes(bytes(4096))
        store = open_real(tmp_path)
        assert store.append(message()).log_offset == 1 << 62
        store.dispatch()
        assert len(read_all(store)) == 1
        store.close()

    @pytest.mark.parametrize("log_bytes", [2048, 8192])
    def test_written_with_another_setting(self, folder: Path, log_bytes: int) -> None:
        path = log_files(folder)[0]
        expected = "start with the setting the files were written with"
        assert_refused(folder, str(path), expected, config=tiny(log_segment_bytes=log_bytes))
        assert_whole(folder)

    def test_a_folder_with_the_name_of_the_next_one(self, folder: Path) -> None:
        obstacle = folder / "commitlog" / f"{len(log_files(folder)) * 4096:020d}"
        obstacle.mkdir()
        store = open_real(folder)
        results = [store.append(message(b"0099" * 100)) for _ in range(12)]
        assert f"cannot open {obstacle}: Is a directory" in results[-1].reason
        obstacle.rmdir()
        assert store.append(message(b"0099")).reason == ""
        store.dispatch()
        assert numbers(store)[:COUNT] == list(range(COUNT))
        store.close()

    @pytest.mark.parametrize("is_killed", [False, True])
    def test_exchanged(self, folder: Path, killed_folder: Path, is_killed: bool, tmp_path: Path) -> None:
        """Whatever the store makes of it, it must not throw away what somebody can still put right."""
        root = killed_folder if is_killed else folder
        exchange(*log_files(root)[:2])
        before = hashes(root, "commitlog")
        try:
            store = open_real(root)
        except StoreError as error:
            assert str(root) in str(error)
        else:
            assert set(numbers_one_by_one(store)) <= set(range(COUNT))
            store.close()
        assert hashes(root, "commitlog") == before
        exchange(*log_files(root)[:2])
        assert hashes(root, "commitlog") != before

    @pytest.mark.parametrize("log_bytes", [1000, 4097, 5003])
    def test_of_sizes_no_page_or_record_divides(self, tmp_path: Path, log_bytes: int) -> None:
        config = tiny(log_segment_bytes=log_bytes)
        fill(open_real(tmp_path, config)).close()
        store = open_real(tmp_path, config)
        assert numbers(store) == list(range(COUNT))
        assert keys_found(store) == list(range(COUNT))
        store.close()


def exchange(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def numbers_one_by_one(store: MessageStore) -> list[int]:
    """Whatever of the queue can be read at all."""
    found = []
    for offset in range(store.min_offset("orders", 0), store.max_offset("orders", 0)):
        for chunk in store.read("orders", 0, offset, 1).chunks:
            found.append(int(bytes(decode_record(chunk, 0, len(chunk), check_crc=True).body[:4])))
    return found


class TestQueueFiles:
    """They are made from the log, so the store may build them anew; the log must stay as it is."""

    @pytest.mark.parametrize("is_killed", [False, True])
    @pytest.mark.parametrize("position", [0, 2, -1])
    @pytest.mark.parametrize(
        "damage",
        [
            lambda path: path.unlink(),
            lambda path: path.write_bytes(b""),
            lambda path: path.write_bytes(path.read_bytes()[:-1]),
            lambda path: path.write_bytes(path.read_bytes() + b"\0"),
            lambda path: path.write_bytes(bytes(200)),
            lambda path: path.write_bytes(b"\xff" * 200),
        ],
        ids=["deleted", "empty", "cut short", "too long", "zeros", "garbage"],
    )
    def test_damaged(self, folder: Path, killed_folder: Path, is_killed: bool, position: int, damage: Damage) -> None:
        root = killed_folder if is_killed else folder
        before = hashes(root, "commitlog")
        damage(queue_files(root)[position])
        store = open_real(root)
        assert numbers(store) == list(range(COUNT))
        assert keys_found(store) == list(range(COUNT))
        assert store.append(message()).queue_offset == COUNT
        store.close()
        now = hashes(root, "commitlog")
        assert [name for name in before if now[name] != before[name]] in ([], [max(before)]), "only the end has grown"

    def test_exchanged(self, folder: Path) -> None:
        exchange(*queue_files(folder)[:2])
        assert_whole(folder)

    def test_written_with_another_setting(self, folder: Path) -> None:
        path = queue_files(folder)[0]
        expected = "start with the setting the files were written with"
        assert_refused(folder, str(path), expected, config=tiny(queue_segment_bytes=400))
        assert_whole(folder)

    @pytest.mark.parametrize("name", ["abc", "-1", "007", "1.5", "²", "4294967296", "9" * 30, ".snapshot"])
    def test_folders_that_are_no_queues_are_left_alone(self, folder: Path, name: str) -> None:
        stray = folder / "consumequeue" / "orders" / name
        shutil.copytree(folder / "consumequeue" / "orders" / "0", stray)
        before = hashes(folder, f"consumequeue/orders/{name}")
        store = open_real(folder)
        assert store.queue_ids("orders") == [0]
        store.close()
        assert_whole(folder)
        assert hashes(folder, f"consumequeue/orders/{name}") == before

    def test_folders_that_can_be_no_topics_are_left_alone(self, folder: Path) -> None:
        stray = os.fsencode(folder / "consumequeue") + b"/\xff\xfe"
        os.makedirs(stray + b"/0")
        store = open_real(folder)
        assert store.topics() == {"orders"}
        store.close()
        assert os.path.isdir(stray)

    @pytest.mark.parametrize("is_killed", [False, True])
    def test_a_file_where_the_folder_of_a_topic_should_be(
        self, folder: Path, killed_folder: Path, is_killed: bool
    ) -> None:
        root = killed_folder if is_killed else folder
        shutil.rmtree(root / "consumequeue" / "orders")
        (root / "consumequeue" / "orders").write_bytes(b"mine")
        assert_refused(root, str(root / "consumequeue" / "orders"), "Not a directory")
        (root / "consumequeue" / "orders").unlink()
        assert_whole(root)


class TestIndexFiles:
    """Made from the log as well."""

    @pytest.mark.parametrize(
        "damage",
        [
            lambda path: path.unlink(),
            lambda path: path.write_bytes(b""),
            lambda path: path.write_bytes(path.read_bytes()[:-1]),
            lambda path: path.write_bytes(bytes(index_file_bytes(70, 30))),
        ],
        ids=["deleted", "empty", "cut short", "of another size"],
    )
    def test_damaged(self, killed_folder: Path, damage: Damage) -> None:
        damage(min((killed_folder / "index").iterdir()))
        assert_whole(killed_folder)

    @pytest.mark.parametrize("position", [0, -1])
    @pytest.mark.parametrize("header", [b"\xff" * 40, b"\x7f" * 40, bytes(40)], ids=["ones", "large", "zeros"])
    def test_with_a_garbage_header(self, folder: Path, position: int, header: bytes) -> None:
        path = sorted((folder / "index").iterdir())[position]
        path.write_bytes(header + path.read_bytes()[40:])
        store = open_real(folder)
        assert numbers(store) == list(range(COUNT))
        store.append(message(KEYS="fresh"))
        store.dispatch()
        assert len(store.query("orders", "fresh", 10).records) == 1
        store.close()

    def test_strange_names_are_left_alone(self, folder: Path) -> None:
        strays = [folder / "index" / name for name in ("readme", "²", "١٢٣", "20240101.bak")]
        for stray in strays:
            stray.write_bytes(b"mine")
        assert_whole(folder)
        assert [stray.read_bytes() for stray in strays] == [b"mine"] * 4


class TestSmallFiles:
    @pytest.mark.parametrize(
        "content",
        [b"", b"\0", bytes(100), b"\xff" * CHECKPOINT_BYTES, b"not a checkpoint" * 256, os.urandom(CHECKPOINT_BYTES)],
        ids=["empty", "a byte", "short", "ones", "text", "random"],
    )
    def test_a_useless_checkpoint_only_costs_time(self, killed_folder: Path, content: bytes) -> None:
        # Without a progress file to go by.
        for path in killed_folder.glob("rocketline.*"):
            path.unlink()
        (killed_folder / "checkpoint").write_bytes(content)
        assert_whole(killed_folder)

    def test_a_checkpoint_from_the_far_future_is_not_believed(self, killed_folder: Path) -> None:
        """Or nothing would be read after the crash, and queues that lack something would stay so."""
        for path in killed_folder.glob("rocketline.*"):
            path.unlink()
        for path in queue_files(killed_folder)[2:]:
            path.unlink()
        (killed_folder / "checkpoint").write_bytes(b"x" * CHECKPOINT_BYTES)
        assert_whole(killed_folder)

    def test_a_checkpoint_that_is_too_long(self, folder: Path) -> None:
        (folder / "checkpoint").write_bytes(bytes(CHECKPOINT_BYTES + 1))
        assert_refused(folder, f"{folder / 'checkpoint'} has 4097 bytes", "move it away")
        (folder / "checkpoint").unlink()
        assert_whole(folder)

    @pytest.mark.parametrize("name", ["abort", "lock", "checkpoint"])
    def test_a_folder_where_a_file_should_be(self, folder: Path, name: str) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()
        assert_refused(folder, str(folder / name), "Is a directory")
        (folder / name).rmdir()
        assert_whole(folder)

    @pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index"])
    def test_a_file_where_a_folder_should_be(self, folder: Path, tmp_path: Path, name: str) -> None:
        (folder / name).rename(tmp_path / "elsewhere")
        (folder / name).write_bytes(b"mine")
        assert_refused(folder, str(folder / name), "Not a directory")
        (folder / name).unlink()
        (tmp_path / "elsewhere").rename(folder / name)
        assert_whole(folder)

    def test_a_file_where_the_store_should_be(self, tmp_path: Path) -> None:
        (tmp_path / "store").write_bytes(b"mine")
        with pytest.raises(StoreError, match=f"cannot create folder {tmp_path}/store: "):
            open_real(tmp_path / "store")
        assert (tmp_path / "store").read_bytes() == b"mine"

    def test_files_of_others_are_left_alone(self, folder: Path) -> None:
        strays = [
            folder / name
            for name in ("notes.txt", "commitlog/0000", "commitlog/.nfs0001", "consumequeue/readme", "commitlog/1.bak")
        ]
        for stray in strays:
            stray.write_bytes(b"mine")
        assert_whole(folder)
        assert [stray.read_bytes() for stray in strays] == [b"mine"] * len(strays)


class TestLinks:
    @pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "commitlog/00000000000000000000"])
    def test_lead_where_they_should(self, folder: Path, tmp_path: Path, name: str) -> None:
        (folder / name).rename(tmp_path / "elsewhere")
        (folder / name).symlink_to(tmp_path / "elsewhere")
        assert_whole(folder)
        assert (folder / name).is_symlink()

    @pytest.mark.parametrize("name", ["commitlog", "consumequeue", "commitlog/00000000000000004096"])
    def test_to_a_disk_that_is_not_mounted(self, folder: Path, tmp_path: Path, name: str) -> None:
        (folder / name).rename(tmp_path / "unmounted")
        (folder / name).symlink_to(tmp_path / "mounted")
        assert_refused(folder, f"{folder / name} is a link to {tmp_path / 'mounted'}, which does not exist")
        (tmp_path / "unmounted").rename(tmp_path / "mounted")
        assert_whole(folder)


class TestDisksThatRefuse:
    @pytest.mark.parametrize("is_killed", [False, True])
    @pytest.mark.parametrize(
        ("code", "operations", "reason"),
        [
            (errno.EROFS, ("write", "open", "make_folder", "reserve", "sync"), "Read-only file system"),
            (errno.ENOSPC, ("write", "make_folder", "reserve"), "No space left on device"),
            (errno.EACCES, ("open", "read", "write"), "Permission denied"),
            (errno.EIO, ("open", "sync"), "Input/output error"),
        ],
        ids=["read-only", "full", "unreadable", "broken"],
    )
    def test_nothing_is_changed_and_everything_is_there_later(
        self, is_killed: bool, code: int, operations: tuple[str, ...], reason: str
    ) -> None:
        memory = MemoryDisk()
        store = fill(opened(memory))
        if is_killed:
            memory._locked.clear()
        else:
            store.close()
        before = {path: memory.read(path) for path in memory._files if path.parent.name != ROOT.name}
        faulty = FaultyDisk(memory)
        for operation in operations:
            faulty.fail(operation, code, forever=True)
        with pytest.raises(DiskFull if code == errno.ENOSPC else StoreError, match=f"cannot .*{ROOT}.*: {reason}"):
            opened(faulty)
        assert {path: memory.read(path) for path in memory._files if path.parent.name != ROOT.name} == before
        faulty.heal()
        again = opened(faulty)
        assert numbers(again) == list(range(COUNT))
        assert keys_found(again) == list(range(COUNT))
        again.close()

    @pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index"])
    @pytest.mark.parametrize("nth", [1, 2, 3])
    def test_an_error_in_the_middle_of_a_recovery_leaves_no_message_out(self, part: str, nth: int) -> None:
        memory = MemoryDisk()
        fill(opened(memory))
        memory._locked.clear()
        memory.remove_tree(ROOT / "consumequeue")
        memory.remove_tree(ROOT / "index")
        faulty = FaultyDisk(memory)
        faulty.fail("open", errno.EMFILE, part=part, nth=nth)
        with pytest.raises(StoreError, match="Too many open files"):
            opened(faulty)
        again = opened(faulty)
        assert numbers(again) == list(range(COUNT))
        assert keys_found(again) == list(range(COUNT))
        again.close()
