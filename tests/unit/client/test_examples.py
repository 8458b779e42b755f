"""The examples do what they say."""

from __future__ import annotations

import asyncio
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.fakes import FakeCluster, until
from tests.unit.client.pop_fakes import FakePops
from tests.unit.client.test_blocking import threaded_cluster

EXAMPLES = Path(__file__).parents[3] / "examples"


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


async def test_orders(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.add_topic("orders")
    billed = await example("orders")["main"](cluster.namesrv)
    assert sorted(billed) == ["1001 created", "1001 paid", "1002 created"]
    assert "sent 1001 created" in capsys.readouterr().out


async def test_tail(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.add_topic("orders", 1)
    cluster.broker.committed["tail", "orders", 0] = 0
    cluster.broker.store("orders", 0, b"a line")
    running = asyncio.create_task(example("tail")["main"]("orders", cluster.namesrv))
    seen: list[str] = []

    def printed() -> bool:
        seen.append(capsys.readouterr().out)
        return "a line" in "".join(seen)

    await until(printed, "the line")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_audit(capsys: pytest.CaptureFixture[str]) -> None:
    with threaded_cluster() as cluster:
        cluster.add_topic("orders", 2)
        for number in range(6):
            cluster.broker.store("orders", number % 2, b"x", {"TAGS": "paid"} if number < 4 else None)
        assert example("audit")["main"]("orders", cluster.namesrv) == Counter({"paid": 4, "no tag": 2})
        assert "4 paid" in capsys.readouterr().out
        assert not example("audit")["main"]("orders", cluster.namesrv)


async def test_workers(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.add_topic("orders", 2)
    pops = FakePops(cluster.broker)
    for number, body in enumerate((b"one", b"fail", b"three")):
        pops.store("orders", number % 2, body)
    assert await example("workers")["main"]("orders", cluster.namesrv, 0.01) == 2
    assert pops.acked_offsets == [("orders", 0, 0), ("orders", 0, 1)]
    assert [(change.queue_id, change.invisible_ms) for change in pops.changes] == [(1, 5000)]
    assert "later: not at the first attempt" in capsys.readouterr().out
