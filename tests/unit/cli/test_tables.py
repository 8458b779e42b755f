"""Results as text, JSON and CSV."""

from __future__ import annotations

import json
import sys

import pytest

from rocketline.cli.tables import Ms, Table, facts, sentence, show

TABLE = Table(
    ("name", "count", "when"), [("a[red]", 5, Ms(0)), ("b\x1b[31m", 12, Ms(1_700_000_000_123))], about="2 rows"
)


def test_on_a_terminal_columns_stand_below_each_other_and_nothing_is_taken_for_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    show([TABLE], "text")
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines() if line.strip()]
    assert lines[0] == ["name", "count", "when"]
    assert ["a[red]", "5"] in lines
    assert "b\\x1b[31m" in out
    assert "2 rows" in out


def test_json_keeps_types(capsys: pytest.CaptureFixture[str]) -> None:
    show([TABLE], "json")
    rows = json.loads(capsys.readouterr().out)
    assert rows[0] == {"name": "a[red]", "count": 5, "when": 0}
    assert rows[1]["when"] == 1_700_000_000_123
    show([TABLE, sentence("a word"), facts([("k", "v")], "settings")], "json")
    tables = json.loads(capsys.readouterr().out)
    assert tables["settings"] == [{"name": "k", "value": "v"}]
    show([sentence("done"), sentence("twice")], "json")
    assert json.loads(capsys.readouterr().out) == {"message": "done twice"}


@pytest.mark.parametrize("cell", ["=1+1", "+x", "@x", "-x"])
def test_a_spreadsheet_is_given_no_formula(capsys: pytest.CaptureFixture[str], cell: str) -> None:
    show([Table(("a", "b"), [(cell, -5)])], "csv")
    assert capsys.readouterr().out == f"a,b\n'{cell},-5\n"


def test_several_tables_as_csv_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    show([facts([("k", "v")], "one"), facts([("k", "w")], "two")], "csv")
    assert capsys.readouterr().out == "# one\nname,value\nk,v\n# two\nname,value\nk,w\n"
