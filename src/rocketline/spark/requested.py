"""Fits the columns of a source to the schema that a user asked for.

A schema may name some of the columns, in any order and in upper or lower case, but not with other types: to turn a body
into text, use `CAST`, which defines what happens to invalid bytes. Spark requires batches to match the schema exactly,
so batches get its names and its nullability.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from rocketline.errors import ConfigError
from rocketline.spark.columns import COLUMNS, MORE_COLUMNS


@dataclass(frozen=True)
class RequestedColumns:
    """Which columns to decode, and the schema of batches; can be pickled."""

    decoded: tuple[str, ...]
    """Columns for a `ColumnPlan`."""
    names: tuple[str, ...]
    """Names of all columns asked for, as the source spells them."""
    schema: pa.Schema

    @staticmethod
    def of(source: str, schema: StructType, more: pa.Schema | None = None) -> RequestedColumns:
        """ConfigError for a column that is unknown or has another type; `more` are further columns of the source."""
        target = to_arrow_schema(schema, timezone="UTC")
        offered = {field.name: field for known in (COLUMNS, MORE_COLUMNS, more or ()) for field in known}
        by_lower = {name.lower(): name for name in offered}
        names = []
        for field in target:
            name = by_lower.get(field.name.lower())
            if name is None:
                meant = get_close_matches(field.name.lower(), by_lower, n=1)
                hint = f"did you mean {by_lower[meant[0]]}?" if meant else f"there are {', '.join(offered)}"
                raise ConfigError(f"{source}: there is no column {field.name!r} for the schema; {hint}")
            if not _is_same(field.type, offered[name].type):
                raise ConfigError(
                    f"{source}: column {field.name!r} is {offered[name].type}, but the schema says {field.type}: "
                    "read it as it is and cast it afterwards"
                )
            names.append(name)
        own = set(more.names) if more is not None else set()
        return RequestedColumns(tuple(name for name in names if name not in own), tuple(names), target)

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch with the columns, types and names of the schema."""
        if not self.names:
            return batch
        arrays = [batch.column(name) for name in self.names]
        fitted = [
            array if array.type == field.type else array.cast(field.type) for array, field in zip(arrays, self.schema)
        ]
        for array, field in zip(fitted, self.schema):
            if array.null_count and not field.nullable:
                raise ConfigError(f"column {field.name!r} has nulls, but the schema says that it has none")
        return pa.RecordBatch.from_arrays(fitted, schema=self.schema)


def _is_same(asked: pa.DataType, offered: pa.DataType) -> bool:
    if pa.types.is_map(asked) and pa.types.is_map(offered):
        return bool(asked.key_type == offered.key_type and asked.item_type == offered.item_type)
    return bool(asked == offered)
