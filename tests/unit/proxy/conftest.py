"""One cluster with a gRPC front for the tests of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.grpc_wire import GrpcWire

from rocketline.broker import Broker
from rocketline.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from rocketline.testing import LocalCluster

TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    config = {"recallMessageEnable": True, "transactionCheckInterval": 500, "transactionTimeOut": 500}
    with LocalCluster(grpc=True, config=config) as running:
        create_topics(running)
        yield running


def create_topics(cluster: LocalCluster) -> None:
    for broker in cluster.brokers:
        topics = [topic(f"T{kind}", kind) for kind in TYPES]
        _on_loop(cluster, lambda broker=broker, topics=topics: broker.parts.topics.put(topics))


def topic(name: str, kind: str, queues: int = 4) -> TopicConfig:
    return TopicConfig(
        topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6, attributes={"message.type": kind}
    )


def create_group(cluster: LocalCluster, config: SubscriptionGroupConfig) -> None:
    broker: Broker = cluster.brokers[0]
    _on_loop(cluster, lambda: broker.parts.groups.configure(config))


def _on_loop(cluster: LocalCluster, work: object) -> None:
    async def run() -> None:
        result = work()  # type: ignore[operator]
        if result is not None:
            await result

    cluster._call(run())


@pytest.fixture
async def wire(cluster: LocalCluster) -> AsyncIterator[GrpcWire]:
    async with GrpcWire(cluster.grpc_address) as connected:
        yield connected
