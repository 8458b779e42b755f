"""The push consumer when brokers share the queues out: it asks, and pulls or pops as they say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, FakeCluster, refused, until
from tests.unit.client.pop_fakes import Assignments, FakePops

from rocketline.client import ByBrokers, ConsumeFrom, MessageModel, PopSettings, PushConsumer, RetryLater
from rocketline.client.consumer.group.assignment_query import set_request_mode
from rocketline.client.remote_broker import RemoteBroker
from rocketline.errors import ConfigError, NoPermission
from rocketline.message import MessageQueue, MessageView
from rocketline.protocol.bodies import POP, PULL, SetMessageRequestModeRequestBody, decode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.headers import PullMessageHeader
from rocketline.transport import RemotingClient

T, G = "orders", "billing"
RETRY = f"%RETRY%{G}"
POP_RETRY = f"%RETRY%{G}_{T}"
ALL = ("broker-a", -1)


@pytest.fixture
def pops(cluster: FakeCluster) -> FakePops:
    cluster.add_topic(T, 2)
    return FakePops(cluster.broker)


@pytest.fixture
def shares(cluster: FakeCluster) -> Assignments:
    shares = Assignments(cluster)
    shares.set(T, POP, ALL)
    shares.set(RETRY, PULL, ("broker-a", 0))
    return shares


class Inbox:
    def __init__(self, failures: int = 0, error: Exception | None = None) -> None:
        self.messages: list[MessageView] = []
        self.failures = failures
        self.error = error or ValueError("not now")

    async def __call__(self, message: MessageView) -> None:
        self.messages.append(message)
        if self.failures:
            self.failures -= 1
            raise self.error

    @property
    def bodies(self) -> list[bytes]:
        return sorted(message.body for message in self.messages)


@asynccontextmanager
async def pushing(cluster: FakeCluster, handler: Any, **options: Any) -> AsyncIterator[PushConsumer]:
    options = {"from_where": ConsumeFrom.FIRST, "strategy": ByBrokers(), "options": QUICK_OPTIONS, **options}
    async with PushConsumer(cluster.namesrv, group=G, **options) as consumer:
        consumer.subscribe(T, "*", handler)
        await consumer.start()
        yield consumer


def pulls_of(cluster: FakeCluster, topic: str) -> list[PullMessageHeader]:
    headers = map(PullMessageHeader.decode, cluster.broker.requests_of(RequestCode.PULL_MESSAGE))
    return [header for header in headers if header.topic == topic]


async def test_a_share_to_be_popped_is_popped_and_acknowledged(
    cluster: FakeCluster, pops: FakePops, shares: Assignments
) -> None:
    inbox = Inbox()
    async with pushing(cluster, inbox, strategy=ByBrokers(pop=PopSettings(invisible_s=45.0, batch=7))) as consumer:
        pops.store(T, 1, b"1")
        await until(lambda: pops.acked_offsets == [(T, 1, 0)])
        for number in range(20):
            pops.store(T, number % 2, b"more %d" % number)
        await until(lambda: len(pops.acked_offsets) == 21)
        assert consumer.assigned == {MessageQueue(T, *ALL), MessageQueue(RETRY, "broker-a", 0)}
        running = consumer._started.running_info()
        assert list(running.mq_pop_table) == ['{"brokerName":"broker-a","queueId":-1,"topic":"orders"}']
    assert len(set(inbox.bodies)) == len(inbox.bodies) == 21
    pop = pops.pops[0]
    assert (pop.queue_id, pop.max_msg_nums, pop.invisible_ms, pop.poll_ms, pop.init_mode) == (-1, 7, 45_000, 15_000, 0)
    asked = next(item for item in shares.asked if item.topic == T)
    assert (asked.consumer_group, asked.strategy_name, asked.message_model) == (G, "AVG", "CLUSTERING")
    assert not pulls_of(cluster, T)


async def test_by_default_no_broker_is_asked(cluster: FakeCluster, pops: FakePops, shares: Assignments) -> None:
    for options in ({"strategy": "AVG"}, {"model": MessageModel.BROADCASTING}, {"ordered": True}):
        cluster.broker.on[RequestCode.LOCK_BATCH_MQ] = lambda request: request.reply(0, body=b"{}")
        async with pushing(cluster, Inbox(), **options):
            pass
    assert not shares.asked
    assert not pops.pops


async def test_what_runs_when_a_pulled_queue_leaves_still_counts(
    cluster: FakeCluster, pops: FakePops, shares: Assignments
) -> None:
    release, running = asyncio.Event(), asyncio.Event()

    async def handle(message: MessageView) -> None:
        running.set()
        await release.wait()

    shares.set(T, PULL, ("broker-a", 0), ("broker-a", 1))
    options = replace(QUICK_OPTIONS, timing=replace(QUICK, hand_over_s=PATIENCE_S))
    async with pushing(cluster, handle, options=options) as consumer:
        cluster.broker.store(T, 1, b"slow")
        await running.wait()
        shares.set(T, PULL, ("broker-a", 0))
        await cluster.broker.notify_members(G)
        await until(lambda: MessageQueue(T, "broker-a", 1) not in consumer.assigned)
        assert cluster.broker.committed.get((G, T, 1), 0) == 0
        release.set()
        await until(lambda: cluster.broker.committed.get((G, T, 1)) == 1)


async def test_a_failure_comes_again_after_its_next_delay(
    cluster: FakeCluster, pops: FakePops, shares: Assignments
) -> None:
    inbox = Inbox(failures=2)
    async with pushing(cluster, inbox):
        pops.store(T, 0, b"first", reconsume_times=0)
        await until(lambda: len(pops.changes) == 1)
        pops.store(T, 0, b"third", reconsume_times=2)
        await until(lambda: len(pops.changes) == 2)
        inbox.failures, inbox.error = 1, RetryLater(delay_level=5)
        pops.store(T, 0, b"chosen")
        await until(lambda: len(pops.changes) == 3)
    assert [change.invisible_ms for change in pops.changes] == [10_000, 60_000, 240_000]
    assert not pops.acked_offsets
    assert not cluster.broker.sent_back


async def test_of_a_list_only_what_failed_comes_again(
    cluster: FakeCluster, pops: FakePops, shares: Assignments
) -> None:
    async def handler(messages: list[MessageView]) -> None:
        raise RetryLater(messages=messages[1:2])

    for number in range(3):
        pops.store(T, 0, b"%d" % number)
    async with pushing(cluster, handler, batch_size=8):
        await until(lambda: len(pops.acked_offsets) == 2 and len(pops.changes) == 1)
    assert pops.acked_offsets == [(T, 0, 0), (T, 0, 2)]
    assert pops.changes[0].offset == 1


@pytest.mark.parametrize("by_hand", [True, False])
async def test_what_failed_too_often_goes_to_the_dead_letters(
    cluster: FakeCluster, pops: FakePops, shares: Assignments, by_hand: bool
) -> None:
    error = RetryLater(delay_level=-1) if by_hand else ValueError()
    async with pushing(cluster, Inbox(1, error), max_reconsume_times=3):
        pops.store(T, 0, b"hopeless", reconsume_times=0 if by_hand else 3)
        await until(lambda: pops.acked_offsets == [(T, 0, 0)])
    (header,) = cluster.broker.sent_back
    assert (header.group, header.delay_level) == (G, -1)
    assert not pops.changes


async def test_no_dead_letters_to_be_had_means_later(cluster: FakeCluster, pops: FakePops, shares: Assignments) -> None:
    for code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
        cluster.broker.on[code] = lambda request: refused(request, ResponseCode.SERVICE_NOT_AVAILABLE)
    async with pushing(cluster, Inbox(1), max_reconsume_times=1):
        pops.store(T, 0, b"hopeless", reconsume_times=1)
        await until(lambda: len(pops.changes) == 1)
    assert pops.changes[0].invisible_ms == 30_000
    assert not pops.acked_offsets


async def test_no_answer_keeps_the_share_and_an_empty_one_drops_it(
    cluster: FakeCluster, pops: FakePops, shares: Assignments
) -> None:
    async with pushing(cluster, Inbox()) as consumer:
        mine = consumer.assigned
        del shares.by_topic[T]
        count = len(shares.asked)
        consumer._started.rebalance_now()
        await until(lambda: len([item for item in shares.asked[count:] if item.topic == T]) >= 2)
        assert consumer.assigned == mine
        shares.set(T, POP)
        consumer._started.rebalance_now()
        await until(lambda: consumer.assigned == {MessageQueue(RETRY, "broker-a", 0)})


async def test_from_popping_to_pulling_and_back(cluster: FakeCluster, pops: FakePops, shares: Assignments) -> None:
    cluster.add_topic(POP_RETRY, 1)
    shares.set(T, POP, ("broker-a", 0), ("broker-a", 1))
    inbox = Inbox()
    pulled = {MessageQueue(T, "broker-a", 0), MessageQueue(T, "broker-a", 1)}
    async with pushing(cluster, inbox) as consumer:
        assert consumer.assigned - {MessageQueue(RETRY, "broker-a", 0)} == pulled
        await until(lambda: {pop.queue_id for pop in pops.pops} == {0, 1})
        assert not pulls_of(cluster, T)
        shares.set(T, PULL, ("broker-a", 0), ("broker-a", 1))
        shares.set(POP_RETRY, PULL, ("broker-a", 0))
        cluster.broker.store(POP_RETRY, 0, b"failed when it was popped")
        consumer._started.rebalance_now()
        await until(lambda: len({header.queue_id for header in pulls_of(cluster, T)}) == 2)
        # What failed while the topic was popped lies there, and comes under the topic it was sent to.
        await until(lambda: b"failed when it was popped" in inbox.bodies)
        assert inbox.messages[-1].topic == T
        assert MessageQueue(POP_RETRY, "broker-a", 0) in consumer.assigned
        shares.set(T, POP, ALL)
        consumer._started.rebalance_now()
        await until(lambda: consumer.assigned == {MessageQueue(T, *ALL), MessageQueue(RETRY, "broker-a", 0)})


async def test_what_the_last_pop_brings_is_still_delivered(
    cluster: FakeCluster, pops: FakePops, shares: Assignments
) -> None:
    inbox = Inbox()
    async with pushing(cluster, inbox) as consumer:
        await until(lambda: len(pops.pops) == 1)
        shares.set(T, POP)
        consumer._started.rebalance_now()
        await until(lambda: MessageQueue(T, *ALL) not in consumer.assigned)
        pops.store(T, 0, b"after")
        await until(lambda: pops.acked_offsets == [(T, 0, 0)])
    assert inbox.bodies == [b"after"]
    assert len(pops.pops) == 1


async def test_a_broker_that_knows_no_shares_is_not_needed(cluster: FakeCluster, pops: FakePops) -> None:
    async with pushing(cluster, Inbox()) as consumer:  # the fake answers 3, as brokers before 4.9 do
        assert consumer.assigned == {*cluster.add_topic(T, 2), MessageQueue(RETRY, "broker-a", 0)}


async def test_too_many_that_wait_pause_the_pops(cluster: FakeCluster, pops: FakePops, shares: Assignments) -> None:
    go_on = asyncio.Event()

    async def slow(message: MessageView) -> None:
        await go_on.wait()

    for number in range(40):
        pops.store(T, 0, b"%d" % number)
    async with pushing(cluster, slow, strategy=ByBrokers(pop=PopSettings(batch=8, max_unacked=20))) as consumer:
        await until(lambda: len(pops.pops) == 3)
        loop = consumer._started.popping.queues.loops()[0]  # type: ignore[union-attr]
        await until(lambda: loop.unacked == 24 and not loop._room.is_set())
        assert len(pops.pops) == 3
        go_on.set()
        await until(lambda: len(pops.acked_offsets) == 40)
        await until(lambda: loop.unacked == 0)


async def test_a_message_that_waited_past_its_time_is_left_to_others(
    cluster: FakeCluster, pops: FakePops, shares: Assignments
) -> None:
    pops.store(T, 0, b"stale")
    inbox = Inbox()
    go_on = asyncio.Event()

    async def blocked(message: MessageView) -> None:
        await inbox(message)
        await go_on.wait()

    pops.store(T, 0, b"behind it")
    async with pushing(
        cluster, blocked, concurrency=1, strategy=ByBrokers(pop=PopSettings(invisible_s=5.0))
    ) as consumer:
        await until(lambda: inbox.bodies == [b"stale"])
        popping = consumer._started.popping
        assert popping is not None
        popping.receipts.heard("broker-a", pops.now_ms + 6000)  # as after six seconds in the handler
        go_on.set()
        await until(lambda: popping.queues.loops()[0].unacked == 0)
    assert inbox.bodies == [b"stale"]
    assert not pops.acked_offsets


async def test_unsubscribing_ends_the_pops_and_leaves_messages_unacknowledged(
    cluster: FakeCluster, pops: FakePops, shares: Assignments
) -> None:
    inbox = Inbox()
    cluster.add_topic("invoices", 1)
    async with pushing(cluster, inbox) as consumer:
        consumer.subscribe("invoices", "*", inbox)
        consumer.unsubscribe(T)
        pops.store(T, 0, b"nobody's")
        await until(lambda: MessageQueue(T, *ALL) not in consumer.assigned)
    assert not inbox.messages
    assert not pops.acked_offsets


async def test_with_a_topic_its_pop_retry_topic_is_left(
    cluster: FakeCluster, pops: FakePops, shares: Assignments
) -> None:
    cluster.add_topic(POP_RETRY, 1)
    cluster.add_topic("invoices", 1)
    for topic in (T, POP_RETRY, "invoices"):
        shares.set(topic, PULL, ("broker-a", 0))
    async with pushing(cluster, Inbox()) as consumer:
        consumer.subscribe("invoices", "*", Inbox())
        await until(lambda: MessageQueue(POP_RETRY, "broker-a", 0) in consumer.assigned)
        consumer.unsubscribe(T)
        await until(
            lambda: consumer.assigned == {MessageQueue("invoices", "broker-a", 0), MessageQueue(RETRY, "broker-a", 0)}
        )


async def test_flow_control_and_refusals_are_waited_out(
    cluster: FakeCluster, pops: FakePops, shares: Assignments
) -> None:
    cluster.broker.script(
        RequestCode.POP_MESSAGE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.SYSTEM_BUSY,
        lambda request: pops.nothing(request, ResponseCode.POLLING_FULL),
        lambda request: request.reply(ResponseCode.SUCCESS, {"popTime": "x"}),
    )
    pops.store(T, 0, b"1")
    inbox = Inbox()
    async with pushing(cluster, inbox):
        await until(lambda: pops.acked_offsets == [(T, 0, 0)])


async def test_pausing_holds_the_pops(cluster: FakeCluster, pops: FakePops, shares: Assignments) -> None:
    cluster.broker.on[RequestCode.POP_MESSAGE] = pops.nothing
    async with pushing(cluster, Inbox()) as consumer:
        await cluster.broker.request(RequestCode.POP_MESSAGE, 2)
        consumer.pause()
        await asyncio.sleep(0)
        cluster.broker.requests.clear()
        consumer._started.rebalance_now()
        await cluster.broker.request(RequestCode.QUERY_ASSIGNMENT, 2)
        assert len(cluster.broker.requests_of(RequestCode.POP_MESSAGE)) <= 1  # the one under way
        consumer.resume()
        await cluster.broker.request(RequestCode.POP_MESSAGE, 3)


def test_settings_have_their_bounds() -> None:
    for settings, text in (
        ({"invisible_s": 4.0}, "invisible_s"),
        ({"invisible_s": 301.0}, "invisible_s"),
        ({"batch": 33}, "a pop of 33"),
        ({"max_unacked": 0}, "max_unacked"),
    ):
        with pytest.raises(ConfigError, match=text):
            PopSettings(**settings)  # type: ignore[arg-type]
    PopSettings(invisible_s=5.0, batch=1, max_unacked=1)
    PopSettings(invisible_s=300.0, batch=32, max_unacked=1000)
    with pytest.raises(ConfigError, match="AVG, AVG_BY_CIRCLE only"):
        ByBrokers("CONSISTENT_HASH")


async def test_how_a_group_reads_is_set_at_a_broker(cluster: FakeCluster) -> None:
    remoting = RemotingClient()
    broker = RemoteBroker(remoting, cluster.broker.address, "broker-a")
    code = RequestCode.SET_MESSAGE_REQUEST_MODE
    cluster.broker.on[code] = lambda request: request.reply(0)
    await set_request_mode(broker, T, G, POP, 8)
    body = decode_body(SetMessageRequestModeRequestBody, cluster.broker.requests_of(code)[0].body)
    assert (body.topic, body.consumer_group, body.mode, body.pop_share_queue_num) == (T, G, "POP", 8)
    cluster.broker.script(code, ResponseCode.NO_PERMISSION)
    with pytest.raises(NoPermission, match="mode POP of group billing"):
        await set_request_mode(broker, RETRY, G, POP)
    await remoting.close()
