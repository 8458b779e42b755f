"""The outcome of a pipeline on a terminal, or as plain columns in a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rocketline.cli.messages.text import printable

if TYPE_CHECKING:
    from rocketline.pipelines.outcome import Outcome


def print_outcome(outcome: Outcome) -> None:
    if sys.stdout.isatty():
        _print_table(outcome)
    else:
        print("\n".join(plain_lines(outcome)))
    for note in outcome.notes:
        print(printable(note))


def plain_lines(outcome: Outcome) -> list[str]:
    """The title, then rows in aligned columns."""
    rows = [list(outcome.columns), *[[printable(value) for value in row] for row in outcome.rows]]
    widths = [max(len(row[at]) for row in rows) for at in range(len(outcome.columns))]
    lines = ["  ".join(value.ljust(width) for value, width in zip(row, widths)).rstrip() for row in rows]
    return [outcome.title, *(lines if outcome.columns else [])]


def _print_table(outcome: Outcome) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=outcome.title, title_justify="left")
    for at, name in enumerate(outcome.columns):
        is_number = all(row[at].lstrip("-").replace(",", "").replace(".", "").isdigit() for row in outcome.rows)
        table.add_column(name, justify="right" if is_number else "left")
    for row in outcome.rows:
        table.add_row(*(Text(printable(value)) for value in row))
    Console(highlight=False).print(table)
