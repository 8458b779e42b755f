"""Apache's Java clients on our broker with access control: the right account works, and every other is told why not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.interop.access.conftest import SETTINGS
from tests.interop.conftest import JavaClients
from tests.support.access.frames import Account
from tests.support.access.world import NOBODY, ORDERS, PUB, Side, account, allow, furnish
from tests.support.java_client import JavaClient, Outgoing, Seen
from tests.support.java_driver import JavaCallError

from rocketline.broker import Broker, BrokerConfig
from rocketline.nameserver import NameServer, NameServerConfig
from rocketline.protocol.pop_info import pop_retry_topic
from rocketline.settings import load
from rocketline.testing.local_cluster import SMALL_FILES

pytestmark = pytest.mark.interop

VERSIONS = ["5.5.0", "5.4.0", "4.9.7"]


@pytest.fixture(params=VERSIONS)
def java(request: pytest.FixtureRequest, java_clients: JavaClients) -> JavaClient:
    return java_clients(request.param)


@pytest.fixture
def shop(ours: Side, name: Callable[[str], str]) -> Account:
    """An account with a topic and a group of its own, each called as it is."""
    who = account(name("shop"))
    ours.create_topic(who.name, queues=4)  # as many as Java's producer supposes where it got no route in time
    ours.create_group(who.name)
    ours.admit(who, allow(f"Topic:{who.name}", "Pub", "Sub"), allow(f"Group:{who.name}", "Sub"))
    ours.await_route(who, who.name)
    return who


def test_the_right_account(java: JavaClient, ours: Side, shop: Account) -> None:
    topic = group = shop.name
    with java.signing_as(shop.name, shop.secret):
        with java.producer(ours.namesrv, "producers") as producer:
            producer.send(topic, "grüße".encode(), keys=["1"])
            producer.send(topic, b"async", mode="async")
            producer.send(topic, b"one way", mode="oneway")
            producer.send_batch([Outgoing(topic, b"together 1"), Outgoing(topic, b"together 2")])
        with java.push_consumer(ours.namesrv, group, {topic: "*"}, fail_first=1, retry_level=1) as consumer:
            seen = []
            while len([message for message in seen if message.accepted]) < 5:
                seen += consumer.poll(1)
    bodies = sorted(message.body for message in seen if message.accepted)
    assert bodies == sorted(["grüße".encode(), b"async", b"one way", b"together 1", b"together 2"])


def test_transactions_end_though_they_are_checked(java: JavaClient, ours: Side, shop: Account) -> None:
    topic = shop.name
    with (
        java.signing_as(shop.name, shop.secret),
        java.transactional_producer(ours.namesrv, "payers", check="COMMIT_MESSAGE") as producer,
        java.push_consumer(ours.namesrv, shop.name, {topic: "*"}) as consumer,
    ):
        producer.send(topic, b"at once", "COMMIT_MESSAGE")
        producer.send(topic, b"never", "ROLLBACK_MESSAGE")
        producer.send(topic, b"when asked", "UNKNOW")
        seen = consumer.poll(2)
    assert sorted(message.body for message in seen) == [b"at once", b"when asked"]


def test_a_popped_message_is_acknowledged_after_it_came_again(
    java_clients: JavaClients, ours: Side, shop: Account
) -> None:
    """It is on another topic then, which has the group's name and the topic's in its own."""
    java, topic, group = java_clients("5.4.0"), shop.name, shop.name
    with java.signing_as(shop.name, shop.secret):
        with java.producer(ours.namesrv, "producers") as producer:
            producer.send(topic, b"popped")
        (first,) = _popped(java, ours, topic, invisible_ms=1)
        (again,) = _popped(java, ours, topic, invisible_ms=60_000)
        assert (first.msg_id, again.body) == (again.msg_id, b"popped")
        assert again.reconsume_times == 1
        lies_on = pop_retry_topic(group, topic, int(again.properties["POP_CK"].split(" ")[4]))
        assert lies_on.startswith("%RETRY%")
        handle = java.change_invisible(ours.namesrv, lies_on, group, again.properties["POP_CK"], 60_000)
        assert java.ack(ours.namesrv, lies_on, group, handle) == "OK"


def _popped(java: JavaClient, ours: Side, topic: str, *, invisible_ms: int) -> list[Seen]:
    while not (found := java.pop(ours.namesrv, topic, topic, invisible_ms=invisible_ms, poll_ms=5000)):
        pass
    return found


REFUSED = {
    "another secret": (Account(PUB.name, "wrong"), "check signature failed."),
    "an unknown account": (account("stranger"), "User:stranger is not found."),
    "no right": (
        NOBODY,
        f"User:nobody has no permission to access Topic:{ORDERS} from 127.0.0.1, no matched policies.",
    ),
    "no account": (None, "username cannot be null."),
}


async def test_others_are_told_why_not(java: JavaClient, tmp_path: Path) -> None:
    """By the broker: its name server is one of those that give routes to everybody, as Apache's are."""
    async with NameServer(NameServerConfig(port=0)) as names:
        here = {"namesrvAddr": names.address, "listenPort": "0", "storePathRootDir": str(tmp_path)}
        async with Broker(load(BrokerConfig, {**SETTINGS, **SMALL_FILES, **here})[0]) as broker:
            side = Side(names.address, broker.address)
            await asyncio.to_thread(furnish, side)
            await asyncio.to_thread(side.await_route, PUB, ORDERS)
            told = {who: await asyncio.to_thread(_told, java, side, signer) for who, (signer, _) in REFUSED.items()}
            await asyncio.to_thread(java.release, names.address)
    for who, (_, remark) in REFUSED.items():
        assert f"CODE: 16  DESC: {remark}" in told[who]


def _told(java: JavaClient, side: Side, who: Account | None) -> str:
    with (
        java.signing_as(who.name, who.secret) if who else nullcontext(),
        java.producer(side.namesrv, "producers", retries=0) as producer,
        pytest.raises(JavaCallError) as caught,
    ):
        producer.send(ORDERS, b"x")
    return str(caught.value)


@pytest.mark.parametrize("who", ["another secret", "no account"])
def test_a_name_server_with_accounts_gives_them_no_route(java: JavaClient, ours: Side, who: str) -> None:
    before = ours.mark(ORDERS)
    assert "No route info of this topic" in _told(java, ours, REFUSED[who][0])
    assert ours.mark(ORDERS) == before + 1
