"""Results as text, JSON and CSV."""

from __future__ import annotations

import json
import sys

import pytest

from rocketline.cli.tables import Ms, Parts, Stream, Table, facts, sentence, settings, show

TABLE = Table(
    ("name", "count", "when"), [("a[red]", 5, Ms(0)), ("b\x1b[31m", 12, Ms(1_700_000_000_123))], about="2 rows"
)


def test_on_a_terminal_columns_stand_below_each_other_and_nothing_is_taken_for_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    show([TABLE], "table")
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines() if line.strip()]
    assert lines[0] == ["name", "count", "when"]
    assert ["a[red]", "5"] in lines
    assert "b\\x1b[31m" in out
    assert "2 rows" in out


def test_json_keeps_types(capsys: pytest.CaptureFixture[str]) -> None:
    show([TABLE], "json")
    rows = json.loads(capsys.readouterr().out)
    assert rows[0] == {"name": "a[red]", "count": 5, "when": None}
    assert rows[1]["when"] == 1_700_000_000_123
    show([TABLE, sentence("a word"), facts([("k", "v")], "settings")], "json")
    tables = json.loads(capsys.readouterr().out)
    assert (tables["settings"], tables["message"]) == ({"k": "v"}, "a word")
    show([sentence("done"), sentence("twice")], "json")
    assert json.loads(capsys.readouterr().out) == {"message": "done twice"}


@pytest.mark.parametrize(
    ("tables", "document"),
    [
        ([Table(("min offset", "in/s"), [(5, 0.5)])], [{"min_offset": 5, "in_per_s": 0.5}]),
        ([Table(("waits (in, out) ms",), [(Parts({"in": 1, "out": None}),)])], [{"waits_ms": {"in": 1, "out": None}}]),
        ([facts([("queue offset", 3)])], {"queue_offset": 3}),
        ([settings([("fileReservedTime", "72"), ("x.y", "true"), ("name", "007")])],
         {"fileReservedTime": 72, "x.y": True, "name": "007"}),
        ([settings([("a", "1")], "settings", {"broker": "b"})], [{"broker": "b", "settings": {"a": 1}}]),
        ([facts([("body", "x")], subject={"message_id": "1"}), Table(("group",), [("g",)], "consumed by"),
          facts([("body", "y")], subject={"message_id": "2"}), sentence("sent again")],
         [{"message_id": "1", "body": "x", "consumed_by": [{"group": "g"}]},
          {"message_id": "2", "body": "y", "message": "sent again"}]),
    ],
)  # fmt: skip
def test_json_has_keys_for_scripts(capsys: pytest.CaptureFixture[str], tables: list[Table], document: object) -> None:
    show(tables, "json")
    assert json.loads(capsys.readouterr().out) == document


def test_a_stream_is_one_object_per_line_or_rows(capsys: pytest.CaptureFixture[str]) -> None:
    for output, shown in (("json", '{"a": 1, "b": [2]}\n'), ("csv", "a,b\n1,[2]\n"), ("table", "one\n")):
        Stream(output, ("a", "b")).show(lambda: {"a": 1, "b": [2]}, lambda: "one")
        assert capsys.readouterr().out == shown


@pytest.mark.parametrize("cell", ["=1+1", "+x", "@x", "-x"])
def test_a_spreadsheet_is_given_no_formula(capsys: pytest.CaptureFixture[str], cell: str) -> None:
    show([Table(("a", "b"), [(cell, -5)])], "csv")
    assert capsys.readouterr().out == f"a,b\n'{cell},-5\n"


def test_several_tables_as_csv_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    show([facts([("k", "v")], "one"), facts([("k", "w")], "two")], "csv")
    assert capsys.readouterr().out == "# one\nname,value\nk,v\n# two\nname,value\nk,w\n"
