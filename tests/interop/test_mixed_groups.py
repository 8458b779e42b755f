"""Java 5.4.0, Java 4.9 and our consumers in one group: they agree on who owns what, whoever comes, goes or dies.

Between two changes of the membership every queue has exactly the owner that the strategy names, and every message sent
then is delivered once. Messages sent while queues change hands are delivered at least once. On our broker, and once on
Apache's; members killed in the middle of their work, also ones that keep order, are in test_killed_members.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Protocol

import pytest
from tests.support.allocations import java_arguments, java_share, our_share, random_cases
from tests.support.java_client import JavaClient, JavaPushConsumer
from tests.support.patience import PATIENCE_S
from tests.support.standing_still import stop_process

from rocketline.client import ConsumeFrom, Producer, PullConsumer, PushConsumer, SendReceipt
from rocketline.client.consumer.group.assignment import find_strategy, java_order
from rocketline.message import Message, MessageQueue, MessageView

pytestmark = pytest.mark.interop

QUEUES = 8
BATCH = 80


class Cluster(Protocol):
    @property
    def namesrv(self) -> str: ...


@pytest.mark.parametrize("version", ["5.4.0", "4.9.7"])
def test_random_shares_are_those_of_javas_classes(java_clients: Callable[[str], JavaClient], version: str) -> None:
    cases = random_cases(int.from_bytes(os.urandom(4)), 300)
    answers = java_clients(version).call("allocate", cases=[java_arguments(case) for case in cases])
    differing = [
        case for case, answer in zip(cases, answers, strict=True) if our_share(case) != java_share(case, answer)
    ]
    assert differing == []


class OurMember:
    """A push consumer of ours that keeps what it gets."""

    def __init__(self, consumer: PushConsumer) -> None:
        self.consumer = consumer
        self.seen: list[tuple[int, bytes]] = []

    async def handle(self, message: MessageView) -> None:
        self.seen.append((message.queue_id, message.body))

    async def owned(self, topic: str) -> tuple[str, set[int]]:
        return self.consumer.client_id, {queue.queue_id for queue in self.consumer.assigned if queue.topic == topic}

    async def collect(self) -> None: ...


class JavaMember:
    """A push consumer of Apache's client."""

    def __init__(self, consumer: JavaPushConsumer) -> None:
        self.consumer = consumer
        self.seen: list[tuple[int, bytes]] = []

    async def owned(self, topic: str) -> tuple[str, set[int]]:
        client_id, queues = await asyncio.to_thread(self.consumer.owned, topic)
        return client_id, {queue.queue_id for queue in queues}

    async def collect(self) -> None:
        new = await asyncio.to_thread(self.consumer.poll, 0, 0)
        self.seen += [(message.queue_id, message.body) for message in new]

    async def stop(self) -> None:
        last = await asyncio.to_thread(self.consumer.stop_and_poll)
        self.seen += [(message.queue_id, message.body) for message in last]


class MixedGroup:
    """The members there are, what was sent, and what every member that ever was has seen."""

    def __init__(self, cluster: Cluster, topic: str, group: str, strategy: str, producer: Producer) -> None:
        self.cluster = cluster
        self.topic, self.group, self.strategy = topic, group, strategy
        self.members: list[OurMember | JavaMember] = []
        self.sent: dict[bytes, SendReceipt] = {}
        self._gone: list[tuple[int, bytes]] = []
        self._producer = producer
        self._numbers = count()

    async def send(self, message_count: int = BATCH) -> list[bytes]:
        bodies = [b"%d" % next(self._numbers) for _ in range(message_count)]
        receipts = await asyncio.gather(*(self._producer.send(Message(self.topic, body)) for body in bodies))
        self.sent.update(zip(bodies, receipts, strict=True))
        return bodies

    @asynccontextmanager
    async def trickle(self) -> AsyncIterator[None]:
        """Messages all the while."""

        async def send_on() -> None:
            while True:
                await self.send(QUEUES)
                await asyncio.sleep(0.02)

        task = asyncio.create_task(send_on())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def join_ours(self, undo: AsyncExitStack) -> OurMember:
        options = {"from_where": ConsumeFrom.FIRST, "strategy": self.strategy}
        consumer = PushConsumer(self.cluster.namesrv, group=self.group, **options)  # type: ignore[arg-type]
        member = OurMember(await undo.enter_async_context(consumer))
        consumer.subscribe(self.topic, "*", member.handle)
        await consumer.start()
        self.members.append(member)
        return member

    async def join_java(self, client: JavaClient, *, heartbeat_v2: bool = False) -> JavaMember:
        consumer = await asyncio.to_thread(
            client.push_consumer,
            self.cluster.namesrv,
            self.group,
            {self.topic: "*"},
            strategy=self.strategy,
            heartbeat_v2=heartbeat_v2,
        )
        member = JavaMember(consumer)
        self.members.append(member)
        return member

    def leave(self, member: OurMember | JavaMember) -> None:
        self.members.remove(member)
        self._gone += member.seen

    async def settle(self) -> None:
        """Wait until every member owns what the strategy gives it among those there are."""
        queues = [MessageQueue(self.topic, "b", number) for number in range(QUEUES)]
        found: dict[str, set[int]] = {}
        expected: dict[str, set[int]] = {"nobody": set()}
        try:
            async with asyncio.timeout(PATIENCE_S):
                while found != expected:
                    await asyncio.sleep(0.05)
                    found = dict([await member.owned(self.topic) for member in self.members])
                    if self.strategy == "CONSISTENT_HASH":
                        queues = await self._real_queues() or queues
                    share, ids = find_strategy(self.strategy), java_order(found)
                    expected = {own: {q.queue_id for q in share(self.group, own, queues, ids)} for own in ids}
        except TimeoutError:
            pytest.fail(f"queues are owned as {found}, expected were {expected}")

    async def _real_queues(self) -> list[MessageQueue]:
        """With the broker's name, which the ring hashes."""
        owned = {
            queue for member in self.members if isinstance(member, OurMember) for queue in member.consumer.assigned
        }
        names = {queue.broker_name for queue in owned if queue.topic == self.topic}
        return [MessageQueue(self.topic, name, number) for name in names for number in range(QUEUES)]

    async def seen(self) -> Counter[bytes]:
        for member in self.members:
            await member.collect()
        everything = self._gone + [item for member in self.members for item in member.seen]
        return Counter(body for _, body in everything)

    async def drain(self) -> Counter[bytes]:
        """Wait until everything sent has been seen."""
        seen: Counter[bytes] = Counter()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while self.sent.keys() - (seen := await self.seen()).keys():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pytest.fail(await self._what_is_missing(seen))
        return seen

    async def _what_is_missing(self, seen: Counter[bytes]) -> str:
        places = sorted(
            (str(self.sent[body].queue), self.sent[body].queue_offset) for body in self.sent.keys() - seen.keys()
        )
        async with PullConsumer(self.cluster.namesrv, group=self.group) as reader:
            queues = await reader.queues(self.topic)
            committed = {queue.queue_id: await reader.committed(queue) for queue in queues}
            ends = {queue.queue_id: await reader.end_offset(queue) for queue in queues}
        owned = dict([await member.owned(self.topic) for member in self.members])
        return f"nobody saw {places}; committed are {committed}, ends are {ends}, queues are owned as {owned}"

    async def agree(self) -> None:
        """The queues are owned as they should be, and what is sent now arrives once, at its queue's owner."""
        await self.settle()
        await self.drain()
        fresh = await self.send()
        seen = await self.drain()
        assert {body: seen[body] for body in fresh} == dict.fromkeys(fresh, 1)
        for member in self.members:
            _, owned = await member.owned(self.topic)
            assert {queue_id for queue_id, body in member.seen if body in set(fresh)} <= owned


@pytest.fixture
def where(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize(
    ("where", "strategy"),
    [("cluster", "AVG"), ("cluster", "AVG_BY_CIRCLE"), ("cluster", "CONSISTENT_HASH"), ("apache", "AVG")],
    indirect=["where"],
)
async def test_members_of_three_kinds_agree_whoever_comes_goes_or_dies(
    where: Cluster, java_clients: Callable[[str], JavaClient], name: Callable[[str], str], strategy: str
) -> None:
    java = java_clients("5.4.0")
    topic = name("mixed")
    await asyncio.to_thread(java.create_topic, where.namesrv, topic, QUEUES)
    async with AsyncExitStack() as undo:
        producer = await undo.enter_async_context(Producer(where.namesrv, group=name("senders")))
        doomed = await asyncio.to_thread(JavaClient, "4.9.7")
        undo.push_async_callback(asyncio.to_thread, doomed.close)
        group = MixedGroup(where, topic, name("members"), strategy, producer)

        async with group.trickle():
            await group.join_ours(undo)
            newer = await group.join_java(java, heartbeat_v2=True)
            older = await group.join_java(doomed)
        await group.agree()

        async with group.trickle():
            await group.join_ours(undo)
            await group.settle()
        await group.agree()

        async with group.trickle():
            await newer.stop()
            group.leave(newer)
            await group.settle()
        await group.agree()

        # It stands still with messages waiting for it, then it is gone: nobody heard goodbye.
        await asyncio.to_thread(stop_process, doomed.pid)
        group.leave(older)
        await group.send()
        os.kill(doomed.pid, signal.SIGKILL)
        await group.agree()
