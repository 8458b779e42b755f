"""SQL92 expressions are checked by the brokers before a consumer starts: a mistake is an exception and not a log line.

Every broker that has the topic is asked (46), because each may be set up differently. One that cannot be reached is asked
by the pulls. Brokers before 4.1.0 would send everything, so nothing is pulled from those.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from rocketline.client.consumer.group.subscription import Subscription
from rocketline.client.remote_broker import RemoteBroker
from rocketline.client.session import ClientSession
from rocketline.errors import ClientError, RouteNotFound, TransportError
from rocketline.message import MessageQueue

log = logging.getLogger(__name__)

OLDEST_WITH_SQL = 232
"""Version number of 4.1.0-SNAPSHOT."""


async def check_expressions(session: ClientSession, group: str, subscriptions: Iterable[Subscription]) -> None:
    """BrokerError of the first broker that refuses an expression, with its reason."""
    for subscription in [subscription for subscription in subscriptions if subscription.is_sql]:
        try:
            route = await session.routes.find(subscription.topic)
        except RouteNotFound:
            continue  # the topic may be created later
        brokers = [session.master_of(name) for name in sorted({queue.broker_name for queue in route.readable})]
        await asyncio.gather(
            *(_check(session, group, subscription, broker) for broker in brokers if broker is not None)
        )


async def _check(session: ClientSession, group: str, subscription: Subscription, broker: RemoteBroker) -> None:
    try:
        await broker.check_client(session.client_id, group, subscription.data)
    except TransportError as error:
        log.warning("the expression of %s for topic %s was not checked: %s", group, subscription.topic, error)


def require_sql(session: ClientSession, broker: RemoteBroker, queue: MessageQueue) -> None:
    version = session.broker_versions.get(broker.address)
    if version is not None and version < OLDEST_WITH_SQL:
        raise ClientError(
            f"{queue}: the broker {broker.name} at {broker.address} has version {version} and cannot filter by SQL92; "
            f"{OLDEST_WITH_SQL} (4.1.0) can"
        )
