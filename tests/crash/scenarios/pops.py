"""I7: popped messages come again unless they were acknowledged, and acknowledged ones never do, whoever is killed.

Members of a group pop, each a process of its own. The broker is killed with SIGKILL and started again on its folder and
port, members are killed and replaced. In the end every message that was sent is acknowledged, and none was handed out
after a member had heard that its acknowledgement was taken. All of them tell the time by one clock, that of the machine.
Of the one message a member was about to acknowledge when it was killed, or the broker was, nobody knows: it may be done, or
come again.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from rocketline.client import ClientOptions, Producer
from rocketline.errors import RocketlineError
from rocketline.message import Message

from ..child import DidNotStart
from ..member import Member, MemberPlan
from ..outcome import Outcome
from ..servers import ServerChild
from ..traffic import QUICK, NeverHappened, until

BROKER, MEMBERS, BOTH = "broker", "members", "both"
VARIANTS = (BROKER, MEMBERS, BOTH)
TOPIC, GROUP = "orders", "poppers"
MEMBER_COUNT = 2
KILLS = 3
PER_LIFE = 80
INVISIBLE_S = 3.0
SETTINGS = ("mappedFileSizeCommitLog=1048576", "mappedFileSizeConsumeQueue=20000", "flushConsumerOffsetInterval=300")


class Site:
    """Name server, broker and members, each a process; and the books."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        settings = [word for setting in SETTINGS for word in ("--set", setting)]
        self._name_server = ServerChild(folder / "nameserver.log", "nameserver")
        self._settings = settings
        self.broker: ServerChild
        self.sent: set[bytes] = set()
        self._killed_at: set[bytes] = set()
        self._ever: list[Member] = []
        self._members: list[Member] = []

    async def start(self) -> None:
        await self._name_server.start()
        self.broker = ServerChild(
            self._folder / "broker.log", "broker", "--data", str(self._folder / "broker"),
            "--namesrv", self._name_server.address, *self._settings,
        )  # fmt: skip
        await self.broker.start()
        await self.send(1)  # makes the topic
        for _ in range(MEMBER_COUNT):
            self.join()

    def join(self) -> None:
        plan = MemberPlan(self._name_server.address, GROUP, TOPIC, pop_invisible_s=INVISIBLE_S)
        member = Member(plan, self._folder / f"member-{len(self._ever)}.log")
        self._ever.append(member)
        self._members.append(member)

    async def replace_a_member(self, random: Random) -> None:
        victim = self._members.pop(random.randrange(len(self._members)))
        await asyncio.to_thread(victim.kill)
        self._killed_at.update(victim.bodies[-1:])
        self.join()

    async def send(self, count: int) -> None:
        async with Producer(
            self._name_server.address, group="senders", options=ClientOptions(timing=QUICK)
        ) as producer:
            for _ in range(count):
                body = b"order %d" % len(self.sent)
                while body not in self.sent:
                    try:
                        await producer.send(Message(TOPIC, body))
                        self.sent.add(body)
                    except RocketlineError:
                        await asyncio.sleep(0.05)  # not found yet after its start; nothing is sent while it is killed

    @property
    def popped(self) -> list[tuple[float, bytes]]:
        return [each for member in self._ever for each in list(member.popped)]

    @property
    def acked(self) -> dict[bytes, float]:
        """When a message was known to be acknowledged first."""
        found: dict[bytes, float] = {}
        for at, body in sorted(each for member in self._ever for each in list(member.acked)):
            found.setdefault(body, at)
        return found

    @property
    def in_doubt(self) -> set[bytes]:
        """Messages that may be done without anybody having heard of it; one that came again since is not."""
        last = dict(sorted((body, at) for at, body in self.popped))
        doubted = {body for member in self._ever for at, body in list(member.doubted) if last.get(body, at) <= at}
        return self._killed_at | doubted

    @property
    def is_done(self) -> bool:
        return self.acked.keys() >= self.sent - self.in_doubt

    async def stop(self) -> None:
        for member in self._ever:
            await asyncio.to_thread(member.close)
        await self.broker.kill()
        await self._name_server.kill()


@asynccontextmanager
async def _site(folder: Path) -> AsyncIterator[Site]:
    site = Site(folder)
    try:
        await site.start()
        yield site
    finally:
        await site.stop()


async def run(folder: Path, seed: int, variant: str = BOTH, runs: int = 1) -> Outcome:
    outcome = Outcome("I7", variant, seed)
    random = Random(seed)
    for number in range(runs):
        try:
            async with _site(folder / str(number)) as site:
                for _ in range(KILLS):
                    await _life(site, variant, random)
                await _check(outcome, site)
        except (NeverHappened, DidNotStart) as error:
            outcome.violations.append(f"I7 {variant}: {error}")
        outcome.runs += 1
        if not outcome.violations:
            shutil.rmtree(folder / str(number), ignore_errors=True)
    return outcome


async def _life(site: Site, variant: str, random: Random) -> None:
    """Messages, a part of them popped and acknowledged, a kill in the middle of that, and a new start."""
    await site.send(PER_LIFE)
    wanted = len(site.acked) + random.randrange(1, PER_LIFE // 2)
    await until(lambda: len(site.acked) >= wanted or site.is_done, f"{wanted} messages acknowledged")
    if variant != MEMBERS:
        await site.broker.kill()
    if variant != BROKER:
        await site.replace_a_member(random)
    if variant != MEMBERS:
        await site.broker.start()


async def _check(outcome: Outcome, site: Site) -> None:
    await until(lambda: site.is_done, f"all of {len(site.sent)} messages acknowledged")
    # Whatever would come again comes within its invisible time, what brokers need to notice, and a pop.
    await asyncio.sleep(INVISIBLE_S + 4.0)
    await until(lambda: site.is_done, "what came again acknowledged")
    acked, popped = site.acked, site.popped
    again = [body for at, body in popped if at > acked.get(body, at)]
    outcome.require(not again, f"I7: {len(again)} came again after they were acknowledged: {again[:3]}")
    invented = {body for _, body in popped} - site.sent
    outcome.require(not invented, f"I7: {len(invented)} messages that nobody sent")
    outcome.acked += len(acked)
    outcome.duplicates += len(popped) - len({body for _, body in popped})
