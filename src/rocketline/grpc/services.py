"""Services that every gRPC server has: health (grpc.health.v1) and reflection (v1 and v1alpha)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rocketline.grpc.calls import Call, Message, Served, StreamCall
from rocketline.grpc.schema import Schema, proto_file
from rocketline.grpc.status import CallFailed, Status

HEALTH = "grpc.health.v1.Health"
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


def load_common(schema: Schema) -> None:
    """Add the definitions of these services."""
    schema.load("grpc/health/v1/health.proto", proto_file(__package__, "health.proto"))
    text = proto_file(__package__, "reflection.proto")
    for version in ("v1", "v1alpha"):
        schema.load(
            f"grpc/reflection/{version}/reflection.proto", text.replace("reflection.v1;", f"reflection.{version};")
        )


def common_services(schema: Schema, is_serving: Callable[[], bool]) -> dict[bytes, Served]:
    """The methods of these services by path."""
    health = Health(schema, is_serving)
    methods = schema.methods(HEALTH)
    found = [
        Served(methods["Check"], unary=health.check),
        Served(methods["Watch"], bidirectional=health.watch),
    ]
    for version in ("v1", "v1alpha"):
        method = schema.methods(f"grpc.reflection.{version}.ServerReflection")["ServerReflectionInfo"]
        found.append(Served(method, bidirectional=partial(Reflection, schema, method.response)))
    return {served.method.path.encode(): served for served in found}


class Health:
    """Whether this server serves."""

    def __init__(self, schema: Schema, is_serving: Callable[[], bool]) -> None:
        self._names = frozenset(["", *schema.services()])
        self._is_serving = is_serving
        self._answer = schema.methods(HEALTH)["Check"].response

    async def check(self, call: Call, request: Message) -> Message:
        if request.service not in self._names:
            raise CallFailed(Status.NOT_FOUND, f"there is no service {request.service[:200]!r}")
        return self._status()

    def _status(self) -> Message:
        return self._answer(status=SERVING if self._is_serving() else NOT_SERVING)

    def watch(self, stream: StreamCall) -> Watch:
        return Watch(self, stream)

    def seen(self, service: str) -> Message:
        """What a watcher of a service is told."""
        return self._status() if service in self._names else self._answer(status=SERVICE_UNKNOWN)


class Watch:
    """One who watches: told once, because a server that stops serving closes its connections."""

    def __init__(self, health: Health, stream: StreamCall) -> None:
        self._health = health
        self._stream = stream

    def received(self, message: Message) -> None:
        self._stream.send(self._health.seen(message.service))

    def ended(self) -> None:
        """The client only listens."""

    def lost(self) -> None: ...


class Reflection:
    """Tells tools which methods there are."""

    def __init__(self, schema: Schema, answer: Any, stream: StreamCall) -> None:
        self._schema = schema
        self._answer = answer
        self._stream = stream

    def received(self, message: Message) -> None:
        answer = self._answer(valid_host=message.host)
        answer.original_request.CopyFrom(message)
        kind = message.WhichOneof("message_request")
        if kind == "list_services":
            for name in self._schema.services():
                answer.list_services_response.service.add(name=name)
        elif kind == "file_by_filename":
            self._describe(answer, self._schema.files.get(message.file_by_filename))
        elif kind == "file_containing_symbol":
            self._describe(answer, self._schema.file_containing(message.file_containing_symbol))
        else:
            self._not_found(answer, "there are no extensions")
        self._stream.send(answer)

    def _describe(self, answer: Message, file: Any) -> None:
        if file is None:
            self._not_found(answer, "there is no such file or symbol")
            return
        files = self._schema.with_imports([file.name])
        answer.file_descriptor_response.file_descriptor_proto.extend(item.SerializeToString() for item in files)

    def _not_found(self, answer: Message, text: str) -> None:
        answer.error_response.error_code = Status.NOT_FOUND
        answer.error_response.error_message = text

    def ended(self) -> None:
        self._stream.finish()

    def lost(self) -> None: ...
