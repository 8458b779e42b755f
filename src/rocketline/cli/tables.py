"""Results as tables: drawn on a terminal, separated by tabs elsewhere, as JSON or CSV for scripts.

Cells keep their types: in JSON, numbers are numbers and a time (`Ms`) is a number of milliseconds; people are shown a date.
A column `min offset` has the key `min_offset` in JSON and CSV. A verb prints one JSON document; a `Stream` of records has
one JSON object per line. Control characters are escaped before they reach a terminal, see `messages.text.printable`.
"""

from __future__ import annotations

import csv
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum, auto
from typing import Any

from rocketline.cli.messages.text import printable


class Output(StrEnum):
    """The values of `--output`."""

    table = "table"
    json = "json"
    csv = "csv"


OUTPUT_HELP = "How results are shown."


class Ms(int):
    """A time in milliseconds since 1970; 0 and below mean none."""


class Parts(dict[str, Any]):
    """Several values in one cell: people see the values only, JSON has the names too."""


class Form(Enum):
    """What the rows of a table are."""

    ROWS = auto()
    FACTS = auto()
    """Names and values of one thing; the names are words of ours."""
    SETTINGS = auto()
    """Names and values as a server gave them; the names stay as they are."""


@dataclass
class Table:
    """Rows under column names; `about` is a sentence below them."""

    columns: Sequence[str]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    title: str = ""
    about: str = ""
    form: Form = Form.ROWS
    subject: Mapping[str, Any] | None = None
    """Of a verb that shows several things, such as brokers or messages: which of them the tables from here on are about.
    JSON is a list then, with an object for each of them."""
    is_bad: bool = False
    """Whether it tells of something that was asked for and failed: the command ends with exit code 1."""

    @property
    def heading(self) -> str:
        return self.title if self.subject is None else " ".join(str(value) for value in self.subject.values() if value)

    def content(self) -> Any:
        """The rows for JSON: a list of objects, or one object of names and values."""
        if self.form is Form.ROWS:
            keys = [key_of(name) for name in self.columns]
            return [dict(zip(keys, map(_known, row))) for row in self.rows]
        if self.form is Form.FACTS:
            return {key_of(name): _known(value) for name, value in self.rows}
        return {name: _typed(value) for name, value in self.rows}


def key_of(name: str) -> str:
    """The key of a column or title in JSON and CSV.

    >>> [key_of(name) for name in ("min offset", "in/s", "waits (in, out) ms", "p99.9 ms", "brokerName")]
    ['min_offset', 'in_per_s', 'waits_ms', 'p99_9_ms', 'broker_name']
    """
    words = re.sub(r"\(.*?\)|(?<=[a-z0-9])(?=[A-Z])", " ", name).replace("/s", " per s")
    return "_".join(re.findall(r"\w+", words)).lower()


def _known(cell: Any) -> Any:
    return None if isinstance(cell, Ms) and cell <= 0 else cell


def _typed(value: Any) -> Any:
    """
    >>> _typed("72"), _typed("0.5"), _typed("true"), _typed("007"), _typed("V5_4_0")
    (72, 0.5, True, '007', 'V5_4_0')
    """
    if not isinstance(value, str):
        return value
    if value in ("true", "false"):
        return value == "true"
    if re.fullmatch(r"-?(0|[1-9][0-9]{0,18})", value):
        return int(value)
    return float(value) if re.fullmatch(r"-?(0|[1-9][0-9]{0,15})\.[0-9]{1,15}", value) else value


def facts(pairs: Iterable[tuple[str, Any]], title: str = "", subject: Mapping[str, Any] | None = None) -> Table:
    """A table of names and values."""
    return Table(("name", "value"), [tuple(pair) for pair in pairs], title, form=Form.FACTS, subject=subject)


def settings(pairs: Iterable[tuple[str, Any]], title: str = "", subject: Mapping[str, Any] | None = None) -> Table:
    """A table of names and values that a server gave."""
    return Table(("name", "value"), [tuple(pair) for pair in pairs], title, form=Form.SETTINGS, subject=subject)


def sentence(text: str) -> Table:
    """A result that is a sentence and not a table."""
    return Table((), about=text)


def show(tables: Sequence[Table], output: str) -> None:
    """Print results on standard output."""
    if output == Output.json:
        print(json.dumps(_document(tables), ensure_ascii=False, default=str))
    elif output == Output.csv:
        _as_csv(tables)
    elif sys.stdout.isatty():
        _draw(tables)
    else:
        for table in tables:
            _as_text(table)


class Stream:
    """Prints records one by one, as they come: a line of text, one JSON object per line, or rows of CSV."""

    def __init__(self, output: str, columns: Sequence[str]) -> None:
        self._output = output
        self._columns = columns
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        if output == Output.csv:
            self._writer.writerow(columns)

    def show(self, record: Callable[[], Mapping[str, Any]], line: Callable[[], str]) -> None:
        """Print one record; only the one of `record` and `line` that is needed is called."""
        if self._output == Output.json:
            print(json.dumps(record(), default=str))
        elif self._output == Output.csv:
            found = record()
            self._writer.writerow([_plain(found.get(name)) for name in self._columns])
        else:
            print(line())
        sys.stdout.flush()


def _document(tables: Sequence[Table]) -> Any:
    """A list for each thing that the tables are about; else the content of the only table; else contents by title."""
    if any(table.subject is not None for table in tables):
        items: list[dict[str, Any]] = []
        for table in tables:
            if table.subject is not None:
                items.append(dict(table.subject))
            if items:
                _add(items[-1], table)
        return items
    with_rows = [table for table in tables if table.columns]
    if not with_rows:
        return {"message": " ".join(table.about for table in tables)}
    if len(with_rows) == 1 and not with_rows[0].title:
        return with_rows[0].content()
    document: dict[str, Any] = {}
    for table in tables:
        _add(document, table)
    return document


def _add(item: dict[str, Any], table: Table) -> None:
    if not table.columns:
        item["message"] = f"{item.get('message', '')} {table.about}".strip()
    elif table.title or table.form is Form.ROWS:
        item[key_of(table.title) or "rows"] = table.content()
    else:
        item.update(table.content())


def _as_csv(tables: Sequence[Table]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for table in tables:
        if not table.columns:
            continue
        if len(tables) > 1:
            sys.stdout.write(f"# {printable(table.heading)}\n")
        writer.writerow([key_of(name) for name in table.columns])
        writer.writerows([_plain(_known(cell)) for cell in row] for row in table.rows)


def _plain(cell: Any) -> Any:
    """A cell of CSV; a text that a spreadsheet would take for a formula gets a quote before it."""
    if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{cell}"
    if isinstance(cell, bool):
        return str(cell).lower()
    return json.dumps(cell, ensure_ascii=False) if isinstance(cell, (dict, list, tuple)) else cell


def cell_text(cell: Any) -> str:
    """
    >>> [cell_text(cell) for cell in (True, 0.5, None, Ms(0), ["a", "b"], {"a": 1}, Parts(a=1, b=None))]
    ['true', '0.50', '', '', 'a, b', 'a: 1', '1, ?']
    """
    if cell is None:
        return ""
    if isinstance(cell, Ms):
        return _date(cell) if cell > 0 else ""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        return f"{cell:.2f}"
    if isinstance(cell, datetime):
        return cell.isoformat(" ", "seconds")
    if isinstance(cell, Parts):
        return ", ".join("?" if value is None else cell_text(value) for value in cell.values())
    if isinstance(cell, (list, tuple)):
        return ", ".join(map(cell_text, cell))
    if isinstance(cell, dict):
        return ", ".join(f"{printable(str(name))}: {cell_text(value)}" for name, value in cell.items())
    return printable(str(cell))


def _date(ms: int) -> str:
    try:
        return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(ms // 1000))}.{ms % 1000:03}"
    except (OverflowError, ValueError, OSError):
        return str(int(ms))


def _as_text(table: Table) -> None:
    if table.heading:
        print(f"# {printable(table.heading)}")
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
            drawn = Drawn(
                title=printable(table.heading) or None, title_justify="left", box=SIMPLE_HEAD, title_style="bold"
            )
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
