"""One cluster with some messages, groups and hostile content for all tests of the console."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import pytest
from tests.support.asgi import AsgiClient

from rocketline.admin import Admin
from rocketline.admin.progress import reset
from rocketline.client import Producer
from rocketline.console.access import Person, Role
from rocketline.console.app import make_app
from rocketline.console.config import ClusterPlace, ConsoleConfig
from rocketline.console.desk import Desk
from rocketline.message import Message
from rocketline.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from rocketline.protocol.names import dlq_topic
from rocketline.testing import LocalCluster

HOSTILE = "<script>alert(1)</script>"


@dataclass
class Prepared:
    namesrv: str
    message_id: str
    hostile_id: str
    cluster: LocalCluster


@pytest.fixture(scope="package")
def prepared() -> Iterator[Prepared]:
    with LocalCluster(config={"brokerClusterName": "shop"}) as cluster:
        message_id, hostile_id = asyncio.run(_fill(cluster.namesrv))
        yield Prepared(cluster.namesrv, message_id, hostile_id, cluster)


async def _fill(namesrv: str) -> tuple[str, str]:
    async with Admin(namesrv) as admin:
        for broker in await admin.brokers():
            for name in ("orders", "paid", dlq_topic("mailer")):
                await broker.put_topic(TopicConfig(name, 2, 2))
            for name in ("billing", "mailer"):
                await broker.put_group(SubscriptionGroupConfig(name))
        async with Producer(namesrv, group="tests") as producer:
            for number in range(20):
                body = f'{{"n": {number}, "region": "{"eu" if number % 2 else "us"}", "secret": "4111-1111-2222"}}'.encode()
                keys, properties = [f"k-{number}"], {"amount": str(number)}
                sent = await producer.send(Message("orders", body, tag="new", keys=keys, properties=properties))
            bad = Message("orders", HOSTILE.encode(), tag="<b>x", keys=[HOSTILE], properties={HOSTILE: "=1+1"})
            hostile = await producer.send(bad)
            await producer.send(Message("orders", b"later", delay=timedelta(hours=1)))
            await producer.send(Message(dlq_topic("mailer"), b"=1+1", properties={"DLQ_ORIGIN_TOPIC": "orders"}))
        await reset(admin, "billing", "orders", 0)
    return sent.message_id, hostile.message_id


@dataclass
class Console:
    """A console without a socket."""

    desk: Desk
    client: AsgiClient

    def as_role(self, role: Role, name: str = "") -> AsgiClient:
        """A client with a session of somebody with this role."""
        client = AsgiClient(self.client.app)
        session_id = self.desk.sessions.begin(Person(name or role.word, role))
        client.cookies[self.desk.config.cookie] = session_id
        session = self.desk.sessions.find(session_id)
        assert session is not None
        client.token = session.form_token()
        return client


@asynccontextmanager
async def start(config: ConsoleConfig) -> AsyncIterator[Console]:
    async with Desk(config) as desk:
        yield Console(desk, AsgiClient(make_app(desk)))


@pytest.fixture
async def console(prepared: Prepared) -> AsyncIterator[Console]:
    async with start(ConsoleConfig((ClusterPlace("default", prepared.namesrv),))) as one:
        yield one


@pytest.fixture
async def admin_client(console: Console) -> AsgiClient:
    return console.as_role(Role.ADMIN)
