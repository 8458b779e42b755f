"""Whether `up` waits for masters."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rocketline.broker.config import BrokerConfig
from rocketline.cli.servers.election import all_led
from rocketline.errors import ProcessFailed
from rocketline.protocol.bodies import BrokerData
from rocketline.settings import load

ELECTED = load(BrokerConfig, {"brokerName": "a", "rocketline.coordination": "etcd://127.0.0.1:2379"})[0]
FIXED = load(BrokerConfig, {"brokerName": "b"})[0]


def name_server(known: dict[str, BrokerData]) -> Any:
    info = SimpleNamespace(broker_addr_table=known)
    return SimpleNamespace(routes=SimpleNamespace(cluster_info=lambda: info))


async def test_a_cluster_is_ready_when_each_group_has_a_master() -> None:
    known: dict[str, BrokerData] = {}
    await all_led(name_server(known), [FIXED])
    waiting = asyncio.create_task(all_led(name_server(known), [FIXED, ELECTED]))
    known["a"] = BrokerData("c", "a", {1: "127.0.0.1:1"})
    await asyncio.sleep(0)
    assert not waiting.done()
    known["a"] = BrokerData("c", "a", {0: "127.0.0.1:1"})
    await waiting


async def test_one_that_never_gets_one_says_so() -> None:
    with pytest.raises(ProcessFailed, match=r"nobody leads a after 0 s.*etcd://127\.0\.0\.1:2379"):
        await all_led(name_server({}), [ELECTED], limit_s=0.0)
