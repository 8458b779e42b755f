"""Messages whose bodies cannot be inflated: no handler sees them, and nobody else waits for them."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.unit.client.fakes import QUICK_OPTIONS, FakeCluster, refused, until
from tests.unit.client.pop_fakes import FakePops

from rocketline.client import ConsumeFrom, MessageModel, PopConsumer, PullConsumer, PushConsumer
from rocketline.client.serializers import decode
from rocketline.errors import UnreadableBody
from rocketline.message import MessageView
from rocketline.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, decode_body, encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.compression import ZSTD
from rocketline.protocol.headers import SendMessageHeader
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, decode_properties
from rocketline.protocol.record_layout import COMPRESSED
from rocketline.transport import Reply

BACK, SEND = RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2
BAD = COMPRESSED | ZSTD
GOOD = [b"0", b"1", b"3", b"4"]


def fill(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    for number in range(5):
        flag = BAD if number == 2 else 0
        cluster.broker.store("T", 0, b"%d" % number, {"UNIQ_KEY": f"U{number}"}, sys_flag=flag)


def grant_locks(cluster: FakeCluster) -> None:
    def lock(request: Command) -> Reply:
        wanted = decode_body(LockBatchRequestBody, request.body).mq_set
        return request.reply(ResponseCode.SUCCESS, body=encode_body(LockBatchResponseBody(wanted)))

    cluster.broker.on[RequestCode.LOCK_BATCH_MQ] = lock
    cluster.broker.on[RequestCode.UNLOCK_BATCH_MQ] = lambda request: request.reply(ResponseCode.SUCCESS)


def push(cluster: FakeCluster, **options: Any) -> PushConsumer:
    return PushConsumer(
        cluster.namesrv, group="g", **{"from_where": ConsumeFrom.FIRST, "options": QUICK_OPTIONS, **options}
    )


def committed(cluster: FakeCluster) -> int | None:
    return cluster.broker.committed.get(("g", "T", 0))


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_a_push_consumer_hands_it_back_and_goes_on(
    cluster: FakeCluster, batch_size: int, ordered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """In order it would fail for ever: it goes to the dead letters at once. Its neighbours do not fail with it."""
    fill(cluster)
    grant_locks(cluster)
    seen: list[MessageView] = []

    async def handle(messages: Any) -> None:
        seen.extend(messages if batch_size > 1 else [messages])

    async with push(cluster, batch_size=batch_size, ordered=ordered) as consumer:
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        await until(lambda: len(seen) == 4 and len(cluster.broker.sent_back) == 1)
        assert consumer.problems == []
    assert sorted(message.body for message in seen) == GOOD
    assert {message.reconsume_times for message in seen} == {0}
    [back] = cluster.broker.sent_back
    assert (back.origin_msg_id, back.delay_level) == ("U2", -1 if ordered else 0)
    assert committed(cluster) == 5
    [line] = [record.getMessage() for record in caplog.records if "U2" in record.getMessage()]
    assert "offset 2 of T" in line
    assert "cannot be inflated" in line


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_broadcasting_leaves_it_behind(
    cluster: FakeCluster, ordered: bool, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster)
    seen: list[bytes] = []

    async def handle(message: MessageView) -> None:
        seen.append(message.body)

    async with push(cluster, model=MessageModel.BROADCASTING, ordered=ordered, offsets=tmp_path / "o") as consumer:
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        await until(lambda: len(seen) == 4)
    assert sorted(seen) == GOOD
    assert cluster.broker.requests_of(BACK, SEND) == []
    assert "U2" in caplog.text


async def test_a_pull_consumer_polls_it_as_it_was_stored(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster)
    async with PullConsumer(
        cluster.namesrv, group="g", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS
    ) as consumer:
        await consumer.subscribe("T")
        polled: list[MessageView] = []
        while len(polled) < 5:
            polled += await consumer.poll()
        assert consumer.problems == []
    assert [message.body for message in polled] == [b"0", b"1", b"2", b"3", b"4"]
    assert [number for number, message in enumerate(polled) if message.body_problem is not None] == [2]
    assert (polled[2].sys_flag, committed(cluster)) == (BAD, 5)
    with pytest.raises(UnreadableBody, match="U2, offset 2 of T"):
        decode(polled[2], "json")
    assert decode(polled[3], "json") == 3
    assert [record.levelno for record in caplog.records if "U2" in record.getMessage()] == [logging.ERROR]


@pytest.mark.parametrize("ordered", [False, True], ids=["any order", "ordered"])
async def test_a_pop_consumer_gets_its_neighbours(cluster: FakeCluster, ordered: bool) -> None:
    cluster.add_topic("T", 1)
    pops = FakePops(cluster.broker)
    fill(cluster)
    async with PopConsumer(cluster.namesrv, group="g", ordered=ordered, options=QUICK_OPTIONS) as consumer:
        await consumer.subscribe("T")
        received: list[MessageView] = []
        while len(received) < 4:
            received += await consumer.receive()
        assert sorted(message.body for message in received) == GOOD
        await consumer.ack_batch(received)
        if ordered:
            await until(lambda: len(pops.acked_offsets) == 5)
    assert len(pops.acked_offsets) == (5 if ordered else 4), "it comes again when its time is over"
    assert [header.delay_level for header in cluster.broker.sent_back] == ([-1] if ordered else [])


def sent(cluster: FakeCluster) -> list[SendMessageHeader]:
    return [SendMessageHeader.decode(request) for request in cluster.broker.requests_of(SEND)]


async def test_as_a_new_message_it_stays_as_it_was(cluster: FakeCluster) -> None:
    """A broker that does not take messages back gets it packed: inflated it would be another one."""
    cluster.add_topic("%RETRY%g", 1)
    fill(cluster)
    cluster.broker.on[BACK] = lambda request: refused(request, ResponseCode.SYSTEM_ERROR)
    cluster.broker.on[SEND] = lambda request: cluster.broker.stored(request, SendMessageHeader.decode(request), [0], 0)
    async with push(cluster) as consumer:
        consumer.subscribe("T", "*", lambda message: None)
        await consumer.start()
        await until(lambda: len(sent(cluster)) == 1)
    [header] = sent(cluster)
    assert (header.sys_flag, header.reconsume_times, header.max_reconsume_times) == (BAD, 1, 16)
    assert cluster.broker.requests_of(SEND)[0].body == b"2"


@pytest.mark.parametrize("times", [0, 3, (1 << 31) - 1, -(1 << 31)])
@pytest.mark.parametrize("spare", [0, 200, 3000])
async def test_one_that_nobody_takes_back_ends_with_what_fits(cluster: FakeCluster, times: int, spare: int) -> None:
    """It would be tried here for ever, and its queue would stop after a span of 2,000."""
    cluster.add_topic("%RETRY%g", 1)
    cluster.add_topic("T", 1)
    filler = {f"n{number}": "v" * 500 for number in range(64)}
    properties = {**filler, "UNIQ_KEY": "U", "KEYS": "k", "odd": "a\x01b"}
    room = MAX_PROPERTIES_BYTES - sum(len(name) + len(value) + 2 for name, value in properties.items())
    properties["rest"] = "v" * (room - spare - 6) if room - spare > 6 else "v"
    cluster.broker.store("T", 0, b"full", properties, reconsume_times=times)

    def send(request: Command) -> Reply:
        asked = SendMessageHeader.decode(request)
        if len(asked.properties) > MAX_PROPERTIES_BYTES - 2000:
            return refused(request, ResponseCode.MESSAGE_ILLEGAL)
        return cluster.broker.stored(request, asked, [0], 0)

    cluster.broker.on[BACK] = lambda request: refused(request, ResponseCode.MESSAGE_ILLEGAL)
    cluster.broker.on[SEND] = send

    async def fail(message: MessageView) -> None:
        raise ValueError("it never works")

    async with push(cluster) as consumer:
        consumer.subscribe("T", "*", fail)
        await consumer.start()
        await until(lambda: any(header.reconsume_times > (header.max_reconsume_times or 0) for header in sent(cluster)))
    assert committed(cluster) == 1
    header = sent(cluster)[-1]
    assert header.max_reconsume_times is not None
    assert header.reconsume_times > header.max_reconsume_times, "the broker puts it among the dead letters"
    kept = decode_properties(header.properties)
    assert (kept["RETRY_TOPIC"], kept["UNIQ_KEY"], kept["KEYS"], "DELAY" in kept) == ("T", "U", "k", False)
    assert len(kept) > 50
