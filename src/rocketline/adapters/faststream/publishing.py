"""Publishing: commands, the producer that carries them out, and publishers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from faststream._internal.configs import BrokerConfig, PublisherSpecificationConfig, PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import IncorrectState
from faststream.response import PublishCommand, Response
from faststream.response.publish_type import PublishType
from faststream.response.response import BatchPublishCommand
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, PublisherSpec

from rocketline.adapters.faststream.message import CONTENT_TYPE, CORRELATION_ID, Received, decode, parse
from rocketline.client import Producer, SendReceipt, split_batch
from rocketline.errors import SendFailed
from rocketline.message import Message, MessageView

if TYPE_CHECKING:
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.types import AsyncCallable, CustomCallable, PublisherMiddleware


log = logging.getLogger(__name__)

REQUEST_S = 3.0
NOTHING = b"null"
"""The body of None, as JSON: RocketMQ takes no empty message."""


@dataclass(frozen=True)
class SendAs:
    """What RocketMQ knows of a message besides its body and headers."""

    tag: str | None = None
    keys: Sequence[str] = ()
    sharding_key: str | None = None
    delay_level: int = 0
    delay: timedelta | None = None
    deliver_at: datetime | None = None

    @property
    def is_timed(self) -> bool:
        return bool(self.delay_level or self.delay or self.deliver_at)

    def over(self, other: SendAs) -> SendAs:
        """This one, with what it leaves open from another; when a message comes is one choice of three fields."""
        timed = self if self.is_timed else other
        return SendAs(
            self.tag if self.tag is not None else other.tag,
            self.keys or other.keys,
            self.sharding_key if self.sharding_key is not None else other.sharding_key,
            timed.delay_level,
            timed.delay,
            timed.deliver_at,
        )


class RocketPublishCommand(BatchPublishCommand):
    """What to publish, and how."""

    def __init__(
        self,
        body: Any,
        *bodies: Any,
        _publish_type: PublishType,
        topic: str = "",
        send_as: SendAs = SendAs(),
        timeout: float = REQUEST_S,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
    ) -> None:
        super().__init__(
            body,
            *bodies,
            _publish_type=_publish_type,
            destination=topic,
            headers=headers,
            correlation_id=correlation_id,
        )
        self.send_as = send_as
        self.timeout = timeout
        self.request: MessageView | None = None
        """The request that this replies to."""

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> RocketPublishCommand:
        if isinstance(cmd, RocketPublishCommand):
            return cmd
        body, extra = cls._parse_bodies(cmd.body, batch=batch)
        return cls(
            body,
            *extra,
            _publish_type=cmd.publish_type,
            topic=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
        )


class RocketResponse(Response):
    """What a handler returns to say more than the body of the message to publish; what it leaves open is the publisher's."""

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        tag: str | None = None,
        keys: Sequence[str] = (),
        sharding_key: str | None = None,
        delay_level: int = 0,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.send_as = SendAs(tag, keys, sharding_key, delay_level, delay, deliver_at)

    def as_publish_command(self) -> RocketPublishCommand:
        return RocketPublishCommand(
            self.body,
            _publish_type=PublishType.PUBLISH,
            send_as=self.send_as,
            headers=self.headers,
            correlation_id=self.correlation_id,
        )


class Encoder:
    """Makes messages of commands."""

    def __init__(self, parser: CustomCallable | None, decoder: CustomCallable | None) -> None:
        self._parser: AsyncCallable = ParserComposition(parser, parse)
        self._decoder: AsyncCallable = ParserComposition(decoder, decode)
        self.codec: CodecProto = DefaultCodec()
        self.serializer: SerializerProto | None = None

    async def message(self, cmd: RocketPublishCommand, body: Any) -> Message:
        payload, content_type = await self.codec.encode(body, self.serializer)
        if body is None:
            payload, content_type = payload or NOTHING, content_type or "application/json"
        properties = {str(name): str(value) for name, value in cmd.headers.items()}
        for name, value in ((CONTENT_TYPE, content_type), (CORRELATION_ID, cmd.correlation_id)):
            if value:
                properties.setdefault(name, value)
        how = cmd.send_as
        return Message(
            cmd.destination,
            payload,
            tag=how.tag,
            keys=how.keys,
            sharding_key=how.sharding_key,
            delay_level=how.delay_level,
            delay=how.delay,
            deliver_at=how.deliver_at,
            properties=properties,
        )


class RocketProducer(Encoder, ProducerProto[RocketPublishCommand]):
    """Carries commands out with one producer of rocketline."""

    def __init__(self, parser: CustomCallable | None = None, decoder: CustomCallable | None = None) -> None:
        super().__init__(parser, decoder)
        self._client: Producer | None = None

    def connect(self, client: Producer, serializer: SerializerProto | None, codec: CodecProto | None) -> None:
        self._client, self.serializer, self.codec = client, serializer, codec or DefaultCodec()

    def disconnect(self) -> None:
        self._client = None

    @property
    def _connected(self) -> Producer:
        if self._client is None:
            raise IncorrectState("the broker is not connected: call connect() or start() first")
        return self._client

    async def publish(self, cmd: RocketPublishCommand) -> SendReceipt | None:
        message = await self.message(cmd, cmd.body)
        if cmd.request is None:
            return await self._connected.send(message)
        try:
            return await self._connected.reply(cmd.request, message.body, properties=message.properties)
        except SendFailed as error:
            # The handler has done its work: it must not run again because nobody waits any more.
            log.warning("the reply to message %s was not delivered: %s", cmd.request.message_id, error)
            return None

    async def publish_batch(self, cmd: RocketPublishCommand) -> list[SendReceipt]:
        client, receipts = self._connected, list[SendReceipt]()
        for part in split_batch([await self.message(cmd, body) for body in cmd.batch_bodies]):
            receipts += await client.send_batch(part)
        return receipts

    async def request(self, cmd: RocketPublishCommand) -> Received:
        return Received([await self._connected.request(await self.message(cmd, cmd.body), timeout=cmd.timeout)])


class ReplyPublisher(FakePublisher):
    """Sends what a handler returned to the one who asked."""

    def __init__(self, producer: ProducerProto[Any], request: MessageView) -> None:
        super().__init__(producer=producer)
        self._request = request

    def patch_command(self, cmd: PublishCommand) -> RocketPublishCommand:
        reply = RocketPublishCommand.from_cmd(super().patch_command(cmd))
        reply.request = self._request
        return reply


@dataclass(kw_only=True)
class TopicSpecificationConfig(PublisherSpecificationConfig):
    """What the schema says of a publisher."""

    topic: str


@dataclass(kw_only=True)
class RocketPublisherConfig(PublisherUsecaseConfig):
    """What a publisher is made of."""

    topic: str
    send_as: SendAs
    headers: Mapping[str, Any]
    batch: bool = False
    """What a function returns is a list, each item of it a message."""


class RocketPublisherSpecification(PublisherSpecification[BrokerConfig, TopicSpecificationConfig]):
    """A publisher in the AsyncAPI schema."""

    @property
    def name(self) -> str:
        return self.config.title_ or f"{self._topic}:Publisher"

    @property
    def _topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    def get_schema(self) -> dict[str, PublisherSpec]:
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        operation = Operation(MessageSpec(title=f"{self.name}:Message", payload=payload), bindings=None)
        return {self.name: PublisherSpec(self.config.description_, operation, bindings=None, address=self._topic)}


class RocketPublisher(PublisherUsecase):
    """Publishes to one topic."""

    def __init__(self, config: RocketPublisherConfig, specification: PublisherSpecification[Any, Any]) -> None:
        super().__init__(config, specification)
        self._topic = config.topic
        self._send_as = config.send_as
        self._headers = dict(config.headers)
        self._batch = config.batch

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self._topic}"

    def _command(
        self, messages: Iterable[Any], kind: PublishType, headers: Mapping[str, Any] | None, id_: str | None
    ) -> Any:
        return RocketPublishCommand(
            *messages,
            _publish_type=kind,
            topic=self.topic,
            send_as=self._send_as,
            headers={**self._headers, **(headers or {})},
            correlation_id=id_ or self._outer_config.id_generator(),
        )

    async def publish(
        self, message: Any, *, headers: Mapping[str, Any] | None = None, correlation_id: str | None = None
    ) -> SendReceipt:
        command = self._command((message,), PublishType.PUBLISH, headers, correlation_id)
        receipt: SendReceipt = await self._basic_publish(
            command, producer=self._outer_config.producer, _extra_middlewares=()
        )
        return receipt

    async def publish_batch(
        self, *messages: Any, headers: Mapping[str, Any] | None = None, correlation_id: str | None = None
    ) -> list[SendReceipt]:
        """Publish messages in as few requests as have room for them."""
        command = self._command(messages, PublishType.PUBLISH, headers, correlation_id)
        receipts: list[SendReceipt] = await self._basic_publish_batch(
            command, producer=self._outer_config.producer, _extra_middlewares=()
        )
        return receipts

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[PublisherMiddleware]) -> None:
        """Publish what a handler returned."""
        command = RocketPublishCommand.from_cmd(cmd)
        command.destination = command.destination or self.topic
        command.add_headers(self._headers, override=False)
        command.send_as = command.send_as.over(self._send_as)
        publish = self._basic_publish
        if self._batch:
            publish, command.batch_bodies = self._basic_publish_batch, _items(command.body)
        await publish(command, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares)

    async def request(
        self,
        message: Any,
        *,
        headers: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        timeout: float = REQUEST_S,
    ) -> Any:
        command = self._command((message,), PublishType.REQUEST, headers, correlation_id)
        command.timeout = timeout
        return await self._basic_request(command, producer=self._outer_config.producer)


def _items(returned: Any) -> Sequence[Any]:
    """What a function returned, as a list: one of its own, or of one thing, or of nothing."""
    if isinstance(returned, list | tuple):
        return returned
    return () if returned is None else (returned,)
