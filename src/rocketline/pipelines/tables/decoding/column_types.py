"""Types of columns by their names, without a session of Spark, which `fromDDL` needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def column_type(name: str) -> DataType:
    from pyspark.sql import types

    known: dict[str, DataType] = {
        "boolean": types.BooleanType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "float": types.FloatType(),
        "double": types.DoubleType(),
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "date": types.DateType(),
        "timestamp": types.TimestampType(),
        "timestamp_ntz": types.TimestampNTZType(),
        "decimal(20,0)": types.DecimalType(20, 0),
    }
    return known[name]
