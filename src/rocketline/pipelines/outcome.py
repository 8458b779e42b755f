"""The result of a pipeline for people: a table and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN_ROWS = 50


@dataclass
class Outcome:
    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_bad: bool = False
    """Whether the command fails with exit code 1."""

    @staticmethod
    def of(title: str, frame: DataFrame, rows: int = SHOWN_ROWS) -> Outcome:
        """An outcome with the first rows of a table."""
        found = frame.limit(rows + 1).collect()
        outcome = Outcome(title, frame.columns, [list(row) for row in found[:rows]])
        if len(found) > rows:
            outcome.notes.append(f"only the first {rows} rows are shown")
        return outcome
