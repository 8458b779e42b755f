"""The whole way of a message: producers, `rocketline up` in a process of its own, a consumer group that changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.cli.demo.journey import JourneyPlan, read_back, run_journey
from rocketline.cli.demo.ledger import Ledger
from rocketline.cli.servers.child import ChildCluster

MANY = 200_000 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 50_000


async def make_journey(data: Path, plan: JourneyPlan) -> None:
    """Move the messages, look at everything twice, and expect nothing wrong."""
    ledger = Ledger(plan.messages, plan.body_bytes)
    events: list[str] = []
    with ChildCluster(["--data", str(data)]) as cluster:
        report = await run_journey(cluster.namesrv, plan, ledger, events.append)
        assert report.problems == []
        assert (ledger.sent, ledger.acknowledged, ledger.consumed) == (plan.messages,) * 3
        assert (ledger.lost(), ledger.invented) == ([], 0)
        assert [event.split(" after ")[0] for event in events] == ["a consumer left", "a consumer joined"]
        stored, problems = await read_back(cluster.namesrv, plan.topic, ledger)
        assert problems == []
        assert stored >= plan.messages
        assert cluster.stop() == 0
    with ChildCluster(["--data", str(data)]) as cluster:
        assert await read_back(cluster.namesrv, plan.topic, ledger) == (stored, [])


async def test_five_thousand_messages_one_by_one(tmp_path: Path) -> None:
    await make_journey(tmp_path, JourneyPlan(messages=5_000, fail_every=500, patience_s=PATIENCE_S))


@pytest.mark.slow
async def test_many_messages_by_eight_producers_and_four_consumers(tmp_path: Path) -> None:
    many = JourneyPlan(messages=MANY, producers=8, consumers=4, in_flight=8, batch=16, patience_s=PATIENCE_S)
    await make_journey(tmp_path, many)
