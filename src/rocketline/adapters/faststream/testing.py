"""Tests of FastStream programs without a cluster; `rocketline.testing.LocalCluster` is there for tests with one."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import anyio
from faststream._internal.parser import DefaultCodec
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound
from faststream.response.publish_type import PublishType

from rocketline.adapters.faststream.broker import RocketBroker
from rocketline.adapters.faststream.message import Received
from rocketline.adapters.faststream.publishing import Encoder, RocketPublishCommand, RocketPublisher
from rocketline.adapters.faststream.subscribing import RocketSubscriber
from rocketline.client import Sql
from rocketline.filtering import TagFilter, sql_filter
from rocketline.message import KEYS, SHARDING_KEY, TAGS, LogOffset, Message, MessageView, QueueOffset


class TestRocketBroker(TestBroker[RocketBroker, EnterType], broker=RocketBroker):
    """Gives published messages to the subscribers of a broker at once, in this process.

        async with TestRocketBroker(broker) as broker:
            await broker.publish({"id": 1}, "orders")
            bill.mock.assert_called_once_with({"id": 1})

    A group gets a message once, and an expression selects as on a broker. What a handler raises reaches the test; nothing is
    delivered again.
    """

    def create_publisher_fake_subscriber(
        self, broker: RocketBroker, publisher: RocketPublisher
    ) -> tuple[RocketSubscriber, bool]:
        for subscriber in _subscribers(self.brokers):
            if subscriber.topic == publisher.topic:
                return subscriber, True
        return broker.subscriber(publisher.topic, group="test", persistent=False), False

    @contextmanager
    def _patch_producer(self, broker: RocketBroker) -> Generator[None, None, None]:
        with change_producer(broker.config.broker_config, TestProducer(broker, self.brokers)):
            yield

    async def _fake_connect(self, broker: RocketBroker, *args: Any, **kwargs: Any) -> None:
        """There is nothing to connect to."""


class TestProducer(Encoder):
    """Calls subscribers instead of sending."""

    __test__ = False

    def __init__(self, broker: RocketBroker, brokers: Sequence[RocketBroker]) -> None:
        config = broker.config.broker_config
        super().__init__(config.broker_parser, config.broker_decoder)
        self.serializer = config.fd_config._serializer
        self.codec = config.broker_codec or DefaultCodec()
        self._brokers = brokers

    async def publish(self, cmd: RocketPublishCommand) -> None:
        if cmd.publish_type is not PublishType.REPLY:
            await self._deliver([await self.message(cmd, cmd.body)])

    async def publish_batch(self, cmd: RocketPublishCommand) -> None:
        await self._deliver([await self.message(cmd, body) for body in cmd.batch_bodies])

    async def request(self, cmd: RocketPublishCommand) -> Received:
        message = await self.message(cmd, cmd.body)
        for subscriber, _ in self._readers([message]):
            if subscriber.wanted.batch:
                continue  # lists are not replied to
            with anyio.fail_after(cmd.timeout):
                result = await subscriber.process_message(Received([_view(message)]))
            reply = RocketPublishCommand.from_cmd(result.as_publish_command())
            reply.destination = cmd.destination
            return Received([_view(await self.message(reply, reply.body))])
        raise SubscriberNotFound

    async def _deliver(self, messages: list[Message]) -> None:
        for subscriber, taken in self._readers(messages):
            most = subscriber.wanted.most
            for start in range(0, len(taken), most):
                views = [_view(message) for message in taken[start : start + most]]
                await subscriber.process_message(Received(views))

    def _readers(self, messages: list[Message]) -> Iterator[tuple[RocketSubscriber, list[Message]]]:
        """The subscribers that want some of these messages, and which; a group gets each message once."""
        left: dict[str, list[Message]] = {}
        for subscriber in _subscribers(self._brokers):
            wanted = subscriber.wanted
            found = left.get(wanted.group, messages)
            fit = [subscriber.topic == message.topic and _fits(message, wanted.tag) for message in found]
            left[wanted.group] = [message for message, fits in zip(found, fit) if not fits]
            if any(fit):
                yield subscriber, [message for message, fits in zip(found, fit) if fits]


def _subscribers(brokers: Sequence[RocketBroker]) -> list[RocketSubscriber]:
    return [cast(RocketSubscriber, subscriber) for broker in brokers for subscriber in broker.subscribers]


def _fits(message: Message, expression: str | Sql) -> bool:
    if isinstance(expression, Sql):
        return sql_filter(expression.text).matches(_properties(message))
    accepts = TagFilter(expression).accept_text
    return accepts is None or accepts(message.tag)


def _properties(message: Message) -> dict[str, str]:
    ours = {TAGS: message.tag, KEYS: " ".join(message.keys) or None, SHARDING_KEY: message.sharding_key}
    return {**message.properties, **{name: value for name, value in ours.items() if value is not None}}


def _view(message: Message) -> MessageView:
    return MessageView(
        topic=message.topic,
        body=message.body,
        properties=_properties(message),
        queue_id=0,
        queue_offset=QueueOffset(0),
        log_offset=LogOffset(0),
        born_ms=0,
        born_host="127.0.0.1:0",
        store_ms=0,
        store_host="127.0.0.1:0",
    )
