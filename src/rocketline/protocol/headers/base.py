"""The base of every typed header: converts between header fields, which are strings, and a checked struct.

Attributes are snake_case, wire names camelCase; the few that differ are named at their field. Reading is as lenient as in
RocketMQ (every value is text, unknown fields are ignored, a frame without fields is an empty header). It refuses what would
fail later: a missing required field, text that is no number, a number out of range.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Self

import msgspec

from rocketline.errors import RemoteProtocolError
from rocketline.message import ConsumerOffset, LogOffset, QueueOffset
from rocketline.protocol.command import Command

INT32_RANGE = msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)
INT64_RANGE = msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)

Int32 = Annotated[int, INT32_RANGE]
Int64 = Annotated[int, INT64_RANGE]
QueueOffset64 = Annotated[QueueOffset, INT64_RANGE]
ConsumerOffset64 = Annotated[ConsumerOffset, INT64_RANGE]
LogOffset64 = Annotated[LogOffset, INT64_RANGE]

_NO_FIELDS: dict[str, str] = {}
_SAME: Mapping[str, str] = {}
_MISSING = re.compile(r"Object missing required field `(.+)`")
_SHOWN_CHARS = 80


class Header(msgspec.Struct, rename="camel", gc=False):
    """Header fields of one kind of request or response."""

    @classmethod
    def decode(cls, command: Command) -> Self:
        """The fields of `command`; RemoteProtocolError names the one that is missing or wrong."""
        try:
            return msgspec.convert(command.ext or _NO_FIELDS, cls, strict=False)
        except msgspec.ValidationError as error:
            raise refused_field(command, error) from error

    def encode(self) -> dict[str, str]:
        """The header fields; a field that is None is left out."""
        ext = {}
        for attribute, name in _wire_names(type(self)):
            value = getattr(self, attribute)
            if value.__class__ is str:
                ext[name] = value
            elif value is not None:
                ext[name] = wire_text(value)
        return ext


def wire_text(value: bool | int | str) -> str:
    """A value as header field.

    >>> wire_text(True), wire_text(7)
    ('true', '7')
    """
    if value is True:
        return "true"
    return "false" if value is False else str(value)


@cache
def _wire_names(header: type[Header]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(header.__struct_fields__, header.__struct_encode_fields__))


def refused_field(
    command: Command, error: msgspec.ValidationError, names: Mapping[str, str] = _SAME
) -> RemoteProtocolError:
    """The error for an invalid header, with the field and its value; `names` are the names on the wire."""
    start = f"header of {'response' if command.is_response else 'request'} {command.code}"
    reason, _, path = str(error).partition(" - at `$.")
    found = _MISSING.fullmatch(reason)
    if found:
        return RemoteProtocolError(f"{start}: field {names.get(found[1], found[1])} is missing")
    field = path.rstrip("`")
    name = names.get(field, field)
    value = (command.ext or _NO_FIELDS).get(name, "")
    shown = value if len(value) <= _SHOWN_CHARS else value[:_SHOWN_CHARS] + "..."
    return RemoteProtocolError(f"{start}: field {name} is {shown!r}: {reason}")
