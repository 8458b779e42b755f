"""The push consumer against scripted brokers: joining, delivery, retries, rebalancing, leaving."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import (
    QUICK,
    QUICK_OPTIONS,
    SILENCE,
    FakeCluster,
    fake_cluster,
    found,
    own_tasks,
    pull_fields,
    until,
)

from rocketline.client import ClientOptions, ConsumeFrom, MessageModel, PullSettings, PushConsumer, RetryLater
from rocketline.client.consumer_info import ConsumerRunningInfo
from rocketline.clock import ManualClock
from rocketline.errors import ClientError, ConfigError, ConsumerClosed, InvalidMessage, RouteNotFound
from rocketline.message import MessageQueue, MessageView
from rocketline.protocol.bodies import ConsumerIdList, ResetOffsetBody, decode_body, encode_body, queue_key
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import ONEWAY, Command
from rocketline.protocol.headers import PullMessageHeader, SendMessageHeader
from rocketline.protocol.properties import decode_properties

PULL = RequestCode.PULL_MESSAGE
BEAT = RequestCode.HEART_BEAT
MEMBERS = RequestCode.GET_CONSUMER_LIST_BY_GROUP
QUERY = RequestCode.QUERY_CONSUMER_OFFSET
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET
BACK = RequestCode.CONSUMER_SEND_MSG_BACK
SEND = RequestCode.SEND_MESSAGE_V2


class Inbox:
    """A handler that keeps what it gets."""

    def __init__(self) -> None:
        self.messages: list[MessageView] = []

    async def __call__(self, message: MessageView) -> None:
        self.messages.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def wait(self, count: int) -> list[MessageView]:
        await until(lambda: len(self.messages) >= count, f"the arrival of {count} messages")
        return self.messages


@asynccontextmanager
async def consuming(
    cluster: FakeCluster, handler: Callable[..., Any], expression: str = "*", **options: Any
) -> AsyncIterator[PushConsumer]:
    arguments = {"from_where": ConsumeFrom.FIRST, "group": "g", "options": QUICK_OPTIONS, **options}
    async with PushConsumer(cluster.namesrv, **arguments) as consumer:
        consumer.subscribe("T", expression, handler)
        await consumer.start()
        yield consumer


def pulls(cluster: FakeCluster, topic: str = "T") -> list[PullMessageHeader]:
    headers = [PullMessageHeader.decode(request) for request in cluster.broker.requests_of(PULL)]
    return [header for header in headers if header.topic == topic]


def committed(cluster: FakeCluster, queue_id: int = 0, topic: str = "T") -> int | None:
    return cluster.broker.committed.get(("g", topic, queue_id))


async def test_messages_reach_the_handler_with_all_their_fields(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    inbox = Inbox()
    cluster.broker.store("T", 0, b"hello", {"TAGS": "a", "KEYS": "k1 k2", "n": "ü"}, flag=7, born_ms=11, store_ms=22)
    async with consuming(cluster, inbox):
        (message,) = await inbox.wait(1)
    assert (message.topic, message.body, message.tag, message.keys) == ("T", b"hello", "a", ("k1", "k2"))
    assert (message.queue, message.queue_offset) == (MessageQueue("T", "broker-a", 0), 0)
    assert (message.flag, message.born_ms, message.store_ms, message.reconsume_times) == (7, 11, 22, 0)
    assert (message.properties["MIN_OFFSET"], message.properties["MAX_OFFSET"]) == ("0", "1")
    assert message.properties["n"] == "ü"
    assert int(message.properties["CONSUME_START_TIME"]) > 0


async def test_joining_follows_the_protocols_order(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    async with consuming(cluster, Inbox()):
        await cluster.broker.request(PULL)
    seen = [request.code for request in cluster.broker.requests]
    assert seen.index(BEAT) < seen.index(MEMBERS) < seen.index(QUERY) < seen.index(PULL)
    (data,) = cluster.broker.heartbeats[0].consumer_data_set
    assert (data.group_name, data.consume_type, data.message_model) == ("g", "CONSUME_PASSIVELY", "CLUSTERING")
    assert data.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert {item.topic: item.sub_string for item in data.subscription_data_set} == {"T": "*", "%RETRY%g": "*"}


async def test_a_pull_is_the_one_javas_client_sends(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    async with consuming(cluster, Inbox(), "a || b"):
        request = await cluster.broker.request(PULL, where=lambda r: (r.ext or {})["topic"] == "T")
        header = PullMessageHeader.decode(request)
    data = cluster.broker.heartbeats[0].consumer_data_set[0].subscription_data_set[0]
    assert (data.tags_set, data.code_set) == (["a", "b"], [97, 98])
    assert (header.sys_flag, header.suspend_ms, header.max_msg_nums, header.max_msg_bytes) == (2, 15000, 32, 262144)
    assert (header.sub_version, header.subscription, header.expression_type) == (data.sub_version, None, "TAG")
    assert (header.commit_offset, header.broker_name) == (0, "broker-a")


async def test_progress_travels_with_pulls_and_is_committed_at_the_end(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    inbox = Inbox()
    async with consuming(cluster, inbox):
        for number in range(3):
            cluster.broker.store("T", 0, b"%d" % number)
            await inbox.wait(number + 1)
        await until(lambda: any(header.queue_offset == 3 for header in pulls(cluster)), "the pull behind the last one")
    progress = {header.queue_offset: (header.sys_flag & 1, header.commit_offset) for header in pulls(cluster)}
    assert (progress[0], progress[2], progress[3]) == ((0, 0), (1, 1), (1, 2))
    assert committed(cluster) == 3
    assert inbox.bodies == [b"0", b"1", b"2"]


async def test_progress_is_committed_by_a_timer(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    inbox = Inbox()
    async with consuming(cluster, inbox, options=ClientOptions(timing=replace(QUICK, persist_s=0.01))):
        cluster.broker.store("T", 0, b"x")
        await inbox.wait(1)
        await until(lambda: committed(cluster) == 1, "the commit")
        timed = [request for request in cluster.broker.requests_of(COMMIT) if request.flag & ONEWAY]
        assert timed


async def test_progress_stays_below_a_message_still_running(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    release, done = asyncio.Event(), 0

    async def handle(message: MessageView) -> None:
        nonlocal done
        if message.body == b"0":
            await release.wait()
        done += 1

    for number in range(10):
        cluster.broker.store("T", 0, b"%d" % number)
    async with consuming(cluster, handle, options=ClientOptions(timing=replace(QUICK, persist_s=0.01))):
        await until(lambda: done == 9)
        await cluster.broker.request(COMMIT, len(cluster.broker.requests_of(COMMIT)) + 2)
        assert committed(cluster) == 0
        release.set()
        await until(lambda: committed(cluster) == 10, "the commit of everything")


async def test_handlers_run_at_once_up_to_the_limit(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    running = most = 0
    release = asyncio.Event()

    async def handle(message: MessageView) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await release.wait()
        running -= 1

    for _ in range(10):
        cluster.broker.store("T", 0, b"x")
    async with consuming(cluster, handle, concurrency=4):
        await until(lambda: running == 4)
        release.set()
        await until(lambda: running == 0)
    assert most == 4


async def test_more_or_fewer_handlers_run_when_told(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    running, seen = 0, 0
    turns = asyncio.Semaphore(0)

    async def handle(message: MessageView) -> None:
        nonlocal running, seen
        running += 1
        await turns.acquire()
        running -= 1
        seen += 1

    def store(count: int) -> None:
        for _ in range(count):
            cluster.broker.store("T", 0, b"x")

    def let_end(count: int) -> None:
        for _ in range(count):
            turns.release()

    store(20)
    async with consuming(cluster, handle, concurrency=2) as consumer:
        await until(lambda: running == 2)
        consumer.concurrency = 5
        await until(lambda: running == 5)
        consumer.concurrency = 1
        assert running == 5, "those at work are left alone"
        let_end(4)
        await until(lambda: (running, seen) == (1, 4))
        let_end(16)
        await until(lambda: (running, seen) == (0, 20))
        consumer.concurrency = 6
        consumer.concurrency = 3  # now they wait for work
        store(10)
        await until(lambda: running == 3)
        with pytest.raises(ConfigError, match="concurrency 0"):
            consumer.concurrency = 0
        let_end(10)
        await until(lambda: seen == 30)
    assert running == 0


async def test_plain_functions_run_in_threads_unless_told_otherwise(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    threads: list[threading.Thread] = []
    cluster.broker.store("T", 0, b"x")
    async with consuming(cluster, lambda message: threads.append(threading.current_thread())):
        await until(lambda: len(threads) == 1)
    async with PushConsumer(
        cluster.namesrv, group="h", from_where=ConsumeFrom.FIRST, options=QUICK_OPTIONS
    ) as consumer:
        consumer.subscribe("T", "*", lambda message: threads.append(threading.current_thread()), in_thread=False)
        await consumer.start()
        await until(lambda: len(threads) == 2)
    assert threads[0] is not threading.current_thread()
    assert threads[1] is threading.current_thread()


async def test_lists_of_messages_when_a_batch_size_is_set(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    batches: list[list[bytes]] = []

    async def handle(messages: list[MessageView]) -> None:
        batches.append([message.body for message in messages])

    for number in range(32):
        cluster.broker.store("T", 0, b"%d" % number)
    async with consuming(cluster, handle, batch_size=10, concurrency=1):
        await until(lambda: sum(map(len, batches)) == 32)
    assert [len(batch) for batch in batches] == [10, 10, 10, 2]
    assert committed(cluster) == 32


async def test_a_handler_that_raises_gets_the_message_handed_back(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"good")
    cluster.broker.store("T", 0, b"bad", {"UNIQ_KEY": "UNIQUE"})

    def handle(message: MessageView) -> None:
        if message.body == b"bad":
            raise ValueError("cannot take this")

    async with consuming(cluster, handle, max_reconsume_times=5):
        await cluster.broker.request(BACK)
        await until(lambda: bool(cluster.broker.sent_back))
    (header,) = cluster.broker.sent_back
    assert (header.group, header.delay_level, header.max_reconsume_times) == ("g", 0, 5)
    assert (header.origin_msg_id, header.origin_topic, header.broker_name) == ("UNIQUE", "T", "broker-a")
    assert header.log_offset == len(cluster.broker.queues["T", 0].records[0])
    assert not cluster.broker.requests_of(BACK)[0].body
    assert committed(cluster) == 2


async def test_a_handler_may_choose_the_delay(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"x")

    async def handle(message: MessageView) -> None:
        raise RetryLater("not now", delay_level=-1)

    async with consuming(cluster, handle):
        await cluster.broker.request(BACK)
        await until(lambda: bool(cluster.broker.sent_back))
    assert cluster.broker.sent_back[0].delay_level == -1


async def test_retried_messages_come_under_their_own_topic(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    inbox = Inbox()
    async with consuming(cluster, inbox):
        await cluster.broker.request(PULL, where=lambda r: (r.ext or {})["topic"] == "%RETRY%g")
        properties = {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "O"}
        cluster.broker.store("%RETRY%g", 0, b"again", properties, reconsume_times=2)
        (message,) = await inbox.wait(1)
    assert (message.topic, message.body, message.reconsume_times) == ("T", b"again", 2)
    assert committed(cluster, topic="%RETRY%g") == 1


async def test_when_handing_back_is_refused_the_message_is_sent_anew(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    properties = {"UNIQ_KEY": "U1", "TAGS": "t", "TRAN_MSG": "true", "mine": "kept"}
    cluster.broker.store("T", 0, b"body", properties, flag=3, reconsume_times=1)
    cluster.broker.script(BACK, 1)

    async def handle(message: MessageView) -> None:
        raise ValueError("no")

    async with consuming(cluster, handle):
        request = await cluster.broker.request(SEND)
        header = SendMessageHeader.decode(request)
    assert committed(cluster) == 1
    assert (header.topic, header.producer_group, header.flag) == ("%RETRY%g", "CLIENT_INNER_PRODUCER", 3)
    assert (header.reconsume_times, header.max_reconsume_times) == (2, 16)
    assert request.body == b"body"
    assert decode_properties(header.properties) == {
        "UNIQ_KEY": "U1", "TAGS": "t", "mine": "kept", "RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "U1", "DELAY": "4",
        "WAIT": "true",
    }  # fmt: skip


async def test_when_nobody_takes_it_back_it_is_tried_here_again_and_holds_progress(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"stubborn")
    cluster.broker.on[BACK] = lambda request: request.reply(1)
    cluster.broker.on[SEND] = lambda request: request.reply(13)
    tries: list[int] = []

    async def handle(message: MessageView) -> None:
        tries.append(message.reconsume_times)
        if len(tries) < 3:
            assert committed(cluster) in (None, 0)
            raise ValueError("no")

    async with consuming(cluster, handle):
        await until(lambda: len(tries) == 3)
    assert tries == [0, 1, 2]
    assert committed(cluster) == 1


async def test_broadcasting_leaves_failures_behind(cluster: FakeCluster, tmp_path: Any) -> None:
    cluster.add_topic("T", 2)
    cluster.broker.store("T", 0, b"bad")
    cluster.broker.store("T", 1, b"good")
    seen: list[bytes] = []

    async def handle(message: MessageView) -> None:
        seen.append(message.body)
        if message.body == b"bad":
            raise ValueError("no")

    options = {"model": MessageModel.BROADCASTING, "offsets": tmp_path}
    async with consuming(cluster, handle, **options) as consumer:
        await until(lambda: len(seen) == 2)
        cluster.broker.store("T", 1, b"better")
        await until(lambda: any(header.queue_offset == 2 for header in pulls(cluster)), "a pull that follows progress")
        await until(lambda: len(seen) == 3)
        assert consumer.client_id.endswith("@DEFAULT")
        assert consumer.assigned == {MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)}
    codes = {request.code for request in cluster.broker.requests}
    assert not codes & {BACK, COMMIT, MEMBERS, QUERY}
    assert all(header.sys_flag == 2 for header in pulls(cluster))
    async with consuming(cluster, handle, **options):
        cluster.broker.store("T", 0, b"new")
        await until(lambda: len(seen) == 4)
    assert seen[3] == b"new"


async def test_tags_are_compared_as_text_too(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    inbox = Inbox()
    for tag in ("Aa", "BB", "Aa"):  # equal Java hashes
        cluster.broker.store("T", 0, tag.encode(), {"TAGS": tag})
    cluster.broker.store("T", 0, b"untagged")
    async with consuming(cluster, inbox, "Aa"):
        await inbox.wait(2)
        await until(lambda: any(header.queue_offset == 4 for header in pulls(cluster)))
    assert inbox.bodies == [b"Aa", b"Aa"]
    assert committed(cluster) == 4


async def test_progress_moves_over_what_matches_nothing(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    queue = cluster.broker.queues["T", 0]
    queue.first = 100
    cluster.broker.committed["g", "T", 0] = 100

    def nothing_matches(request: Command) -> Command | None:
        header = PullMessageHeader.decode(request)
        return request.reply(20, pull_fields(queue, 900)) if (header.topic, header.queue_offset) == ("T", 100) else None

    cluster.broker.on[PULL] = nothing_matches
    async with consuming(cluster, Inbox()):
        await until(lambda: any(header.queue_offset == 900 for header in pulls(cluster)))
    assert committed(cluster) == 900


async def test_a_moved_offset_is_taken_over_and_committed(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    queue = cluster.broker.queues["T", 0]
    queue.first = 500
    inbox = Inbox()
    async with consuming(cluster, inbox):
        await until(lambda: any(header.queue_offset == 500 for header in pulls(cluster)))
        assert committed(cluster) == 500
        cluster.broker.store("T", 0, b"first kept")
        await inbox.wait(1)
    assert [header.queue_offset for header in pulls(cluster)][:2] == [0, 500]


async def test_a_moved_offset_may_go_back(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.committed["g", "T", 0] = 1000
    cluster.broker.store("T", 0, b"x")
    inbox = Inbox()
    async with consuming(cluster, inbox):
        await until(lambda: committed(cluster) == 1, "the lower offset")
        cluster.broker.store("T", 0, b"y")
        await inbox.wait(1)
    assert inbox.bodies == [b"y"]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (ConsumeFrom.FIRST, 0),
        (ConsumeFrom.LAST, 3),
        (datetime(2026, 1, 1, tzinfo=UTC), 7),
    ],
)
async def test_a_new_group_starts_where_it_wants(cluster: FakeCluster, where: Any, expected: int) -> None:
    cluster.add_topic("T", 1)
    for _ in range(3):
        cluster.broker.store("T", 0, b"x")
    cluster.broker.on[PULL] = lambda request: None
    async with consuming(cluster, Inbox(), from_where=where):
        request = await cluster.broker.request(PULL, where=lambda r: (r.ext or {})["topic"] == "T")
        assert PullMessageHeader.decode(request).queue_offset == expected
        await until(lambda: committed(cluster) == expected, "the start being stored")


async def test_a_group_goes_on_where_it_was(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    for number in range(3):
        cluster.broker.store("T", 0, b"%d" % number)
    cluster.broker.committed["g", "T", 0] = 2
    inbox = Inbox()
    async with consuming(cluster, inbox, from_where=ConsumeFrom.LAST):
        await inbox.wait(1)
    assert inbox.bodies == [b"2"]


async def test_a_queue_whose_offset_is_unknown_starts_later(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"x")
    cluster.broker.script(QUERY, 1, 1, 1, 1)
    inbox = Inbox()
    async with consuming(cluster, inbox):
        assert not pulls(cluster)
        await inbox.wait(1)


async def test_flow_control_stops_pulling_and_loses_nothing(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    release = asyncio.Event()
    seen = 0

    async def handle(message: MessageView) -> None:
        nonlocal seen
        await release.wait()
        seen += 1

    for _ in range(200):
        cluster.broker.store("T", 0, b"x")
    timing = replace(QUICK, pull_recheck_s=0.005)
    async with consuming(
        cluster, handle, pull=PullSettings(max_messages=10, batch=8), options=ClientOptions(timing=timing)
    ) as consumer:
        await until(lambda: len(pulls(cluster)) == 2)
        for _ in range(20):
            await asyncio.sleep(0.002)
        assert len(pulls(cluster)) == 2, "16 messages are over the limit of 10"
        assert consumer.assigned
        release.set()
        await until(lambda: seen == 200)
    assert committed(cluster) == 200


async def test_a_stuck_message_bounds_how_far_the_others_run(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    release = asyncio.Event()
    seen = 0

    async def handle(message: MessageView) -> None:
        nonlocal seen
        if message.queue_offset == 0:
            await release.wait()
        seen += 1

    for _ in range(100):
        cluster.broker.store("T", 0, b"x")
    async with consuming(cluster, handle, pull=PullSettings(max_span=20, batch=8)):
        await until(lambda: seen == 23)
        assert max(header.queue_offset for header in pulls(cluster)) == 16
        release.set()
        await until(lambda: seen == 100)


async def test_limits_of_a_topic_are_shared_by_its_queues(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 4)
    release = asyncio.Event()

    async def handle(message: MessageView) -> None:
        await release.wait()

    for queue_id in range(4):
        for _ in range(50):
            cluster.broker.store("T", queue_id, b"x")
    async with consuming(cluster, handle, pull=PullSettings(max_topic_messages=100, batch=10)) as consumer:
        await until(lambda: len(consumer.assigned) == 5)
        await until(lambda: len(pulls(cluster)) >= 12)
        for _ in range(20):
            await asyncio.sleep(0.002)
        most = {
            queue_id: max(h.queue_offset for h in pulls(cluster) if h.queue_id == queue_id) for queue_id in range(4)
        }
        assert set(most.values()) == {20}, "100 // 5 queues, retry queue included; 30 are held, which is over 20"
        release.set()


async def test_two_members_share_the_queues(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 4)
    inboxes = [Inbox(), Inbox()]
    async with consuming(cluster, inboxes[0], options=ClientOptions(instance_name="one", timing=QUICK)) as one:
        await until(lambda: len(one.assigned) == 5)
        async with consuming(cluster, inboxes[1], options=ClientOptions(instance_name="two", timing=QUICK)) as two:
            await cluster.broker.notify_members("g")
            await until(lambda: len([q for q in one.assigned if q.topic == "T"]) == 2)
            await until(lambda: len([q for q in two.assigned if q.topic == "T"]) == 2)
            assert not one.assigned & two.assigned
            for queue_id in range(4):
                cluster.broker.store("T", queue_id, b"%d" % queue_id)
            await until(lambda: len(inboxes[0].messages) + len(inboxes[1].messages) == 4)
            assert len(inboxes[0].messages) == 2
        await cluster.broker.notify_members("g")
        await until(lambda: len(one.assigned) == 5)


@pytest.mark.parametrize(("hand_over_s", "counted"), [(PATIENCE_S, 3), (0.01, 1)])
async def test_messages_that_run_when_their_queue_leaves_count_if_they_end_in_time(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, hand_over_s: float, counted: int
) -> None:
    cluster.add_topic("T", 2)
    release = asyncio.Event()
    started: list[int] = []

    async def handle(message: MessageView) -> None:
        started.append(message.queue_offset)
        if message.body == b"slow":
            await release.wait()
            raise ValueError("too late to matter")

    for body in (b"quick", b"slow", b"behind"):
        cluster.broker.store("T", 1, body)
    own_id = ""
    async with consuming(
        cluster,
        handle,
        concurrency=2,
        options=ClientOptions(instance_name="aaa", timing=replace(QUICK, hand_over_s=hand_over_s)),
    ) as consumer:
        own_id = consumer.client_id
        await until(lambda: started == [0, 1, 2])
        cluster.broker.extra_members["g"] = [own_id + "z"]
        await cluster.broker.notify_members("g")
        await until(lambda: MessageQueue("T", "broker-a", 1) not in consumer.assigned)
        await until(lambda: committed(cluster, 1) == 1)
        if counted == 1:
            await until(lambda: "still being handled" in caplog.text)
        release.set()
    assert committed(cluster, 1) == counted
    assert len(cluster.broker.sent_back) == (counted > 1), "it is not ours any more, so nothing is handed back"


async def test_a_queue_that_returns_resumes_at_the_brokers_offset(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 2)
    inbox = Inbox()
    async with consuming(cluster, inbox, options=ClientOptions(instance_name="aaa", timing=QUICK)) as consumer:
        cluster.broker.store("T", 1, b"mine")
        await inbox.wait(1)
        cluster.broker.extra_members["g"] = [consumer.client_id + "z"]
        await cluster.broker.notify_members("g")
        held = consumer._started.queues.held
        await until(lambda: MessageQueue("T", "broker-a", 1) not in {loop.queue for loop in held()}, "the last commit")
        assert committed(cluster, 1) == 1
        cluster.broker.store("T", 1, b"theirs")
        cluster.broker.committed["g", "T", 1] = 2
        cluster.broker.store("T", 1, b"mine again")
        cluster.broker.extra_members["g"] = []
        await cluster.broker.notify_members("g")
        await inbox.wait(2)
    assert inbox.bodies == [b"mine", b"mine again"]


async def test_without_a_member_list_the_queues_stay(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    inbox = Inbox()
    async with consuming(cluster, inbox) as consumer:
        before = consumer.assigned
        cluster.broker.on[MEMBERS] = lambda request: request.reply(1, remark="no")
        asked = len(cluster.broker.requests_of(MEMBERS))
        await cluster.broker.notify_members("g")
        await cluster.broker.request(MEMBERS, asked + 2)
        assert consumer.assigned == before
        cluster.broker.store("T", 0, b"x")
        await inbox.wait(1)


async def test_a_member_the_broker_does_not_name_gives_its_queues_up(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    async with consuming(cluster, Inbox()) as consumer:
        others = encode_body(ConsumerIdList(["somebody else"]))
        cluster.broker.on[MEMBERS] = lambda request: request.reply(0, body=others)
        await cluster.broker.notify_members("g")
        await until(lambda: not consumer.assigned)


async def test_rebalancing_happens_by_itself_too(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    async with consuming(cluster, Inbox(), options=ClientOptions(timing=replace(QUICK, rebalance_s=0.01))):
        await cluster.broker.request(MEMBERS, 10)


async def test_more_queues_are_taken_up_when_the_route_says_so(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    async with consuming(
        cluster, Inbox(), options=ClientOptions(timing=replace(QUICK, route_refresh_s=0.01))
    ) as consumer:
        cluster.add_topic("T", 3)
        await until(lambda: len(consumer.assigned) == 4)


async def test_a_new_share_gives_the_heartbeat_a_newer_version(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    async with consuming(cluster, Inbox(), options=ClientOptions(timing=replace(QUICK, route_refresh_s=0.01))):

        def version() -> int:
            data = cluster.broker.heartbeats[-1].consumer_data_set[0].subscription_data_set[0]
            return data.sub_version

        first = cluster.broker.heartbeats[0].consumer_data_set[0].subscription_data_set[0].sub_version
        await until(lambda: version() > first, "the newer version")
        assert {header.sub_version for header in pulls(cluster)} == {first}, "pulls stay behind what was announced"


async def test_a_topic_may_be_created_after_the_consumer_started(cluster: FakeCluster) -> None:
    inbox = Inbox()
    async with consuming(cluster, inbox) as consumer:
        assert not consumer.assigned
        cluster.add_topic("T", 1)
        cluster.broker.store("T", 0, b"x")
        await inbox.wait(1)


async def test_an_unknown_subscription_is_cured_by_a_heartbeat(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    inbox = Inbox()
    cluster.broker.script(PULL, 24, 25)
    cluster.broker.store("T", 0, b"x")
    async with consuming(cluster, inbox):
        await inbox.wait(1)
    codes = [request.code for request in cluster.broker.requests]
    first_pull = codes.index(PULL)
    assert BEAT in codes[first_pull:]


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 215])
async def test_refused_pulls_are_made_again(cluster: FakeCluster, code: int) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"x")
    cluster.broker.script(PULL, code, code, code)
    inbox = Inbox()
    async with consuming(cluster, inbox):
        await inbox.wait(1)


async def test_a_broker_that_lost_the_connection_hears_of_us_before_the_next_pull(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    async with consuming(cluster, Inbox()):
        await cluster.broker.request(PULL, 2)
        cluster.broker.requests.clear()
        for channel in cluster.broker.channels:
            channel.abort()
        await cluster.broker.request(PULL, 2)
    codes = [request.code for request in cluster.broker.requests]
    assert codes.index(BEAT) < codes.index(PULL)


async def test_unsubscribing_hands_nothing_back(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    started, release = asyncio.Event(), asyncio.Event()

    async def handle(message: MessageView) -> None:
        started.set()
        await release.wait()

    for _ in range(5):
        cluster.broker.store("T", 0, b"x")
    async with consuming(cluster, handle, concurrency=1) as consumer:
        await started.wait()
        consumer.unsubscribe("T")
        release.set()
        await until(lambda: not any(queue.topic == "T" for queue in consumer.assigned))
    assert not cluster.broker.sent_back
    assert (committed(cluster) or 0) <= 1


async def test_a_senders_own_start_time_does_not_mislead(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    release = asyncio.Event()

    async def handle(message: MessageView) -> None:
        await release.wait()

    for text in ("soon", "1"):
        cluster.broker.store("T", 0, b"x", {"CONSUME_START_TIME": text})
    async with consuming(
        cluster, handle, concurrency=1, options=ClientOptions(timing=replace(QUICK, consume_timeout_s=0.02))
    ):
        await cluster.broker.request(BACK)
        release.set()
    assert {header.log_offset for header in cluster.broker.sent_back} == {0}


async def test_a_broker_restart_is_survived(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    inbox = Inbox()
    async with consuming(cluster, inbox):
        await cluster.broker.request(PULL)
        await cluster.broker.restart()
        cluster.broker.store("T", 0, b"after the restart")
        await inbox.wait(1)


async def test_an_empty_answer_that_was_not_held_does_not_make_us_spin(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketline.client.consumer.push.pull_loop.NOT_HELD_S", 60.0)  # however busy the machine is
    cluster.add_topic("T", 1)
    queue = cluster.broker.queues["T", 0]
    cluster.broker.on[PULL] = lambda request: request.reply(19, pull_fields(queue, 0))
    async with consuming(cluster, Inbox(), options=ClientOptions(timing=replace(QUICK, pull_busy_s=30.0))):
        await cluster.broker.request(PULL, 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(cluster.broker.requests_of(PULL)) == 2, "one per queue"


async def test_a_suggested_broker_is_read_next_without_committing_there(cluster: FakeCluster) -> None:
    slave = await cluster.add_slave()
    cluster.add_topic("T", 1)
    cluster.broker.committed["g", "T", 0] = 1
    queue = cluster.broker.queues["T", 0]
    cluster.broker.store("T", 0, b"0")
    cluster.broker.store("T", 0, b"1")
    record = queue.records[1]
    cluster.broker.on[PULL] = lambda r: (
        r.reply(0, pull_fields(queue, 2, broker_id=1), record) if (r.ext or {})["topic"] == "T" else None
    )
    slave.on[PULL] = lambda r: r.reply(ResponseCode.PULL_NOT_FOUND, pull_fields(queue, 2, broker_id=1))
    inbox = Inbox()
    async with consuming(cluster, inbox):
        await inbox.wait(1)
        before = len(slave.requests_of(PULL))
        header = PullMessageHeader.decode(await slave.request(PULL, before + 2))  # sent after there was progress
        assert (header.queue_offset, header.sys_flag, header.commit_offset) == (2, 2, 0)
    assert committed(cluster) == 2


async def test_an_unreadable_message_stops_its_queue_and_is_reported(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 2)
    cluster.broker.store("T", 0, b"fine")
    cluster.broker.store("T", 0, b"torn")
    cluster.broker.store("T", 0, b"behind")
    records = cluster.broker.queues["T", 0].records
    good = records[1]
    records[1] = good[:-30] + bytes(30)
    inbox = Inbox()
    async with consuming(cluster, inbox) as consumer:
        await until(lambda: bool(consumer.problems))
        await until(lambda: len([h for h in pulls(cluster) if h.queue_id == 0 and h.queue_offset == 1]) >= 3)
        assert inbox.bodies == [b"fine"]
        assert "T@broker-a:0 offset 1" in consumer.problems[0]
        cluster.broker.store("T", 1, b"other queues go on")
        await inbox.wait(2)
        records[1] = good
        await inbox.wait(4)
        await until(lambda: not consumer.problems)
    assert sorted(inbox.bodies) == sorted([b"fine", b"other queues go on", b"torn", b"behind"])
    assert committed(cluster, 0) == 3


async def test_messages_that_are_announced_and_missing_stop_the_queue(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    queue = cluster.broker.queues["T", 0]
    cluster.broker.on[PULL] = lambda r: found(r, queue, 5, b"") if (r.ext or {})["topic"] == "T" else None
    async with consuming(cluster, Inbox()) as consumer:
        await until(lambda: bool(consumer.problems))
        assert {header.queue_offset for header in pulls(cluster)} == {0}


async def test_found_without_going_forward_is_not_a_busy_loop(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"x")
    queue = cluster.broker.queues["T", 0]
    record = queue.records[0]
    cluster.broker.on[PULL] = lambda r: found(r, queue, 0, record) if (r.ext or {})["topic"] == "T" else None
    async with consuming(cluster, Inbox(), options=ClientOptions(timing=replace(QUICK, pull_retry_s=30.0))):
        await cluster.broker.request(PULL, 2)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(pulls(cluster)) == 1


async def test_an_operator_can_reset_offsets(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    inbox = Inbox()
    for number in range(3):
        cluster.broker.store("T", 0, b"%d" % number)
    async with consuming(cluster, inbox):
        await inbox.wait(3)
        body = encode_body(ResetOffsetBody({queue_key(MessageQueue("T", "broker-a", 0)): 1}))
        fields = {"group": "g", "topic": "T", "timestamp": "0", "isForce": "true"}
        answer = await cluster.broker.ask_client(Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body))
        assert answer.code == 0
        await inbox.wait(5)
    assert inbox.bodies == [b"0", b"1", b"2", b"1", b"2"]


async def test_running_info_shows_queues_and_settings(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    release = asyncio.Event()
    for body in (b"done", b"x", b"x", bytes(1 << 20)):
        cluster.broker.store("T", 0, body)

    async def handle(message: MessageView) -> None:
        if message.body == b"done":
            clock.advance(1)
        else:
            await release.wait()

    clock = ManualClock(1000)
    async with consuming(cluster, handle, concurrency=7, options=ClientOptions(timing=QUICK, clock=clock)) as consumer:
        await until(lambda: len(pulls(cluster)) == 2)
        request = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": consumer.client_id})
        info = decode_body(ConsumerRunningInfo, (await cluster.broker.ask_client(request)).body)
        release.set()
    queue = info.mq_table[queue_key(MessageQueue("T", "broker-a", 0))]
    assert (queue.cached_msg_count, queue.cached_msg_min_offset, queue.cached_msg_max_offset) == (3, 1, 3)
    assert (queue.commit_offset, queue.cached_msg_size_in_mib) == (1, 1)
    assert (queue.droped, queue.locked, queue.try_unlock_times) == (False, False, 0)
    assert queue.last_pull_timestamp in (1000, 2000)
    assert queue.last_consume_timestamp == 2000
    assert (info.properties["PROP_THREADPOOL_CORE_SIZE"], info.properties["PROP_CLIENT_VERSION"]) == ("7", "V5_4_0")
    assert {item.topic for item in info.subscription_set} == {"T", "%RETRY%g"}
    assert set(info.status_table) == {"T", "%RETRY%g"}


async def test_before_the_first_message_a_queue_is_where_it_began(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    queue = MessageQueue("T", "broker-a", 0)
    for _ in range(3):
        cluster.broker.store("T", 0, b"old")
    cluster.broker.committed["g", "T", 0] = 3
    async with consuming(cluster, Inbox()) as consumer:
        await until(lambda: len(pulls(cluster)) == 1)
        request = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": consumer.client_id})
        info = decode_body(ConsumerRunningInfo, (await cluster.broker.ask_client(request)).body)
    held = info.mq_table[queue_key(queue)]
    assert (held.commit_offset, held.last_consume_timestamp) == (3, 0)


async def test_messages_that_run_too_long_are_handed_back(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"hangs")
    cluster.broker.store("T", 0, b"quick")
    release = asyncio.Event()

    async def handle(message: MessageView) -> None:
        if message.body == b"hangs":
            await release.wait()

    async with consuming(cluster, handle, options=ClientOptions(timing=replace(QUICK, consume_timeout_s=0.02))):
        await cluster.broker.request(BACK)
        await until(lambda: bool(cluster.broker.sent_back))
        assert cluster.broker.sent_back[0].delay_level == 3
        release.set()
    assert committed(cluster) == 2


async def test_a_round_hands_back_at_most_sixteen_messages_of_a_queue(cluster: FakeCluster) -> None:
    """As in Java: a queue that hangs does not take all the time of the round that looks at every queue."""
    cluster.add_topic("T", 1)
    for _ in range(20):
        cluster.broker.store("T", 0, b"hangs")
    release, running = asyncio.Event(), 0

    async def handle(message: MessageView) -> None:
        nonlocal running
        running += 1
        await release.wait()

    clock = ManualClock(1000)
    options = ClientOptions(timing=QUICK, clock=clock)
    async with consuming(cluster, handle, concurrency=20, options=options) as consumer:
        await until(lambda: running == 20)
        clock.advance(1)
        member, handed_back = consumer._started, []
        (loop,) = (loop for loop in member.queues.loops() if loop.queue.topic == "T")
        for _ in range(3):
            await member._delivery.expire(loop, timeout_s=0.5)
            handed_back.append(len(cluster.broker.sent_back))
        release.set()
    assert handed_back == [16, 20, 20]


async def test_leaving_waits_for_running_handlers(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"x")
    started, release = asyncio.Event(), asyncio.Event()
    finished = False

    async def handle(message: MessageView) -> None:
        nonlocal finished
        started.set()
        await release.wait()
        finished = True

    async with consuming(cluster, handle):
        await started.wait()
        asyncio.get_running_loop().call_later(0.02, release.set)
    assert finished
    assert committed(cluster) == 1
    goodbye = cluster.broker.requests_of(RequestCode.UNREGISTER_CLIENT)[0]
    assert (goodbye.ext or {})["consumerGroup"] == "g"
    assert cluster.broker.requests.index(goodbye) > cluster.broker.requests.index(
        cluster.broker.requests_of(COMMIT)[-1]
    )


async def test_leaving_gives_up_on_handlers_that_do_not_end(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.broker.store("T", 0, b"x")
    started = asyncio.Event()
    cancelled = False

    async def handle(message: MessageView) -> None:
        nonlocal cancelled
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled = True
            raise

    async with consuming(cluster, handle, options=ClientOptions(timing=replace(QUICK, stop_s=0.02))):
        await started.wait()
    assert cancelled
    assert committed(cluster) == 0
    assert not cluster.broker.sent_back


async def test_leaving_leaves_nothing_behind(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 4)
    before = own_tasks()
    inbox = Inbox()
    async with consuming(cluster, inbox):
        cluster.broker.store("T", 0, b"x")
        await inbox.wait(1)
    await until(lambda: not cluster.broker.channels, "the connections being closed")
    await until(lambda: own_tasks() <= before, "the end of all tasks")


async def test_run_ends_with_stop_and_with_cancellation(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    async with PushConsumer(cluster.namesrv, group="g", options=QUICK_OPTIONS) as consumer:
        consumer.subscribe("T", "*", Inbox())
        running = asyncio.create_task(consumer.run())
        await cluster.broker.request(PULL)
        consumer.stop()
        await running
    async with PushConsumer(cluster.namesrv, group="h", options=QUICK_OPTIONS) as consumer:
        consumer.subscribe("T", "*", Inbox())
        running = asyncio.create_task(consumer.run())
        await cluster.broker.request(PULL, where=lambda r: (r.ext or {})["consumerGroup"] == "h")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_subscriptions_may_change_while_running(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    cluster.add_topic("U", 1)
    inbox, other = Inbox(), Inbox()
    async with consuming(cluster, inbox) as consumer:
        consumer.subscribe("U", "*", other)
        cluster.broker.store("U", 0, b"u")
        await other.wait(1)
        consumer.unsubscribe("T")
        await until(lambda: not any(queue.topic == "T" for queue in consumer.assigned))
        await until(lambda: announced(cluster) == {"U", "%RETRY%g"})
        first = pulls(cluster, "U")[0].sub_version
        consumer.subscribe("U", "wanted", other)
        cluster.broker.store("U", 0, b"wake", {"TAGS": "wanted"})  # the pull under way has the old subscription
        await until(lambda: any(header.sub_version > first for header in pulls(cluster, "U")))
        cluster.broker.store("U", 0, b"no", {"TAGS": "unwanted"})
        cluster.broker.store("U", 0, b"yes", {"TAGS": "wanted"})
        await until(lambda: b"yes" in other.bodies)
    assert b"no" not in other.bodies


def announced(cluster: FakeCluster) -> set[str]:
    """The topics of the last heartbeat."""
    (data,) = cluster.broker.heartbeats[-1].consumer_data_set
    return {subscription.topic for subscription in data.subscription_data_set}


async def test_pausing_stops_pulling_until_resumed(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    inbox = Inbox()
    async with consuming(cluster, inbox) as consumer:
        await until(lambda: len(pulls(cluster)) == 1)
        consumer.pause()
        cluster.broker.store("T", 0, b"in the pull under way")
        await inbox.wait(1)
        cluster.broker.store("T", 0, b"later")
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert len(pulls(cluster)) == 1
        consumer.resume()
        await inbox.wait(2)


async def test_mistakes_are_told_before_anything_is_sent(cluster: FakeCluster) -> None:
    with pytest.raises(InvalidMessage):
        PushConsumer(cluster.namesrv, group="sp ace")
    with pytest.raises(ConfigError):
        PushConsumer(cluster.namesrv, group="g", concurrency=0)
    with pytest.raises(ConfigError):
        PushConsumer(cluster.namesrv, group="g", pull=PullSettings(suspend_s=40.0))
    with pytest.raises(ConfigError):
        PushConsumer("", group="g")
    async with PushConsumer(cluster.namesrv, group="g", options=QUICK_OPTIONS) as consumer:
        with pytest.raises(ClientError, match="subscribes to nothing"):
            await consumer.start()
        with pytest.raises(InvalidMessage, match="topic"):
            consumer.subscribe("../x", "*", Inbox())
        with pytest.raises(InvalidMessage, match="names no tag"):
            consumer.subscribe("T", "||", Inbox())
        with pytest.raises(TypeError, match="function"):
            consumer.subscribe("T", "*", "not a function")  # type: ignore[arg-type]
        with pytest.raises(ConsumerClosed):
            consumer.pause()
    assert not cluster.broker.requests


async def test_a_consumer_is_used_once(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    consumer = PushConsumer(cluster.namesrv, group="g", options=QUICK_OPTIONS)
    consumer.subscribe("T", "*", Inbox())
    with pytest.raises(ConsumerClosed, match="async with"):
        await consumer.start()
    async with consumer:
        await consumer.start()
        with pytest.raises(ClientError, match="already"):
            await consumer.start()
    with pytest.raises(ConsumerClosed, match="make a new one"):
        await consumer.__aenter__()


async def test_the_same_group_and_instance_twice_is_refused_and_harms_nobody(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    inbox = Inbox()
    async with consuming(cluster, inbox, options=ClientOptions(instance_name="same", timing=QUICK)):
        with pytest.raises(ClientError, match="instance_name"):
            async with consuming(cluster, Inbox(), options=ClientOptions(instance_name="same", timing=QUICK)):
                pass
        cluster.broker.store("T", 0, b"x")
        await inbox.wait(1)
    async with consuming(cluster, inbox, options=ClientOptions(instance_name="same", timing=QUICK)):
        cluster.broker.store("T", 0, b"y")
        await inbox.wait(2)


async def test_unreachable_name_servers_are_told_at_the_start() -> None:
    async with PushConsumer("127.0.0.1:1", group="g", options=QUICK_OPTIONS) as consumer:
        consumer.subscribe("T", "*", Inbox())
        with pytest.raises(RouteNotFound, match="could be reached"):
            await consumer.start()


async def test_handlers_may_raise_anything(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    for number in range(3):
        cluster.broker.store("T", 0, b"%d" % number)

    def plain(message: MessageView) -> Any:
        if message.body == b"0":
            raise StopIteration
        if message.body == b"1":
            raise asyncio.CancelledError
        return asyncio.sleep(0)

    async with consuming(cluster, plain):
        await until(lambda: len(cluster.broker.sent_back) == 2)
        await until(lambda: any(h.queue_offset == 3 for h in pulls(cluster)))
    assert committed(cluster) == 3


async def test_a_retry_of_a_topic_without_handler_is_handed_back(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    async with consuming(cluster, Inbox()):
        await cluster.broker.request(PULL, where=lambda r: (r.ext or {})["topic"] == "%RETRY%g")
        cluster.broker.store("%RETRY%g", 0, b"orphan", {"RETRY_TOPIC": "gone"})
        await until(lambda: len(cluster.broker.sent_back) == 1)


async def test_a_strategy_that_fails_leaves_the_queues_alone(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 2)
    calls: list[tuple[str, list[MessageQueue], list[str]]] = []

    def strategy(group: str, own: str, queues: Any, ids: Any) -> list[MessageQueue]:
        calls.append((own, list(queues), list(ids)))
        if len(calls) > 2:
            raise RuntimeError("broken strategy")
        return list(queues)

    async with consuming(cluster, Inbox(), strategy=strategy) as consumer:
        assert len(consumer.assigned) == 3
        cluster.broker.extra_members["g"] = ["0.0.0.0@first"]
        await cluster.broker.notify_members("g")
        await until(lambda: len(calls) >= 4)
        assert len(consumer.assigned) == 3
        own, _, ids = calls[-1]
        assert ids == sorted(["0.0.0.0@first", own])


async def test_an_offset_store_of_ones_own_is_used(cluster: FakeCluster) -> None:
    class Memory:
        def __init__(self) -> None:
            self.table: dict[MessageQueue, Any] = {MessageQueue("T", "broker-a", 0): 1}
            self.loaded = False
            self.persisted: list[set[MessageQueue]] = []

        async def load(self) -> None:
            self.loaded = True

        def get(self, queue: MessageQueue) -> Any:
            return self.table.get(queue)

        def update(self, queue: MessageQueue, offset: Any, *, may_decrease: bool = False) -> None:
            self.table[queue] = offset

        async def read(self, queue: MessageQueue) -> Any:
            return self.table.get(queue)

        async def persist(self, queues: Any, *, wait: bool = False) -> None:
            self.persisted.append(set(queues))

        def forget(self, queue: MessageQueue) -> None:
            pass

    cluster.add_topic("T", 1)
    for number in range(3):
        cluster.broker.store("T", 0, b"%d" % number)
    store, inbox = Memory(), Inbox()
    async with consuming(cluster, inbox, offsets=store):
        await inbox.wait(2)
    assert inbox.bodies == [b"1", b"2"]
    assert store.loaded
    assert store.table[MessageQueue("T", "broker-a", 0)] == 3
    assert store.persisted
    assert not cluster.broker.requests_of(QUERY, COMMIT)


async def test_the_retry_topic_is_joined_when_it_appears() -> None:
    async with fake_cluster(retry_topics=False) as cluster:
        cluster.add_topic("T", 1)
        async with consuming(cluster, Inbox()) as consumer:
            assert len(consumer.assigned) == 1
            cluster.add_topic("%RETRY%g", 1)
            await until(lambda: len(consumer.assigned) == 2)


async def test_a_silent_broker_does_not_hold_the_end_up(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    async with consuming(cluster, Inbox(), options=ClientOptions(timing=replace(QUICK, unregister_s=0.02, call_s=0.5))):
        await cluster.broker.request(PULL)
        cluster.broker.script(RequestCode.UNREGISTER_CLIENT, SILENCE)
        cluster.broker.script(COMMIT, *[SILENCE] * 4)
