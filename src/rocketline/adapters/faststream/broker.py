"""The broker and the router: where subscribers and publishers are declared."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from fast_depends import dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import BrokerRouter
from faststream._internal.configs import BrokerConfig
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.specification.schema import BrokerSpec

from rocketline.adapters.faststream.message import Received, RocketMessage
from rocketline.adapters.faststream.publishing import (
    REQUEST_S,
    RocketProducer,
    RocketPublishCommand,
    RocketPublisher,
    RocketPublisherConfig,
    RocketPublisherSpecification,
    SendAs,
    TopicSpecificationConfig,
)
from rocketline.adapters.faststream.subscribing import (
    RocketSubscriber,
    RocketSubscriberConfig,
    RocketSubscriberSpecification,
    Wanted,
    WantedSpecificationConfig,
)
from rocketline.client import ConsumeFrom, Producer, SendReceipt, Sql
from rocketline.client.options import ClientOptions
from rocketline.errors import ConfigError, RocketlineError, RouteNotFound, TopicNotExist

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.basic_types import LoggerProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable

DEFAULT_TOPIC = "TBW102"
"""The topic whose route every cluster with automatic topics has."""
PING_S = 3.0


@dataclass(kw_only=True)
class RocketBrokerConfig(BrokerConfig):
    """What all subscribers and publishers of a broker share."""

    name_servers: str | Sequence[str] = ""
    options: ClientOptions = ClientOptions()
    producer: RocketProducer = field(default_factory=RocketProducer)


class RocketLogging(DefaultLoggerStorage):
    """The logger of brokers that were given none."""

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """The width of columns does not follow the names."""

    def get_logger(self, *, context: ContextRepo) -> LoggerProto:
        logger = self._get_logger_ref()
        if logger is None:
            logger = get_broker_logger(
                name="rocketmq",
                default_context={"topic": "", "group": ""},
                message_id_ln=10,
                fmt="%(asctime)s %(levelname)-8s - %(topic)s | %(group)s | %(message_id)-10s - %(message)s",
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger


class RocketRegistrator(Registrator[Received, RocketBrokerConfig]):
    """Declares subscribers and publishers."""

    def subscriber(  # type: ignore[override]
        self,
        topic: str,
        *,
        group: str,
        tag: str | Sql = "*",
        from_where: ConsumeFrom = ConsumeFrom.LAST,
        max_workers: int = 1,
        max_reconsume_times: int = -1,
        ordered: bool = False,
        batch: bool = False,
        max_records: int = 10,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Dependant] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> RocketSubscriber:
        """Have a function called with messages of a topic whose tag fits.

        The arguments up to `ordered` are those of PushConsumer, with `tag` for the expression and
        `max_workers` for the concurrency; the others are FastStream's. With `batch` the function gets lists of up to
        `max_records` messages. Two subscribers of one group must read the same.
        """
        config = cast(RocketBrokerConfig, self.config)
        calls: CallsCollection[Received] = CallsCollection()
        described = WantedSpecificationConfig(
            topic=topic, title_=title, description_=description, include_in_schema=include_in_schema
        )
        subscriber = RocketSubscriber(
            RocketSubscriberConfig(
                wanted=Wanted(
                    topic,
                    group,
                    tag,
                    from_where,
                    max_workers,
                    max_reconsume_times,
                    ordered,
                    batch,
                    max_records if batch else 1,
                ),
                no_reply=no_reply,
                _outer_config=config,
                _ack_policy=ack_policy,
            ),
            RocketSubscriberSpecification(config, described, calls),
            calls,
        )
        super().subscriber(subscriber, persistent=persistent)
        return subscriber.add_call(
            parser_=parser or self._parser, decoder_=decoder or self._decoder, dependencies_=dependencies
        )

    def publisher(  # type: ignore[override]
        self,
        topic: str,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        sharding_key: str | None = None,
        delay_level: int = 0,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
        headers: Mapping[str, Any] | None = None,
        batch: bool = False,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        include_in_schema: bool = True,
    ) -> RocketPublisher:
        """Publish what a function returns to a topic; the arguments up to `deliver_at` are those of Message.

        With `batch` it returns a list, each item of which is a message; they travel as those of `publish_batch`.
        """
        send_as = SendAs(tag, keys, sharding_key, delay_level, delay, deliver_at)
        if batch and send_as.is_timed:
            raise ConfigError(f"publisher of {topic}: messages of a list cannot have a delay or a time")
        config = cast(RocketBrokerConfig, self.config)
        described = TopicSpecificationConfig(
            topic=topic,
            title_=title,
            description_=description,
            schema_=schema,
            include_in_schema=include_in_schema,
        )
        publisher = RocketPublisher(
            RocketPublisherConfig(
                topic=topic,
                send_as=send_as,
                headers=headers or {},
                batch=batch,
                _outer_config=config,
            ),
            RocketPublisherSpecification(config, described),
        )
        super().publisher(publisher, persistent=persistent)
        return publisher


class RocketRouter(RocketRegistrator, BrokerRouter[Received, RocketBrokerConfig]):
    """Subscribers and publishers to include into a broker; `prefix` is put before their topics."""

    def __init__(
        self,
        prefix: str = "",
        *,
        dependencies: Sequence[Dependant] = (),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        routers: Iterable[RocketRegistrator] = (),
        ack_policy: AckPolicy = EMPTY,
        include_in_schema: bool | None = None,
    ) -> None:
        config = RocketBrokerConfig(
            prefix=prefix,
            broker_dependencies=dependencies,
            broker_middlewares=middlewares,
            ack_policy=ack_policy,
            include_in_schema=include_in_schema,
        )
        super().__init__(config=config, handlers=(), routers=routers)


class RocketBroker(RocketRegistrator, BrokerUsecase[Received, Producer, RocketBrokerConfig]):
    """RocketMQ for FastStream; see `rocketline.adapters.faststream`."""

    def __init__(
        self,
        name_servers: str | Sequence[str] = "127.0.0.1:9876",
        *,
        group: str = "faststream",
        options: ClientOptions = ClientOptions(),
        middlewares: Sequence[BrokerMiddleware[Any, Any]] = (),
        dependencies: Sequence[Dependant] = (),
        routers: Iterable[RocketRegistrator] = (),
        parser: CustomCallable | None = None,
        decoder: CustomCallable | None = None,
        ack_policy: AckPolicy = EMPTY,
        graceful_timeout: float | None = 15.0,
        logger: LoggerProto | None = EMPTY,
        description: str | None = None,
    ) -> None:
        """`group` is the producer's; `options` are those of all clients."""
        config = RocketBrokerConfig(
            name_servers=name_servers,
            options=options,
            producer=RocketProducer(parser, decoder),
            broker_middlewares=middlewares,
            broker_dependencies=dependencies,
            broker_parser=parser,
            broker_decoder=decoder,
            ack_policy=ack_policy,
            graceful_timeout=graceful_timeout,
            logger=make_logger_state(logger=logger, log_level=logging.INFO, default_storage_cls=RocketLogging),
            fd_config=FastDependsConfig(
                use_fastdepends=True, serializer=EMPTY, provider=dependency_provider, context=ContextRepo()
            ),
            extra_context={"broker": self},
        )
        servers = [name_servers] if isinstance(name_servers, str) else list(name_servers)
        specification = BrokerSpec(
            url=[f"rocketmq://{server}" for server in servers],
            protocol="rocketmq",
            protocol_version=None,
            description=description,
            tags=(),
            security=None,
        )
        super().__init__(config=config, specification=specification, routers=routers)
        self._group = group

    async def _connect(self) -> Producer:
        config = self.config.broker_config
        client = await Producer(config.name_servers, group=self._group, options=config.options).__aenter__()
        config.producer.connect(client, config.fd_config._serializer, config.broker_codec)
        return client

    async def start(self) -> None:
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop the subscribers, then close the producer."""
        await super().stop(exc_type, exc_val, exc_tb)
        connection, self._connection = self._connection, None
        if connection is not None:
            self.config.broker_config.producer.disconnect()
            await connection.close()

    async def ping(self, timeout: float | None = None) -> bool:
        """Whether a name server answers."""
        if self._connection is None:
            return False
        try:
            async with asyncio.timeout(timeout or PING_S):
                await self._connection.queues(DEFAULT_TOPIC)
        except RouteNotFound as error:
            return isinstance(error.__cause__, TopicNotExist)
        except (RocketlineError, TimeoutError):
            return False
        return True

    async def publish(
        self,
        message: Any,
        topic: str,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        sharding_key: str | None = None,
        delay_level: int = 0,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
    ) -> SendReceipt:
        """Send a message; headers become its properties."""
        command = self._command(PublishType.PUBLISH, topic, (message,), headers, correlation_id)
        command.send_as = SendAs(tag, keys, sharding_key, delay_level, delay, deliver_at)
        receipt: SendReceipt = await self._basic_publish(command, producer=self.config.producer)
        return receipt

    async def publish_batch(  # type: ignore[override]
        self,
        *messages: Any,
        topic: str,
        tag: str | None = None,
        keys: Sequence[str] = (),
        sharding_key: str | None = None,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
    ) -> list[SendReceipt]:
        """Send messages in as few requests as have room for them; all have the same tag, keys and headers.

        Each request goes into one queue, and with a `sharding_key` all go into the same.
        """
        command = self._command(PublishType.PUBLISH, topic, messages, headers, correlation_id)
        command.send_as = SendAs(tag, keys, sharding_key)
        receipts: list[SendReceipt] = await self._basic_publish_batch(command, producer=self.config.producer)
        return receipts

    async def request(  # type: ignore[override]
        self,
        message: Any,
        topic: str,
        *,
        tag: str | None = None,
        timeout: float = REQUEST_S,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
    ) -> RocketMessage:
        """Send a message and wait for what the handler of its subscriber returns; NoReply when nothing comes in time."""
        command = self._command(PublishType.REQUEST, topic, (message,), headers, correlation_id)
        command.send_as, command.timeout = SendAs(tag), timeout
        reply: RocketMessage = await self._basic_request(command, producer=self.config.producer)
        return reply

    def _command(
        self,
        kind: PublishType,
        topic: str,
        messages: Sequence[Any],
        headers: dict[str, Any] | None,
        correlation_id: str | None,
    ) -> RocketPublishCommand:
        correlation_id = correlation_id or self.config.id_generator()
        return RocketPublishCommand(
            *messages, _publish_type=kind, topic=topic, headers=headers, correlation_id=correlation_id
        )
