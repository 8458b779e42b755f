"""Tables in files: replaced as a whole, the version before kept, and never overwritten when they cannot be read."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rocketline.broker.tables.json_table import JsonTable
from rocketline.errors import StoreError
from rocketline.protocol.bodies import ConsumerOffsetTable, DataVersion
from rocketline.store.files.disk import Disk, RealDisk
from rocketline.testing.disks import FaultyDisk, MemoryDisk


def table(offset: int) -> ConsumerOffsetTable:
    return ConsumerOffsetTable(DataVersion(1, 0, 2), {"orders@readers": {0: offset}})


@pytest.fixture(params=["memory", "real"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return MemoryDisk() if request.param == "memory" else RealDisk()


@pytest.fixture
def path(disk: Disk, tmp_path: Path) -> Path:
    disk.make_folder(tmp_path)
    return tmp_path / "consumerOffset.json"


@pytest.fixture
def saved(disk: Disk, path: Path) -> JsonTable[ConsumerOffsetTable]:
    return JsonTable(disk, path, ConsumerOffsetTable)


Saved = JsonTable[ConsumerOffsetTable]


def backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def test_nothing_was_ever_saved(saved: Saved) -> None:
    assert saved.load() is None


def test_what_was_saved_last_is_loaded_and_the_one_before_is_the_backup(saved: Saved, disk: Disk, path: Path) -> None:
    saved.save(table(1))
    first = disk.read(path)
    saved.save(table(2))
    assert saved.load() == table(2)
    assert disk.read(backup(path)) == first


def test_the_file_is_tab_indented_json_with_quoted_keys(saved: Saved, disk: Disk, path: Path) -> None:
    saved.save(table(1))
    assert disk.read(path) == (
        b'{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":0,\n\t\t"timestamp":2\n\t},'
        b'\n\t"offsetTable":{\n\t\t"orders@readers":{\n\t\t\t"0":1\n\t\t}\n\t}\n}'
    )


@pytest.mark.parametrize("broken", [b"", b"{", b"\x00" * 100, b"[]", b'{"offsetTable":{"a@b":{"0":"x"}}}'])
def test_a_broken_file_falls_back_to_its_backup_and_never_becomes_it(
    saved: Saved, disk: Disk, path: Path, broken: bytes
) -> None:
    saved.save(table(1))
    saved.save(table(2))
    disk.write_atomic(path, broken)
    assert saved.load() == table(1)
    saved.save(table(3))
    assert saved.load() == table(3)
    assert disk.read(backup(path)) != broken


def test_a_missing_file_falls_back_to_its_backup(saved: Saved, disk: Disk, path: Path) -> None:
    """What a crash between the two renames of a save leaves."""
    saved.save(table(1))
    saved.save(table(2))
    disk.remove(path)
    assert saved.load() == table(1)


def test_when_both_are_broken_nothing_is_loaded_and_nothing_is_lost(saved: Saved, disk: Disk, path: Path) -> None:
    disk.write_atomic(path, b"{not json")
    disk.write_atomic(backup(path), b"{nor this")
    with pytest.raises(StoreError, match=r"consumerOffset\.json"):
        saved.load()
    assert (disk.read(path), disk.read(backup(path))) == (b"{not json", b"{nor this")


def test_a_large_file_of_apaches_loads(saved: Saved, disk: Disk, path: Path) -> None:
    """Apache writes bare integer keys, which no standard reader takes; a peer's body of that size would be refused."""
    queues = ",".join(f"{number}:{number}" for number in range(200))
    text = ",".join(f'"topic-{number}@group":{{{queues}}}' for number in range(3000))
    content = f'{{"dataVersion":{{"counter":1}},"offsetTable":{{{text}}}}}'.encode()
    assert len(content) > 4 << 20
    disk.write_atomic(path, content)
    loaded = saved.load()
    assert loaded is not None
    assert len(loaded.offset_table) == 3000
    assert loaded.offset_table["topic-2999@group"][199] == 199


def test_a_save_that_fails_leaves_what_was_there(path: Path) -> None:
    memory = MemoryDisk()
    memory.make_folder(path.parent)
    faulty = FaultyDisk(memory)
    saved = JsonTable(faulty, path, ConsumerOffsetTable)
    saved.save(table(1))
    faulty.fail("write", errno.ENOSPC)
    with pytest.raises(StoreError, match="No space left"):
        saved.save(table(2))
    assert saved.load() == table(1)
