"""An open pop consumer: its subscriptions, and its answers to session and brokers.

Brokers hear of it by heartbeats, so that operators see it among the group's members; popping would do without.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from rocketline.client.consumer.group.expression_check import check_expressions
from rocketline.client.consumer.group.start_offset import ConsumeFrom
from rocketline.client.consumer.group.subscription import Sql, Subscription
from rocketline.client.consumer.pop.pop_receipts import UNSEEN_DELAY_S, Receipts
from rocketline.client.consumer.pop.pop_sources import PopSources
from rocketline.client.consumer.push.retries import SendBack
from rocketline.client.consumer_info import ConsumeDirectlyResult, ConsumerRunningInfo
from rocketline.client.session import ClientSession
from rocketline.errors import ClientError, NoPermission, RequestRejected, RocketlineError, RouteNotFound, TopicNotExist
from rocketline.message import ConsumerOffset, MessageQueue, MessageView
from rocketline.protocol.bodies import ConsumerData
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.headers.pop import INIT_MAX, INIT_MIN
from rocketline.protocol.namespaces import Namespace

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 16


@dataclass(frozen=True)
class PopMemberOptions:
    """How a pop consumer works; see PopConsumer for the meanings."""

    group: str
    """Its name on the wire, namespace included."""
    from_where: ConsumeFrom = ConsumeFrom.LAST
    ordered: bool = False

    @property
    def init_mode(self) -> int:
        return INIT_MIN if self.from_where is ConsumeFrom.FIRST else INIT_MAX


class PopMember:
    """One pop consumer between `open` and `close`."""

    def __init__(self, session: ClientSession, options: PopMemberOptions, namespace: Namespace) -> None:
        self._session = session
        self._options = options
        self._namespace = namespace
        self._subscriptions: dict[str, Subscription] = {}
        self.receipts = Receipts(session, options.group, self._topic_of)
        self.sources = PopSources(
            session,
            options.group,
            self._subscriptions,
            self.receipts,
            init_mode=options.init_mode,
            dead_letters=SendBack(session, options.group, MAX_ATTEMPTS, namespace) if options.ordered else None,
        )
        self.closing = False

    def open(self) -> None:
        self._session.add_consumer(self)

    async def close(self) -> None:
        self.closing = True
        try:
            await self.sources.close()
            await asyncio.gather(*map(self._give_back, self.sources.left_over()))
        finally:
            await self._session.remove_consumer(self)

    async def _give_back(self, message: MessageView) -> None:
        """A message that came too late for the receive that asked for it."""
        try:
            await self.receipts.give_back(message, UNSEEN_DELAY_S, self._namespace.unwrap(message.topic))
        except RocketlineError as error:
            log.info("message %s comes when its time is over: %s", message.message_id, error)

    async def subscribe(self, topic: str, expression: str | Sql) -> None:
        """Pop a topic too; one that does not exist may be created later."""
        known = self._subscriptions.get(topic)
        now_ms = self._session.clock.now_ms()
        version = max(now_ms, known.data.sub_version + 1) if known is not None else now_ms
        subscription = Subscription(topic, expression, version)
        try:
            await self._session.routes.find(topic)
        except RouteNotFound as error:
            if not isinstance(error.__cause__, TopicNotExist):
                raise
            log.warning("group %s waits for topic %s: %s", self.group, topic, error)
        await check_expressions(self._session, self.group, [subscription])
        self._subscriptions[topic] = subscription
        try:
            await self._session.join()
        except NoPermission:
            del self._subscriptions[topic]
            raise

    async def unsubscribe(self, topic: str) -> None:
        if self._subscriptions.pop(topic, None) is not None:
            await self._session.heartbeat()

    def _topic_of(self, topic: str | None) -> str:
        if topic is not None:
            return self._namespace.wrap(topic)
        if len(self._subscriptions) != 1:
            raise ClientError(
                f"consumer {self.group!r} subscribes to {len(self._subscriptions)} topics, and a receipt handle names none: "
                "say topic=..."
            )
        return next(iter(self._subscriptions))

    # What session and brokers ask

    @property
    def group(self) -> str:
        return self._options.group

    @property
    def topics(self) -> set[str]:
        return set(self._subscriptions)

    def consumer_data(self) -> ConsumerData:
        subscriptions = [subscription.data for subscription in self._subscriptions.values()]
        return ConsumerData(self.group, "CONSUME_POP", "CLUSTERING", self._options.from_where.value, subscriptions)

    def route_changed(self, topic: str) -> None:
        """The next receive looks at the routes anyway."""

    def members_changed(self) -> None:
        """Brokers share the messages out, whoever is a member."""

    async def persist_offsets(self) -> None:
        """Brokers keep the offsets of popping groups."""

    async def reset_offsets(self, offsets: Mapping[MessageQueue, ConsumerOffset]) -> None:
        """Likewise."""

    def positions(self, topic: str) -> Mapping[MessageQueue, ConsumerOffset]:
        return {}

    async def consume_directly(self, message: MessageView) -> ConsumeDirectlyResult:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"group {self.group!r} pops: it has no handler to run")

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            {
                "PROP_NAMESERVER_ADDR": ";".join(self._session.name_server.addresses),
                "PROP_CONSUME_TYPE": "CONSUME_POP",
                "PROP_CONSUMEORDERLY": "true" if self._options.ordered else "false",
                "PROP_CLIENT_VERSION": "V5_4_0",
                "consumerGroup": self.group,
            },
            [subscription.data for subscription in self._subscriptions.values()],
        )
