"""Bodies in Avro: written with the schema of a file, or each with a schema of a registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketline.errors import ConfigError
from rocketline.pipelines.tables.decoding.column_types import column_type
from rocketline.pipelines.tables.decoding.interface import BadBody
from rocketline.pipelines.tables.decoding.registry import Registry, Wire

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_SIMPLE = {"boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double", "string": "string",
           "bytes": "binary", "fixed": "binary", "enum": "string"}  # fmt: skip
_LOGICAL = {
    "date": "date", "timestamp-millis": "timestamp", "timestamp-micros": "timestamp", "uuid": "string",
    "local-timestamp-millis": "timestamp_ntz", "local-timestamp-micros": "timestamp_ntz",
    "time-millis": "string", "time-micros": "string",
}  # fmt: skip
_TOGETHER = ({"int", "long"}, {"float", "double"})
"""Members of a union that are one type."""


@dataclass(frozen=True)
class AvroDecoding:
    """`schema` is the text of the schema of all bodies; None: each body names its schema in the registry."""

    schema: str | None = None
    registry: Registry | None = None
    subject: str = ""
    """Whose latest schema gives the columns, when a registry has the schemas."""
    wire: Wire | None = None

    def columns(self) -> StructType:
        if self.schema is not None:
            text = self.schema
        else:
            assert self.registry is not None
            text = self.registry.latest(self.subject)
        return avro_columns(_parsed(text))

    def decoder(self) -> Callable[[bytes], dict[str, Any]]:
        wire, registry = self.wire, self.registry
        if self.schema is not None:
            fixed = _parsed(self.schema)
            return lambda body: _decode(wire.strip(body)[1] if wire else body, fixed)
        assert registry is not None
        assert wire is not None
        find = registry.cached(_parsed_or_bad)

        def decode(body: bytes) -> dict[str, Any]:
            number, rest = wire.strip(body)
            return _decode(rest, find(number))

        return decode


def read_avro_schema(path: Path) -> str:
    """The text of a schema file; ConfigError when it cannot be read."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    avro_columns(_parsed(text))
    return text


def _parsed(text: str) -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise ConfigError("bodies in Avro need fastavro: pip install 'rocketline[avro]'") from error
    try:
        return fastavro.parse_schema(json.loads(text), expand=True)
    except Exception as error:  # fastavro has no class of its own for all of them
        raise ConfigError(f"this is no schema of Avro: {type(error).__name__}: {error}") from error


def _parsed_or_bad(text: str) -> Any:
    try:
        return _parsed(text)
    except ConfigError as error:
        raise BadBody(str(error)) from error


def _decode(body: bytes, schema: Any) -> dict[str, Any]:
    import fastavro

    stream = io.BytesIO(body)
    try:
        value: Any = fastavro.schemaless_reader(stream, schema, None)
    except Exception as error:  # bytes of anybody: it may fail in any way
        raise BadBody(f"the body is no Avro of its schema: {type(error).__name__}: {error}") from error
    if left := len(body) - stream.tell():
        raise BadBody(f"the body is no Avro of its schema: {left} bytes follow the record")
    if not isinstance(value, dict):
        raise BadBody("the body is no record of Avro")
    return value


def avro_columns(schema: Any) -> StructType:
    """The columns of a record; ConfigError for what a column cannot have."""
    from pyspark.sql.types import StructType

    found = _type(schema, "the schema", ())
    if not isinstance(found, StructType):
        raise ConfigError("the schema of Avro is no record: its fields become the columns")
    return found


def _type(schema: Any, name: str, above: tuple[str, ...]) -> DataType:
    from pyspark.sql import types

    if isinstance(schema, list):
        return _union(schema, name, above)
    if isinstance(schema, str):
        schema = {"type": schema}
    kind = schema["type"]
    if isinstance(kind, (dict, list)):
        return _type(kind, name, above)
    if kind == "record":
        if schema["name"] in above:
            raise ConfigError(f"{name}: {schema['name']} contains itself, which columns cannot")
        inner = (*above, schema["name"])
        return types.StructType(
            [types.StructField(f["name"], _type(f["type"], f["name"], inner)) for f in schema["fields"]]
        )
    if kind == "array":
        return types.ArrayType(_type(schema["items"], name, above))
    if kind == "map":
        return types.MapType(types.StringType(), _type(schema["values"], name, above))
    logical = schema.get("logicalType")
    if logical == "decimal":
        return types.DecimalType(schema["precision"], schema.get("scale", 0))
    written = _LOGICAL.get(logical) or _SIMPLE.get(kind)
    if written is None:
        raise ConfigError(
            f"{name}: {kind} of Avro has no column type" if kind not in above else f"{name} contains itself"
        )
    return column_type(written)


def _union(members: list[Any], name: str, above: tuple[str, ...]) -> DataType:
    real = [member for member in members if member != "null"]
    names = {member for member in real if isinstance(member, str)}
    if len(real) == 2:
        for together in _TOGETHER:
            if names == together:
                return _type("long" if "long" in together else "double", name, above)
    if len(real) != 1:
        raise ConfigError(f"{name}: a union of several types has no column type; null and one type is possible")
    return _type(real[0], name, above)
