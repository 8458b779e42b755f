"""What the simulated power cut takes and what it leaves."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .shadow_disk import Shadow, cut


class Machine:
    """A folder, its shadow, and the calls a program makes."""

    def __init__(self, base: Path) -> None:
        self.root = base / "store"
        self.root.mkdir()
        (self.root / "old").write_bytes(b"old" * 1000)
        self.shadow_folder = base / "shadow"
        self.shadow = Shadow(self.root, self.shadow_folder)

    def flush(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY)
        self.shadow.synced(fd, str(path), time.monotonic())
        os.close(fd)

    def ends(self) -> Iterator[set[tuple[str, bytes]]]:
        """What forty different cuts leave of the folder as it is now."""
        for seed in range(40):
            copy = self.root.with_name(f"cut-{seed}")
            # The cut works in place, and inodes matter: it gets links to the very files.
            for path in self.root.rglob("*"):
                target = copy / path.relative_to(self.root)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.mkdir(exist_ok=True) if path.is_dir() else os.link(path, target)
            copy.mkdir(exist_ok=True)
            cut(copy, self.shadow_folder, seed)
            yield {(str(path.relative_to(copy)), path.read_bytes()) for path in copy.rglob("*") if path.is_file()}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_was_there_at_the_start_stays(machine: Machine) -> None:
    assert all(("old", b"old" * 1000) in left for left in machine.ends())


def test_flushed_bytes_stay_and_others_may_go_by_the_sector(machine: Machine) -> None:
    path = machine.root / "old"
    with open(path, "r+b") as file:
        file.write(b"A" * 512)
        file.flush()
        machine.flush(path)
        file.write(b"B" * 1024)
    contents = {next(data for name, data in left if name == "old") for left in machine.ends()}
    assert all(data[:512] == b"A" * 512 for data in contents)
    sectors = {(data[512:1024] == b"B" * 512, data[1024:1536] == b"B" * 512) for data in contents}
    assert sectors == {(False, False), (True, True), (True, False), (False, True)}
    assert all(data[1536:] == (b"old" * 1000)[1536:] for data in contents)


def test_a_new_name_needs_a_flush_of_its_folder(machine: Machine) -> None:
    path = machine.root / "new"
    path.write_bytes(b"new")
    machine.flush(path)
    assert {("new", b"new") in left for left in machine.ends()} == {True, False}


def test_a_new_file_stays_once_both_are_flushed(machine: Machine) -> None:
    path = machine.root / "new"
    path.write_bytes(b"new")
    machine.flush(path)
    machine.flush(machine.root)
    assert all(("new", b"new") in left for left in machine.ends())


def test_a_new_folder_needs_a_flush_of_its_parent(machine: Machine) -> None:
    path = machine.root / "folder" / "file"
    path.parent.mkdir()
    path.write_bytes(b"inside")
    machine.flush(path)
    machine.flush(path.parent)
    assert {("folder/file", b"inside") in left for left in machine.ends()} == {True, False}


def test_a_rename_is_old_or_new_until_the_folder_is_flushed(machine: Machine) -> None:
    temporary = machine.root / "old.tmp"
    temporary.write_bytes(b"next")
    machine.flush(temporary)
    os.replace(temporary, machine.root / "old")
    found = {next(data for name, data in left if name == "old") for left in machine.ends()}
    assert found == {b"old" * 1000, b"next"}
    machine.flush(machine.root)
    assert all(("old", b"next") in left for left in _again(machine))


def test_a_removed_file_may_come_back(machine: Machine) -> None:
    (machine.root / "old").unlink()
    assert {("old", b"old" * 1000) in left for left in machine.ends()} == {True, False}


def _again(machine: Machine) -> Iterator[set[tuple[str, bytes]]]:
    for leftover in machine.root.parent.glob("cut-*"):
        os.replace(leftover, leftover.with_name("done-" + leftover.name))
    return machine.ends()
