"""The blocking clients against a scripted cluster that runs on an event loop in another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import QUICK_OPTIONS, FakeCluster, fake_cluster
from tests.unit.client.pop_fakes import FakePops

from rocketline.client import ConsumeFrom, SeekTo, SendStatus, blocking
from rocketline.errors import ClientError, ConfigError, RouteNotFound
from rocketline.message import Message, MessageQueue, MessageView


@contextmanager
def threaded_cluster() -> Iterator[FakeCluster]:
    ready: list[FakeCluster] = []
    started, ended = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with fake_cluster() as cluster:
            ready.append(cluster)
            started.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(PATIENCE_S)
    try:
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(PATIENCE_S)
        loop.close()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with threaded_cluster() as made:
        made.add_topic("T", 2)
        yield made


def background_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rocketline"]


def test_send_and_receive(cluster: FakeCluster) -> None:
    received: list[bytes] = []
    all_here = threading.Event()

    def handle(message: MessageView) -> None:
        received.append(message.body)
        if len(received) == 4:
            all_here.set()

    with blocking.Producer(cluster.namesrv, group="shop", options=QUICK_OPTIONS) as producer:
        assert producer.send(Message("T", b"one")).status is SendStatus.OK
        assert len(producer.send_batch([Message("T", b"two"), Message("T", b"three")])) == 2
        producer.send_oneway(Message("T", b"four"))
        assert len(producer.queues("T")) == 2
        with blocking.PushConsumer(
            cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS
        ) as consumer:
            assert len(background_threads()) == 1, "all blocking clients share one thread"
            consumer.subscribe("T", "*", handle)
            running = threading.Thread(target=consumer.run)
            running.start()
            assert all_here.wait(PATIENCE_S)
            consumer.stop()
            running.join(PATIENCE_S)
            assert not running.is_alive()
    assert sorted(received) == [b"four", b"one", b"three", b"two"]
    assert not background_threads()


def test_messages_in_a_plain_loop(cluster: FakeCluster) -> None:
    with blocking.Producer(cluster.namesrv, group="shop", options=QUICK_OPTIONS) as producer:
        for number in range(3):
            producer.send(Message("T", b"%d" % number))
    with blocking.PushConsumer(
        cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS
    ) as consumer:
        seen = []
        for message in consumer.messages("T"):
            seen.append(message.body)
            if len(seen) == 3:
                consumer.stop()
    assert sorted(seen) == [b"0", b"1", b"2"]
    committed = [value for (_, topic, _), value in cluster.broker.committed.items() if topic == "T"]
    assert sum(committed) == 3


def test_polling(cluster: FakeCluster) -> None:
    with (
        blocking.Producer(cluster.namesrv, group="shop", options=QUICK_OPTIONS) as producer,
        blocking.PullConsumer(
            cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS
        ) as consumer,
    ):
        receipt = producer.send(Message("T", b"x"))
        consumer.assign(consumer.queues("T"))
        (message,) = consumer.poll()
        assert message.body == b"x"
        assert consumer.position(receipt.queue) == 1
        consumer.commit()
        assert consumer.committed(receipt.queue) == 1
        consumer.seek(receipt.queue, 0)
        assert consumer.poll()[0].body == b"x"
        assert (consumer.begin_offset(receipt.queue), consumer.end_offset(receipt.queue)) == (0, 1)
        assert consumer.offset_at(receipt.queue, datetime(2026, 1, 1, tzinfo=UTC)) == 7


def test_pulling_as_a_member(cluster: FakeCluster) -> None:
    told: list[int] = []

    def added(queues: list[MessageQueue]) -> None:
        for queue in queues:
            consumer.seek(queue, SeekTo.BEGIN)  # a plain listener may use the blocking consumer
        told.append(len(queues))

    with blocking.Producer(cluster.namesrv, group="shop", options=QUICK_OPTIONS) as producer:
        queue = producer.queues("T")[0]
        for number in range(3):
            producer.send(Message("T", b"%d" % number), queue=queue)
    consumer = blocking.PullConsumer(cluster.namesrv, group="g", on_added=added, options=QUICK_OPTIONS)
    with consumer:
        consumer.subscribe("T")
        assert (told, consumer.assigned) == ([2], set(consumer.queues("T")))
        seen = []
        for message in consumer:
            seen.append(message.body)
            if len(seen) == 2:
                break
        consumer.pause([queue])
        assert (consumer.paused, consumer.problems) == ({queue}, [])
        assert consumer.poll(timeout=0.02) == []
        consumer.resume([queue])
        assert [message.body for message in consumer.poll()] == [b"2"]
        assert consumer.poll(timeout=0) == []  # that says the one before is done
        consumer.unsubscribe("T")
    assert seen == [b"0", b"1"]
    assert cluster.broker.committed["g", "T", 0] == 3


def test_errors_come_through(cluster: FakeCluster) -> None:
    producer = blocking.Producer(cluster.namesrv, group="shop", options=QUICK_OPTIONS)
    with pytest.raises(ClientError, match="inside 'with'"):
        producer.send(Message("T", b"x"))
    with producer:
        with pytest.raises(RouteNotFound):
            producer.send(Message("nowhere", b"x"))
        with pytest.raises(ClientError, match="already open"):
            producer.__enter__()
    with pytest.raises(ConfigError), blocking.Producer("", group="shop"):
        pass
    assert not background_threads()


def test_many_threads_may_share_a_producer(cluster: FakeCluster) -> None:
    receipts = []
    with blocking.Producer(cluster.namesrv, group="shop", options=QUICK_OPTIONS) as producer:

        def send() -> None:
            for _ in range(10):
                receipts.append(producer.send(Message("T", b"x")))

        threads = [threading.Thread(target=send) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert len({(receipt.queue, receipt.queue_offset) for receipt in receipts}) == 50


def test_a_callback_that_closes_the_client_is_told_and_does_no_harm(cluster: FakeCluster) -> None:
    told: list[Exception] = []

    def closes(_: object) -> None:
        try:
            producer.close()
        except Exception as error:
            told.append(error)

    with blocking.Producer(cluster.namesrv, group="shop", options=QUICK_OPTIONS) as producer:
        producer.submit(Message("T", b"x"), closes).result(PATIENCE_S)
        assert producer.send(Message("T", b"y")).status is SendStatus.OK
    assert [type(error) for error in told] == [ClientError] and "must not wait" in str(told[0])
    assert not background_threads()


def test_hooks_and_statistics(cluster: FakeCluster) -> None:
    sent, ended = [], threading.Event()
    with blocking.Producer(cluster.namesrv, group="shop", options=QUICK_OPTIONS) as producer:
        producer.add_hook(after=sent.append)
        producer.send(Message("T", b"one"))
    with blocking.PushConsumer(
        cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS
    ) as consumer:
        consumer.subscribe("T", "*", lambda message: None)
        consumer.add_hook(after=lambda context: ended.set())
        consumer.start()
        assert ended.wait(PATIENCE_S)
        assert set(consumer.stats) == {"T"}
    assert [len(context.receipts) for context in sent] == [1]


def test_pop(cluster: FakeCluster) -> None:
    for number in range(4):
        cluster.broker.store("T", number % 2, b"%d" % number)
    pops = FakePops(cluster.broker)
    with blocking.PopConsumer(cluster.namesrv, group="G", options=QUICK_OPTIONS) as consumer:
        consumer.subscribe("T")
        (first,) = consumer.receive(1, invisible=20.0)
        consumer.ack(consumer.extend(first, 30.0))
        (second,) = consumer.receive(1, wait=0.0)
        consumer.nack(second, delay=3.0)
        (third,) = consumer.receive(1)
        consumer.ack_batch([third])
        for message in consumer:
            assert (message.queue_id, message.queue_offset) == (1, 1)
            consumer.ack(message)
            break
        consumer.unsubscribe("T")
    assert {change.invisible_ms for change in pops.changes} == {30_000, 3000}
    assert len(pops.acked_offsets) == 3
    assert not background_threads()
