"""Subscribers: each is a push consumer, whose handler is FastStream's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faststream._internal.configs import BrokerConfig, SubscriberSpecificationConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import process_msg
from faststream.message import StreamMessage
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, SubscriberSpec

from rocketline.adapters.faststream.message import Received, decode, decode_batch, parse, parse_batch
from rocketline.adapters.faststream.publishing import ReplyPublisher
from rocketline.client import ConsumeFrom, PopConsumer, PushConsumer, Sql
from rocketline.client.consumer.push.handlers import NotDone
from rocketline.message import MessageView

if TYPE_CHECKING:
    from rocketline.adapters.faststream.broker import RocketBrokerConfig


@dataclass(frozen=True)
class Wanted:
    """What a subscriber reads."""

    topic: str
    group: str
    tag: str | Sql = "*"
    from_where: ConsumeFrom = ConsumeFrom.LAST
    max_workers: int = 1
    max_reconsume_times: int = -1
    ordered: bool = False
    batch: bool = False
    most: int = 1
    """Messages that the function gets at a time."""


@dataclass(kw_only=True)
class WantedSpecificationConfig(SubscriberSpecificationConfig):
    """What the schema says of a subscriber."""

    topic: str


@dataclass(kw_only=True)
class RocketSubscriberConfig(SubscriberUsecaseConfig):
    """What a subscriber is made of."""

    wanted: Wanted

    @property
    def ack_policy(self) -> AckPolicy:
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


class RocketSubscriberSpecification(SubscriberSpecification[BrokerConfig, WantedSpecificationConfig]):
    """A subscriber in the AsyncAPI schema."""

    @property
    def _topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def channel_labels(self) -> list[str]:
        return [self._topic]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        payload = resolve_payloads(self.get_payloads())
        operation = Operation(MessageSpec(title=f"{self.name}:Message", payload=payload), bindings=None)
        return {self.name: SubscriberSpec(self.description, operation, bindings=None, address=self._topic)}


class RocketSubscriber(SubscriberUsecase[Received]):
    """Reads one topic for one group."""

    _outer_config: RocketBrokerConfig

    def __init__(
        self,
        config: RocketSubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Received],
    ) -> None:
        batch = config.wanted.batch
        config.parser, config.decoder = (parse_batch, decode_batch) if batch else (parse, decode)
        super().__init__(config, specification, calls)
        self.wanted = config.wanted
        self._consumer: PushConsumer | None = None
        self._popping: PopConsumer | None = None
        self._handling: set[asyncio.Task[Any] | None] = set()
        self._closing: asyncio.Task[None] | None = None

    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.wanted.topic}"

    async def start(self) -> None:
        await super().start()
        self._post_start()
        if not self.calls:
            return
        wanted, config = self.wanted, self._outer_config
        consumer = PushConsumer(
            config.name_servers,
            group=wanted.group,
            from_where=wanted.from_where,
            concurrency=wanted.max_workers,
            batch_size=wanted.most,
            ordered=wanted.ordered,
            max_reconsume_times=wanted.max_reconsume_times,
            options=config.options,
        )
        await consumer.__aenter__()
        try:
            consumer.subscribe(self.topic, wanted.tag, self._handle)
            await consumer.start()
        except BaseException:
            await consumer.close()
            raise
        self._consumer = consumer

    async def stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        popping, self._popping = self._popping, None
        if consumer is not None and asyncio.current_task() in self._handling:
            # A handler stops its own subscriber: closing waits for handlers, so that must not be waited for here.
            self._closing = asyncio.create_task(consumer.close())
        elif consumer is not None:
            await consumer.close()
        elif self._closing is not None:
            await self._closing
        if popping is not None:
            await popping.close()
        await super().stop()

    async def _handle(self, given: MessageView | list[MessageView]) -> None:
        task = asyncio.current_task()
        received = Received([given] if isinstance(given, MessageView) else given)
        self._handling.add(task)
        try:
            await self.consume(received)
        finally:
            self._handling.discard(task)
        if received.outcome is None and not self.running:
            raise NotDone  # it came too late: somebody else gets it
        received.settle(ordered=self.wanted.ordered)

    def _make_response_publisher(self, message: StreamMessage[Received]) -> Sequence[ReplyPublisher]:
        if self.wanted.batch:
            return ()  # one result for several messages is no reply to any of them
        return (ReplyPublisher(self._outer_config.producer, message.raw_message.view),)

    async def get_one(self, *, timeout: float = 5.0) -> StreamMessage[Received] | None:
        """The next message, or None; it counts as consumed. A subscriber of lists gives a list of one."""
        consumer = await self._popped()
        messages = await consumer.receive(1, wait=timeout)
        if not messages:
            return None
        await consumer.ack(messages[0])
        return await self._processed(messages[0])

    async def __aiter__(self) -> AsyncIterator[StreamMessage[Received]]:
        """Message after message; one is consumed when the next is asked for."""
        async for view in await self._popped():
            yield await self._processed(view)

    async def _popped(self) -> PopConsumer:
        assert not self.calls, "a subscriber with handlers cannot be read by hand"
        if self._popping is None:
            wanted, config = self.wanted, self._outer_config
            consumer = PopConsumer(
                config.name_servers, group=wanted.group, from_where=wanted.from_where, options=config.options
            )
            self._popping = await consumer.__aenter__()
            await consumer.subscribe(self.topic, wanted.tag)
        return self._popping

    async def _processed(self, view: MessageView) -> StreamMessage[Received]:
        received, context = Received([view]), self._outer_config.context
        parser, decoder = self._get_parser_and_decoder()
        message = await process_msg(
            msg=received,
            middlewares=(make(received, context=context) for make in self._broker_middlewares),
            parser=parser,
            decoder=decoder,
        )
        assert message is not None
        return message

    def get_log_context(self, message: StreamMessage[Received] | None) -> dict[str, str]:
        return {"topic": self.topic, "group": self.wanted.group, **super().get_log_context(message)}
