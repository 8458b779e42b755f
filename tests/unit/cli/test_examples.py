"""`rocketline examples copy`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketline.cli.main import main

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_examples_are_copied_into_a_new_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mine"
    assert main(["examples", "copy", str(folder)]) == 0
    programs = sorted(path.relative_to(EXAMPLES) for path in EXAMPLES.rglob("*.py"))
    assert capsys.readouterr().out.split() == [str(folder / name) for name in programs]
    assert all((folder / name).read_bytes() == (EXAMPLES / name).read_bytes() for name in programs)


def test_a_folder_that_has_something_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "orders.py").write_text("mine")
    assert main(["examples", "copy", str(tmp_path)]) == 1
    assert "is not an empty folder" in capsys.readouterr().err
    assert (tmp_path / "orders.py").read_text() == "mine"
