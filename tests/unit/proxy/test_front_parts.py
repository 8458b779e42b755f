"""Parts of the front by themselves: prolonging, permissions of queues, what is known of a cluster."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rocketline.broker.grpc_config import GrpcConfig
from rocketline.errors import ConfigError, ConnectFailed
from rocketline.message import LogOffset, QueueOffset
from rocketline.protocol.pop_info import ReceiptHandle
from rocketline.proxy import remote
from rocketline.proxy.backend import BrokerQueues, Topic
from rocketline.proxy.proto import Permission
from rocketline.proxy.remote import Known
from rocketline.proxy.renewal import GIVE_BACK_MS, STEPS_MS, Renewals
from rocketline.proxy.routes import _permissions, accepted_types
from rocketline.testing import ManualClock


def handle(pop_ms: int, invisible_ms: int = 60_000) -> ReceiptHandle:
    return ReceiptHandle(0, pop_ms, invisible_ms, 1, 0, "broker-a", 0, QueueOffset(7), LogOffset(99))


class Hiding:
    """Brokers that hide messages for longer, or fail to."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.asked: list[int] = []
        self.fails = False

    async def __call__(
        self, channel: Any, group: str, topic: str, known: ReceiptHandle, ms: int
    ) -> ReceiptHandle | None:
        self.asked.append(ms)
        if self.fails:
            raise ConnectFailed("nobody there")
        return known.changed(self.clock.now_ms(), ms, 1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def hiding(clock: ManualClock) -> Hiding:
    return Hiding(clock)


@pytest.fixture
def renewals(clock: ManualClock, hiding: Hiding) -> Renewals:
    return Renewals(GrpcConfig(), clock, hiding)


def client(name: str = "c1") -> Any:
    return SimpleNamespace(id=name, channel=None)


async def renewed(renewals: Renewals) -> None:
    renewals.renew()
    await renewals.close()


async def test_it_hides_longer_and_longer(clock: ManualClock, hiding: Hiding, renewals: Renewals) -> None:
    first = handle(clock.now_ms())
    renewals.add(client(), "g", "t", str(first), first)
    await renewed(renewals)
    assert hiding.asked == []  # a minute is left
    for _ in range(20):
        latest = renewals.latest("c1", "g", str(first))
        if latest is None:
            break
        clock.advance((latest.next_visible_ms - clock.now_ms()) / 1000 - 5)
        await renewed(renewals)
    assert hiding.asked == [*STEPS_MS, STEPS_MS[-1], STEPS_MS[-1]]
    assert len(renewals) == 0  # three hours are over


async def test_it_gives_up_after_failures(clock: ManualClock, hiding: Hiding, renewals: Renewals) -> None:
    hiding.fails = True
    first = handle(clock.now_ms(), 5_000)
    renewals.add(client(), "g", "t", str(first), first)
    for _ in range(5):
        await renewed(renewals)
    assert len(hiding.asked) == 3
    assert len(renewals) == 0


async def test_what_a_gone_client_held_is_given_back(clock: ManualClock, hiding: Hiding, renewals: Renewals) -> None:
    gone, other = client("c1"), client("c2")
    first = handle(clock.now_ms())
    renewals.add(gone, "g", "t", "h1", first)
    renewals.add(gone, "g", "t", "h2", first)
    renewals.add(other, "g", "t", "h3", first)
    renewals.settled("c1", "g", "h2")
    renewals.client_gone(gone)
    await renewals.close()
    assert hiding.asked == [GIVE_BACK_MS]
    assert len(renewals) == 1


def queues(read: int, write: int, perm: int = 6) -> BrokerQueues:
    link: Any = SimpleNamespace(name="broker-a")
    return BrokerQueues(link, read, write, perm)


def test_permissions_of_queues() -> None:
    read, write, both = Permission.READ, Permission.WRITE, Permission.READ_WRITE
    assert _permissions(queues(2, 2)) == [both, both]
    assert _permissions(queues(3, 1)) == [read, read, both]
    assert _permissions(queues(1, 3)) == [write, write, both]
    assert _permissions(queues(2, 2, perm=4)) == [read, read]
    assert _permissions(queues(2, 2, perm=2)) == [write, write]
    assert _permissions(queues(2, 2, perm=0)) == [Permission.NONE]


def test_types_of_topics() -> None:
    assert accepted_types(Topic("t", "MIXED", [])) == [1, 2, 3, 4]
    assert accepted_types(Topic("t", "DELAY", [])) == [3]
    assert accepted_types(Topic("%DLQ%g", "DELAY", [])) == [1]
    assert accepted_types(Topic("t", "UNSPECIFIED", [])) == [0]


class Asked:
    """Answers of a cluster, and the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.count = 0
        self.fails = False

    async def ask(self, name: str) -> str | None:
        self.count += 1
        if self.fails:
            raise ConnectFailed("nobody there")
        return None if name == "nothing" else f"{name}-{self.count}"


async def test_what_is_known_is_asked_for_again() -> None:
    asked = Asked()
    known: Known[str | None] = Known(asked.ask, lambda: asked.now)
    both = await asyncio.gather(known.find("a"), known.find("a"))
    assert both == ["a-1", "a-1"]
    assert await known.find("a") == "a-1"
    asked.now += remote.FRESH_S + 1
    assert known.get("a") == "a-1"  # still, and asked for meanwhile
    await asyncio.sleep(0.01)
    assert known.get("a") == "a-2"
    asked.fails = True
    asked.now += remote.FRESH_S + 1
    assert known.get("a") == "a-2"
    await asyncio.sleep(0.01)
    asked.now += remote.KEEP_S
    assert known.get("a") is None
    with pytest.raises(ConnectFailed):
        await known.find("a")


async def test_doubt_asks_at_once() -> None:
    asked = Asked()
    known: Known[str | None] = Known(asked.ask, lambda: asked.now)
    assert await known.find("nothing") is None
    await known.find("a")
    known.doubt()
    assert known.get("a") == "a-2"
    await asyncio.sleep(0.01)
    assert known.get("a") == "a-3"


@pytest.mark.parametrize(
    "bad", [{"port": 70_000}, {"port": -2}, {"advertised": "nowhere"}, {"invisible_ms": 0}, {"batch_size": 0}]
)
def test_settings_that_are_wrong(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        GrpcConfig(**bad)
