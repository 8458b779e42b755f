"""The bulk reader against a scripted cluster that runs on an event loop in another thread, and on a real broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import SILENCE, FakeCluster, fake_cluster, found, pull_fields

from rocketline.client import blocking
from rocketline.client.bulk.range import BulkReply
from rocketline.client.bulk.reader import BulkReader
from rocketline.client.consumer.group.subscription import Sql
from rocketline.clock import ManualClock
from rocketline.errors import (
    BrokerError,
    ConfigError,
    InvalidMessage,
    RangeNotAvailable,
    RemoteProtocolError,
    RequestTimeout,
    RouteNotFound,
)
from rocketline.message import Message, MessageQueue
from rocketline.protocol.bodies import TopicOffset, TopicStatsTable, encode_body, queue_key
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import PullMessageHeader
from rocketline.testing import LocalCluster

PULL = RequestCode.PULL_MESSAGE
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    ready: list[FakeCluster] = []
    started, ended = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with fake_cluster() as made:
            made.add_topic("T", 2)
            for number in range(100):
                made.broker.store("T", 0, b"%d" % number, {"TAGS": "even" if number % 2 == 0 else "odd"})
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


def reading(cluster: FakeCluster, **options: Any) -> BulkReader:
    return BulkReader(cluster.namesrv, group="bulk", **{"timeout": PATIENCE_S, **options})


def numbers(replies: Iterator[BulkReply]) -> list[int]:
    return [int(message.body) for reply in replies for message in reply.messages()]


def test_a_broker_is_asked_once_about_all_queues_of_a_topic_if_it_answers(cluster: FakeCluster) -> None:
    stats = RequestCode.GET_TOPIC_STATS_INFO

    def answer(request: Command) -> Command:
        queues = {
            queue_key(MessageQueue("T", "broker-a", 0)): TopicOffset(0, 100, 5),
            queue_key(MessageQueue("T", "broker-a", 1)): TopicOffset(-1, 0, 0),
        }
        return request.reply(ResponseCode.SUCCESS, body=encode_body(TopicStatsTable(queues)))

    expected = [(QUEUE, (0, 100)), (MessageQueue("T", "broker-a", 1), (0, 0))]
    with reading(cluster) as reader:
        queues = sorted(reader.queues("T"))
        # The broker of this cluster does not know the request; it is not asked again.
        for _ in range(2):
            assert sorted(reader.all_bounds(queues).items()) == expected
        singles = len(cluster.broker.requests_of(RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET))
        assert (len(cluster.broker.requests_of(stats)), singles) == (1, 8)
    cluster.broker.on[stats] = answer
    with reading(cluster) as reader:
        assert sorted(reader.all_bounds(queues).items()) == expected
        assert len(cluster.broker.requests_of(RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET)) == singles


def test_when_messages_were_stored(cluster: FakeCluster) -> None:
    with reading(cluster) as reader:
        stored = reader.store_times({QUEUE: 7, MessageQueue("T", "broker-a", 1): 0})
        (message,) = [message for reply in reader.read(QUEUE, 7, 8) for message in reply.messages()]
    assert stored == {QUEUE: message.store_ms}, "queue 1 has no message"


def test_a_range_that_was_begun_is_read_after_another_one(cluster: FakeCluster) -> None:
    with reading(cluster) as reader:
        first, second = reader.reading(QUEUE, 0, 50), reader.reading(QUEUE, 50, 100)
        first.begin()
        second.begin()
        assert numbers(first.replies()) == [*range(50)]
        for channel in list(cluster.broker.channels):
            channel.close()
        assert numbers(second.replies()) == [*range(50, 100)]


def limit_replies(cluster: FakeCluster, *sizes: int) -> None:
    """Answer pulls with that many messages, in turn, as a broker with limits of its own does."""
    turns = iter(range(1_000_000))

    def answer(request: Command) -> Command:
        header = PullMessageHeader.decode(request)
        queue = cluster.broker.queues["T", 0]
        start = header.queue_offset - queue.first
        records = queue.records[start : start + min(header.max_msg_nums, sizes[next(turns) % len(sizes)])]
        return found(request, queue, header.queue_offset + len(records), b"".join(records))

    cluster.broker.on[PULL] = answer


def test_a_range_comes_as_stored_records(cluster: FakeCluster) -> None:
    with reading(cluster) as reader:
        assert reader.queues("T") == (QUEUE, MessageQueue("T", "broker-a", 1))
        assert reader.bounds(QUEUE) == (0, 100)
        assert reader.offset_at(QUEUE, datetime(2026, 1, 1, tzinfo=UTC)) == 7
        (reply,) = reader.read(QUEUE, 10, 30)
        assert (reply.first_offset, reply.next_offset) == (10, 30)
        assert bytes(reply.records) == b"".join(cluster.broker.queues["T", 0].records[10:30])
        assert reply.records.readonly
        assert [message.queue_offset for message in reply.messages()] == list(range(10, 30))
        assert list(reader.read(QUEUE, 5, 5)) == []
    header = PullMessageHeader.decode(cluster.broker.requests_of(PULL)[0])
    assert (header.sys_flag, header.suspend_ms, header.max_msg_nums) == (0x4, 0, 20)
    assert not cluster.broker.requests_of(RequestCode.HEART_BEAT, RequestCode.UPDATE_CONSUMER_OFFSET)


@pytest.mark.parametrize("sizes", [(32,), (7, 3), (1,), (5, 5, 5, 2), (64, 1)])
def test_brokers_give_as_much_as_they_like(cluster: FakeCluster, sizes: tuple[int, ...]) -> None:
    limit_replies(cluster, *sizes)
    with reading(cluster, batch=64) as reader:
        assert numbers(reader.read(QUEUE, 3, 97)) == list(range(3, 97))


def test_pulls_are_under_way_while_a_reply_is_used(cluster: FakeCluster) -> None:
    limit_replies(cluster, 10)
    with reading(cluster, batch=64) as reader:
        replies = reader.read(QUEUE, 0, 100)
        next(replies)
        second = next(replies)
        assert second.first_offset == 10
        never = threading.Event()
        for _ in range(2000):
            if len(cluster.broker.requests_of(PULL)) >= 8:
                break
            never.wait(0.005)
        assert [PullMessageHeader.decode(r).max_msg_nums for r in cluster.broker.requests_of(PULL)[:3]] == [64, 10, 10]
        replies.close()  # type: ignore[attr-defined]
        assert numbers(reader.read(QUEUE, 50, 60)) == list(range(50, 60)), "late answers to the first are not taken"


def test_two_ranges_may_be_read_in_turn(cluster: FakeCluster) -> None:
    limit_replies(cluster, 10)
    with reading(cluster, batch=10) as reader:
        first, second = reader.read(QUEUE, 0, 40), reader.read(QUEUE, 60, 100)
        pairs = [(one.first_offset, other.first_offset) for one, other in zip(first, second, strict=True)]
    assert pairs == [(0, 60), (10, 70), (20, 80), (30, 90)]


def test_what_goes_beyond_the_range_is_cut_off(cluster: FakeCluster) -> None:
    queue = cluster.broker.queues["T", 0]
    cluster.broker.on[PULL] = lambda request: found(request, queue, 20, b"".join(queue.records[10:20]))
    with reading(cluster) as reader:
        (reply,) = reader.read(QUEUE, 10, 15)
        assert (reply.next_offset, [m.queue_offset for m in reply.messages()]) == (15, [10, 11, 12, 13, 14])


def test_tags_select_and_what_does_not_match_is_passed(cluster: FakeCluster) -> None:
    queue = cluster.broker.queues["T", 0]
    cluster.broker.script(
        PULL, lambda request: request.reply(ResponseCode.PULL_RETRY_IMMEDIATELY, pull_fields(queue, 50))
    )
    with reading(cluster) as reader:
        assert numbers(reader.read(QUEUE, 0, 60, "even || odd")) == list(range(50, 60))
    assert {PullMessageHeader.decode(r).subscription for r in cluster.broker.requests_of(PULL)} == {"even || odd"}


def test_deleted_messages_are_told_of_or_skipped(cluster: FakeCluster) -> None:
    cluster.broker.queues["T", 0].first = 100  # the records are now 100 to 199
    with reading(cluster) as reader:
        with pytest.raises(RangeNotAvailable, match="begins at 100") as gone:
            list(reader.read(QUEUE, 40, 110))
        assert gone.value.available_offset == 100
        assert len(numbers(reader.read(QUEUE, 40, 110, skip_gone=True))) == 10
        assert numbers(reader.read(QUEUE, 10, 90, skip_gone=True)) == []


def test_a_range_beyond_the_end_is_told_of(cluster: FakeCluster) -> None:
    with reading(cluster) as reader:
        with pytest.raises(RangeNotAvailable, match="ends at 100") as beyond:
            list(reader.read(QUEUE, 105, 110))
        assert beyond.value.available_offset == 100


def test_the_end_is_told_of_also_when_the_last_question_is_not_answered(cluster: FakeCluster) -> None:
    queue = cluster.broker.queues["T", 0]
    asked = iter(range(1000))

    def once(request: Command) -> Command | None:
        return request.reply(ResponseCode.PULL_NOT_FOUND, pull_fields(queue, 100)) if next(asked) < 3 else None

    with reading(cluster, timeout=3.0) as reader:
        reader.bounds(QUEUE)
        cluster.broker.on[PULL] = once
        with pytest.raises(RangeNotAvailable, match="nothing at 100"):
            list(reader.read(QUEUE, 100, 101))


def test_a_lost_connection_is_made_anew(cluster: FakeCluster) -> None:
    limit_replies(cluster, 10)
    usual = cluster.broker.on[PULL]

    def cut(request: Command) -> None:
        for channel in list(cluster.broker.channels):
            channel.close()

    cluster.broker.script(PULL, usual, cut)
    with reading(cluster, batch=10) as reader:
        assert numbers(reader.read(QUEUE, 0, 50)) == list(range(50))


def test_a_name_server_may_close_a_connection_that_was_idle(cluster: FakeCluster) -> None:
    server = cluster.name_server

    def cut(request: Command) -> None:
        for channel in list(server.channels):
            channel.close()

    with reading(cluster) as reader:
        before = reader.queues("T")
        server.script(ROUTE, cut)
        assert reader.queues("T") == before
        server.script(ROUTE, cut, cut)
        with pytest.raises(RouteNotFound, match="the peer closed it"):
            reader.queues("T")


def test_a_busy_broker_is_asked_again_and_a_refusal_raised(cluster: FakeCluster) -> None:
    cluster.broker.script(PULL, ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL)
    with reading(cluster) as reader:
        assert numbers(reader.read(QUEUE, 0, 5)) == list(range(5))
        cluster.broker.script(PULL, ResponseCode.NO_PERMISSION)
        with pytest.raises(BrokerError, match="as scripted"):
            list(reader.read(QUEUE, 0, 5))


def test_no_wait_is_without_limit(cluster: FakeCluster) -> None:
    cluster.broker.script(PULL, *[SILENCE] * 50)
    with reading(cluster, timeout=1.0) as reader, pytest.raises(RequestTimeout, match="did not answer"):
        list(reader.read(QUEUE, 0, 5))


@pytest.mark.parametrize("body", [b"", b"\0" * 200])
def test_nonsense_is_refused(cluster: FakeCluster, body: bytes) -> None:
    queue = cluster.broker.queues["T", 0]
    cluster.broker.on[PULL] = lambda request: found(request, queue, 20, body)
    with reading(cluster) as reader, pytest.raises(RemoteProtocolError):
        list(reader.read(QUEUE, 0, 5))


def test_mistakes_are_told(cluster: FakeCluster) -> None:
    with reading(cluster, timeout=1.0) as reader:
        with pytest.raises(RouteNotFound, match="nowhere"):
            reader.queues("nowhere")
        with pytest.raises(RouteNotFound, match="broker-z"):
            reader.bounds(MessageQueue("T", "broker-z", 0))
        for start, end in ((-1, 5), (5, 4)):
            with pytest.raises(InvalidMessage, match="range"):
                reader.read(QUEUE, start, end)
    with pytest.raises(ConfigError, match="batch"):
        reading(cluster, batch=0)
    with pytest.raises(ConfigError, match="timeout"):
        reading(cluster, timeout=0)
    with BulkReader("127.0.0.1:1", group="bulk") as reader, pytest.raises(RouteNotFound, match="reached"):
        reader.queues("T")
    with (
        BulkReader("127.0.0.1:1", group="bulk") as reader,
        pytest.raises(RouteNotFound, match=r"its list of topics: .*:1"),
    ):
        reader.topics()


def test_a_long_way_without_a_match_is_no_standstill(cluster: FakeCluster) -> None:
    clock, queue = ManualClock(), cluster.broker.queues["T", 0]

    def nothing(request: Command) -> Command:
        clock.advance(PATIENCE_S * 0.6)
        at = PullMessageHeader.decode(request).queue_offset
        return request.reply(ResponseCode.PULL_RETRY_IMMEDIATELY, pull_fields(queue, at + 10))

    cluster.broker.script(PULL, *[nothing] * 8)
    with reading(cluster, clock=clock) as reader:
        assert numbers(reader.read(QUEUE, 0, 100, "rare")) == list(range(80, 100))


def test_sql_is_for_the_broker_to_evaluate(cluster: FakeCluster) -> None:
    with reading(cluster) as reader:
        assert len(numbers(reader.read(QUEUE, 0, 5, Sql("a > 5")))) == 5
    header = PullMessageHeader.decode(cluster.broker.requests_of(PULL)[0])
    assert (header.expression_type, header.subscription) == ("SQL92", "a > 5")


def test_many_queues_are_asked_at_once_and_failures_again(cluster: FakeCluster) -> None:
    queues = [QUEUE, MessageQueue("T", "broker-a", 1)]
    cluster.broker.script(RequestCode.GET_MAX_OFFSET, ResponseCode.SYSTEM_BUSY)
    with reading(cluster) as reader:
        assert reader.ends(queues) == {queues[0]: 100, queues[1]: 0}
        assert reader.begins(queues) == dict.fromkeys(queues, 0)
        cluster.broker.script(RequestCode.GET_MIN_OFFSET, ResponseCode.NO_PERMISSION)
        with pytest.raises(BrokerError, match="as scripted"):
            reader.begins(queues)
        assert reader.begins(queues) == dict.fromkeys(queues, 0), "answers nobody waited for do no harm"


def test_offsets_of_the_group_are_set_and_asked_for(cluster: FakeCluster) -> None:
    other = MessageQueue("T", "broker-a", 1)
    with reading(cluster) as reader:
        assert reader.group_offsets([QUEUE, other]) == {}
        reader.commit({QUEUE: 42})
        assert reader.group_offsets([QUEUE, other]) == {QUEUE: 42}


def test_a_real_broker_answers_in_large_replies() -> None:
    with LocalCluster() as real:
        with blocking.Producer(real.namesrv, group="fill") as producer:
            queue = producer.send(Message("bulk", b"0")).queue
            for start in range(1, 2001, 50):
                producer.send_batch([Message("bulk", b"%d" % n) for n in range(start, start + 50)], queue=queue)
        with BulkReader(real.namesrv, group="bulk", timeout=PATIENCE_S) as reader:
            replies = list(reader.read(queue, *reader.bounds(queue)))
            assert [int(m.body) for reply in replies for m in reply.messages()] == list(range(2001))
            assert len(replies) < 2001 // 32, "more than Apache's 32 messages at once"
            assert "bulk" in reader.topics()
