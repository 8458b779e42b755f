"""Topics that a client creates: on every master of a cluster that does not have it yet."""

from __future__ import annotations

import asyncio

from rocketline.client.session import ClientSession
from rocketline.errors import ClientError, InvalidMessage, RouteNotFound, TopicNotExist
from rocketline.protocol.bodies import MASTER_ID, ClusterInfo, TopicConfig
from rocketline.protocol.names import topic_problem

PAUSE_S = 0.05
"""Between two looks whether the name server knows the topic: brokers tell it as soon as they have it."""


def topic_config(name: str, queues: int, message_type: str | None) -> TopicConfig:
    """The settings of a new topic; InvalidMessage says what is wrong with them."""
    problem = topic_problem(name)
    if problem is not None:
        raise InvalidMessage(problem)
    if queues < 1:
        raise InvalidMessage(f"topic {name!r} with {queues} queues: at least 1 is needed")
    attributes = {"message.type": message_type} if message_type is not None else {}
    return TopicConfig(name, queues, queues, attributes=attributes)


async def create_topic(session: ClientSession, topic: TopicConfig, cluster: str | None, timeout_s: float) -> bool:
    """Whether a broker got the topic; one that has it is left as it is. Returns when name servers know where it is."""
    name = topic.topic_name
    masters = dict(brokers_in(await session.name_server.cluster_info(), cluster))
    if not masters:
        servers = ";".join(session.name_server.addresses)
        raise ClientError(f"topic {name!r} cannot be created: no broker is registered at {servers}")
    missing = masters.keys() - await _brokers_with(session, name)
    results = await asyncio.gather(
        *(session.broker_at(masters[broker], broker).put_topic(topic) for broker in missing), return_exceptions=True
    )
    for result in results:
        if isinstance(result, BaseException):
            raise result
    try:
        async with asyncio.timeout(timeout_s):
            while not masters.keys() <= await _brokers_with(session, name):  # noqa: ASYNC110 (nobody tells us)
                await asyncio.sleep(PAUSE_S)
    except TimeoutError:
        text = f"topic {name!r} was created, but the name server did not hear of it within {timeout_s:g} s"
        raise RouteNotFound(text) from None
    await session.routes.refresh(name)
    return bool(missing)


async def _brokers_with(session: ClientSession, topic: str) -> set[str]:
    try:
        route = await session.name_server.route(topic)
    except RouteNotFound as error:
        if isinstance(error.__cause__, TopicNotExist):
            return set()
        raise
    return {queues.broker_name for queues in route.queue_datas}


def brokers_in(info: ClusterInfo, cluster: str | None, *, slaves: bool = False) -> list[tuple[str, str]]:
    """(name, address) of the masters of a cluster, or of all clusters; with `slaves` of those too."""
    if cluster is not None and cluster not in info.cluster_addr_table:
        known = ", ".join(sorted(info.cluster_addr_table)) or "none"
        raise ClientError(f"there is no cluster {cluster!r}; the name server knows: {known}")
    names = sorted(name for key, names in info.cluster_addr_table.items() if cluster in (None, key) for name in names)
    return [
        (name, address)
        for name in dict.fromkeys(names)
        if name in info.broker_addr_table
        for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items())
        if slaves or broker_id == MASTER_ID
    ]
