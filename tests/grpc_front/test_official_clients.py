"""Apache's own 5.x clients, unchanged, on our front. Java and Go connect with TLS, as they do unless told otherwise;
the others without. Rust's has no push consumer, changes no invisible time and takes no message back.

Push consumers are not stopped but end with their process: they wait for their last poll first, which takes 20 s.

ROCKETLINE_INTEROP_TARGET=apache runs them on Apache's proxy, which proves that what is expected here is Apache's.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.grpc_front.conftest import SIDES
from tests.support.five_clients import FiveClient, languages, require_client
from tests.support.grpc_front import Address, Front
from tests.support.patience import PATIENCE_S

from rocketline.errors import BrokerError
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("grpc official")]


@pytest.fixture(scope="module")
def address(request: pytest.FixtureRequest) -> Address:
    found: Address = request.getfixturevalue(SIDES[os.environ.get("ROCKETLINE_INTEROP_TARGET", "ours")])
    return found


@pytest.fixture(scope="module", params=languages())
def client(request: pytest.FixtureRequest, address: Address) -> Iterator[FiveClient]:
    """One process for all tests of a language."""
    require_client(request.param)
    assert address.account is not None
    account = {"access_key": address.account.name, "secret_key": address.account.secret}
    with FiveClient(request.param, endpoint=address.grpc, **account) as started:
        yield started


def of_clients_with(*commands: str) -> pytest.MarkDecorator:
    """For a test of those that can do this."""
    return pytest.mark.parametrize("client", languages(*commands), indirect=True, scope="module")


def make(address: Address, kind: str, queues: int = 2, **group: Any) -> tuple[str, str]:
    """A new topic and a new group."""

    async def on_front() -> tuple[str, str]:
        async with Front(address) as front:
            return await front.topic(kind, queues), await front.group(**group)

    return asyncio.run(on_front())


def until(look: Callable[[], list], done: Callable[[list], bool]) -> list:
    """What is seen as soon as it is enough."""
    deadline = time.monotonic() + PATIENCE_S
    while not done(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def received(client: FiveClient, name: str, wanted: int) -> list[dict[str, Any]]:
    """Received and acknowledged, until there are so many."""
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < wanted:
        assert time.monotonic() < deadline, found
        for message in client.call("receive", name=name, count=16, invisible_s=30):
            client.call("ack", name=name, id=message["id"])
            found.append(message)
    return found


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in messages]


def test_a_message_arrives_as_it_was_sent(client, address):
    topic, group = make(address, "NORMAL")
    producer = client.start("producer", topics=[topic])
    sent = {"body": "hellö", "tag": "a", "keys": ["k1", "k2"], "properties": {"colour": "blue"}}
    made = client.call("send", name=producer, topic=topic, **sent)
    client.call("send", name=producer, topic=topic, body="other", tag="b")
    consumer = client.start("simple", group=group, topic=topic, expression="a")
    (got,) = received(client, consumer, 1)
    assert got["id"] == made["id"]
    assert {key: got[key] for key in sent} == sent
    assert (got["topic"], got["attempt"], got["group"]) == (topic, 1, None)
    for name in (producer, consumer):
        client.call("stop", name=name)


@of_clients_with("change")
def test_a_simple_consumer_gives_a_message_back(client, address):
    topic, group = make(address, "NORMAL")
    producer = client.start("producer", topics=[topic])
    client.call("send", name=producer, topic=topic, body="again")
    consumer = client.start("simple", group=group, topic=topic)
    (first,) = until(lambda: client.call("receive", name=consumer, count=1, invisible_s=3600), bool)
    client.call("change", name=consumer, id=first["id"], invisible_s=1)
    (second,) = received(client, consumer, 1)
    assert (second["id"], second["attempt"]) == (first["id"], 2)
    for name in (producer, consumer):
        client.call("stop", name=name)


@of_clients_with("start_push")
def test_a_push_consumer_gets_each_message_and_failed_ones_again(client, address):
    topic, group = make(address, "NORMAL", queues=4)
    producer = client.start("producer", topics=[topic])
    sent = {client.call("send", name=producer, topic=topic, body=str(number))["id"] for number in range(20)}
    consumer = client.start("push", group=group, topic=topic, fail_first=1)
    seen = until(lambda: client.call("seen", name=consumer), lambda found: len(found) >= 40)
    assert len(seen) == 40
    for attempt in (1, 2):
        assert {message["id"] for message in seen if message["attempt"] == attempt} == sent
    client.call("stop", name=producer)


@of_clients_with("start_push")
def test_messages_of_a_group_are_consumed_in_order(client, address):
    """Clients try again what fails, and the others wait; but Node's and Go's go on with the next, on Apache's proxy too."""
    fails = 1 if client.language in ("python", "java") else 0
    topic, group = make(address, "FIFO", queues=4, orderly=True)
    producer = client.start("producer", topics=[topic])
    for number in range(5):
        client.call("send", name=producer, topic=topic, body=str(number), group="customer")
    consumer = client.start("push", group=group, topic=topic, fail_first=fails)
    wanted = [str(number) for number in range(5) for _ in range(1 + fails)]
    seen = until(lambda: client.call("seen", name=consumer), lambda found: len(found) >= len(wanted))
    assert bodies(seen) == wanted
    assert {message["group"] for message in seen} == {"customer"}
    client.call("stop", name=producer)


def test_a_simple_consumer_gets_messages_of_a_group_in_order(client, address):
    topic, group = make(address, "FIFO", queues=4, orderly=True)
    producer = client.start("producer", topics=[topic])
    for number in range(5):
        client.call("send", name=producer, topic=topic, body=str(number), group="customer")
    consumer = client.start("simple", group=group, topic=topic)
    got = received(client, consumer, 5)
    assert bodies(got) == [str(number) for number in range(5)]
    assert {message["group"] for message in got} == {"customer"}
    for name in (producer, consumer):
        client.call("stop", name=name)


def test_delayed_messages_come_later(client, address):
    topic, group = make(address, "DELAY")
    producer = client.start("producer", topics=[topic])
    due_ms = (int(time.time()) + 4) * 1000
    sent = client.call("send", name=producer, topic=topic, body="later", deliver_ms=due_ms)
    consumer = client.start("simple", group=group, topic=topic)
    (got,) = received(client, consumer, 1)
    assert time.time() * 1000 >= due_ms
    assert (got["id"], got["body"]) == (sent["id"], "later")
    for name in (producer, consumer):
        client.call("stop", name=name)


@of_clients_with("recall")
def test_delayed_messages_are_taken_back(client, address):
    topic, group = make(address, "DELAY")
    producer = client.start("producer", topics=[topic])
    due_ms = (int(time.time()) + 4) * 1000
    taken = client.call("send", name=producer, topic=topic, body="taken back", deliver_ms=due_ms)
    kept = client.call("send", name=producer, topic=topic, body="kept", deliver_ms=due_ms)
    assert client.call("recall", name=producer, topic=topic, handle=taken["recall_handle"]) == taken["id"]
    consumer = client.start("simple", group=group, topic=topic)
    (got,) = received(client, consumer, 1)
    assert (got["id"], got["body"]) == (kept["id"], "kept")
    for name in (producer, consumer):
        client.call("stop", name=name)


ON_ORDER = {
    "java": ("CR_SUCCESS", "from gRPC client"),
    "go": ("CR_THROW_EXCEPTION", "from gRPC client: NOT_IMPLEMENTED"),
    "node": ("CR_THROW_EXCEPTION", "from gRPC client: NOT_IMPLEMENTED"),
    "python": ("", "did not answer in time"),
}
"""What an operator is told who gives a message to a client: the result, or why there is none."""


@of_clients_with("start_push")
def test_what_operators_ask_clients(client, address):
    """Node's client puts its answer to a message into the field of the question."""
    if not address.has_our_broker:
        pytest.skip("Apache's proxy tells no reason, and its broker gets no stack")
    topic, group = make(address, "NORMAL")
    producer = client.start("producer", topics=[topic])
    sent = client.call("send", name=producer, topic=topic, body="verify me")
    consumer = client.start("push", group=group, topic=topic)
    until(lambda: client.call("seen", name=consumer), bool)

    async def ask() -> tuple[str, str, str | None]:
        async with Front(address) as front:
            broker = await front.broker()
            member = (await broker.consumers(group)).connection_set[0].client_id
            (found,) = await broker.find(topic, sent["id"], 1, 0, 1 << 62, unique=True)
            try:
                told = await broker.consume_directly(group, member, found.offset_id)
                result, remark = told.consume_result, told.remark
            except BrokerError as refused:
                result, remark = "", refused.remark
            header = {"consumerGroup": group, "clientId": member, "jstackEnable": "true"}
            request = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            answer = await broker._remoting.call(broker.address, request, PATIENCE_S)
            assert answer.code == ResponseCode.SUCCESS, answer
            return result, remark or "", json.loads(answer.body).get("jstack")

    result, remark, stack = asyncio.run(ask())
    assert (result, ON_ORDER[client.language][1] in remark) == (ON_ORDER[client.language][0], True), remark
    if client.language == "java":
        assert "java.lang.Thread" in (stack or "") or "TID" in (stack or ""), stack
    client.call("stop", name=producer)


def test_transactions_end_as_the_client_says_or_when_it_is_asked(client, address):
    topic, group = make(address, "TRANSACTION")
    producer = client.start("producer", topics=[topic], check="COMMIT")
    sent = {
        outcome: client.call("send_in_transaction", name=producer, topic=topic, body=outcome, outcome=outcome)["id"]
        for outcome in ("COMMIT", "ROLLBACK", "UNKNOWN")
    }
    consumer = client.start("simple", group=group, topic=topic)
    committed = {sent["COMMIT"], sent["UNKNOWN"]}
    got = [message["id"] for message in received(client, consumer, 2)]
    while not committed <= set(got):
        got += [message["id"] for message in received(client, consumer, 1)]
    # Apache's broker asks also about what has ended, and stores the message once more.
    if address.has_our_broker:
        assert sorted(got) == sorted(committed)
    assert sent["UNKNOWN"] in client.call("seen", name=producer)
    for name in (producer, consumer):
        client.call("stop", name=name)
