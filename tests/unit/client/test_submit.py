"""Sends in the background: a window, callbacks, and a close that waits for them; also from plain threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import QUICK_OPTIONS, FakeCluster, own_tasks, until
from tests.unit.client.test_blocking import threaded_cluster

from rocketline.client import AutoBatch, Producer, SendReceipt, blocking
from rocketline.errors import ClientError, ConfigError, ProducerClosed, SystemBusy
from rocketline.message import Message
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.properties import decode_properties

SEND = RequestCode.SEND_MESSAGE_V2
Outcome = SendReceipt | Exception


def answered_when(cluster: FakeCluster, go_on: asyncio.Event) -> Callable[[Command], object]:
    async def wait(request: Command) -> Command:
        await go_on.wait()
        reply = cluster.broker.habit(next(iter(cluster.broker.channels)), request)
        assert isinstance(reply, Command)
        return reply

    return wait


async def test_callbacks_get_receipts_and_errors(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    outcomes: list[Outcome] = []
    async with Producer(cluster.namesrv, group="g", retries=0, options=QUICK_OPTIONS) as producer:
        task = await producer.submit(Message("T", b"first"), outcomes.append)
        assert (await task).queue_offset == 0
        cluster.broker.script(SEND, 2)
        await producer.submit(Message("T", b"refused"), outcomes.append)
        await producer.submit(Message("T", b""), outcomes.append)
    assert [type(outcome).__name__ for outcome in outcomes] == ["SendReceipt", "InvalidMessage", "SendFailed"]
    assert isinstance(outcomes[2], Exception) and isinstance(outcomes[2].__cause__, SystemBusy)


async def test_a_submitted_message_is_tried_on_the_other_broker_and_told_of_once(two_brokers: FakeCluster) -> None:
    two_brokers.add_topic("T")
    failing, working = two_brokers.brokers
    failing.on[SEND] = lambda request: request.reply(2, remark="busy")
    outcomes: list[Outcome] = []
    async with Producer(two_brokers.namesrv, group="g", options=QUICK_OPTIONS) as producer:
        for _ in range(8):
            await producer.submit(Message("T", b"x"), outcomes.append)
    assert [outcome.queue.broker_name for outcome in outcomes if isinstance(outcome, SendReceipt)] == ["broker-b"] * 8
    assert failing.requests_of(SEND), "queues are taken in turn, so it was asked first for some"
    refused, stored = (
        [decode_properties((request.ext or {})["i"])["UNIQ_KEY"] for request in broker.requests_of(SEND)]
        for broker in (failing, working)
    )
    assert len(set(stored)) == len(stored) == 8 and set(refused) <= set(stored), "a retry keeps the unique id"


async def test_the_window_is_bounded_and_the_next_waits_for_room(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    go_on = asyncio.Event()
    cluster.broker.on[SEND] = answered_when(cluster, go_on)  # type: ignore[assignment]
    async with Producer(
        cluster.namesrv, group="g", max_in_flight=3, timeout=PATIENCE_S, options=QUICK_OPTIONS
    ) as producer:
        for _ in range(3):
            await producer.submit(Message("T", b"x"))
        fourth = asyncio.create_task(producer.submit(Message("T", b"x")))
        await cluster.broker.request(SEND, 3)
        assert not fourth.done()
        go_on.set()
        await (await fourth)
    assert len(cluster.broker.requests_of(SEND)) == 4


async def test_a_submit_that_waits_for_room_can_be_cancelled(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    go_on = asyncio.Event()
    cluster.broker.on[SEND] = answered_when(cluster, go_on)  # type: ignore[assignment]
    async with Producer(
        cluster.namesrv, group="g", max_in_flight=1, timeout=PATIENCE_S, options=QUICK_OPTIONS
    ) as producer:
        await producer.submit(Message("T", b"x"))
        second = asyncio.create_task(producer.submit(Message("T", b"x")))
        await cluster.broker.request(SEND)
        second.cancel()
        await asyncio.wait([second])
        go_on.set()
    assert len(cluster.broker.requests_of(SEND)) == 1


async def test_closing_waits_for_what_was_submitted(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    before, outcomes = own_tasks(), list[Outcome]()
    async with Producer(cluster.namesrv, group="g", options=QUICK_OPTIONS) as producer:
        for number in range(200):
            await producer.submit(Message("T", b"%d" % number), outcomes.append)
    assert len({outcome.message_id for outcome in outcomes if isinstance(outcome, SendReceipt)}) == 200
    assert own_tasks() == before
    with pytest.raises(ProducerClosed):
        await producer.submit(Message("T", b"x"))


async def test_a_close_that_is_cancelled_while_it_waits_leaves_nothing(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    before, outcomes = own_tasks(), list[Outcome]()
    cluster.broker.on[SEND] = lambda request: None

    async def work() -> None:
        async with Producer(
            cluster.namesrv, group="g", timeout=PATIENCE_S, retries=0, options=QUICK_OPTIONS
        ) as producer:
            await producer.submit(Message("T", b"x"), outcomes.append)

    working = asyncio.create_task(work())
    await cluster.broker.request(SEND)
    working.cancel()
    await asyncio.wait([working])
    await until(lambda: own_tasks() == before)
    assert [type(outcome).__name__ for outcome in outcomes] == ["SendFailed"], "its connection is closed"


async def test_a_callback_that_fails_is_logged_and_nothing_else(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add_topic("T")

    def broken(outcome: Outcome) -> None:
        raise RuntimeError("no")

    async with Producer(cluster.namesrv, group="g", options=QUICK_OPTIONS) as producer:
        assert await (await producer.submit(Message("T", b"x"), broken))
    assert "told of a send, failed" in caplog.text


async def test_a_window_of_nothing_is_refused(cluster: FakeCluster) -> None:
    with pytest.raises(ConfigError, match="max_in_flight 0"):
        Producer(cluster.namesrv, group="g", max_in_flight=0)


def test_threads_submit_through_the_blocking_face() -> None:
    with threaded_cluster() as cluster:
        cluster.add_topic("T")
        outcomes: list[Outcome] = []
        with blocking.Producer(
            cluster.namesrv, group="g", autobatch=AutoBatch(linger_s=0.001), options=QUICK_OPTIONS
        ) as producer:

            def work() -> None:
                for _ in range(20):
                    producer.submit(Message("T", b"x"), outcomes.append)

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert producer.submit(Message("T", b"last")).result(PATIENCE_S).message_id
        assert len({outcome.message_id for outcome in outcomes if isinstance(outcome, SendReceipt)}) == 80


def test_a_callback_that_would_wait_for_itself_is_told_so() -> None:
    with threaded_cluster() as cluster:
        cluster.add_topic("T")
        told: list[Exception] = []
        with blocking.Producer(cluster.namesrv, group="g", options=QUICK_OPTIONS) as producer:

            def send_more(outcome: Outcome) -> None:
                try:
                    producer.send(Message("T", b"more"))
                except ClientError as error:
                    told.append(error)

            producer.submit(Message("T", b"x"), send_more).result(PATIENCE_S)
        assert "must not wait" in str(told[0])
