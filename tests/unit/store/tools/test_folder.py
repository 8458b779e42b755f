"""Finding stores and the shapes of their files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.store.samples import ROOT, message, opened, tiny

from rocketline.clock import ManualClock
from rocketline.errors import StoreError
from rocketline.store.config import StoreConfig
from rocketline.store.index.key_index import KeyIndex
from rocketline.store.tools.folder import (
    StoreFolder,
    batch_topics,
    chain_files,
    chain_problems,
    find_stores,
    index_shape,
    queue_file_bytes,
    segments_of,
)
from rocketline.testing.disks import MemoryDisk


def stored(root: Path = ROOT, disk: MemoryDisk | None = None) -> MemoryDisk:
    disk = disk or MemoryDisk()
    store = opened(disk, root=root)
    for number in range(40):
        store.append(message(b"x" * 100, KEYS=f"key-{number}", TAGS="red"))
    store.dispatch()
    store.close()
    return disk


def put(disk: MemoryDisk, path: Path, size: int) -> None:
    disk.make_folder(path.parent)
    disk.write_atomic(path, bytes(size))


def test_a_root_its_log_and_the_folder_of_several_brokers_are_found() -> None:
    disk = stored(Path("/data/broker-a"), stored(Path("/data/broker-b")))
    put(disk, Path("/data/namesrv/kvConfig.json"), 2)
    both = [StoreFolder(Path(f"/data/{name}/commitlog"), Path(f"/data/{name}")) for name in ("broker-a", "broker-b")]
    assert find_stores(disk, Path("/data")) == both
    assert find_stores(disk, Path("/data/broker-a")) == both[:1]
    assert find_stores(disk, Path("/data/broker-a/commitlog")) == both[:1]


def test_a_log_of_another_name_stands_alone() -> None:
    disk = MemoryDisk()
    put(disk, Path("/saved/00000000000000000000"), 4096)
    assert find_stores(disk, Path("/saved")) == [StoreFolder(Path("/saved"), None)]


def test_a_store_without_a_message_is_one() -> None:
    disk = MemoryDisk()
    opened(disk).close()
    assert find_stores(disk, ROOT) == [StoreFolder(ROOT / "commitlog", ROOT)]


def test_anything_else_is_refused_with_what_is_there() -> None:
    disk = MemoryDisk()
    with pytest.raises(StoreError, match="/nowhere does not exist"):
        find_stores(disk, Path("/nowhere"))
    put(disk, Path("/home/letter.txt"), 10)
    with pytest.raises(StoreError, match=r"/home is no store.*it holds 'letter.txt'"):
        find_stores(disk, Path("/home"))
    disk.make_folder(Path("/empty"))
    with pytest.raises(StoreError, match="it holds nothing"):
        find_stores(disk, Path("/empty"))


def test_problems_of_a_chain_are_named() -> None:
    disk = MemoryDisk()
    for name, size in ((0, 4096), (4096, 4096), (8192, 100), (16384, 4096), (20000, 4096), (24576, 0)):
        put(disk, Path(f"/log/{name:020d}"), size)
    put(disk, Path("/log/notes.txt"), 7)
    files = chain_files(disk, Path("/log"))
    assert [file.base for file in files] == [0, 4096, 8192, 16384, 20000]
    found = [(file.base, problem) for file, problem in chain_problems(files)]
    assert found == [
        (8192, "has 100 bytes, the other files have 4096"),
        (16384, f"is there, but {12288:020d} before it is missing"),
        (20000, "is named by an offset that is no multiple of 4096"),
    ]
    assert [(segment.base, segment.size) for segment in segments_of(disk, files)][2:] == [
        (8192, 100),
        (16384, 20000 - 16384),
        (20000, 4096),
    ]
    assert [problem for _, problem in chain_problems(files[:1], 20)] == ["has 4096 bytes, which is no multiple of 20"]


def test_sizes_are_taken_from_the_files() -> None:
    disk = stored()
    assert queue_file_bytes(disk, ROOT / "consumequeue", 6_000_000) == 200
    assert queue_file_bytes(disk, ROOT / "none", 6_000_000) == 6_000_000
    put(disk, ROOT / "batchconsumequeue" / "B" / "0" / "0", 46)
    assert batch_topics(disk, ROOT) == {"B"}


@pytest.mark.parametrize(("slots", "entries"), [(50, 20), (5, 100), (500, 2000), (7, 13), (1000, 10)])
def test_the_shape_of_an_index_file_is_found(slots: int, entries: int) -> None:
    disk = MemoryDisk()
    index = KeyIndex(disk, Path("/index"), tiny(index_slots=slots, index_entries=entries), ManualClock())
    for number in range(8):
        index.put("orders", number * 100 + 50, 1_000_000, {"UNIQ_KEY": f"unique-id-{number}"})
    index.flush()
    (entry,) = disk.list(Path("/index"))
    raw = disk.read(Path("/index") / entry.name)
    assert raw is not None
    assert index_shape(memoryview(raw), StoreConfig()) == (slots, entries)
    assert index_shape(memoryview(raw), tiny(index_slots=slots, index_entries=entries)) == (slots, entries)


def test_a_file_that_is_no_index_has_no_shape() -> None:
    assert index_shape(memoryview(b"\x7f" * 5000), StoreConfig()) is None
