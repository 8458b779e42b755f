"""The bulk writer against a scripted cluster that runs on an event loop in another thread, and on a real broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import SILENCE, FakeCluster, fake_cluster

from rocketline.client.bulk.reader import BulkReader
from rocketline.client.bulk.writer import COLLECTED_BATCHES, BulkWriter
from rocketline.errors import BrokerError, ConfigError, InvalidMessage, RouteNotFound, SendFailed
from rocketline.message import UNIQ_KEY, Message, MessageQueue
from rocketline.protocol.bodies import BrokerData, TopicRouteData, encode_route
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.records import BatchItem, decode_batch, decode_message, encode_batch
from rocketline.testing import LocalCluster

SINGLE, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    ready: list[FakeCluster] = []
    started, ended = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with fake_cluster(2) as made:
            made.add_topic("T", 2)
            made.add_template(4)
            ready.append(made)
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


def writing(cluster: FakeCluster, **options: Any) -> BulkWriter:
    return BulkWriter(cluster.namesrv, group="bulk", **{"timeout": PATIENCE_S, **options})


def sent(cluster: FakeCluster, *codes: int) -> list[tuple[SendMessageHeader, Command]]:
    return [
        (SendMessageHeader.decode(request), request)
        for broker in cluster.brokers
        for request in broker.requests_of(*codes or (SINGLE, BATCH))
    ]


def test_messages_travel_in_batches_and_queues_take_turns(cluster: FakeCluster) -> None:
    with writing(cluster, batch_bytes=600) as writer:
        for number in range(40):
            writer.send(Message("T", b"%02d" % number, tag="a", properties={UNIQ_KEY: f"id-{number}"}))
        writer.flush()
        assert (writer.counts.messages, writer.counts.body_bytes, writer.counts.sent_again) == (40, 80, 0)
    requests = sent(cluster, BATCH)
    assert 4 <= len(requests) == writer.counts.requests < 10
    assert {(header.broker_name, header.queue_id) for header, _ in requests} == {
        (name, number) for name in ("broker-a", "broker-b") for number in (0, 1)
    }
    items = [item for _, request in requests for item in decode_batch(request.body)]
    properties = [decode_properties(bytes(item.properties).decode()) for item in items]
    assert sorted((bytes(item.body), found[UNIQ_KEY], found["TAGS"]) for item, found in zip(items, properties)) == [
        (b"%02d" % number, f"id-{number}", "a") for number in range(40)
    ]


def test_a_chosen_queue_is_kept_and_a_topic_has_batches_of_its_own(cluster: FakeCluster) -> None:
    queue = MessageQueue("T", "broker-b", 1)
    with writing(cluster) as writer:
        for _ in range(5):
            writer.send(Message("T", b"x"), queue)
            writer.send(Message("U", b"y"))
        writer.flush()
        with pytest.raises(InvalidMessage, match="for topic 'U', the queue is T@"):
            writer.send(Message("U", b"x"), queue)
    found = {header.topic: (header.broker_name, header.queue_id) for header, _ in sent(cluster)}
    assert found["T"] == ("broker-b", 1)
    assert found["U"][1] in range(4), "a topic that nobody knows borrows the route of the template"


def test_messages_that_were_encoded_before_travel_with_others(cluster: FakeCluster) -> None:
    def items(*bodies: bytes) -> bytes:
        return encode_batch([BatchItem(7, body, b"UNIQ_KEY\x01x\x02") for body in bodies])

    queue = MessageQueue("T", "broker-a", 1)
    with writing(cluster, batch_bytes=400) as writer:
        before = writer.room("T", queue)
        writer.send_items("T", items(b"1", b"2"), 2, 2, queue)
        writer.send(Message("T", b"3"), queue)
        assert writer.room("T", queue) < before
        assert sent(cluster) == []
        writer.send_items("T", items(bytes(390)), 1, 390, queue)
        assert writer.room("T", queue) == (4000, 400), "a full batch is sent, and the next one is empty"
        writer.flush()
        assert (writer.counts.messages, writer.counts.body_bytes, writer.counts.requests) == (4, 393, 2)
    bodies = [[bytes(item.body) for item in decode_batch(request.body)] for _, request in sent(cluster, BATCH)]
    assert bodies == [[b"1", b"2", b"3"], [bytes(390)]]


def test_a_message_larger_than_a_batch_travels_alone(cluster: FakeCluster) -> None:
    with writing(cluster, batch_bytes=400) as writer:
        writer.send(Message("T", bytes(1000)))
        assert writer.room("T") == (4000, 400)
        writer.send(Message("T", b"1"))
        writer.send(Message("T", b"2"))
        writer.flush()
        assert (writer.counts.messages, writer.counts.requests) == (3, 2)


def test_order_is_kept_among_messages_that_are_waited_for_and_others(cluster: FakeCluster) -> None:
    queue = MessageQueue("T", "broker-a", 0)
    with writing(cluster) as writer:
        for number in range(12):
            writer.send(Message("T", b"%02d" % number, wait_stored=number % 3 == 0), queue, ordered=True)
        writer.flush()
    stored = cluster.broker.queues["T", 0].records
    assert [int(decode_message(record, 0, len(record)).body) for record in stored] == list(range(12))


def test_what_is_collected_for_many_topics_is_bounded(cluster: FakeCluster) -> None:
    with writing(cluster, batch_bytes=1000, in_flight=1000) as writer:
        for number in range(200):
            for _ in range(3):
                writer.send(Message(f"U{number}", bytes(100)))
        assert len(sent(cluster)) >= 200 - COLLECTED_BATCHES * 1000 // 500
        writer.flush()
        assert writer.counts.messages == 600


def test_delayed_messages_go_alone(cluster: FakeCluster) -> None:
    with writing(cluster) as writer:
        writer.send(Message("T", b"later", delay=timedelta(seconds=3)))
        writer.send(Message("T", b"then", deliver_at=datetime(2030, 1, 1, tzinfo=UTC)))
        writer.flush()
    properties = [decode_properties(header.properties) for header, _ in sent(cluster, SINGLE)]
    assert {found.get("TIMER_DELAY_MS") for found in properties} == {"3000", None}
    assert sent(cluster, BATCH) == []


def test_only_so_many_requests_are_under_way(cluster: FakeCluster) -> None:
    with writing(cluster, in_flight=3, timeout=2.0) as writer:
        for broker in cluster.brokers:
            broker.on[SINGLE] = lambda request: SILENCE
        with pytest.raises(SendFailed, match="1 messages for topic 'T' were not acknowledged after"):
            for _ in range(50):
                writer.send(Message("T", b"x", delay=timedelta(seconds=1)))
    assert len({header.properties for header, _ in sent(cluster)}) == 3, "the fourth waited for the first"


def test_ordered_messages_of_a_queue_wait_for_each_other(cluster: FakeCluster) -> None:
    queue = MessageQueue("T", "broker-a", 0)
    cluster.broker.script(BATCH, ResponseCode.SYSTEM_BUSY)
    with writing(cluster, batch_bytes=400) as writer:
        for number in range(30):
            writer.send(Message("T", b"%02d" % number), queue, ordered=True)
        writer.flush()
        assert writer.counts.sent_again == 1
    stored = cluster.broker.queues["T", 0].records
    assert [int(decode_message(record, 0, len(record)).body) for record in stored] == list(range(30))


def test_what_failed_is_sent_again_elsewhere_with_the_same_ids(cluster: FakeCluster) -> None:
    for broker in cluster.brokers:
        broker.script(BATCH, ResponseCode.SYSTEM_BUSY)
    with writing(cluster) as writer:
        for number in range(10):
            writer.send(Message("T", b"x", properties={UNIQ_KEY: f"id-{number}"}))
        writer.flush()
        assert (writer.counts.messages, writer.counts.sent_again) == (10, 2)
    requests = sent(cluster, BATCH)
    assert len({request.body for _, request in requests}) == 1
    assert {header.broker_name for header, _ in requests} == {"broker-a", "broker-b"}


def test_a_lost_connection_is_made_anew(cluster: FakeCluster) -> None:
    def cut(request: Command) -> object:
        for broker in cluster.brokers:
            for channel in list(broker.channels):
                channel.close()
        return None

    cluster.broker.script(BATCH, cut)
    with writing(cluster, batch_bytes=400) as writer:
        for _ in range(50):
            writer.send(Message("T", b"x"))
        writer.flush()
        assert writer.counts.messages == 50
        assert writer.counts.sent_again >= 1


def test_a_refusal_is_final(cluster: FakeCluster) -> None:
    for broker in cluster.brokers:
        broker.on[BATCH] = lambda request: request.reply(ResponseCode.MESSAGE_ILLEGAL, remark="as scripted")
    with writing(cluster) as writer:
        writer.send(Message("T", b"x"))
        writer.send(Message("T", b"x"))
        with pytest.raises(BrokerError, match="as scripted"):
            writer.flush()


@pytest.mark.parametrize("queue", [None, MessageQueue("T", "broker-a", 0)], ids=["any queue", "one queue"])
def test_a_group_without_master_is_waited_for(cluster: FakeCluster, queue: MessageQueue | None) -> None:
    led = cluster.name_server.routes["T"]
    leaderless = TopicRouteData(
        [BrokerData(data.cluster, data.broker_name, {1: data.broker_addrs[0]}) for data in led.broker_datas],
        led.queue_datas,
    )

    def tell(request: Command) -> Command:
        return request.reply(ResponseCode.SUCCESS, body=encode_route(leaderless, standard=True))

    with writing(cluster) as writer:
        cluster.name_server.script(RequestCode.GET_ROUTEINFO_BY_TOPIC, *[tell] * 4)
        writer.send(Message("T", b"x"), queue)
        writer.flush()
        assert writer.counts.messages == 1
    assert len(cluster.name_server.requests_of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 5


def test_less_durable_messages_count_as_stored(cluster: FakeCluster) -> None:
    broker = cluster.broker
    broker.on[SINGLE] = lambda request: broker.stored(
        request, SendMessageHeader.decode(request), [0], 0, ResponseCode.FLUSH_DISK_TIMEOUT
    )
    with writing(cluster) as writer:
        writer.send(Message("T", b"x"), MessageQueue("T", "broker-a", 0))
        writer.flush()
        assert (writer.counts.messages, writer.counts.less_durable) == (1, 1)


def test_mistakes_are_told(cluster: FakeCluster) -> None:
    with writing(cluster) as writer, pytest.raises(InvalidMessage, match="empty"):
        writer.send(Message("T", b""))
    with pytest.raises(ConfigError, match="in_flight"):
        writing(cluster, in_flight=0)
    with pytest.raises(ConfigError, match="batch_bytes 2097153: at most 2097152"):
        writing(cluster, batch_bytes=(2 << 20) + 1)
    with BulkWriter("127.0.0.1:1", group="bulk", timeout=0.2) as writer:
        writer.send(Message("T", b"x"))
        with pytest.raises((RouteNotFound, SendFailed), match="could be reached"):
            writer.flush()


def test_a_real_broker_stores_everything_once() -> None:
    with LocalCluster() as real:
        with BulkWriter(real.namesrv, group="bulk", batch_bytes=4096) as writer:
            for number in range(1000):
                writer.send(Message("bulk", b"%d" % number))
            writer.flush()
        with BulkReader(real.namesrv, group="read", timeout=PATIENCE_S) as reader:
            bodies = [
                int(message.body)
                for queue in reader.queues("bulk")
                for reply in reader.read(queue, *reader.bounds(queue))
                for message in reply.messages()
            ]
        assert sorted(bodies) == list(range(1000))
