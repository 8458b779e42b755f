"""Queues that change hands between members that run: a real broker's parts, real consumers, virtual time.

Planned changes repeat nothing. What cannot be waited for (a handler that takes too long, a member that hangs, a broker that
refuses the question) costs a bounded wait and loses nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.support.virtual import belongs_to
from tests.unit.client.ordered_group import GROUP, TOPIC, OrderedGroup, on_virtual_time

from rocketline.client import ClientOptions, ClientTiming, ConsumeFrom, PullConsumer
from rocketline.client.consumer.group.assignment import allocate_averagely, allocate_by_circle
from rocketline.client.consumer.group.hand_over import LastShares
from rocketline.message import ConsumerOffset, MessageQueue, MessageView
from rocketline.protocol.bodies import queue_key
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.transport import Channel, Reply

ASKED = RequestCode.GET_CONSUMER_RUNNING_INFO
WORK_S = 0.05
TIMING = ClientTiming()
LIMIT_S = TIMING.hand_over_s + TIMING.rebalance_soon_s


class Work:
    """Handles messages and counts how often each was done."""

    def __init__(self, group: OrderedGroup, work_s: float = WORK_S) -> None:
        self.group = group
        self.work_s = work_s
        self.begun: list[tuple[float, str, int]] = []
        self.done: Counter[tuple[int, int]] = Counter()

    def handler(self, name: str) -> Callable[[MessageView], object]:
        async def handle(message: MessageView) -> None:
            await self.handle(name, message)

        return handle

    async def handle(self, name: str, message: MessageView) -> None:
        self.begun.append((self.group.loop.time(), name, message.queue_offset))
        await asyncio.sleep(self.work_s)
        self.done[message.queue_id, message.queue_offset] += 1

    async def until_done(self, limit_s: float = 60.0) -> None:
        async with asyncio.timeout(limit_s):
            while len(self.done) < self.group.sent.total():
                await asyncio.sleep(0.1)

    @property
    def repeated(self) -> dict[tuple[int, int], int]:
        return {place: times for place, times in self.done.items() if times > 1}


@asynccontextmanager
async def traffic(group: OrderedGroup, every_s: float = 0.02) -> AsyncIterator[None]:
    """Messages to all queues, all the time."""

    async def send() -> None:
        while True:
            group.send(group.chance.randrange(group.queue_count))
            await asyncio.sleep(every_s)

    task = asyncio.create_task(send())
    try:
        yield
    finally:
        task.cancel()


async def poll(group: OrderedGroup, work: Work, name: str, stopping: asyncio.Event) -> None:
    """A pull consumer that takes up to five at a time."""
    options = ClientOptions(instance_name=name, client_ip="10.0.0.1", clock=group.clock)
    with belongs_to(name):
        async with PullConsumer(
            "127.0.0.1:9876", group=GROUP, from_where=ConsumeFrom.FIRST, options=options
        ) as consumer:
            await consumer.subscribe(TOPIC)
            while not stopping.is_set():
                for message in await consumer.poll(5, timeout=0.5):
                    await work.handle(name, message)


@pytest.mark.parametrize("ordered", [False, True])
@on_virtual_time
async def test_members_that_come_and_go_repeat_nothing(group: OrderedGroup, ordered: bool) -> None:
    work = Work(group)

    async def join() -> str:
        return await group.join(work.handler("any"), ordered=ordered)

    members = [await join()]
    async with traffic(group):
        for _ in range(4):
            members.append(await join())
            await asyncio.sleep(2)
            await group.leave(members.pop(0))
            await asyncio.sleep(2)
    await work.until_done()
    assert not work.repeated


@on_virtual_time
async def test_pull_consumers_that_come_and_go_repeat_nothing(group: OrderedGroup) -> None:
    work, members = Work(group, 0.01), []
    async with traffic(group):
        for number in range(4):
            stopping = asyncio.Event()
            members.append((asyncio.create_task(poll(group, work, f"p{number}", stopping)), stopping))
            await asyncio.sleep(3)
            if number:
                task, ending = members.pop(0)
                ending.set()
                await task
                await asyncio.sleep(3)
    await work.until_done()
    assert not work.repeated
    for task, stopping in members:
        stopping.set()
        await task


@on_virtual_time
async def test_a_handler_that_takes_too_long_is_waited_for_no_longer_than_said(group: OrderedGroup) -> None:
    work = Work(group, work_s=60.0)
    group.send(1)
    await group.join(work.handler("first"), ordered=False)
    await asyncio.sleep(1)
    joined = group.loop.time()
    await group.join(work.handler("second"), ordered=False)
    await work.until_done(120)
    (_, _, _), (at, who, _) = work.begun
    assert (who, work.begun[0][1]) == ("second", "first")
    assert TIMING.hand_over_s <= at - joined <= LIMIT_S


@on_virtual_time
async def test_a_member_that_hangs_is_waited_for_no_longer_than_said(group: OrderedGroup) -> None:
    first, second = Work(group), Work(group)
    hung = await group.join(first.handler("first"), ordered=False)
    await asyncio.sleep(1)
    group.loop.hold_back(hung)
    joined = group.loop.time()
    await group.join(second.handler("second"), ordered=False)
    assert group.loop.time() - joined < LIMIT_S + 1
    group.send(1)
    await second.until_done()
    group.loop.let_through(hung)


@on_virtual_time
async def test_where_the_question_is_refused_a_second_has_to_do(group: OrderedGroup) -> None:
    def refuse(channel: Channel, request: Command) -> Reply:
        return request.reply(ResponseCode.NO_PERMISSION, remark="not for consumers")

    group.broker.router.add(ASKED, refuse)
    group._recording.take(group.broker.router)
    work = Work(group)
    await group.join(work.handler("first"), ordered=False)
    async with traffic(group):
        joined = group.loop.time()
        await group.join(work.handler("second"), ordered=False)
        assert TIMING.rebalance_soon_s <= group.loop.time() - joined < LIMIT_S
        await asyncio.sleep(3)
    await work.until_done()
    assert not work.repeated


@on_virtual_time
async def test_a_member_that_is_gone_is_not_asked(group: OrderedGroup) -> None:
    work = Work(group)
    first = await group.join(work.handler("first"), ordered=False)
    second = await group.join(work.handler("second"), ordered=False)
    await asyncio.sleep(1)
    asked = len(group.requests(ASKED))
    assert asked, "the first one had them all"
    await group.leave(second)
    await asyncio.sleep(1)
    third = await group.join(work.handler("third"), ordered=False)
    asked = len(group.requests(ASKED))
    await group.kill(first)
    group.send(0)
    group.send(1)
    await work.until_done()
    assert len(group.requests(ASKED)) == asked
    assert {name for _, name, _ in work.begun} == {"third"}
    assert list(group.members) == [third]


@on_virtual_time
async def test_an_operator_may_set_the_offset_of_a_queue_that_is_leaving(group: OrderedGroup) -> None:
    """The progress of handlers that still ran must not undo it."""
    work = Work(group, work_s=2.0)
    for _ in range(3):
        group.send(1)
    first = await group.join(work.handler("first"), ordered=False, concurrency=3)
    await asyncio.sleep(1)
    joining = asyncio.create_task(group.join(work.handler("second"), ordered=False))
    member = group.members[first]._started
    queue = MessageQueue(TOPIC, "broker-a", 1)
    while queue not in {loop.queue for loop in member.queues.held() if loop.leaving}:
        await asyncio.sleep(0.01)
    shown = member.running_info().mq_table
    assert {key for key, info in shown.items() if info.droped} == {queue_key(queue)}, "as Java calls it"
    await member.reset_offsets({queue: ConsumerOffset(1)})
    await joining
    await asyncio.sleep(5)
    assert [offset for _, name, offset in work.begun if name == "second"] == [1, 2]


QUEUES = [MessageQueue(TOPIC, "b", number) for number in range(6)]


@pytest.mark.parametrize("strategy", [allocate_averagely, allocate_by_circle])
@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, ["a", "b", "own"]),
        (["a", "b", "own"], ["a", "own"]),
        (["a", "b", "own"], ["a", "c", "own"]),
        (["a", "own"], ["own"]),
        (["own", "z"], ["a", "own", "z"]),
    ],
)
def test_who_had_a_queue_follows_from_the_last_share(
    strategy: Callable[..., list[MessageQueue]], before: list[str] | None, now: list[str]
) -> None:
    shares = LastShares(GROUP, "own", strategy)
    if before is not None:
        shares.note(TOPIC, QUEUES, before)
    then = before or [member for member in now if member != "own"]
    owner = {queue: member for member in then for queue in strategy(GROUP, member, QUEUES, then)}
    wanted = strategy(GROUP, "own", QUEUES, now)
    expected = {queue: owner[queue] for queue in wanted if owner[queue] in now and owner[queue] != "own"}
    assert shares.owners(TOPIC, QUEUES, now, wanted) == expected
