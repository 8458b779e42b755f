"""Messages that push consumers hold: prolonged in time whatever some brokers do, settled with the handle that counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.virtual import LoopClock, VirtualLoop

from rocketline.broker.grpc_config import GrpcConfig
from rocketline.errors import ConnectFailed, RequestTimeout
from rocketline.message import LogOffset, QueueOffset
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.pop_info import ReceiptHandle
from rocketline.proxy import background
from rocketline.proxy.access import Access
from rocketline.proxy.background import Background
from rocketline.proxy.context import Context
from rocketline.proxy.proto import Code, pb
from rocketline.proxy.renewal import GIVE_BACK_MS, SPARE_ENTRIES, STEPS_MS, Renewals
from rocketline.proxy.settling import Settling
from rocketline.testing import ManualClock


def handle(pop_ms: int, invisible_ms: int = 60_000, *, broker: str = "broker-a", offset: int = 7) -> ReceiptHandle:
    return ReceiptHandle(0, pop_ms, invisible_ms, 1, 0, broker, 0, QueueOffset(offset), LogOffset(99))


class Hiding:
    """Brokers that hide messages for longer, or fail to."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.asked: list[int] = []
        self.too_late = 0
        """Prolongations of messages that others could have by then."""
        self.under_way: Counter[str] = Counter()
        self.most_under_way = 0
        self.fails = False
        self.takes_s = 0.0
        self.hanging: set[str] = set()

    async def __call__(
        self, channel: Any, group: str, topic: str, known: ReceiptHandle, ms: int
    ) -> ReceiptHandle | None:
        self.asked.append(ms)
        name = known.broker_name
        self.under_way[name] += 1
        self.most_under_way = max(self.most_under_way, self.under_way[name])
        try:
            if name in self.hanging:
                await asyncio.sleep(3.0)
                raise RequestTimeout("no answer")
            if self.takes_s:
                await asyncio.sleep(self.takes_s)
        finally:
            self.under_way[name] -= 1
        if self.fails:
            raise ConnectFailed("nobody there")
        self.too_late += known.next_visible_ms <= self.clock.now_ms()
        return known.changed(self.clock.now_ms(), ms, 1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hiding(clock: ManualClock) -> Hiding:
    return Hiding(clock)


@pytest.fixture
def work() -> Background:
    return Background()


@pytest.fixture
def renewals(clock: ManualClock, hiding: Hiding, work: Background) -> Renewals:
    return Renewals(GrpcConfig(), clock, hiding, work)


def client(name: str = "c1") -> Any:
    return SimpleNamespace(id=name, channel=None)


def in_virtual_time(scenario: Coroutine[Any, Any, None], loop: VirtualLoop) -> None:
    try:
        loop.run_until_complete(scenario)
    finally:
        loop.close()


async def renewed(renewals: Renewals, work: Background) -> None:
    renewals.renew()
    await work.finish(1.0)


async def test_it_hides_longer_and_longer(
    clock: ManualClock, hiding: Hiding, renewals: Renewals, work: Background
) -> None:
    first = handle(clock.now_ms())
    renewals.add(client(), "g", "t", str(first), first)
    await renewed(renewals, work)
    assert hiding.asked == []  # a minute is left
    for _ in range(20):
        held = renewals.claim("c1", "g", str(first))
        if held is None:
            break
        renewals.release(held)
        clock.advance((held.handle.next_visible_ms - clock.now_ms()) / 1000 - 5)
        await renewed(renewals, work)
    assert hiding.asked == [*STEPS_MS, STEPS_MS[-1], STEPS_MS[-1]]
    assert len(renewals) == 0  # three hours are over


async def test_it_gives_up_after_failures(
    clock: ManualClock, hiding: Hiding, renewals: Renewals, work: Background
) -> None:
    hiding.fails = True
    first = handle(clock.now_ms(), 5_000)
    renewals.add(client(), "g", "t", str(first), first)
    for _ in range(5):
        await renewed(renewals, work)
    assert len(hiding.asked) == 3
    assert len(renewals) == 0


async def test_what_a_gone_client_held_is_given_back(
    clock: ManualClock, hiding: Hiding, renewals: Renewals, work: Background
) -> None:
    gone, other = client("c1"), client("c2")
    first = handle(clock.now_ms())
    renewals.add(gone, "g", "t", "h1", first)
    renewals.add(gone, "g", "t", "h2", first)
    renewals.add(other, "g", "t", "h3", first)
    settled = renewals.claim("c1", "g", "h2")
    assert settled is not None
    renewals.settled(settled)
    renewals.release(settled)
    renewals.client_gone(gone)
    await work.finish(1.0)
    assert hiding.asked == [GIVE_BACK_MS]
    assert len(renewals) == 1


def test_thousands_are_prolonged_before_others_get_them() -> None:
    loop = VirtualLoop()
    clock = LoopClock(loop)
    hiding, config = Hiding(clock), GrpcConfig()
    hiding.takes_s = 0.05

    async def scenario() -> None:
        renewals = Renewals(config, clock, hiding, Background())
        for number in range(5_000):
            first = handle(clock.now_ms(), offset=number)
            renewals.add(client(), "g", "t", str(first), first)
        running = asyncio.create_task(renewals.run())
        await asyncio.sleep(300)
        running.cancel()
        assert len(renewals) == 5_000

    in_virtual_time(scenario(), loop)
    assert (hiding.too_late, len(hiding.asked)) == (0, 15_000)  # after 50, 100 and 270 seconds
    assert hiding.most_under_way == background.AT_ONCE


def test_a_broker_that_hangs_keeps_nothing_of_others_from_being_prolonged() -> None:
    loop = VirtualLoop()
    clock = LoopClock(loop)
    hiding = Hiding(clock)
    hiding.takes_s, hiding.hanging = 0.01, {"hangs"}

    async def scenario() -> None:
        renewals = Renewals(GrpcConfig(), clock, hiding, Background())
        for number in range(1_000):
            for broker in ("hangs", "well"):
                first = handle(clock.now_ms(), broker=broker, offset=number)
                renewals.add(client(broker), "g", "t", str(first), first)
        running = asyncio.create_task(renewals.run())
        await asyncio.sleep(600)
        running.cancel()
        assert len(renewals) == 1_000

    in_virtual_time(scenario(), loop)
    assert hiding.too_late == 0


async def test_what_was_settled_leaves_nothing_behind(clock: ManualClock, renewals: Renewals) -> None:
    for number in range(10_000):
        first = handle(clock.now_ms(), offset=number)
        renewals.add(client(), "g", "t", str(first), first)
        held = renewals.claim("c1", "g", str(first))
        assert held is not None
        renewals.settled(held)
    assert len(renewals._due) <= 2 * SPARE_ENTRIES
    assert renewals._of_client == {}


class OneBroker:
    """A broker that knows one message, and the handle that counts for it; it holds prolongations up when told to."""

    name, guard, is_available = "broker-a", None, True

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.counts: ReceiptHandle = handle(clock.now_ms())
        self.is_done = False
        self.may_prolong = asyncio.Event()
        self.asked: list[RequestCode] = []

    async def link(self, broker_name: str) -> OneBroker:
        return self

    async def is_there(self, *_: object) -> bool:
        return True

    async def call(self, channel: Any, command: Command, timeout_s: float, late: Any = None) -> Command:
        self.asked.append(RequestCode(command.code))
        ext = command.ext or {}
        if command.code == RequestCode.CHANGE_MESSAGE_INVISIBLETIME:
            await self.may_prolong.wait()
            self.counts = self.counts.changed(self._clock.now_ms(), int(ext["invisibleTime"]), 1)
            answer = command.reply(ResponseCode.SUCCESS)
            counts = self.counts
            answer.ext = {
                "popTime": str(counts.pop_ms), "invisibleTime": str(counts.invisible_ms), "reviveQid": "1"
            }  # fmt: skip
            return answer
        if command.code == RequestCode.ACK_MESSAGE:
            # A broker takes old handles too; the message then comes again.
            self.is_done = ext["extraInfo"] == str(self.counts._replace(log_offset=None))
        return command.reply(ResponseCode.SUCCESS)


class Holding:
    """A client that holds the message of a broker, which is about to be prolonged."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker: Any = OneBroker(self.clock)
        self.settling = Settling(GrpcConfig(), self.broker, Access(self.broker), self.clock)
        self.client = client()
        self.text = str(self.broker.counts)
        self.settling.renewals.add(self.client, "g", "t", self.text, self.broker.counts)
        self.context = Context(SimpleNamespace(channel=None), SimpleNamespace(), "c1", None)  # type: ignore[arg-type]

    async def begin_to_prolong(self) -> None:
        self.clock.advance(55)
        self.settling.renewals.renew()
        while not self.broker.asked:
            await asyncio.sleep(0)

    def named(self, request: Any) -> Any:
        request.group.name, request.topic.name = "g", "t"
        return request

    async def ack(self) -> Any:
        request = self.named(pb.AckMessageRequest())
        request.entries.add(receipt_handle=self.text)
        return (await self.settling.ack(self.context, request)).status.code

    async def forward(self) -> Any:
        request = self.named(pb.ForwardMessageToDeadLetterQueueRequest(receipt_handle=self.text))
        return (await self.settling.forward(self.context, request)).status.code

    async def change(self) -> Any:
        request = self.named(pb.ChangeInvisibleDurationRequest(receipt_handle=self.text))
        request.invisible_duration.seconds = 1
        return (await self.settling.change(self.context, request)).status.code


@pytest.mark.parametrize("how", ["ack", "forward"])
async def test_who_settles_waits_for_a_prolongation_under_way(how: str) -> None:
    holding = Holding()
    await holding.begin_to_prolong()
    settling = asyncio.create_task(getattr(holding, how)())
    await asyncio.sleep(0)
    assert holding.broker.asked == [RequestCode.CHANGE_MESSAGE_INVISIBLETIME]
    holding.broker.may_prolong.set()
    assert await settling == Code.OK
    assert holding.broker.is_done
    assert len(holding.settling.renewals) == 0


async def test_a_message_is_not_prolonged_while_it_is_settled() -> None:
    holding = Holding()
    renewals = holding.settling.renewals
    holding.clock.advance(55)
    changing = asyncio.create_task(holding.change())
    await asyncio.sleep(0)
    renewals.renew()
    await asyncio.sleep(0)
    holding.broker.may_prolong.set()
    assert await changing == Code.OK
    holding.clock.advance(5)
    await renewed(renewals, holding.settling.background)
    assert holding.broker.asked == [RequestCode.CHANGE_MESSAGE_INVISIBLETIME]


async def test_what_a_gone_client_held_is_given_back_after_the_prolongation_under_way() -> None:
    holding = Holding()
    await holding.begin_to_prolong()
    holding.settling.renewals.client_gone(holding.client)
    await asyncio.sleep(0)
    assert len(holding.broker.asked) == 1
    holding.broker.may_prolong.set()
    await holding.settling.background.finish(1.0)
    assert holding.broker.counts.invisible_ms == GIVE_BACK_MS


async def test_what_a_gone_client_acknowledges_just_now_is_not_given_back() -> None:
    holding = Holding()
    await holding.begin_to_prolong()
    settling = asyncio.create_task(holding.ack())
    await asyncio.sleep(0)
    holding.settling.renewals.client_gone(holding.client)
    holding.broker.may_prolong.set()
    assert await settling == Code.OK
    await holding.settling.background.finish(1.0)
    assert holding.broker.asked == [RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.ACK_MESSAGE]
