"""The transport of Kombu on a real cluster: what a program with `kombu` alone sees."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import text
from kombu import Connection, Exchange, Queue
from kombu.transport import virtual
from tests.support.patience import PATIENCE_S

from rocketline import Message
from rocketline.adapters.kombu import Transport, topic_name
from rocketline.admin import Admin
from rocketline.admin.progress import GroupProgress, progress_of
from rocketline.client import blocking
from rocketline.errors import ConfigError

EXAMPLES = Path(__file__).parents[3] / "examples" / "adapters"


@pytest.fixture
def connection(namesrv: str) -> Iterator[Connection]:
    with Connection(f"rocketmq://{namesrv}//") as opened:
        yield opened


def published(connection: Connection, name: str, *bodies: Any) -> Queue:
    """A queue with messages."""
    queue = Queue(name, Exchange(f"{name}-exchange"), routing_key=name)
    with connection.Producer() as producer:
        for body in bodies:
            producer.publish(body, exchange=queue.exchange, routing_key=name, declare=[queue])
    return queue


def consume(
    connection: Connection, queues: list[Queue], count: int, on_message: Callable[..., Any], **options: Any
) -> None:
    """Give so many messages to a callback."""
    seen = 0

    def callback(body: Any, message: virtual.Message) -> None:
        nonlocal seen
        seen += 1
        on_message(body, message)

    with connection.Consumer(queues, callbacks=[callback], **options):
        while seen < count:
            connection.drain_events(timeout=PATIENCE_S)


@given(text(), text())
def test_no_two_queues_share_a_topic(one: str, other: str) -> None:
    assert (topic_name(one) == topic_name(other)) == (one == other)
    assert not re.search(r"[^a-zA-Z0-9_-]", topic_name(one))


@pytest.mark.parametrize(("one", "other"), [("mail.fast", "mail_2Efast"), ("a__", "a_"), ("_.", "._"), ("_5F", "_")])
def test_names_that_look_like_escapes_are_names_of_their_own(one: str, other: str) -> None:
    assert topic_name(one) != topic_name(other)


def test_messages_are_routed_delivered_and_acknowledged(connection: Connection) -> None:
    got: list[tuple[Any, str, bool]] = []

    def on_message(body: Any, message: virtual.Message) -> None:
        info = message.delivery_info
        got.append((body, info["routing_key"], info["redelivered"]))
        message.ack()

    queues = [published(connection, "kombu-a", {"number": 1}, {"number": 2}), published(connection, "kombu.b", b"raw")]
    consume(connection, queues, 3, on_message)
    assert sorted(got, key=str) == [
        (b"raw", "kombu.b", False), ({"number": 1}, "kombu-a", False), ({"number": 2}, "kombu-a", False),
    ]  # fmt: skip
    assert connection.default_channel.basic_get("kombu-a") is None


def test_requeued_and_left_over_messages_come_again_and_rejected_ones_do_not(namesrv: str) -> None:
    seen: list[tuple[str, bool]] = []

    def first(body: str, message: virtual.Message) -> None:
        seen.append((body, message.delivery_info["redelivered"]))
        if body == "reject":
            message.reject()
        elif body == "requeue":
            message.requeue()

    def again(body: str, message: virtual.Message) -> None:
        seen.append((body, message.delivery_info["redelivered"]))
        message.ack()

    with Connection(f"rocketmq://{namesrv}//") as connection:
        queue = published(connection, "kombu-again", "reject", "requeue", "left over")
        consume(connection, [queue], 3, first)
    assert sorted(seen) == [("left over", False), ("reject", False), ("requeue", False)]
    seen.clear()
    with Connection(f"rocketmq://{namesrv}//") as connection:
        consume(connection, [queue], 2, again)
    assert sorted(seen) == [("left over", True), ("requeue", True)]


def test_no_more_messages_than_the_prefetch_count_are_out(connection: Connection) -> None:
    queue = published(connection, "kombu-prefetch", *range(5))
    out: list[virtual.Message] = []
    with connection.Consumer([queue], on_message=out.append, prefetch_count=2):
        while len(out) < 2:
            connection.drain_events(timeout=PATIENCE_S)
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.2)
        for message in out:
            message.ack()
        while len(out) < 4:
            connection.drain_events(timeout=PATIENCE_S)
        assert len(out) == 4
        for message in out[2:]:
            message.ack()
        connection.default_channel.basic_ack("a tag of nobody")


def test_without_acknowledgement_a_message_is_done_when_it_is_there(connection: Connection, namesrv: str) -> None:
    got: list[str] = []
    consume(
        connection,
        [published(connection, "kombu-no-ack", "one", "two")],
        2,
        lambda body, message: got.append(body),
        no_ack=True,
    )
    published(connection, "kombu-no-ack", "three")
    while (message := connection.default_channel.basic_get("kombu-no-ack", no_ack=True)) is None:
        pass
    got.append(message.payload)
    assert sorted(got) == ["one", "three", "two"]

    async def progress() -> GroupProgress:
        async with Admin(namesrv) as admin:
            return await progress_of(admin, "kombu-kombu-no-ack", "kombu-no-ack")

    found = asyncio.run(progress())
    assert (found.lag, found.in_flight) == (0, 0)


def test_simple_queue_and_purge(connection: Connection) -> None:
    with connection.SimpleQueue("kombu-simple") as queue:
        queue.put({"a": 1})
        message = queue.get(timeout=PATIENCE_S)
        assert message.payload == {"a": 1}
        message.ack()
        for number in range(3):
            queue.put(number)
        assert queue.clear() == 3
        with pytest.raises(queue.Empty):
            queue.get(block=False)


def test_a_message_of_somebody_else_stops_nobody(connection: Connection, namesrv: str) -> None:
    with blocking.Producer(namesrv, group="other") as producer:
        for body in (b"not JSON", b"[1]", b'{"properties": {}}'):
            producer.send(Message("kombu-foreign", body))
    queue = published(connection, "kombu-foreign", "ours")
    got: list[str] = []
    consume(connection, [queue], 1, lambda body, message: (got.append(body), message.ack()))
    assert got == ["ours"]


def test_an_exchange_that_would_lose_messages_is_refused(connection: Connection) -> None:
    with pytest.raises(ConfigError, match=r"exchange news is of type fanout.*use type direct or topic"):
        Exchange("news", type="fanout")(connection.default_channel).declare()
    Exchange("letters", type="topic")(connection.default_channel).declare()


def test_what_a_url_says() -> None:
    client = Connection("rocketmq://key:secret@broker.example:10911/shop", ssl=True)
    transport = client.get_transport_cls()(client)
    assert isinstance(transport, Transport)
    assert transport._name_server == "broker.example:10911"
    options = transport._client_options
    assert options.credentials is not None and options.credentials.access_key == "key"
    assert (options.namespace, options.tls) == ("shop", True)
    several = Connection("rocketmq://one.example:1//;rocketmq://two.example:2//")
    assert Transport(several)._name_server == "one.example:1"
    several.switch(several.alt[1])
    assert Transport(several)._name_server == "two.example:2"
    plain = Connection("rocketmq://")
    assert Transport(plain)._name_server == "localhost:9876"
    assert Transport(plain)._client_options.namespace is None
    with pytest.raises(ConfigError, match="SSLContext"):
        _ = Transport(Connection("rocketmq://", ssl={"ca_certs": "x"}))._client_options
    assert topic_name("a.b@c-d_e") == "a_2Eb_40c-d__e"


def test_a_celery_worker_runs_the_tasks_of_the_example(namesrv: str) -> None:
    environment = {**os.environ, "BROKER_URL": f"rocketmq://{namesrv}//"}

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=EXAMPLES,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # where Celery puts what tasks print
            text=True,
        )

    with start("-m", "celery", "--app", "celery_tasks", "worker", "--pool", "solo") as worker:
        giving_up = threading.Timer(PATIENCE_S, worker.kill)
        giving_up.start()
        try:
            with start("celery_tasks.py", "1001", "1002") as asking:
                assert asking.communicate(timeout=PATIENCE_S)[0].splitlines() == [
                    "asked to bill 1001", "asked to bill 1002",
                ]  # fmt: skip
            assert worker.stdout is not None
            billed: set[str] = set()
            for line in worker.stdout:
                billed.update(re.findall(r"billed (\d+)", line))
                if len(billed) == 2:
                    break
            assert billed == {"1001", "1002"}
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=PATIENCE_S)
        finally:
            giving_up.cancel()
            worker.kill()
    assert worker.returncode == 0
