"""Replacing a file as a whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.patching import patch_here

from rocketline.files import backup_of, replace_file, sync_folder


def test_the_content_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    for content in (b"one", b"two"):
        replace_file(path, content)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["table.json"]


def test_the_former_content_becomes_the_backup(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    for content in (b"one", b"two", b"three"):
        replace_file(path, content, keep_backup=True)
    assert (path.read_bytes(), backup_of(path).read_bytes()) == (b"three", b"two")


@pytest.mark.parametrize("keep_backup", [False, True])
def test_a_failure_before_the_rename_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_backup: bool
) -> None:
    path = tmp_path / "table.json"
    replace_file(path, b"old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    patch_here(monkeypatch, os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new", keep_backup=keep_backup)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["table.json"]


def test_a_folder_that_is_not_there_cannot_be_flushed(tmp_path: Path) -> None:
    sync_folder(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "missing")
