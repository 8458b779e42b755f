"""Bodies in Protobuf: messages of a type that a set of descriptors has (`protoc --include_imports --descriptor_set_out`).

With the bytes of a registry before a body, the numbers of the message in its `.proto` follow the schema's id; they must lead
to the type that was named. The registry itself is not asked: its schemas are `.proto` texts, which only `protoc` reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketline.errors import ConfigError
from rocketline.pipelines.tables.decoding.column_types import column_type
from rocketline.pipelines.tables.decoding.interface import BadBody
from rocketline.pipelines.tables.decoding.registry import Wire

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_SIMPLE = {
    1: "double", 2: "float", 3: "bigint", 4: "decimal(20,0)", 5: "int", 6: "decimal(20,0)", 7: "bigint", 8: "boolean",
    9: "string", 12: "binary", 13: "bigint", 14: "string", 15: "int", 16: "bigint", 17: "int", 18: "bigint",
}  # fmt: skip
"""Column types by the numbers of types in descriptors; 14 is an enum, 10 and 11 are messages."""
_ENUM, _TIMESTAMP = 14, "google.protobuf.Timestamp"
_MAX_INDEXES = 32


@dataclass(frozen=True)
class ProtobufDecoding:
    descriptors: bytes
    message_type: str
    wire: Wire | None = None

    def columns(self) -> StructType:
        return _struct(self._descriptor(), ())

    def decoder(self) -> Callable[[bytes], dict[str, Any]]:
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass

        descriptor = self._descriptor()
        kind, wire, place = GetMessageClass(descriptor), self.wire, _place(descriptor)

        def decode(body: bytes) -> dict[str, Any]:
            if wire is not None:
                body = _without_indexes(wire.strip(body)[1], place, descriptor.full_name)
            message = kind()
            try:
                message.ParseFromString(body)
            except (DecodeError, RecursionError) as error:
                raise BadBody(f"the body is no {descriptor.full_name}: {error}") from error
            return _values(message)

        return decode

    def _descriptor(self) -> Any:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool
            from google.protobuf.message import DecodeError
        except ImportError as error:
            raise ConfigError("bodies in Protobuf need protobuf: pip install 'rocketline[protobuf]'") from error
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in descriptor_pb2.FileDescriptorSet.FromString(self.descriptors).file:
                pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
            return pool.FindMessageTypeByName(self.message_type)
        except KeyError as error:
            raise ConfigError(
                f"the descriptors have no message {self.message_type!r}: name it with its package"
            ) from error
        except (DecodeError, TypeError, ValueError) as error:
            raise ConfigError(
                f"the descriptors cannot be used: {error}; make them with protoc --include_imports --descriptor_set_out"
            ) from error


def read_descriptors(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def _struct(descriptor: Any, above: tuple[str, ...]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [StructField(field.name, _type(field, (*above, descriptor.full_name))) for field in descriptor.fields]
    )


def _type(field: Any, above: tuple[str, ...]) -> DataType:
    from pyspark.sql import types

    if _is_map(field):
        return types.MapType(types.StringType(), _one(field.message_type.fields_by_name["value"], above))
    return types.ArrayType(_one(field, above)) if field.is_repeated else _one(field, above)


def _one(field: Any, above: tuple[str, ...]) -> DataType:
    from pyspark.sql import types

    if field.message_type is None:
        return column_type(_SIMPLE[field.type])
    if field.message_type.full_name == _TIMESTAMP:
        return types.TimestampType()
    if field.message_type.full_name in above:
        raise ConfigError(f"{field.full_name}: {field.message_type.full_name} contains itself, which columns cannot")
    return _struct(field.message_type, above)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _values(message: Any) -> dict[str, Any]:
    """Values by name; a field that can be absent and is has none."""
    values: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if _is_map(field):
            item = field.message_type.fields_by_name["value"]
            values[field.name] = {_key(key): _value(value[key], item) for key in value}
        elif field.is_repeated:
            values[field.name] = [_value(part, field) for part in value]
        else:
            values[field.name] = _value(value, field)
    return values


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _value(value: Any, field: Any) -> Any:
    from datetime import UTC, datetime, timedelta

    if field.message_type is None:
        if field.type != _ENUM:
            return value
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type.full_name == _TIMESTAMP:
        try:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        except OverflowError as error:
            raise BadBody(f"column {field.name}: {value.seconds} seconds is no time") from error
    return _values(value)


def _place(descriptor: Any) -> list[int]:
    """The numbers of a message in its file, from the outermost one to itself."""
    place: list[int] = []
    while descriptor is not None:
        above = descriptor.containing_type
        siblings = above.nested_types if above is not None else descriptor.file.message_types_by_name.values()
        names = [each.full_name for each in siblings if not each.GetOptions().map_entry]
        place.insert(0, names.index(descriptor.full_name))
        descriptor = above
    return place


def _without_indexes(body: bytes, place: list[int], name: str) -> bytes:
    """A body without the numbers of its message; a single 0 stands for the first message of a file."""
    count, position = _varint(body, 0)
    if count > _MAX_INDEXES:
        raise BadBody(f"the body names its message with {count} numbers")
    found = []
    for _ in range(count):
        number, position = _varint(body, position)
        found.append(number)
    if (found or [0]) != place:
        raise BadBody(f"the body is message {found or [0]} of its schema, {name} is {place}")
    return body[position:]


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """(a number with its sign in the last bit, where the next byte is)."""
    value = shift = 0
    while position < len(body) and shift <= 28:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise BadBody("the numbers of its message, which the body must begin with, are not there")
