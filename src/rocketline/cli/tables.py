"""Results as tables: drawn on a terminal, separated by tabs elsewhere, as JSON or CSV for scripts.

Cells keep their types: in JSON, numbers are numbers and a time (`Ms`) is a number of milliseconds; people are shown a date.
Control characters are escaped before they reach a terminal, see `messages.text.printable`.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocketline.cli.messages.text import printable


class Ms(int):
    """A time in milliseconds since 1970; 0 and below mean none."""


@dataclass
class Table:
    """Rows under column names; `about` is a sentence below them."""

    columns: Sequence[str]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    title: str = ""
    about: str = ""

    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row)) for row in self.rows]


def facts(pairs: Iterable[tuple[str, Any]], title: str = "") -> Table:
    """A table of names and values."""
    return Table(("name", "value"), [tuple(pair) for pair in pairs], title)


def sentence(text: str) -> Table:
    """A result that is a sentence and not a table."""
    return Table((), about=text)


def show(tables: Sequence[Table], output: str) -> None:
    """Print results on standard output."""
    if output == "json":
        print(json.dumps(_as_json(tables), ensure_ascii=False))
    elif output == "csv":
        _as_csv(tables)
    elif sys.stdout.isatty():
        _draw(tables)
    else:
        for table in tables:
            _as_text(table)


def _as_json(tables: Sequence[Table]) -> Any:
    """The rows of one table as a list; of several, lists by title."""
    with_rows = [table for table in tables if table.columns]
    if not with_rows:
        return {"message": " ".join(table.about for table in tables)}
    if len(with_rows) == 1:
        return with_rows[0].records()
    return {table.title: table.records() for table in with_rows}


def _as_csv(tables: Sequence[Table]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for table in tables:
        if not table.columns:
            continue
        if len(tables) > 1:
            sys.stdout.write(f"# {printable(table.title)}\n")
        writer.writerow(table.columns)
        writer.writerows([_plain(cell) for cell in row] for row in table.rows)


def _plain(cell: Any) -> Any:
    """A cell of CSV; a text that a spreadsheet would take for a formula gets a quote before it."""
    if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{cell}"
    return json.dumps(cell) if isinstance(cell, (dict, list)) else cell


def cell_text(cell: Any) -> str:
    """
    >>> cell_text(True), cell_text(0.5), cell_text(None), cell_text(Ms(0))
    ('true', '0.50', '', '')
    """
    if cell is None:
        return ""
    if isinstance(cell, Ms):
        return _date(cell) if cell > 0 else ""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        return f"{cell:.2f}"
    if isinstance(cell, (dict, list)):
        return printable(json.dumps(cell, ensure_ascii=False))
    return printable(str(cell))


def _date(ms: int) -> str:
    try:
        return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(ms // 1000))}.{ms % 1000:03}"
    except (OverflowError, ValueError, OSError):
        return str(int(ms))


def _as_text(table: Table) -> None:
    if table.title:
        print(f"# {printable(table.title)}")
    if table.columns:
        print("\t".join(table.columns))
    for row in table.rows:
        print("\t".join(map(cell_text, row)))
    if table.about:
        print(printable(table.about))


def _draw(tables: Sequence[Table]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

    console = Console(highlight=False)
    for table in tables:
        if table.columns:
            drawn = Drawn(title=table.title or None, title_justify="left", box=SIMPLE_HEAD, title_style="bold")
            for number, name in enumerate(table.columns):
                numeric = bool(table.rows) and all(_is_number(row[number]) for row in table.rows)
                drawn.add_column(name, justify="right" if numeric else "left", overflow="fold")
            for row in table.rows:
                drawn.add_row(*(Text(cell_text(cell)) for cell in row))
            console.print(drawn)
        if table.about:
            console.print(printable(table.about), markup=False)


def _is_number(cell: Any) -> bool:
    return isinstance(cell, (int, float)) and not isinstance(cell, (bool, Ms))
