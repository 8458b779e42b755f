"""Message classes and methods of our `.proto` files, in a descriptor pool of their own.

The pool is private, so that another program's copies of the same definitions, as those of RocketMQ's Python client, can be
loaded in the same process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Any, NamedTuple

from rocketline.errors import ConfigError

try:
    from google.protobuf import descriptor_pool, duration_pb2, message_factory, timestamp_pb2
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    from rocketline.grpc.proto_text import parse_proto, types_of
except ImportError as error:
    raise ConfigError(
        "gRPC needs the package protobuf, which the extra `grpc` brings: pip install 'rocketline[grpc]'"
    ) from error

MessageClass = Any
"""A class made by protobuf at run time."""


class Method(NamedTuple):
    """A method of a service."""

    path: str
    request: MessageClass
    response: MessageClass
    streams_requests: bool
    streams_responses: bool


class Schema:
    """Everything that was loaded."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        self._known: dict[str, bool] = {}
        self.files: dict[str, FileDescriptorProto] = {}
        for module in (duration_pb2, timestamp_pb2):
            file = FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(file)
            self._add(file)

    def load(self, name: str, text: str) -> None:
        """Add a file; those that it imports come before it."""
        self._add(parse_proto(name, text, self._known))

    def _add(self, file: FileDescriptorProto) -> None:
        self._pool.Add(file)
        self._known |= types_of(file)
        self.files[file.name] = file

    def message(self, name: str) -> MessageClass:
        """The class of a message by its full name."""
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))

    def messages(self, package: str) -> dict[str, MessageClass]:
        """The classes of all messages of a package that are not inside others, by name."""
        return {
            message.name: self.message(f"{package}.{message.name}")
            for file in self.files.values()
            if file.package == package
            for message in file.message_type
        }

    def enum(self, name: str) -> dict[str, int]:
        """The values of an enum by its full name."""
        return {value.name: value.number for value in self._pool.FindEnumTypeByName(name).values}

    def services(self) -> Iterator[str]:
        """Full names of all services."""
        for file in self.files.values():
            for service in file.service:
                yield f"{file.package}.{service.name}"

    def methods(self, service: str) -> dict[str, Method]:
        """The methods of a service by name."""
        found = self._pool.FindServiceByName(service)
        return {
            method.name: Method(
                f"/{service}/{method.name}",
                message_factory.GetMessageClass(method.input_type),
                message_factory.GetMessageClass(method.output_type),
                method.client_streaming,
                method.server_streaming,
            )
            for method in found.methods
        }

    def file_containing(self, symbol: str) -> FileDescriptorProto | None:
        """The file that defines a type, a service or a method of one."""
        for file in self.files.values():
            services = [f"{file.package}.{service.name}" for service in file.service]
            methods = [
                f"{name}.{method.name}" for name, service in zip(services, file.service) for method in service.method
            ]
            if symbol in types_of(file) or symbol in services or symbol in methods:
                return file
        return None

    def with_imports(self, names: Iterable[str]) -> list[FileDescriptorProto]:
        """Files with all that they import, each once."""
        found: dict[str, FileDescriptorProto] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop(0)
            if name not in found:
                found[name] = self.files[name]
                waiting += found[name].dependency
        return list(found.values())


def proto_file(package: str, name: str) -> str:
    """The text of a `.proto` file that lies in a package of ours."""
    return (files(package) / "proto" / name).read_text("utf-8")
