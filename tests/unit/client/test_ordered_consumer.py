"""Consumers that keep order, on virtual time: locks, calls one after the other, failures, hand-over, commit by hand."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from tests.support.virtual import VirtualLoop, belongs_to
from tests.unit.client.ordered_group import GROUP, TOPIC, OrderedGroup, on_virtual_time

from rocketline.client import (
    ClientTiming,
    MessageModel,
    OrderedResult,
    Ordering,
    PullSettings,
    PushConsumer,
    RetryLater,
    Rollback,
    SuspendQueue,
)
from rocketline.client.consumer_info import ConsumeDirectlyResult, ConsumerRunningInfo, ProcessQueueInfo
from rocketline.errors import ConfigError
from rocketline.message import ConsumerOffset, MessageQueue, MessageView
from rocketline.protocol.bodies import (
    LockBatchRequestBody,
    ResetOffsetBody,
    decode_body,
    encode_body,
    queue_key,
)
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import PullMessageHeader, QueryConsumerOffsetHeader, SendMessageHeader

LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
PULL, QUERY, COMMIT = RequestCode.PULL_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET
Q0, Q1 = (MessageQueue(TOPIC, "broker-a", number) for number in range(2))


class Calls:
    """A handler that notes its calls and does as its script says."""

    def __init__(self, loop: VirtualLoop, script: dict[int, list[Any]] | None = None) -> None:
        self._loop = loop
        self._script = script or {}
        self.seen: list[tuple[float, int]] = []
        self.times: list[int] = []
        self.may_return = asyncio.Event()
        self.may_return.set()

    async def __call__(self, message: MessageView) -> Any:
        self.seen.append((round(self._loop.time(), 2), message.queue_offset))
        self.times.append(message.reconsume_times)
        await self.may_return.wait()
        outcomes = self._script.get(message.queue_offset)
        outcome = outcomes.pop(0) if outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @property
    def offsets(self) -> list[int]:
        return [offset for _, offset in self.seen]

    def pauses(self) -> list[float]:
        """Seconds between one call and the next."""
        return [round(after - before, 1) for (before, _), (after, _) in pairwise(self.seen)]


class Remembered:
    """Offsets in memory: a file would be written by a thread, which knows no virtual time."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, ConsumerOffset] = {}

    async def load(self) -> None: ...

    def get(self, queue: MessageQueue) -> ConsumerOffset | None:
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: ConsumerOffset, *, may_decrease: bool = False) -> None:
        self._offsets[queue] = offset

    async def read(self, queue: MessageQueue) -> ConsumerOffset | None:
        return self._offsets.get(queue)

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None: ...

    def forget(self, queue: MessageQueue) -> None: ...


def committed(group: OrderedGroup, queue_id: int = 0) -> int | None:
    return group.broker.offsets.get(GROUP, TOPIC, queue_id)


def of_queue(group: OrderedGroup, code: int, queue: MessageQueue) -> list[float]:
    """When requests about one queue came."""
    kinds = {PULL: PullMessageHeader, QUERY: QueryConsumerOffsetHeader}
    if code in (LOCK, UNLOCK):
        bodies = [(at, decode_body(LockBatchRequestBody, request.body)) for at, request in group.requests(code)]
        return [at for at, body in bodies if queue in {item.queue for item in body.mq_set}]
    headers = [(at, kinds[RequestCode(code)].decode(request)) for at, request in group.requests(code)]  # type: ignore[attr-defined]
    return [at for at, header in headers if (header.topic, header.queue_id) == (queue.topic, queue.queue_id)]


async def queue_info(group: OrderedGroup, queue: MessageQueue) -> ProcessQueueInfo:
    request = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": GROUP, "clientId": "any"})
    answer = await ask_client(group, request)
    return decode_body(ConsumerRunningInfo, answer.body).mq_table[queue_key(queue)]


async def ask_client(group: OrderedGroup, request: Command) -> Command:
    members = group.broker.consumers.get(GROUP)
    assert members is not None
    return await next(iter(members.members)).call(request, 5.0)


@on_virtual_time
async def test_a_queue_is_locked_then_its_offset_asked_then_read(group: OrderedGroup) -> None:
    group.send(0)
    await group.join()
    await group.until_done()
    locked, asked, pulled = (of_queue(group, code, Q0)[0] for code in (LOCK, QUERY, PULL))
    assert locked < asked < pulled
    body = decode_body(LockBatchRequestBody, group.requests(LOCK)[0][1].body)
    assert (body.consumer_group, body.client_id, body.only_this_broker) == (GROUP, "10.0.0.1@m1", False)


@on_virtual_time
async def test_locks_are_renewed_every_twenty_seconds(group: OrderedGroup) -> None:
    await group.join()
    joined = group.loop.time()
    await asyncio.sleep(65)
    renewals = [at - joined for at in of_queue(group, LOCK, Q0)[1:]]
    assert [round(at) for at in renewals] == [20, 40, 60]
    assert of_queue(group, LOCK, Q0)[1:] == of_queue(group, LOCK, Q1)[1:]


@on_virtual_time
async def test_a_queue_locked_by_another_is_not_read_until_it_is_free(group: OrderedGroup) -> None:
    group.send(0)
    group.send(1)
    group.broker.locks.lock(GROUP, "stranger", [Q0])
    await group.join()
    await asyncio.sleep(30)
    assert of_queue(group, PULL, Q0) == []
    assert len(of_queue(group, LOCK, Q0)) > 2
    assert {queue for _, _, queue, _ in group.judge.calls} == {Q1}
    group.broker.locks.unlock(GROUP, "stranger", [Q0])
    await group.until_done(30)


@on_virtual_time
async def test_one_call_at_a_time_per_queue_and_queues_beside_each_other(group: OrderedGroup) -> None:
    group.call_s = (1.0, 1.0)
    await group.join()
    for _ in range(5):
        group.send(0)
        group.send(1)
    started = group.loop.time()
    await group.until_done()
    assert group.loop.time() - started < 6  # both queues at once; five calls each, one after the other
    for queue in (Q0, Q1):
        times = [at for at, _, called, _ in group.judge.calls if called == queue]
        assert all(after - before > 0.999 for before, after in pairwise(times))


@on_virtual_time
async def test_a_busy_queue_lets_others_have_a_turn_after_a_minute(group: OrderedGroup) -> None:
    group.call_s = (1.0, 1.0)
    await group.join(concurrency=1)
    for _ in range(100):
        group.send(0)
    await asyncio.sleep(1.5)
    group.send(1)
    started = group.loop.time()
    while not (first := [at for at, _, queue, _ in group.judge.calls if queue == Q1]):
        await asyncio.sleep(1)
    assert 55 < first[0] - started < 62
    await group.until_done()


@on_virtual_time
async def test_without_renewals_nothing_is_called_after_thirty_seconds(group: OrderedGroup) -> None:
    group.call_s = (1.0, 1.0)
    name = await group.join()
    for _ in range(200):
        group.send(0)
    await asyncio.sleep(2.0)
    last_grant = of_queue(group, LOCK, Q0)[-1]
    group.loop.hold_back(name)
    await asyncio.sleep(55)
    assert 25 < group.judge.calls[-1][0] - last_grant <= 30
    group.loop.let_through(name)
    await group.until_done()
    assert sorted(Counter(group.judge.consumed.values())) == [1]  # goes on where it was


@on_virtual_time
async def test_a_renewal_that_fails_is_made_again_soon(group: OrderedGroup) -> None:
    group.call_s = (1.0, 1.0)
    name = await group.join()
    for _ in range(60):
        group.send(0)
    await asyncio.sleep(18)
    group.loop.hold_back(name)
    await asyncio.sleep(8)
    group.loop.let_through(name)
    await group.until_done()
    assert set(group.judge.consumed.values()) == {1}  # the lock never lapsed


@on_virtual_time
async def test_a_handler_that_blocks_the_loop_past_its_lock_still_gets_on(group: OrderedGroup) -> None:
    seen = []

    def handle(message: MessageView) -> None:
        seen.append(message.queue_offset)
        group.loop.block(40)

    await group.join(handle)
    for _ in range(3):
        group.send(0)
    await asyncio.sleep(300)
    assert seen == [0, 1, 2]
    assert committed(group) == 3


@on_virtual_time
async def test_a_lock_given_to_another_ends_the_queue_here_without_a_commit(group: OrderedGroup) -> None:
    calls = Calls(group.loop)
    await group.join(calls)
    group.send(0)
    await asyncio.sleep(6)
    assert committed(group) == 1
    group.broker.locks.unlock(GROUP, "10.0.0.1@m1", [Q0])
    group.broker.locks.lock(GROUP, "stranger", [Q0])
    await asyncio.sleep(20)  # the next renewal is refused
    group.broker.offsets.commit("stranger", GROUP, TOPIC, 0, 7)
    group.send(0)
    await asyncio.sleep(20)
    assert calls.offsets == [0]
    assert committed(group) == 7


@on_virtual_time
async def test_a_new_member_gets_a_queue_when_the_running_call_has_ended_and_counted(group: OrderedGroup) -> None:
    group.call_s = (45.0, 45.0)
    await group.join()
    for queue_id in (0, 0, 1, 1):
        group.send(queue_id)
    await asyncio.sleep(1)
    await group.join()
    await group.until_done()
    by_member = {
        member: {queue for _, called, queue, _ in group.judge.calls if called == member} for member in ("m1", "m2")
    }
    assert by_member == {"m1": {Q0, Q1}, "m2": {Q1}}
    assert set(group.judge.consumed.values()) == {1}  # what ran while the queue moved is not delivered again
    unlocked = of_queue(group, UNLOCK, Q1)[0]
    assert 45 <= unlocked < 47
    assert min(at for at, member, _, _ in group.judge.calls if member == "m2") >= unlocked


@on_virtual_time
async def test_messages_of_the_running_call_are_told_apart(group: OrderedGroup) -> None:
    calls = Calls(group.loop)
    calls.may_return.clear()
    await group.join(calls)
    for _ in range(3):
        group.send(0)
    await asyncio.sleep(1)
    info = await queue_info(group, Q0)
    assert (info.transaction_msg_count, info.transaction_msg_min_offset, info.transaction_msg_max_offset) == (1, 0, 0)
    assert (info.cached_msg_count, info.cached_msg_min_offset, info.cached_msg_max_offset) == (2, 1, 2)
    assert (info.locked, info.droped) == (True, False)
    assert info.last_lock_timestamp > 0
    calls.may_return.set()
    await asyncio.sleep(1)
    info = await queue_info(group, Q0)
    assert (info.transaction_msg_count, info.cached_msg_count, info.commit_offset) == (0, 0, 3)


@on_virtual_time
async def test_a_failure_blocks_its_queue_for_a_second_and_counts(group: OrderedGroup) -> None:
    calls = Calls(group.loop, {2: [ValueError("no"), RetryLater("no", delay_level=5)]})
    await group.join(calls)
    for _ in range(5):
        group.send(0)
    await asyncio.sleep(5)
    assert calls.offsets == [0, 1, 2, 2, 2, 3, 4]
    assert calls.times == [0, 0, 0, 1, 2, 0, 0]
    assert calls.pauses()[2:4] == [1.0, 1.0]
    assert group.requests(RequestCode.CONSUMER_SEND_MSG_BACK) == []


@pytest.mark.parametrize(("asked", "expected"), [(4.0, 4.0), (0.0, 0.0), (-1.0, 0.0), (1000.0, 30.0), (None, 2.0)])
@on_virtual_time
async def test_a_handler_may_say_how_long_its_queue_pauses(
    group: OrderedGroup, asked: float | None, expected: float
) -> None:
    calls = Calls(group.loop, {0: [SuspendQueue(asked)]})
    await group.join(calls, ordered=Ordering(suspend_s=2.0))
    group.send(0)
    await asyncio.sleep(40)
    assert calls.offsets == [0, 0]
    assert calls.pauses() == [expected]


@on_virtual_time
async def test_other_queues_go_on_while_one_pauses(group: OrderedGroup) -> None:
    calls = Calls(group.loop, {0: [SuspendQueue(20)]})
    await group.join(calls)
    group.send(0)
    await asyncio.sleep(1)
    for _ in range(3):
        group.send(1)
    await asyncio.sleep(10)
    assert calls.offsets == [0, 0, 1, 2]


@on_virtual_time
async def test_by_default_a_message_is_tried_without_end(group: OrderedGroup) -> None:
    calls = Calls(group.loop, {0: [ValueError("no")] * 40})
    await group.join(calls)
    group.send(0)
    await asyncio.sleep(60)
    assert calls.times == list(range(41))
    assert group.requests(RequestCode.SEND_MESSAGE_V2) == []


@on_virtual_time
async def test_a_message_that_failed_too_often_goes_to_the_dead_letters(group: OrderedGroup) -> None:
    calls = Calls(group.loop, {1: [ValueError("no")] * 9})
    await group.join(calls, max_reconsume_times=2)
    for _ in range(3):
        group.send(0)
    await asyncio.sleep(10)
    assert calls.offsets == [0, 1, 1, 1, 2]
    [(_, request)] = group.requests(RequestCode.SEND_MESSAGE_V2)
    header = SendMessageHeader.decode(request)
    assert (header.topic, header.reconsume_times, header.max_reconsume_times) == (f"%RETRY%{GROUP}", 3, 2)
    [dead] = group.broker.messages(f"%DLQ%{GROUP}")
    assert (dead.properties["RETRY_TOPIC"], dead.reconsume_times) == (TOPIC, 3)
    assert group.broker.messages(f"%RETRY%{GROUP}") == []
    await group.leave("m1")
    assert committed(group) == 3


@on_virtual_time
async def test_of_a_batch_only_what_failed_too_often_is_sent_on(group: OrderedGroup) -> None:
    seen: list[list[tuple[int, int]]] = []

    async def handle(messages: list[MessageView]) -> None:
        seen.append([(message.queue_offset, message.reconsume_times) for message in messages])
        if messages[0].queue_offset == 0 and messages[0].reconsume_times < 2:
            messages[0].reconsume_times += 1  # as if it had failed before
            raise ValueError("no")

    for _ in range(3):
        group.send(0)
    await group.join(handle, batch_size=2, max_reconsume_times=1)
    await asyncio.sleep(10)
    # The first was sent on when it had failed once too often; the second came again with the one behind it.
    assert seen == [[(0, 0), (1, 0)], [(1, 1), (2, 0)]]
    assert [message.queue_offset for message in group.broker.messages(f"%DLQ%{GROUP}")] == [0]


@on_virtual_time
async def test_batches_come_in_order_and_are_committed_whole(group: OrderedGroup) -> None:
    sizes: list[list[int]] = []

    async def handle(messages: list[MessageView]) -> None:
        sizes.append([message.queue_offset for message in messages])

    for _ in range(7):
        group.send(0)
    await group.join(handle, batch_size=3)
    await asyncio.sleep(6)
    assert sizes == [[0, 1, 2], [3, 4, 5], [6]]
    assert committed(group) == 7


@on_virtual_time
async def test_without_auto_commit_progress_waits_for_a_commit(group: OrderedGroup) -> None:
    calls = Calls(group.loop, {2: [OrderedResult.COMMIT]})
    await group.join(calls, ordered=Ordering(auto_commit=False))
    for _ in range(5):
        group.send(0)
    await asyncio.sleep(6)
    assert calls.offsets == [0, 1, 2, 3, 4]
    assert committed(group) == 3
    info = await queue_info(group, Q0)
    assert (info.transaction_msg_count, info.transaction_msg_min_offset) == (2, 3)


@on_virtual_time
async def test_a_rollback_brings_everything_since_the_commit_again(group: OrderedGroup) -> None:
    calls = Calls(group.loop, {1: [OrderedResult.COMMIT], 4: [Rollback(3.0), OrderedResult.COMMIT]})
    await group.join(calls, ordered=Ordering(auto_commit=False))
    for _ in range(5):
        group.send(0)
    await asyncio.sleep(20)
    assert calls.offsets == [0, 1, 2, 3, 4, 2, 3, 4]
    assert calls.pauses()[4] == 3.0
    assert committed(group) == 5


@on_virtual_time
async def test_a_failure_without_auto_commit_brings_only_its_own_message_again(group: OrderedGroup) -> None:
    calls = Calls(group.loop, {1: [ValueError("no"), OrderedResult.COMMIT]})
    await group.join(calls, ordered=Ordering(auto_commit=False))
    for _ in range(2):
        group.send(0)
    await asyncio.sleep(10)
    assert calls.offsets == [0, 1, 1]
    assert committed(group) == 2


@on_virtual_time
async def test_nonsense_instead_of_a_result_is_a_failure(group: OrderedGroup, caplog: pytest.LogCaptureFixture) -> None:
    calls = Calls(group.loop, {0: ["yes", OrderedResult.COMMIT]})
    await group.join(calls, ordered=Ordering(auto_commit=False))
    group.send(0)
    await asyncio.sleep(10)
    assert calls.offsets == [0, 0]
    assert "the handler returned 'yes': None or OrderedResult.COMMIT expected" in caplog.text


@on_virtual_time
async def test_a_result_that_means_nothing_is_named_and_a_commit_is_not(
    group: OrderedGroup, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(group.loop, {1: [OrderedResult.COMMIT], 2: ["yes"], 3: ["no"]})
    await group.join(calls)
    for _ in range(2):
        group.send(0)
    await asyncio.sleep(10)
    assert "which means nothing" not in caplog.text
    for _ in range(2):
        group.send(0)
    await asyncio.sleep(10)
    assert (calls.offsets, committed(group)) == ([0, 1, 2, 3], 4)
    assert "returned 'yes', which means nothing" in caplog.text
    assert "returned 'no'" not in caplog.text, "said once"


@on_virtual_time
async def test_a_member_that_leaves_unlocks_after_its_last_commit(group: OrderedGroup) -> None:
    await group.join()
    group.send(0)
    await group.until_done()
    await group.leave("m1")
    last = [request.code for _, request in group.requests(COMMIT, UNLOCK, RequestCode.UNREGISTER_CLIENT)]
    assert last[-2:] == [UNLOCK, RequestCode.UNREGISTER_CLIENT]
    assert COMMIT in last[:-2]
    assert not group.broker.locks.are_held(GROUP)


@on_virtual_time
async def test_a_handler_that_does_not_end_keeps_its_lock(group: OrderedGroup) -> None:
    calls = Calls(group.loop)
    calls.may_return.clear()
    await group.join(calls, timing=ClientTiming(stop_s=5.0))
    group.send(0)
    await asyncio.sleep(1)
    await group.leave("m1")
    held = [group.broker.locks.holder(GROUP, queue) for queue in (Q0, Q1)]
    assert held == ["10.0.0.1@m1", None]


@on_virtual_time
async def test_a_long_goodbye_keeps_its_locks_renewed(group: OrderedGroup) -> None:
    group.call_s = (100.0, 100.0)
    await group.join(timing=ClientTiming(stop_s=300.0))
    group.send(0)
    await asyncio.sleep(1)
    leaving = asyncio.create_task(group.leave("m1"))
    await asyncio.sleep(0)
    await group.join()
    await leaving
    await asyncio.sleep(30)
    assert group.judge.consumed[Q0, 0] == 1
    assert committed(group) == 1


@on_virtual_time
async def test_killed_members_are_replaced_when_their_locks_expire(group: OrderedGroup) -> None:
    await group.join()
    await group.join()
    await asyncio.sleep(3)
    killed = group.loop.time()
    await group.kill("m1")
    group.send(0)
    await group.until_done(100)
    assert 30 < group.judge.calls[-1][0] - killed < 81


@on_virtual_time
async def test_broadcasting_keeps_order_without_locks(group: OrderedGroup) -> None:
    calls = Calls(group.loop, {1: [ValueError("no")]})
    await group.join(calls, model=MessageModel.BROADCASTING, offsets=Remembered())
    for _ in range(3):
        group.send(0)
    await asyncio.sleep(4)
    assert calls.offsets == [0, 1, 1, 2]
    assert group.requests(LOCK, UNLOCK) == []


@on_virtual_time
async def test_an_operators_reset_starts_the_queue_again_in_order(group: OrderedGroup) -> None:
    calls = Calls(group.loop)
    await group.join(calls)
    for _ in range(4):
        group.send(0)
    await asyncio.sleep(1)
    body = encode_body(ResetOffsetBody({queue_key(Q0): 1}))
    fields = {"topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "true"}
    await ask_client(group, Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body))
    await asyncio.sleep(5)
    assert calls.offsets == [0, 1, 2, 3, 1, 2, 3]


@on_virtual_time
async def test_the_running_info_says_that_the_consumer_keeps_order(group: OrderedGroup) -> None:
    await group.join(ordered=Ordering(suspend_s=2.5))
    request = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": GROUP, "clientId": "any"})
    properties = decode_body(ConsumerRunningInfo, (await ask_client(group, request)).body).properties
    assert (properties["PROP_CONSUMEORDERLY"], properties["suspendCurrentQueueTimeMillis"]) == ("true", "2500")
    assert properties["maxReconsumeTimes"] == "-1"


@on_virtual_time
async def test_one_message_by_hand_says_that_the_consumer_keeps_order(group: OrderedGroup) -> None:
    calls = Calls(group.loop, {0: [None, SuspendQueue(reason="not now"), ValueError("no")]})
    await group.join(calls)
    group.send(0)
    await asyncio.sleep(1)
    record = bytes(group.broker.store.read(TOPIC, 0, 0, 1).chunks[0])
    fields = {"consumerGroup": GROUP, "clientId": "10.0.0.1@m1", "msgId": "x", "brokerName": "broker-a"}
    request = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, record)
    results = [decode_body(ConsumeDirectlyResult, (await ask_client(group, request)).body) for _ in range(2)]
    assert [(result.consume_result, result.remark, result.order) for result in results] == [
        ("CR_LATER", "not now", True),
        ("CR_THROW_EXCEPTION", "ValueError: no", True),
    ]


@on_virtual_time
async def test_messages_of_a_loop_come_in_order_too(group: OrderedGroup) -> None:
    for _ in range(5):
        group.send(0)
    seen = []
    with belongs_to("looping"):
        async with group.consumer("looping") as consumer:
            async for message in consumer.messages(TOPIC):
                seen.append(message.queue_offset)
                if len(seen) == 4:
                    break
    assert seen == [0, 1, 2, 3]
    assert committed(group) == 3  # the last one was not asked past
    assert not group.broker.locks.are_held(GROUP)


@on_virtual_time
async def test_the_span_of_offsets_is_no_limit_here(group: OrderedGroup) -> None:
    calls = Calls(group.loop)
    calls.may_return.clear()
    await group.join(calls, pull=PullSettings(max_span=2))
    for _ in range(50):
        group.send(0)
    await asyncio.sleep(1)
    assert (await queue_info(group, Q0)).cached_msg_max_offset == 49
    calls.may_return.set()


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="suspend_s 0"):
        Ordering(suspend_s=0)
    with pytest.raises(ConfigError, match="max_reconsume_times -2"):
        PushConsumer("127.0.0.1:9876", group=GROUP, ordered=True, max_reconsume_times=-2)


def test_times_are_rocketmqs() -> None:
    timing = ClientTiming()
    assert (timing.lock_s, timing.lock_valid_s, timing.turn_s, timing.unlock_wait_s) == (20, 30, 60, 0.5)
