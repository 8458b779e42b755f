"""Transactions and requests on real servers: what consumers see, what stops and kills leave; nothing comes twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.cli.servers.child import ChildCluster
from rocketline.client import (
    ClientOptions,
    ClientTiming,
    ConsumeFrom,
    Producer,
    PullConsumer,
    PushConsumer,
    Transaction,
    TransactionalProducer,
    blocking,
)
from rocketline.errors import NoReply, RocketlineError, SendFailed
from rocketline.message import Message, MessageView
from rocketline.testing import LocalCluster

QUICK = {
    "transactionTimeOut": 200, "transactionCheckInterval": 100, "transactionOpBatchInterval": 50,
    "transactionCheckMax": 10_000,
}  # fmt: skip
GREETS_OFTEN = ClientTiming(heartbeat_s=0.1)
TOPIC = "payments"


def outcome_in_body(message: Message | MessageView, *_: object) -> Transaction:
    """The body says how its transaction ends: what any process that is asked would find in a database."""
    return Transaction[message.body.decode().partition(" ")[0]]


def unknown(message: Message) -> Transaction:
    return Transaction.UNKNOWN


async def read_until(namesrv: str, wanted: int, more_s: float = 0.5) -> list[bytes]:
    """What the topic holds once `wanted` messages are there, and a while later."""
    bodies: list[bytes] = []
    async with PullConsumer(namesrv, group="reader", from_where=ConsumeFrom.FIRST) as consumer:
        consumer.assign(await consumer.queues(TOPIC))
        async with asyncio.timeout(PATIENCE_S):
            while len(bodies) < wanted:
                bodies += [message.body for message in await consumer.poll(timeout=0.1)]
        bodies += [message.body for message in await consumer.poll(timeout=more_s)]
    return sorted(bodies)


async def test_consumers_see_what_was_committed_and_nothing_else() -> None:
    async with (
        LocalCluster(config=QUICK) as cluster,
        TransactionalProducer(cluster.namesrv, group="payers", check=outcome_in_body) as producer,
    ):
        for number in range(10):
            for outcome in ("COMMIT", "ROLLBACK"):
                message = Message(TOPIC, f"{outcome} {number}".encode())
                done = await producer.send_in_transaction(message, outcome_in_body)
                assert (done.outcome.name, done.is_settled) == (outcome, True)
        for number in range(10, 20):
            await producer.send_in_transaction(Message(TOPIC, f"COMMIT {number}".encode()), unknown)
            await producer.send_in_transaction(Message(TOPIC, f"ROLLBACK {number}".encode()), unknown)
        assert await read_until(cluster.namesrv, 20) == sorted(f"COMMIT {number}".encode() for number in range(20))


async def test_a_transaction_of_a_process_that_died_is_ended_by_another_one() -> None:
    async with LocalCluster(config=QUICK) as cluster:
        async with TransactionalProducer(cluster.namesrv, group="payers", check=outcome_in_body) as first:
            for number in range(5):
                await first.send_in_transaction(Message(TOPIC, f"COMMIT {number}".encode()), unknown)
        async with TransactionalProducer(cluster.namesrv, group="payers", check=outcome_in_body) as second:
            await second.queues(TOPIC)  # its first word to the broker
            assert len(await read_until(cluster.namesrv, 5)) == 5


async def test_a_transaction_longer_than_the_broker_waits_is_committed_once() -> None:
    asked = asyncio.Event()

    async def not_yet(message: MessageView) -> Transaction:
        asked.set()
        return Transaction.UNKNOWN

    async def long(message: Message) -> Transaction:
        await asked.wait()
        return Transaction.COMMIT

    async with (
        LocalCluster(config=QUICK) as cluster,
        TransactionalProducer(cluster.namesrv, group="payers", check=not_yet) as producer,
    ):
        async with asyncio.timeout(PATIENCE_S):
            done = await producer.send_in_transaction(Message(TOPIC, b"COMMIT slow"), long)
        assert done.is_settled
        assert await read_until(cluster.namesrv, 1, more_s=1.0) == [b"COMMIT slow"]


async def test_a_broker_stopped_between_half_and_end() -> None:
    """The word to the broker gets lost; the broker that comes back asks."""
    async with (
        LocalCluster(config=QUICK) as cluster,
        TransactionalProducer(
            cluster.namesrv,
            group="payers",
            check=outcome_in_body,
            timeout=5.0,
            options=ClientOptions(timing=GREETS_OFTEN),
        ) as producer,
    ):

        async def while_it_is_away(message: Message) -> Transaction:
            await cluster.stop_broker("broker-a")
            return Transaction.COMMIT

        done = await producer.send_in_transaction(Message(TOPIC, b"COMMIT 1"), while_it_is_away)
        assert (done.outcome, done.is_settled) == (Transaction.COMMIT, False)
        await cluster.start_broker("broker-a")
        assert await read_until(cluster.namesrv, 1) == [b"COMMIT 1"]


async def send_until_dead(producer: TransactionalProducer, ended: list[str], numbers: Iterator[int]) -> None:
    """Transactions one after the other; those whose half message was acknowledged are noted."""
    for number in numbers:
        body = f"{('COMMIT', 'ROLLBACK', 'COMMIT')[number % 3]} {number}"

        def execute(message: Message, body: str = body, number: int = number) -> Transaction:
            ended.append(body)
            return Transaction.UNKNOWN if number % 5 == 0 else outcome_in_body(message)

        await producer.send_in_transaction(Message(TOPIC, body.encode()), execute)


def settings(values: dict[str, int]) -> list[str]:
    return [item for key, value in values.items() for item in ("--set", f"{key}={value}")]


async def kill_in_traffic(cluster: ChildCluster, ended: list[str], numbers: Iterator[int], wanted: int) -> None:
    async with TransactionalProducer(cluster.namesrv, group="payers", check=outcome_in_body, retries=0) as producer:
        senders = [asyncio.create_task(send_until_dead(producer, ended, numbers)) for _ in range(4)]
        async with asyncio.timeout(PATIENCE_S):
            while len(ended) < wanted:
                await asyncio.sleep(0.005)
        cluster.kill()
        await producer.close()  # sends would wait for the broker to come back
        results = await asyncio.gather(*senders, return_exceptions=True)
        assert all(isinstance(result, RocketlineError) for result in results), results


async def test_a_broker_killed_in_the_middle_loses_nothing_and_shows_nothing_early(tmp_path: Path) -> None:
    """S22: killed three times between half, local transaction and end; then every transaction comes to its end."""
    arguments = ["--data", str(tmp_path), *settings({**QUICK, "mappedFileSizeCommitLog": 1 << 20})]
    ended: list[str] = []
    numbers = count()
    for round_number in range(1, 4):
        with ChildCluster(arguments) as cluster:
            await kill_in_traffic(cluster, ended, numbers, 60 * round_number)
    committed = {body.encode() for body in ended if body.startswith("COMMIT")}
    with ChildCluster(arguments) as cluster:
        async with TransactionalProducer(cluster.namesrv, group="payers", check=outcome_in_body) as producer:
            await producer.queues(TOPIC)
            seen = Counter(await read_until(cluster.namesrv, len(committed), more_s=2.0))
    assert committed - set(seen) == set()
    assert not [body for body in seen if not body.startswith(b"COMMIT")]
    # A half message that was stored, and whose acknowledgement the kill cut off, is ended by the check as well.
    assert len(set(seen) - committed) <= 3 * 4
    assert {body: times for body, times in seen.items() if times > 1} == {}


def test_the_blocking_face() -> None:
    with (
        LocalCluster(config=QUICK) as cluster,
        blocking.TransactionalProducer(cluster.namesrv, group="payers", check=outcome_in_body) as producer,
    ):
        done = producer.send_in_transaction(Message(TOPIC, b"COMMIT 1"), outcome_in_body)
        assert done.is_settled
        producer.send_in_transaction(Message(TOPIC, b"COMMIT 2"), unknown)
        assert asyncio.run(read_until(cluster.namesrv, 2)) == [b"COMMIT 1", b"COMMIT 2"]


async def replier(cluster_namesrv: str, ready: Callable[[PushConsumer], None]) -> None:
    """Answers every question until it is cancelled."""
    async with PushConsumer(cluster_namesrv, group="repliers", from_where=ConsumeFrom.FIRST) as consumer:

        async def handle(message: MessageView) -> None:
            if message.body != b"silence":
                await consumer.reply(message, b"re " + message.body)

        consumer.subscribe("questions", "*", handle)
        await consumer.start()
        ready(consumer)
        await consumer.run()


async def test_requests_are_answered() -> None:
    async with LocalCluster(brokers=2) as cluster:
        ready: asyncio.Future[PushConsumer] = asyncio.get_running_loop().create_future()
        async with Producer(cluster.namesrv, group="askers") as producer:
            for queue in await producer.queues("questions"):
                await producer.send(Message("questions", b"silence"), queue=queue)  # makes the topic on both brokers
            answering = asyncio.create_task(replier(cluster.namesrv, ready.set_result))
            await ready
            asking = [
                producer.request(Message("questions", b"%d" % number), timeout=PATIENCE_S) for number in range(50)
            ]
            replies = await asyncio.gather(*asking)
            assert [reply.body for reply in replies] == [b"re %d" % number for number in range(50)]
            with pytest.raises(NoReply):
                await producer.request(Message("questions", b"silence"), timeout=1.0)
            assert producer.late_replies == 0
        answering.cancel()
        await asyncio.wait([answering])


async def test_a_reply_to_a_client_that_is_gone_fails_clearly() -> None:
    async with LocalCluster() as cluster:
        async with Producer(cluster.namesrv, group="askers") as asker:
            with pytest.raises(NoReply):
                await asker.request(Message("questions", b"anybody?"), timeout=2.0)
        async with (
            PullConsumer(cluster.namesrv, group="repliers", from_where=ConsumeFrom.FIRST) as consumer,
            Producer(cluster.namesrv, group="repliers") as producer,
        ):
            consumer.assign(await consumer.queues("questions"))
            [request] = await consumer.poll(timeout=PATIENCE_S)
            with pytest.raises(SendFailed, match="not found"):
                await producer.reply(request, b"too late")


def test_requests_and_replies_without_an_event_loop() -> None:
    """The handler is a plain function in a thread, and replies from there."""
    with (
        LocalCluster() as cluster,
        blocking.Producer(cluster.namesrv, group="askers") as producer,
        blocking.PushConsumer(cluster.namesrv, group="repliers", from_where=ConsumeFrom.FIRST) as consumer,
    ):
        producer.send(Message("questions", b"0"))  # makes the topic

        def handle(message: MessageView) -> None:
            if message.body != b"0":
                consumer.reply(message, b"re " + message.body)

        consumer.subscribe("questions", "*", handle)
        consumer.start()
        assert producer.request(Message("questions", b"1"), timeout=PATIENCE_S).body == b"re 1"
        assert producer.late_replies == 0
