"""Schemas given by users, against the columns of a source."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType

from rocketline.errors import ConfigError
from rocketline.spark.columns import COLUMNS, MORE_COLUMNS, ColumnPlan, decode
from rocketline.spark.log.reader import DAMAGE_COLUMNS
from rocketline.spark.requested import RequestedColumns

from .records import record


def struct(*fields: StructField) -> StructType:
    return StructType(list(fields))


@pytest.mark.parametrize("columns", [COLUMNS, MORE_COLUMNS, DAMAGE_COLUMNS])
def test_sparks_word_for_our_columns_is_the_type_they_have(columns: pa.Schema) -> None:
    assert to_arrow_schema(from_arrow_schema(columns), timezone="UTC") == columns


def test_names_order_case_and_nulls_are_the_users() -> None:
    requested = RequestedColumns.of(
        "x",
        struct(
            StructField("BODY", BinaryType(), nullable=False),
            StructField("properties", MapType(StringType(), StringType(), valueContainsNull=False)),
            StructField("topic", StringType()),
        ),
    )
    assert requested.decoded == ("body", "properties", "topic")
    ((batch, _),) = decode(record(properties=b"a\x01b\x02"), ColumnPlan(requested.decoded))
    fitted = requested.fit(batch)
    assert fitted.schema == requested.schema
    assert fitted.to_pylist() == [{"BODY": b"hello", "properties": [("a", "b")], "topic": "orders"}]


def test_a_column_that_is_not_there_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"x: there is no column 'zzz' .*there are topic, "):
        RequestedColumns.of("x", struct(StructField("zzz", LongType())))
    with pytest.raises(ConfigError, match="did you mean queueOffset"):
        RequestedColumns.of("x", struct(StructField("queue_offset", LongType())))


def test_another_type_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"column 'body' is binary, but the schema says string: .*cast"):
        RequestedColumns.of("x", struct(StructField("body", StringType())))


def test_nulls_in_a_column_that_must_not_have_any_are_told() -> None:
    requested = RequestedColumns.of("x", struct(StructField("tags", StringType(), nullable=False)))
    ((batch, _),) = decode(record(), ColumnPlan(requested.decoded))
    with pytest.raises(ConfigError, match="column 'tags' has nulls"):
        requested.fit(batch)
