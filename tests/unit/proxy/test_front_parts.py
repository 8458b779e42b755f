"""Parts of the front by themselves: permissions of queues, what is known of a cluster."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rocketline.broker.grpc_config import GrpcConfig
from rocketline.errors import ConfigError, ConnectFailed
from rocketline.proxy import known as known_answers
from rocketline.proxy.backend import BrokerQueues, Topic
from rocketline.proxy.known import Known
from rocketline.proxy.proto import Permission
from rocketline.proxy.routes import _permissions, accepted_types


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
    known: Known[str] = Known(asked.ask, lambda: asked.now)
    both = await asyncio.gather(known.find("a"), known.find("a"))
    assert both == ["a-1", "a-1"]
    assert await known.find("a") == "a-1"
    asked.now += known_answers.FRESH_S + 1
    assert known.get("a") == "a-1"  # still, and asked for meanwhile
    await asyncio.sleep(0.01)
    assert known.get("a") == "a-2"
    asked.fails = True
    asked.now += known_answers.FRESH_S + 1
    assert known.get("a") == "a-2"
    await asyncio.sleep(0.01)
    asked.now += known_answers.KEEP_S
    assert known.get("a") is None
    with pytest.raises(ConnectFailed):
        await known.find("a")


async def test_that_there_is_nothing_is_remembered_for_a_second() -> None:
    asked = Asked()
    known: Known[str] = Known(asked.ask, lambda: asked.now)
    for _ in range(3):
        assert await known.find("nothing") is None
    assert asked.count == 1
    asked.now += known_answers.NOTHING_S
    assert await known.find("nothing") is None
    assert asked.count == 2


async def test_doubt_asks_at_once() -> None:
    asked = Asked()
    known: Known[str] = Known(asked.ask, lambda: asked.now)
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
