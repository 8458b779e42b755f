"""A rolling deployment: how many messages come twice when members leave and others join?

    python bench/rolling.py                 our members, ours and Java's in one group, Java's alone
    python bench/rolling.py ours            one of them

A group of four consumes a backlog from our broker. Again and again, after the same share of it, one member is closed as for
a planned restart and another one joins. All members run 20 handlers at once that need some milliseconds for each message.
Java's client has its default settings, and five seconds to end its handlers when it is closed (by default it has none).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.java import JavaCompileError, JavaUnavailable
from tests.support.java_client import JavaClient, JavaPushConsumer

from rocketline import ConsumeFrom, Message, MessageView, Producer, PushConsumer
from rocketline.cli.servers.child import ChildCluster
from rocketline.client import ClientOptions

TOPIC, GROUP = "bench-rolling", "bench_rolling"
QUEUES, MEMBERS, HANDLERS = 8, 4, 20
JAVA_VERSION = "5.4.0"
JAVA_DEFAULTS = ("-Drocketmq.client.rebalance.waitInterval=20000", "-Drocketmq.client.rebalance.minInterval=1000")
LIMIT_S = 300.0
LOOK_S = 0.02
OURS, JAVA = "ours", "java"
GROUPS: dict[str, Sequence[str]] = {"ours": (OURS,) * MEMBERS, "mixed": (OURS, JAVA) * 2, "java": (JAVA,) * MEMBERS}


@dataclass
class Found:
    """What became of the messages."""

    members: str
    messages: int
    changes: int
    twice: int
    lost: int

    @property
    def percent(self) -> float:
        return 100 * self.twice / self.messages

    def __str__(self) -> str:
        return (
            f"{self.members:<6} {self.messages:,} messages, {self.changes} leaves and joins: {self.twice:,} came again "
            f"({self.percent:.2f} %), {self.lost} lost"
        )


class Arrivals:
    """How often each message was handled, by whomever."""

    def __init__(self) -> None:
        self.times: Counter[bytes] = Counter()
        self.journals: list[Journal] = []

    async def until(self, messages: int) -> None:
        """Wait until so many different ones were handled."""
        async with asyncio.timeout(LIMIT_S):
            while self.look() < messages:
                await asyncio.sleep(LOOK_S)

    def look(self) -> int:
        for journal in self.journals:
            self.times.update(journal.news())
        return len(self.times)


class Journal:
    """The file to which a Java member writes every message."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._lines = path.open()
        self._rest = ""

    def news(self) -> list[bytes]:
        *lines, self._rest = (self._rest + self._lines.read()).split("\n")
        return [bytes.fromhex(json.loads(line)[3]) for line in lines]

    def close(self) -> None:
        self._lines.close()


class Member(Protocol):
    async def leave(self) -> None: ...


class OurMember:
    def __init__(self, consumer: PushConsumer) -> None:
        self._consumer = consumer

    async def leave(self) -> None:
        await self._consumer.close()


class JavaMember:
    def __init__(self, consumer: JavaPushConsumer) -> None:
        self._consumer = consumer

    async def leave(self) -> None:
        await asyncio.to_thread(self._consumer.stop)


class Group:
    """Starts members of both kinds."""

    def __init__(self, namesrv: str, arrivals: Arrivals, work_ms: int, folder: Path) -> None:
        self._namesrv = namesrv
        self._arrivals = arrivals
        self._work_ms = work_ms
        self._folder = folder
        self._numbers = count()
        self._java: JavaClient | None = None
        self.ending = ExitStack()

    async def join(self, kind: str) -> Member:
        joins: dict[str, Callable[[str], Awaitable[Member]]] = {OURS: self._join, JAVA: self._join_java}
        return await joins[kind](f"member-{next(self._numbers)}")

    async def _join(self, name: str) -> Member:
        consumer = PushConsumer(
            self._namesrv,
            group=GROUP,
            from_where=ConsumeFrom.FIRST,
            concurrency=HANDLERS,
            options=ClientOptions(instance_name=name),
        )
        await consumer.__aenter__()

        async def handle(message: MessageView) -> None:
            await asyncio.sleep(self._work_ms / 1000)
            self._arrivals.times[message.body] += 1

        consumer.subscribe(TOPIC, "*", handle)
        await consumer.start()
        return OurMember(consumer)

    async def _join_java(self, name: str) -> Member:
        if self._java is None:
            self._java = await asyncio.to_thread(JavaClient, JAVA_VERSION, jvm_options=JAVA_DEFAULTS)
            self.ending.callback(self._java.close)
        journal = Journal(self._folder / f"{name}.journal")
        self.ending.callback(journal.close)
        self._arrivals.journals.append(journal)
        return JavaMember(await asyncio.to_thread(self._start_java, self._java, journal.path))

    def _start_java(self, java: JavaClient, journal: Path) -> JavaPushConsumer:
        return java.push_consumer(
            self._namesrv, GROUP, {TOPIC: "*"}, threads=HANDLERS, journal=str(journal), work_ms=self._work_ms
        )


async def run(members: str, messages: int, changes: int, work_ms: int) -> Found:
    """One kind of group, on a cluster of its own: `changes` times one member leaves and one joins."""
    arrivals = Arrivals()
    with tempfile.TemporaryDirectory(prefix="rocketline-rolling-") as folder, ExitStack() as stack:
        cluster = stack.enter_context(ChildCluster(["--data", f"{folder}/data"]))
        await _fill(cluster.namesrv, messages)
        group = Group(cluster.namesrv, arrivals, work_ms, Path(folder))
        stack.enter_context(group.ending)
        async with AsyncExitStack() as ending:
            kinds = list(GROUPS[members])
            joined = [await group.join(kind) for kind in kinds]
            for number in range(changes):
                await arrivals.until(messages * (2 * number + 1) // (2 * changes + 1))
                await joined.pop(0).leave()
                await arrivals.until(messages * (2 * number + 2) // (2 * changes + 1))
                joined.append(await group.join(kinds[number % MEMBERS]))
            for member in joined:
                ending.push_async_callback(member.leave)
            await arrivals.until(messages)
        arrivals.look()
    return Found(
        members, messages, changes, arrivals.times.total() - len(arrivals.times), messages - len(arrivals.times)
    )


async def _fill(namesrv: str, messages: int) -> None:
    async with Producer(namesrv, group="bench_rolling_sender", topic_queue_count=QUEUES) as producer:
        for start in range(0, messages, 200):
            numbers = range(start, min(start + 200, messages))
            await asyncio.gather(*(producer.send(Message(TOPIC, b"%0128d" % number)) for number in numbers))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("members", nargs="*", help=f"any of {', '.join(GROUPS)}; all of them without it")
    parser.add_argument("--messages", type=int, default=20_000, help="in the backlog (20000)")
    parser.add_argument("--changes", type=int, default=4, help="how often one leaves and one joins (4)")
    parser.add_argument("--work-ms", type=int, default=5, help="time a message takes (5)")
    args = parser.parse_args()
    if strangers := set(args.members) - set(GROUPS):
        parser.error(f"there is no {strangers.pop()}: {', '.join(GROUPS)} expected")
    lost = 0
    for members in args.members or GROUPS:
        try:
            found = asyncio.run(run(members, args.messages, args.changes, args.work_ms))
        except (JavaUnavailable, JavaCompileError) as error:
            print(f"{members:<6} left out: {error}", flush=True)
            continue
        lost += found.lost
        print(found, flush=True)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
