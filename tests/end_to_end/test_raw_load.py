"""The raw load generator of the benchmarks checks what it says it checks, against our broker."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from bench import wire
from bench.generators import RawLoad

from rocketline.testing import LocalCluster

QUEUES = 2

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


class Broker:
    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.address = cluster.brokers[0].address
        self._load = RawLoad(core=min(os.sched_getaffinity(0)))

    def load(self, topic: str, **options: Any) -> dict[str, Any]:
        return self._load.run(
            self.address, self.cluster.brokers[0].name, 10, topic=topic, **({"queues": QUEUES} | options)
        )

    def create(self, *topics: str) -> None:
        wire.create_topics(self.cluster.namesrv, self.address, topics, QUEUES)

    def offsets(self, *topics: str) -> list[int]:
        return wire.max_offsets(self.address, topics, QUEUES)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with LocalCluster() as cluster:
        yield Broker(cluster)


def test_every_group_gets_what_is_sent_while_it_waits(broker: Broker) -> None:
    broker.create("flow")
    broker.load("flow", count=10)
    before = broker.offsets("flow")
    found = broker.load(
        "flow", mode="flow", rate=500, window=64, groups=3, seconds=0.3, warmup=0.05, offsets=",".join(map(str, before))
    )
    assert (found["errors"], found["first_error"]) == (0, "")
    assert found["acked"] == sum(broker.offsets("flow")) - sum(before) > 0
    assert found["delivered"] == 3 * found["acked"]
    assert (
        0 <= found["messages"] <= found["delivered"]
    )  # those of the measured time, in which a busy machine may bring none


def test_a_group_that_cannot_read_is_an_error(broker: Broker) -> None:
    broker.create("nowhere")
    found = broker.load("nowhere", mode="flow", rate=500, seconds=0.1, offsets="7,7")
    assert found["errors"] > 0
    assert "wrong answer" in found["first_error"]


def test_a_tag_selects_its_messages_in_every_pass(broker: Broker) -> None:
    broker.create("tags")
    broker.load("tags", count=640, batch=32, tags=10)
    broker.load("tags", count=10, tags=10)
    found = broker.load("tags", mode="pull", subscription="t003", seconds=0.2)
    assert (found["errors"], found["first_error"]) == (0, "")
    assert found["selected_per_pass"] == 65
    assert found["passes"] >= QUEUES
    assert found["acked"] >= 650


def test_messages_are_spread_over_topics_and_queues(broker: Broker) -> None:
    topics = [f"many-{number}" for number in range(3)]
    broker.create(*topics)
    found = broker.load("many", topics=3, count=12)
    assert found["acked"] == 12
    assert broker.offsets(*topics) == [2] * 6


def test_a_signed_load_needs_the_right_to_send() -> None:
    """The account of the load is no super user: its rights are looked up for every send."""
    with LocalCluster(users={wire.ACCOUNT: wire.SECRET}) as cluster:
        guarded = Broker(cluster)
        wire.create_sender(guarded.address)
        guarded.create("guarded")
        found = guarded.load("guarded", count=50, account=wire.SENDER, secret=wire.SENDER_SECRET)
        assert (found["errors"], found["first_error"], sum(guarded.offsets("guarded"))) == (0, "", found["acked"])
        wire.call(guarded.address, 3008, {"subject": f"User:{wire.SENDER}"})
        assert guarded.load("guarded", count=50, account=wire.SENDER, secret=wire.SENDER_SECRET)["acked"] == 0
