"""One of four members hangs: what happens to the backlog when queues are pulled, and when they are popped.

    python bench/hung_member.py

The same data twice: four queues, four members that need some milliseconds for each message. After a third of it, one
member stops working but keeps sending heartbeats, so that its queues are not reassigned. Printed is what the other
three consumed, how fast, and which messages no working member gets.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from rocketline import ConsumeFrom, Message, MessageQueue, MessageView, PopConsumer, Producer, PushConsumer
from rocketline.client import ClientOptions, ClientTiming
from rocketline.testing import LocalCluster

TOPIC = "bench-hung"
QUEUES = MEMBERS = 4
PULL, POP = "pull", "pop"
BATCH = 8
INVISIBLE_S = 5.0
LIMIT_S = 300.0


@dataclass
class Found:
    """What happened to the messages in one mode."""

    mode: str
    messages: int
    done_at_hang: int = 0
    hang_s: float = 0.0
    """From the start to the hang, and from there to the last message that came to the others."""
    rest_s: float = 0.0
    done: int = 0
    """Consumed by all members; `late` of them were first delivered to the hung one, and to others later."""
    late: int = 0
    twice: int = 0
    left: Counter[int] = field(default_factory=Counter)
    """By queue: messages that no working member gets."""

    @property
    def rates(self) -> tuple[float, float]:
        """Messages per second and working member: of four before the hang, of three after it."""
        before = self.done_at_hang / self.hang_s / MEMBERS
        return before, (self.done - self.late - self.done_at_hang) / self.rest_s / (MEMBERS - 1)


class Work:
    """Shared counts of the members; member 0 hangs."""

    def __init__(self, mode: str, messages: int, work_s: float) -> None:
        self.found = Found(mode, messages)
        self._work_s = work_s
        self._hang_at = messages // 3
        self._done: set[bytes] = set()
        self._by_queue: Counter[int] = Counter()
        self._began = 0.0
        self._last = self._hung_since = 0.0
        self.hung = asyncio.Event()
        self._changed = asyncio.Event()

    async def handle(self, member: int, message: MessageView) -> None:
        self._began = self._began or time.monotonic()
        if member == 0 and len(self._done) >= self._hang_at:
            self._hang()
            await asyncio.Event().wait()
        await asyncio.sleep(self._work_s)
        if message.body in self._done:
            self.found.twice += 1
            return
        self._done.add(message.body)
        self._by_queue[int(message.body.split()[0])] += 1
        if message.reconsume_times:
            self.found.late += 1
        else:
            self._last = time.monotonic()
        self._changed.set()

    def _hang(self) -> None:
        self.hung.set()
        self._hung_since = time.monotonic()
        self.found.done_at_hang, self.found.hang_s = len(self._done), self._hung_since - self._began

    async def until(self, is_enough: Callable[[Counter[int]], bool]) -> Found:
        """Wait until the others have consumed enough."""
        async with asyncio.timeout(LIMIT_S):
            await self.hung.wait()
            while not is_enough(self._by_queue):
                self._changed.clear()
                await self._changed.wait()
        found = self.found
        found.done, found.rest_s = len(self._done), self._last - self._hung_since
        per_queue = found.messages // QUEUES
        found.left = Counter({queue: per_queue - self._by_queue[queue] for queue in range(QUEUES)}) + Counter()
        return found


async def run(mode: str, messages: int, work_s: float) -> Found:
    """One mode, on a cluster of its own."""
    async with LocalCluster(config={"defaultTopicQueueNums": QUEUES}) as cluster, AsyncExitStack() as stack:
        await _fill(cluster.namesrv, messages)
        work = Work(mode, messages, work_s)
        return await (_pull if mode == PULL else _pop)(work, cluster.namesrv, stack)


async def _fill(namesrv: str, messages: int) -> None:
    """Send the same number of messages to each queue; a body begins with the number of its queue."""
    async with Producer(namesrv, group="bench_hung_sender") as producer:
        for queue_id in range(QUEUES):
            queue = MessageQueue(TOPIC, "broker-a", queue_id)
            for start in range(0, messages // QUEUES, 100):
                numbers = range(start, min(start + 100, messages // QUEUES))
                bodies = [b"%d %0126d" % (queue_id, number) for number in numbers]
                await asyncio.gather(*(producer.send(Message(TOPIC, body), queue=queue) for body in bodies))


async def _pull(work: Work, namesrv: str, stack: AsyncExitStack) -> Found:
    members = []
    for number in range(MEMBERS):
        member = await stack.enter_async_context(
            PushConsumer(
                namesrv,
                group="bench_hung_pull",
                from_where=ConsumeFrom.FIRST,
                concurrency=1,
                options=ClientOptions(instance_name=f"member-{number}", timing=ClientTiming(stop_s=0.1)),
            )
        )

        async def handle(message: MessageView, number: int = number) -> None:
            await work.handle(number, message)

        member.subscribe(TOPIC, "*", handle)
        members.append(member)
    await asyncio.gather(*(member.start() for member in members))
    await work.hung.wait()
    stuck = {queue.queue_id for queue in members[0].assigned if queue.topic == TOPIC}
    per_queue = work.found.messages // QUEUES
    return await work.until(lambda done: all(done[queue] == per_queue for queue in set(range(QUEUES)) - stuck))


async def _pop(work: Work, namesrv: str, stack: AsyncExitStack) -> Found:
    tasks = []
    for number in range(MEMBERS):
        consumer = await stack.enter_async_context(
            PopConsumer(
                namesrv,
                group="bench_hung_pop",
                from_where=ConsumeFrom.FIRST,
                invisible=INVISIBLE_S,
                options=ClientOptions(instance_name=f"member-{number}"),
            )
        )
        await consumer.subscribe(TOPIC)
        tasks.append(asyncio.create_task(_pop_forever(work, number, consumer)))
    try:
        return await work.until(lambda done: done.total() >= work.found.messages)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pop_forever(work: Work, number: int, consumer: PopConsumer) -> None:
    while True:
        for message in await consumer.receive(BATCH):
            await work.handle(number, message)
            await consumer.ack(message)


def show(found: Found) -> str:
    before, after = found.rates
    left = ", ".join(f"{count} of queue {queue}" for queue, count in sorted(found.left.items())) or "nothing"
    late = f", {found.late} of them after the time of the hung member" if found.late else ""
    return (
        f"{found.mode:<5} {found.done} of {found.messages} done{late}, {found.twice} twice; left: {left}\n"
        f"      a working member: {before:.0f} messages/s before the hang, {after:.0f} after it"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=4000, help="in the backlog (4000)")
    parser.add_argument("--work-ms", type=float, default=5.0, help="time a message takes (5)")
    args = parser.parse_args()
    for mode in (PULL, POP):
        print(show(asyncio.run(run(mode, args.messages // QUEUES * QUEUES, args.work_ms / 1000))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
