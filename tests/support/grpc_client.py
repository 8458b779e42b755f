"""A plain gRPC client of RocketMQ's 5.x protocol: it sends what a test says, and shows what comes back.

Its messages are those of Apache's own Python client (`rocketmq-python-client`), so that field numbers are not ours.

    async with GrpcClient(address, "me") as client:
        answer = await client.send(message("orders", b"hello"))
"""

from __future__ import annotations

import asyncio
import hmac
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from types import ModuleType
from typing import Any, Self

import grpc
import grpc.aio
from tests.support.patience import PATIENCE_S


def _official(name: str) -> Any:
    """A module of the official client's protocol. The client's own package is not imported: that opens a log file in the
    home folder. An empty package stands in for it meanwhile."""
    if "rocketmq" in sys.modules:
        return import_module(f"rocketmq.grpc_protocol.{name}")
    found = find_spec("rocketmq")
    assert found is not None, "rocketmq-python-client is missing: run `make setup`"
    package = sys.modules["rocketmq"] = ModuleType("rocketmq")
    package.__path__ = list(found.submodule_search_locations or ())
    try:
        return import_module(f"rocketmq.grpc_protocol.{name}")
    finally:
        del sys.modules["rocketmq"]  # other tests import the real one


defs = _official("definition_pb2")
calls = _official("service_pb2")
_stubs = _official("service_pb2_grpc")

LIMIT_BYTES = 200 << 20
_numbers = count(1)
_sequence = count(int(time.time() * 1000) << 20)


@dataclass(frozen=True)
class Account:
    name: str
    secret: str


def authorization(account: Account, date: str, *, upper: bool = True, suffix: str = "", algorithm: str = "") -> str:
    """The header that signs the date, as Java's and Node's clients write it; the other two differ in case and name."""
    digest = hmac.digest(account.secret.encode(), date.encode(), "sha1").hex()
    signature = digest.upper() if upper else digest
    name = algorithm or "MQv2-HMAC-SHA1"
    return f"{name} Credential={account.name}{suffix}, SignedHeaders=x-mq-date-time, Signature={signature}"


def new_id() -> str:
    """A message id as clients make them: 34 hex digits."""
    return f"01{next(_sequence):032X}"


def message(topic: str, body: bytes = b"hello", **system: Any) -> Any:
    """A message to send. `system` are fields of SystemProperties; besides, `properties` are the user's, `deliver_in_s` sets
    the delivery timestamp, and the type follows from the fields unless it is given."""
    properties: Mapping[str, str] = system.pop("properties", {})
    deliver_in_s: float | None = system.pop("deliver_in_s", None)
    system.setdefault("message_id", new_id())
    system.setdefault("born_host", "127.0.0.1")
    system.setdefault("body_encoding", defs.Encoding.IDENTITY)
    kind = "NORMAL"
    if "message_group" in system:
        kind = "FIFO"
    if deliver_in_s is not None:
        kind = "DELAY"
    system.setdefault("message_type", defs.MessageType.Value(kind))
    found = defs.Message(topic=defs.Resource(name=topic), body=body, user_properties=properties)
    found.system_properties.MergeFrom(defs.SystemProperties(**system))
    found.system_properties.born_timestamp.FromMilliseconds(round(time.time() * 1000))
    if deliver_in_s is not None:
        found.system_properties.delivery_timestamp.FromMilliseconds(round((time.time() + deliver_in_s) * 1000))
    return found


@dataclass
class Received:
    """The frames of one ReceiveMessage."""

    status: Any = None
    messages: list[Any] = field(default_factory=list)
    delivery_timestamp: Any = None
    kinds: list[str] = field(default_factory=list)
    """The kind of each frame, in order."""
    waited_s: float = 0.0

    @property
    def code(self) -> int:
        return int(self.status.code)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


class Telemetry:
    """An open stream of telemetry."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def write(self, command: Any) -> None:
        await self._call.write(command)

    async def read(self) -> Any:
        """The next command of the server; None at the end."""
        command = await asyncio.wait_for(self._call.read(), PATIENCE_S)
        return None if command is grpc.aio.EOF else command

    async def tell(self, settings: Any) -> Any:
        """Send settings; the answer."""
        await self.write(calls.TelemetryCommand(settings=settings))
        return await self.read()

    async def code(self) -> grpc.StatusCode:
        """How the stream ended."""
        return await asyncio.wait_for(self._call.code(), PATIENCE_S)

    async def ended(self) -> grpc.StatusCode:
        """Nothing more comes: how it ends."""
        with suppress(grpc.aio.AioRpcError):
            command = await self.read()
            assert command is None, command
        return await self.code()

    def cancel(self) -> None:
        self._call.cancel()


class GrpcClient:
    """One client id on one connection; an async context manager.

    `headers` replace or, with None, remove metadata of every call."""

    def __init__(
        self,
        address: str,
        client_id: str | None = None,
        *,
        account: Account | None = None,
        headers: Mapping[str, str | None] | None = None,
        credentials: Any = None,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self.client_id = client_id or f"test@{next(_numbers)}@{time.time_ns()}"
        self.endpoints = endpoints(address)
        self._account = account
        self._headers = dict(headers or {})
        sizes = [("grpc.max_receive_message_length", LIMIT_BYTES), ("grpc.max_send_message_length", LIMIT_BYTES)]
        # Channels of one process share connections by default, and then one client's death is another's.
        sizes += [("grpc.use_local_subchannel_pool", 1), *options]
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, options=sizes)
        else:
            self._channel = grpc.aio.secure_channel(address, credentials, options=sizes)
        self.stub = _stubs.MessagingServiceStub(self._channel)
        self._telemetry: Telemetry | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def kill(self) -> None:
        """End the connection without a word, as a client that dies."""
        await self._channel.close()

    def metadata(self) -> list[tuple[str, str]]:
        date = time.strftime("%Y%m%dT%H%M%SZ")
        values: dict[str, str | None] = {
            "x-mq-client-id": self.client_id,
            "x-mq-language": "PYTHON",
            "x-mq-protocol": "GRPC_V2",
            "x-mq-client-version": "5.1.2",
            "x-mq-request-id": new_id(),
            "x-mq-date-time": date,
            "x-mq-namespace": "",
        }
        if self._account is not None:
            values["authorization"] = authorization(self._account, date)
        values.update(self._headers)
        return [(name, value) for name, value in values.items() if value is not None]

    async def call(self, method: str, request: Any, timeout_s: float = PATIENCE_S) -> Any:
        """One unary call; its answer."""
        return await getattr(self.stub, method)(request, metadata=self.metadata(), timeout=timeout_s)

    async def route(self, topic: str) -> Any:
        return await self.call("QueryRoute", calls.QueryRouteRequest(topic=resource(topic), endpoints=self.endpoints))

    async def assignment(self, topic: str, group: str) -> Any:
        request = calls.QueryAssignmentRequest(topic=resource(topic), group=resource(group), endpoints=self.endpoints)
        return await self.call("QueryAssignment", request)

    async def heartbeat(self, group: str | None = None, kind: str = "PRODUCER") -> Any:
        request = calls.HeartbeatRequest(client_type=defs.ClientType.Value(kind))
        if group is not None:
            request.group.name = group
        return await self.call("Heartbeat", request)

    async def terminate(self, group: str | None = None) -> Any:
        request = calls.NotifyClientTerminationRequest()
        if group is not None:
            request.group.name = group
        return await self.call("NotifyClientTermination", request)

    async def send(self, *messages: Any) -> Any:
        return await self.call("SendMessage", calls.SendMessageRequest(messages=messages))

    async def send_all(self, messages: Iterable[Any]) -> list[Any]:
        """Send each in a call of its own, one after the other; the entry of each."""
        entries = []
        for item in messages:
            answer = await self.send(item)
            assert answer.status.code == defs.Code.OK, answer
            entries.append(answer.entries[0])
        return entries

    async def receive(
        self,
        group: str,
        topic: str,
        *,
        batch: int = 32,
        invisible_s: float | None = 30,
        poll_s: float | None = 5,
        expression: str = "*",
        sql: bool = False,
        auto_renew: bool = False,
        attempt_id: str | None = None,
        broker: str = "broker-a",
        deadline_s: float = PATIENCE_S,
    ) -> Received:
        request = calls.ReceiveMessageRequest(group=resource(group), batch_size=batch, auto_renew=auto_renew)
        request.message_queue.topic.name = topic
        request.message_queue.broker.name = broker
        request.filter_expression.expression = expression
        request.filter_expression.type = defs.FilterType.SQL if sql else defs.FilterType.TAG
        if invisible_s is not None:
            request.invisible_duration.FromMilliseconds(round(invisible_s * 1000))
        if poll_s is not None:
            request.long_polling_timeout.FromMilliseconds(round(poll_s * 1000))
        if attempt_id is not None:
            request.attempt_id = attempt_id
        received, began = Received(), time.monotonic()
        async for frame in self.stub.ReceiveMessage(request, metadata=self.metadata(), timeout=deadline_s):
            kind = frame.WhichOneof("content")
            received.kinds.append(kind)
            if kind == "message":
                received.messages.append(frame.message)
            else:
                setattr(received, kind, getattr(frame, kind))
        received.waited_s = time.monotonic() - began
        return received

    async def receive_until(self, group: str, topic: str, wanted: int, **more: Any) -> list[Any]:
        """Receive again and again until there are so many messages."""
        found: list[Any] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < wanted:
                found += (await self.receive(group, topic, **more)).messages
        return found

    async def ack(self, group: str, topic: str, *messages: Any) -> Any:
        """Acknowledge messages, or pairs of an id and a receipt handle."""
        pairs = [item if isinstance(item, tuple) else handle_of(item) for item in messages]
        entries = [calls.AckMessageEntry(message_id=name, receipt_handle=handle) for name, handle in pairs]
        return await self.call(
            "AckMessage", calls.AckMessageRequest(group=resource(group), topic=resource(topic), entries=entries)
        )

    async def change(self, group: str, topic: str, item: Any, invisible_s: float) -> Any:
        name, handle = item if isinstance(item, tuple) else handle_of(item)
        request = calls.ChangeInvisibleDurationRequest(
            group=resource(group), topic=resource(topic), message_id=name, receipt_handle=handle
        )
        request.invisible_duration.FromMilliseconds(round(invisible_s * 1000))
        return await self.call("ChangeInvisibleDuration", request)

    async def dead_letter(self, group: str, topic: str, item: Any) -> Any:
        name, handle = item if isinstance(item, tuple) else handle_of(item)
        request = calls.ForwardMessageToDeadLetterQueueRequest(
            group=resource(group), topic=resource(topic), message_id=name, receipt_handle=handle
        )
        request.delivery_attempt, request.max_delivery_attempts = 1, 1
        return await self.call("ForwardMessageToDeadLetterQueue", request)

    async def end_transaction(
        self, topic: str, message_id: str, transaction_id: str, resolution: str, source: str = "SOURCE_CLIENT"
    ) -> Any:
        request = calls.EndTransactionRequest(
            topic=resource(topic),
            message_id=message_id,
            transaction_id=transaction_id,
            resolution=defs.TransactionResolution.Value(resolution),
            source=defs.TransactionSource.Value(source),
        )
        return await self.call("EndTransaction", request)

    async def recall(self, topic: str, handle: str) -> Any:
        return await self.call("RecallMessage", calls.RecallMessageRequest(topic=resource(topic), recall_handle=handle))

    def telemetry(self) -> Telemetry:
        return Telemetry(self.stub.Telemetry(metadata=self.metadata()))

    async def introduce(self, settings: Any) -> Any:
        """Open the stream that a client keeps open, and tell settings; the answer."""
        self._telemetry = self.telemetry()
        return await self._telemetry.tell(settings)

    @property
    def stream(self) -> Telemetry:
        """The stream of `introduce`."""
        assert self._telemetry is not None, "introduce() opens it"
        return self._telemetry


def endpoints(address: str) -> Any:
    host, _, port = address.rpartition(":")
    return defs.Endpoints(scheme=defs.AddressScheme.IPv4, addresses=[defs.Address(host=host, port=int(port))])


ACCESS_POINT = endpoints("127.0.0.1:8081")
"""What settings name; servers do not use it."""


def resource(name: str) -> Any:
    return defs.Resource(name=name)


def handle_of(item: Any) -> tuple[str, str]:
    """Id and receipt handle of a received message."""
    return item.system_properties.message_id, item.system_properties.receipt_handle


def producer_settings(*topics: str) -> Any:
    settings = defs.Settings(client_type=defs.ClientType.PRODUCER)
    settings.access_point.CopyFrom(ACCESS_POINT)
    settings.request_timeout.FromSeconds(3)
    settings.publishing.topics.extend(resource(topic) for topic in topics)
    settings.publishing.max_body_size = 128 << 20
    settings.publishing.validate_message_type = True
    _set_agent(settings)
    return settings


def consumer_settings(group: str, *topics: str, kind: str = "SIMPLE_CONSUMER") -> Any:
    settings = defs.Settings(client_type=defs.ClientType.Value(kind))
    settings.access_point.CopyFrom(ACCESS_POINT)
    settings.request_timeout.FromSeconds(3)
    settings.subscription.group.name = group
    for topic in topics:
        entry = settings.subscription.subscriptions.add()
        entry.topic.name = topic
        entry.expression.type = defs.FilterType.TAG
        entry.expression.expression = "*"
    settings.subscription.long_polling_timeout.FromSeconds(5)
    _set_agent(settings)
    return settings


def _set_agent(settings: Any) -> None:
    settings.user_agent.language = defs.Language.PYTHON
    settings.user_agent.version = "5.1.2"
    settings.user_agent.platform = "test"
    settings.user_agent.hostname = "localhost"
