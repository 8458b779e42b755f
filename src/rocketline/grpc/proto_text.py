"""Reads `.proto` files at import, as far as ours use the language: proto3 messages, enums, maps, oneofs and services.

The result is what `protoc` would write into a `FileDescriptorProto`, so there is no generated code and no compiler at build
time. Anything else than the subset is an error with its file and line: our own files are the only input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

_TOKEN = re.compile(r'//[^\n]*|"[^"]*"|[A-Za-z_][\w.]*|-?\d+|[{}=;<>,()]|\s+|(?P<other>.)')
_SCALARS = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in ("double", "float", "int32", "int64", "uint32", "uint64", "bool", "string", "bytes")
}
_MESSAGE, _ENUM = FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_ENUM
_OPTIONAL, _REPEATED = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED


class ProtoSyntaxError(ValueError):
    """A file of ours that is not in the subset."""


def parse_proto(name: str, text: str, known: Mapping[str, bool]) -> FileDescriptorProto:
    """The descriptor of a file. `known` are types of the files it imports, by full name: True for enums."""
    file = _Reader(name, text).file()
    _resolve(file, dict(known))
    return file


def types_of(file: FileDescriptorProto) -> dict[str, bool]:
    """The types that a file defines, by full name: True for enums."""
    found = {f"{file.package}.{enum.name}": True for enum in file.enum_type}
    for scope, message in _messages(file):
        found[scope] = False
        found.update({f"{scope}.{enum.name}": True for enum in message.enum_type})
    return found


class _Reader:
    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._tokens: list[tuple[str, int]] = []
        for found in _TOKEN.finditer(text):
            token = found[0]
            line = text.count("\n", 0, found.start()) + 1
            if found["other"]:
                raise ProtoSyntaxError(f"{name}:{line}: {token!r} is not expected")
            if not token.isspace() and not token.startswith("//"):
                self._tokens.append((token, line))
        self._at = 0

    # Tokens

    def _peek(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, *wanted: str) -> None:
        for token in wanted:
            if (found := self._next()) != token:
                raise ProtoSyntaxError(f"{self._where()}: {token!r} is expected, not {found!r}")

    def _where(self) -> str:
        place = min(self._at, len(self._tokens)) - 1
        return f"{self._name}:{self._tokens[place][1]}"

    def _number(self) -> int:
        token = self._next()
        if not token.lstrip("-").isdigit():
            raise ProtoSyntaxError(f"{self._where()}: a number is expected, not {token!r}")
        return int(token)

    # The language

    def file(self) -> FileDescriptorProto:
        file = FileDescriptorProto(name=self._name, syntax="proto3")
        self._expect("syntax", "=", '"proto3"', ";")
        while word := self._next():
            if word == "package":
                file.package = self._next()
                self._expect(";")
            elif word == "import":
                file.dependency.append(self._next().strip('"'))
                self._expect(";")
            elif word == "message":
                self._message(file.message_type.add())
            elif word == "enum":
                self._enum(file.enum_type.add())
            elif word == "service":
                self._service(file.service.add())
            else:
                raise ProtoSyntaxError(f"{self._where()}: {word!r} is not expected")
        return file

    def _message(self, message: DescriptorProto) -> None:
        message.name = self._next()
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "enum":
                self._enum(message.enum_type.add())
            elif word == "oneof":
                message.oneof_decl.add(name=self._next())
                self._expect("{")
                while self._peek() != "}":
                    self._field(message, self._next()).oneof_index = len(message.oneof_decl) - 1
                self._expect("}")
            elif word == "map":
                self._map(message)
            elif word == "repeated":
                self._field(message, self._next()).label = _REPEATED
            elif word == "optional":
                self._field(message, self._next()).proto3_optional = True
            else:
                self._field(message, word)
        # What protoc does: a oneof of its own for each optional field, after those that were written down.
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _field(self, message: DescriptorProto, kind: str) -> FieldDescriptorProto:
        field = message.field.add(label=_OPTIONAL)
        _set_type(field, kind)
        field.name = self._next()
        self._expect("=")
        field.number = self._number()
        self._expect(";")
        field.json_name = _camel(field.name)
        return field

    def _map(self, message: DescriptorProto) -> None:
        self._expect("<")
        kinds = [self._next()]
        self._expect(",")
        kinds.append(self._next())
        self._expect(">")
        name = self._peek()
        entry = message.nested_type.add(name="".join(part.capitalize() for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        for number, (key, kind) in enumerate(zip(("key", "value"), kinds), 1):
            _set_type(entry.field.add(name=key, number=number, label=_OPTIONAL, json_name=key), kind)
        self._field(message, entry.name).label = _REPEATED

    def _enum(self, enum: EnumDescriptorProto) -> None:
        enum.name = self._next()
        self._expect("{")
        while self._peek() != "}":
            name = self._next()
            self._expect("=")
            enum.value.add(name=name, number=self._number())
            self._expect(";")
        self._expect("}")

    def _service(self, service: ServiceDescriptorProto) -> None:
        service.name = self._next()
        self._expect("{")
        while self._peek() != "}":
            self._expect("rpc")
            method = service.method.add(name=self._next())
            method.input_type, method.client_streaming = self._streamed()
            self._expect("returns")
            method.output_type, method.server_streaming = self._streamed()
            self._expect(";")
        self._expect("}")

    def _streamed(self) -> tuple[str, bool]:
        self._expect("(")
        streams = self._peek() == "stream"
        if streams:
            self._next()
        kind = self._next()
        self._expect(")")
        return kind, streams


def _set_type(field: FieldDescriptorProto, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type_name = kind


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _messages(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    """Every message with its full name, nested ones included."""
    waiting = [(f"{file.package}.{message.name}", message) for message in file.message_type]
    while waiting:
        scope, message = waiting.pop()
        yield scope, message
        waiting += [(f"{scope}.{nested.name}", nested) for nested in message.nested_type]


def _resolve(file: FileDescriptorProto, known: dict[str, bool]) -> None:
    """Replace names of types by full names, from the innermost scope outwards."""
    known |= types_of(file)

    def full_name(scope: str, name: str) -> str:
        while True:
            candidate = f"{scope}.{name}" if scope else name
            if candidate in known:
                return candidate
            if not scope:
                raise ProtoSyntaxError(f"{file.name}: there is no type {name}")
            scope = scope.rpartition(".")[0]

    for scope, message in _messages(file):
        for field in message.field:
            if field.type_name:
                found = full_name(scope, field.type_name)
                field.type = _ENUM if known[found] else _MESSAGE
                field.type_name = f".{found}"
    for service in file.service:
        for method in service.method:
            method.input_type = f".{full_name(file.package, method.input_type)}"
            method.output_type = f".{full_name(file.package, method.output_type)}"
