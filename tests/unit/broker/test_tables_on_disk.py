"""Every table of the broker, on a real disk: how it is written, what a death at each step leaves, and what bad files do."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.patching import patch_here

from rocketline.broker.tables.json_table import JsonTable
from rocketline.errors import StoreError
from rocketline.files import backup_of
from rocketline.protocol.bodies import (
    ConsumerOffsetTable,
    DataVersion,
    DelayOffsetTable,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketline.store.files.disk import RealDisk, damaged_copy_of

Make = Callable[[int], Any]


def topics(number: int) -> TopicConfigSerializeWrapper:
    return TopicConfigSerializeWrapper(DataVersion(number), {"orders": TopicConfig("orders", number, number)})


def groups(number: int) -> SubscriptionGroupWrapper:
    group = SubscriptionGroupConfig(group_name="readers", retry_max_times=number)
    return SubscriptionGroupWrapper(DataVersion(number), {}, {"readers": group})


def offsets(number: int) -> ConsumerOffsetTable:
    return ConsumerOffsetTable(DataVersion(number), {"orders@readers": {0: number}})


def delays(number: int) -> DelayOffsetTable:
    return DelayOffsetTable(DataVersion(number), {3: number})


@pytest.fixture(params=[topics, groups, offsets, delays], ids=lambda make: make.__name__)
def make(request: pytest.FixtureRequest) -> Make:
    """The table in its nth version."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "table.json"


@pytest.fixture
def saved(make: Make, path: Path) -> JsonTable[Any]:
    path.parent.mkdir()
    table: JsonTable[Any] = JsonTable(RealDisk(), path, type(make(1)))
    table.save(make(1))
    table.save(make(2))
    return table


class Killed(BaseException):
    """The process ends here."""


class Steps:
    """The system calls of a save, in order; can end the process before one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        self.die_before = -1
        fsync, replace = os.fsync, os.replace

        def noted_fsync(fd: int) -> None:
            name = Path(os.readlink(f"/proc/self/fd/{fd}")).name
            self._note(f"sync {'folder ' if stat.S_ISDIR(os.fstat(fd).st_mode) else ''}{name}")
            fsync(fd)

        def noted_replace(source: Path, target: Path) -> None:
            self._note(f"rename {source.name} to {target.name}")
            replace(source, target)

        patch_here(monkeypatch, os, "fsync", noted_fsync)
        patch_here(monkeypatch, os, "replace", noted_replace)

    def _note(self, step: str) -> None:
        if len(self.seen) == self.die_before:
            raise Killed
        self.seen.append(step)


SAVE = [
    "sync table.json.tmp",
    "rename table.json to table.json.bak",
    "rename table.json.tmp to table.json",
    "sync folder config",
]


def test_a_save_is_on_disk_before_it_takes_the_name_and_the_name_before_it_returns(
    saved: JsonTable[Any], make: Make, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    saved.save(make(3))
    assert steps.seen == SAVE
    assert saved.load() == make(3)
    assert backup_of(path).read_bytes() == saved.encode(make(2))
    assert not path.with_name("table.json.tmp").exists()


@pytest.mark.parametrize("step", range(len(SAVE)), ids=[step.replace(" ", "-") for step in SAVE])
def test_a_death_at_any_step_leaves_the_old_table_or_the_new_one(
    saved: JsonTable[Any], make: Make, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    steps.die_before = step
    with pytest.raises(Killed):
        saved.save(make(3))
    steps.die_before = -1
    assert saved.load() == make(3 if step == 3 else 2)
    saved.save(make(4))
    assert saved.load() == make(4)


BAD = [None, b"", b"{", b"\0" * 64, b"[]", b"\xff\xfe", b"null"]


@pytest.mark.parametrize("content", BAD, ids=["missing", "empty", "cut", "zeros", "list", "not utf-8", "null"])
def test_a_bad_table_is_replaced_by_its_backup_once_and_that_is_said(
    saved: JsonTable[Any], make: Make, path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert saved.load() == make(1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{path} " in caplog.text
    assert "its backup is used" in caplog.text
    caplog.clear()
    assert saved.load() == make(1)
    assert caplog.text == "", "from now on the table is in order"
    if content:
        assert damaged_copy_of(path).read_bytes() == content, "somebody may still want it"
    saved.save(make(5))
    assert backup_of(path).read_bytes() == saved.encode(make(1))


def test_a_table_cut_short_anywhere_is_noticed(saved: JsonTable[Any], make: Make, path: Path) -> None:
    whole = path.read_bytes()
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        assert saved.load() == make(1)


@pytest.mark.parametrize("main", BAD, ids=["missing", "empty", "cut", "zeros", "list", "not utf-8", "null"])
@pytest.mark.parametrize("backup", [b"{", b"\0" * 64])
def test_when_the_backup_is_bad_too_both_are_kept_and_named(
    saved: JsonTable[Any], path: Path, main: bytes | None, backup: bytes
) -> None:
    path.unlink()
    if main is not None:
        path.write_bytes(main)
    backup_of(path).write_bytes(backup)
    with pytest.raises(StoreError, match=f"{path} .*backup is missing or broken as well.*bring back a copy"):
        saved.load()
    assert (path.read_bytes() if path.exists() else None) == main
    assert backup_of(path).read_bytes() == backup


@pytest.mark.parametrize("content", BAD[2:], ids=["cut", "zeros", "list", "not utf-8", "null"])
def test_a_bad_table_without_a_backup_is_kept_and_named(saved: JsonTable[Any], path: Path, content: bytes) -> None:
    path.write_bytes(content)
    backup_of(path).unlink()
    with pytest.raises(StoreError, match=f"{path} cannot be used"):
        saved.load()
    assert path.read_bytes() == content


def test_empty_files_hold_nothing_but_are_reported(
    saved: JsonTable[Any], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(b"")
    backup_of(path).write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        assert saved.load() is None
    assert f"{path} and its backup are empty" in caplog.text
