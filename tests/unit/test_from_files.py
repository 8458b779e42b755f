"""What is made of files, and made anew when they change."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rocketline.errors import ConfigError
from rocketline.from_files import FromFiles


def read(path: Path) -> str:
    if (text := path.read_text()) == "bad":
        raise ConfigError("it is bad")
    return text


def test_what_changed_is_made_anew_and_what_did_not_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.pem"
    path.write_text("1")
    made = FromFiles((path, None, ""), lambda: [read(path)])
    first = made.current()
    assert made.current() is first
    path.write_text("2")
    assert made.look()
    assert (made.made, first) == (["2"], ["1"])
    assert not made.look()


def test_files_of_no_use_leave_what_was_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.pem"
    path.write_text("1")
    made = FromFiles((path,), lambda: read(path))
    path.write_text("bad")
    assert [made.current(), made.current(), made.failures] == ["1", "1", 1]
    path.unlink()
    assert [made.current(), made.current(), made.failures] == ["1", "1", 2]
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    path.write_text("3")
    assert made.current() == "3"


def test_files_of_no_use_at_first_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not-there"):
        FromFiles((), lambda: read(tmp_path / "not-there"))
