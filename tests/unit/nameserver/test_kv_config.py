"""The key-value table and its file: what survives, and what refuses to start."""

from __future__ import annotations

import builtins
import errno
import json
import os
from pathlib import Path

import pytest
from tests.support.patching import patch_here

from rocketline.errors import ConfigError, DiskFull, RequestRejected, StoreError
from rocketline.nameserver import kv_config
from rocketline.nameserver.kv_config import KvConfig


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def _stored(path: Path) -> object:
    return json.loads(path.read_bytes())


def test_values_are_put_read_and_deleted():
    table = KvConfig.open("")
    assert table.namespace("NS") is None
    assert table.get("NS", "k") is None
    table.put("NS", "k", "v1 ü")
    table.put("NS", "other", "")
    assert table.get("NS", "k") == "v1 ü"
    table.put("NS", "k", "v2")
    assert table.namespace("NS") == {"k": "v2", "other": ""}
    table.delete("NS", "k")
    table.delete("NS", "k")
    table.delete("unheard", "k")
    table.delete("NS", "other")
    assert table.namespace("NS") == {}
    assert table.namespace("unheard") is None


def test_every_change_is_in_the_file_when_the_call_returns(path: Path):
    table = KvConfig.open(str(path))
    assert not path.exists()
    table.put("NS", "k", "v1 ü")
    assert _stored(path) == {"configTable": {"NS": {"k": "v1 ü"}}}
    table.delete("NS", "k")
    assert _stored(path) == {"configTable": {"NS": {}}}
    assert os.listdir(path.parent) == ["kvConfig.json"]


def test_a_restart_finds_what_was_put(path: Path):
    table = KvConfig.open(str(path))
    table.put("A", "k", "1")
    table.put("B", "k", "2")
    again = KvConfig.open(str(path))
    assert again.namespace("A") == {"k": "1"}
    assert again.namespace("B") == {"k": "2"}


def test_a_file_in_fastjsons_loose_form_is_read(path: Path):
    path.parent.mkdir()
    path.write_text('{configTable:{\'NS\':{"k":"v",},},}')
    assert KvConfig.open(str(path)).get("NS", "k") == "v"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"configTable":{"NS":{"k":', id="cut short"),
        pytest.param(b"\x00" * 4096, id="zeros"),
        pytest.param(b"\xff\xfe{}", id="not utf-8"),
        pytest.param(b'{"configTable":{"NS":["k"]}}', id="wrong shape"),
        pytest.param(b"[" * 100_000, id="nesting"),
    ],
)
def test_an_unreadable_file_stops_the_start_and_stays_untouched(path: Path, content: bytes):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(
        ConfigError, match=r"kvConfigPath=.*kvConfig.json: not a readable key-value table.*move it away"
    ):
        KvConfig.open(str(path))
    assert path.read_bytes() == content


def test_a_folder_in_the_files_place_stops_the_start(path: Path):
    path.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"kvConfigPath=.*kvConfig.json: cannot be used: Is a directory"):
        KvConfig.open(str(path))


def test_a_file_in_the_folders_place_stops_the_start(path: Path):
    path.parent.write_text("not a folder")
    with pytest.raises(ConfigError, match=r"kvConfigPath=.*: cannot be used"):
        KvConfig.open(str(path))


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EIO, StoreError)])
def test_a_change_that_cannot_be_saved_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int, kind: type[StoreError]
):
    table = KvConfig.open(str(path))
    table.put("NS", "k", "old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        patch_here(broken, *((builtins, "open") if step == "write" else (os, step)), fail)
        with pytest.raises(kind, match=f"not saved: .*kvConfig.json: {os.strerror(number)}"):
            table.put("NS", "k", "new")
    assert table.get("NS", "k") == "old"
    assert _stored(path) == {"configTable": {"NS": {"k": "old"}}}
    assert os.listdir(path.parent) == ["kvConfig.json"]
    table.put("NS", "k", "newest")
    assert KvConfig.open(str(path)).get("NS", "k") == "newest"


def test_the_new_content_is_flushed_before_it_takes_the_name_and_the_folder_after(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    table = KvConfig.open(str(path))
    table.put("NS", "k", "old")
    steps: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(handle: int) -> None:
        steps.append(("fsync", os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))))
        fsync(handle)

    def watched_replace(source: Path, target: Path) -> None:
        assert _stored(source) == {"configTable": {"NS": {"k": "new"}}}
        assert _stored(target) == {"configTable": {"NS": {"k": "old"}}}
        steps.append(("replace", target.name))
        replace(source, target)

    patch_here(monkeypatch, os, "fsync", watched_fsync)
    patch_here(monkeypatch, os, "replace", watched_replace)
    table.put("NS", "k", "new")
    assert steps == [("fsync", "kvConfig.json.tmp"), ("replace", "kvConfig.json"), ("fsync", "namesrv")]


def test_a_half_written_file_beside_the_real_one_is_ignored_and_replaced(path: Path):
    KvConfig.open(str(path)).put("NS", "k", "v")
    path.with_name("kvConfig.json.tmp").write_bytes(b'{"configTable":{"NS":{"k":"to')
    table = KvConfig.open(str(path))
    assert table.get("NS", "k") == "v"
    table.put("NS", "k", "w")
    assert _stored(path) == {"configTable": {"NS": {"k": "w"}}}


def test_a_table_that_would_not_fit_an_answer_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kv_config, "MAX_TABLE_BYTES", 200)
    table = KvConfig.open("")
    table.put("NS", "k", "v" * 100)
    with pytest.raises(RequestRejected, match="the limit is 200"):
        table.put("NS", "l", "v" * 100)
    assert table.namespace("NS") == {"k": "v" * 100}
    monkeypatch.setattr(kv_config, "MAX_TABLE_BYTES", len('{"configTable":{"NS":{"k":"v"}}}'))
    table.put("NS", "k", "w")
    with pytest.raises(RequestRejected):
        table.put("NS", "k", "ww")


def test_a_folder_that_cannot_be_made_stops_the_start() -> None:
    """It is no table yet, but it would never be one: the first change would be the first to fail."""
    with pytest.raises(ConfigError, match="cannot be used"):
        KvConfig.open("/proc/nothing/here/kvConfig.json")
