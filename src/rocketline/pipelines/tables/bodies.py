"""Bodies of messages as columns: parsing, and how the columns of a table may change.

| the new schema | what happens |
| --- | --- |
| has a column more | it is added; older rows have null |
| lacks a column | it stays; newer rows have null |
| has a wider type of these | the column becomes wider |
| has a narrower type of these | the column stays as wide as it is |
| has a column in other upper and lower case | refused for JSON, whose names are told apart by it |
| has any other type | refused: give the column another name, or begin another table |

Wider: tinyint, smallint, int, bigint; float, double; decimals with more digits before the point and as many behind it.
The same holds for fields of structs, of structs in arrays, and of structs that are values of maps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rocketline.errors import ConfigError
from rocketline.pipelines.tables.decoding.interface import Decoding
from rocketline.pipelines.tables.decoding.registry import Wire
from rocketline.pipelines.tables.decoding.rows import PROBLEM, VALUE, decoded
from rocketline.pipelines.tables.formats import quoted
from rocketline.pipelines.tables.iceberg import FOLDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

BODIES = ("raw", "json", "avro", "protobuf")
DELETED, PLACE, _CORRUPT = "_deleted", "_place", "_corrupt"
"""Columns that a row has on its way into the table, with those of decoding."""
RESERVED = ("message", "day", "error", DELETED, PLACE, VALUE, PROBLEM, FOLDER, _CORRUPT)
MESSAGE_COLUMNS = (
    "topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "properties", "bornTimestamp",
    "storeTimestamp", "body",
)  # fmt: skip
_WIDER = (("tinyint", "smallint", "int", "bigint"), ("float", "double"))


class Parsed(NamedTuple):
    accepted: DataFrame
    rejected: DataFrame | None = None
    """None: nothing can be rejected."""
    kept: DataFrame | None = None
    """What both are made of, kept by Spark until its `unpersist`: brokers are read once."""


def body_columns(spark: SparkSession, ddl: str | None, body: str, decoding: Decoding | None = None) -> StructType:
    """The columns that bodies have; ConfigError for a schema that cannot be used."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    if decoding is not None:
        if ddl is not None:
            raise ConfigError(f"--schema has no effect on --body {body}, whose columns come from its own schema")
        return _usable(decoding.columns())
    if body not in BODIES:
        raise ConfigError(f"--body {body}: there are {', '.join(BODIES)}")
    if body == "raw":
        if ddl is not None:
            raise ConfigError("a schema has no effect on --body raw: use --body json")
        return StructType([])
    if ddl is None:
        raise ConfigError("--body json needs --schema, for example 'customer string, amount double'")
    try:
        columns = StructType.fromDDL(ddl)
    except PySparkException as error:
        raise ConfigError(f"--schema {ddl!r} is not valid: {str(error).strip().splitlines()[0]}") from error
    if not isinstance(columns, StructType):
        raise ConfigError(f"--schema {ddl!r}: names and types are needed, for example 'customer string, amount double'")
    return _usable(columns)


def _usable(columns: StructType) -> StructType:
    names = [field.name.lower() for field in columns]
    if wrong := [name for name in names if name in RESERVED or names.count(name) > 1]:
        raise ConfigError(f"--schema: column {wrong[0]!r} is there twice, or means something else in a table")
    return columns


def body_fields(table: StructType) -> list[StructField]:
    """The columns of a table that come from bodies."""
    return [field for field in table if field.name not in ("message", "day")]


def evolved(old: StructType, new: StructType, *, any_case: bool = False) -> StructType:
    """The columns of a table after bodies of a new schema came; ConfigError for a change that is refused.

    `any_case`: bodies are decoded by names in any case."""
    from pyspark.sql.types import StructField, StructType

    wanted = {field.name.lower(): field for field in new}
    kept = []
    for field in old:
        after = wanted.pop(field.name.lower(), None)
        if after is not None and after.name != field.name and not any_case:
            raise ConfigError(
                f"column {field.name!r} of the table is {after.name!r} in the schema: JSON tells upper and lower case "
                "apart. Write it as in the table, or begin another table"
            )
        kind = field.dataType if after is None else _type(field.name, field.dataType, after.dataType, any_case)
        kept.append(StructField(field.name, kind))
    return StructType([*kept, *(StructField(field.name, field.dataType) for field in wanted.values())])


def _type(name: str, old: DataType, new: DataType, any_case: bool) -> DataType:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    if isinstance(old, StructType) and isinstance(new, StructType):
        return evolved(old, new, any_case=any_case)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return ArrayType(_type(f"{name}[]", old.elementType, new.elementType, any_case))
    if isinstance(old, MapType) and isinstance(new, MapType) and old.keyType == new.keyType:
        return MapType(old.keyType, _type(f"{name}[]", old.valueType, new.valueType, any_case))
    if isinstance(old, DecimalType) and isinstance(new, DecimalType) and old.scale == new.scale:
        return DecimalType(max(old.precision, new.precision), old.scale)
    before, after = old.simpleString(), new.simpleString()
    if before == after:
        return old
    for widths in _WIDER:
        if before in widths and after in widths:
            return old if widths.index(before) > widths.index(after) else new
    raise ConfigError(
        f"column {name!r} of the table is {before}, the schema says {after}: only wider numbers are possible. Give the "
        "column another name, or begin another table"
    )


def parse(
    messages: DataFrame,
    columns: StructType,
    given: StructType,
    body: str,
    keep_body: bool,
    decoding: Decoding | None = None,
    *,
    wire: Wire | None = None,
    keep: bool = True,
) -> Parsed:
    """Messages as rows of a table with these columns; bodies have those that were given, JSON may begin as `wire` says.

    Spark can keep what both are made of, unless it is a stream."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    names = MESSAGE_COLUMNS if keep_body or body == "raw" else MESSAGE_COLUMNS[:-1]
    day = f.to_date("storeTimestamp").alias("day")
    if body == "raw":
        return Parsed(messages.select(f.struct(*names).alias("message"), day))
    there = {field.name.lower() for field in given}
    parsed = StructType([field for field in columns if field.name.lower() in there])
    read = _from_json(messages, parsed, wire) if decoding is None else decoded(messages, decoding, parsed)
    kept = read.persist() if keep else None
    fits = f.col(PROBLEM).isNull()
    values = [
        (f.col(f"{VALUE}.{quoted(field.name)}") if field in parsed.fields else f.lit(None).cast(field.dataType)).alias(
            field.name
        )
        for field in columns
    ]
    accepted = read.where(fits).select(f.struct(*names).alias("message"), *values, day)
    rejected = read.where(~fits).select(f.struct(*MESSAGE_COLUMNS).alias("message"), f.col(PROBLEM).alias("error"), day)
    return Parsed(accepted, rejected, kept)


def _from_json(messages: DataFrame, columns: StructType, wire: Wire | None = None) -> DataFrame:
    """As `decoded` does it, by Spark's own parser, which gives no reasons.

    It stops reading at the end of an object, whatever follows, so a body is read inside of another value. Twice, because a
    body may close one such value itself and open another: what closes the list does not close the object. A body that
    leaves both whole is one value.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
        "allowSingleQuotes": "false",
        "allowNonNumericNumbers": "false",
    }
    schema = StructType([StructField(VALUE, columns), StructField(_CORRUPT, StringType())])
    # The id in front is not looked at: the columns are those that were given.
    before = 0 if wire is None else wire.prefix_bytes
    text = f.expr(f"substring(body, {before + 1})").cast("string")
    begins_right = f.lit(True) if wire is None else f.col("body").startswith(f.lit(b"\0"))
    inside = f.from_json(f.concat(f.lit(f'{{"{VALUE}":'), text, f.lit("}")), schema, options)
    read = messages.withColumn(VALUE, inside)
    value = f.col(f"{VALUE}.{VALUE}")
    is_one = (f.json_array_length(f.concat(f.lit("["), text, f.lit("]"))) == 1) & f.is_valid_utf8(text)
    fits = f.col(f"{VALUE}.{_CORRUPT}").isNull() & value.isNotNull() & is_one & begins_right
    behind = "" if wire is None else f" behind {wire.described}"
    reason = f.lit(f"the body is no JSON of the schema {columns.simpleString()[:500]}{behind}")
    return read.withColumn(PROBLEM, f.when(~f.coalesce(fits, f.lit(False)), reason)).withColumn(VALUE, value)
