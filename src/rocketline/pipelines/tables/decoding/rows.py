"""Decoding in Spark: each message gets its values, or the reason why it has none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rocketline.pipelines.tables.decoding.fitting import fit_for
from rocketline.pipelines.tables.decoding.interface import MAX_REASON_CHARS, BadBody, Decoding

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

VALUE, PROBLEM = "_value", "_problem"


def decoded(messages: DataFrame, decoding: Decoding, columns: StructType) -> DataFrame:
    """Messages with two columns more: a struct of these columns, and a reason; one of both is null."""
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StringType, StructField, StructType

    kind = to_arrow_type(columns, timezone="UTC")
    schema = StructType([*messages.schema, StructField(VALUE, columns), StructField(PROBLEM, StringType())])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        decode, fit = decoding.decoder(), fit_for(columns)
        for batch in batches:
            values, problems = [], []
            for body in batch.column("body").to_pylist():
                value, problem = _decode(body, decode, fit)
                values.append(value)
                problems.append(problem)
            more = [_values(values, problems, kind), pa.array(problems, pa.string())]
            yield pa.RecordBatch.from_arrays([*batch.columns, *more], names=[*batch.schema.names, VALUE, PROBLEM])

    return messages.mapInArrow(run, schema)


def _decode(body: bytes | None, decode: Any, fit: Any) -> tuple[Any, str | None]:
    try:
        return fit(decode(body or b"")), None
    except BadBody as error:
        return None, str(error)[:MAX_REASON_CHARS]


def _values(values: list[Any], problems: list[str | None], kind: pa.DataType) -> pa.Array:
    """All values as one array; what Arrow does not take, as a decimal with too many digits, gets a reason."""
    import pyarrow as pa

    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        for number, value in enumerate(values):
            try:
                pa.array([value], kind)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                values[number], problems[number] = None, f"a value does not fit its column: {error}"[:MAX_REASON_CHARS]
        return pa.array(values, kind)
