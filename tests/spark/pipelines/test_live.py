"""Pipelines over a running cluster: from topics to tables and back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketline.cli.child import ChildCluster
from rocketline.client import Producer, PullConsumer
from rocketline.message import Message
from rocketline.pipelines.archive import archive, archived, restore
from rocketline.pipelines.dlq import dlq, dlq_origin
from rocketline.pipelines.lag import lag
from rocketline.pipelines.medallion import Gold, medallion
from rocketline.pipelines.orders import order_messages
from rocketline.pipelines.origin import Origin
from rocketline.pipelines.replay import replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark_rocketmq", reason="the live source is not part of this tree")

ORDERS = 200


def ignore(text: str) -> None:
    pass


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster in a process of its own, since Spark blocks; with some orders."""
    with ChildCluster(["--data", str(tmp_path_factory.mktemp("data"))]) as cluster:
        asyncio.run(send_orders(cluster.namesrv))
        yield cluster.namesrv


async def send_orders(namesrv: str) -> None:
    async with Producer(namesrv, group="shop") as producer:
        for order in order_messages(ORDERS):
            await producer.send(Message("orders", order.body, tag="new", keys=[order.order_id]))


def test_orders_become_tables_and_totals_go_back(spark: SparkSession, namesrv: str, tmp_path: Path) -> None:
    origin, target = Origin(("orders",), namesrv=namesrv), str(tmp_path / "tables")
    outcome = medallion(spark, origin, target, ignore, Gold(namesrv=namesrv, topic="totals"))
    again = Origin(("totals",), namesrv=namesrv).batch(spark).collect()
    assert len({row["keys"] for row in again}) == len(again) == spark.read.parquet(f"{target}/gold/customers").count()
    assert outcome.notes[0] == "208 messages: 199 orders, 5 of them late, 8 came again, 1 are none"


def test_an_archive_of_a_topic_and_the_way_back(spark: SparkSession, namesrv: str, tmp_path: Path) -> None:
    live, target = Origin(("orders",), namesrv=namesrv), str(tmp_path / "archive")
    archive(spark, live, target, ignore, per_batch=80)
    archive(spark, live, target, ignore, per_batch=80)
    kept = archived(spark, target)
    assert kept.count() == kept.dropDuplicates(["queueId", "queueOffset"]).count() == 208
    assert kept.select("batch").distinct().count() == 3
    restore(spark, target, namesrv, ignore, to_topic="copy", where="keys = 'o-3'")
    outcome = replay(spark, Origin(("copy",), namesrv=namesrv), namesrv, ignore, to_topic="copy2", rate=1000)
    assert outcome.rows == [("copy", "copy2", "2")]
    rows = Origin(("copy2",), namesrv=namesrv).batch(spark).collect()
    ids = {row["msgId"] for row in kept.where("keys = 'o-3'").collect()}
    assert {(row["msgId"], row["tags"], row["keys"]) for row in rows} == {(one, "new", "o-3") for one in ids}


async def commit_half(namesrv: str, group: str) -> None:
    async with PullConsumer(namesrv, group=group, auto_commit=False) as consumer:
        queues = await consumer.queues("orders")
        await consumer.commit({queue: await consumer.end_offset(queue) // 2 for queue in queues})


def test_lag_of_a_group_that_read_half(spark: SparkSession, namesrv: str, tmp_path: Path) -> None:
    asyncio.run(commit_half(namesrv, "half"))
    outcome = lag(spark, namesrv, ["half"], ignore, topics=["orders"], times=2, every_s=0.1, out=tmp_path)
    assert sum(int(row[4]) for row in outcome.rows) == 104
    assert (tmp_path / "lag.svg").read_text().startswith("<svg")
    nothing = dlq(spark, dlq_origin(namesrv, None), ignore)
    assert nothing.notes == ["there are none: the cluster has no dead-letter topic"]
