"""Pipelines over a running cluster: from topics to tables and back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.live import stored
from tests.support.admin import create_topic, eventually

from rocketline.client import ClientOptions, ConsumeFrom, Producer, PullConsumer, PushConsumer
from rocketline.client.bulk.reader import BulkReader
from rocketline.errors import RouteNotFound
from rocketline.message import Message, MessageView
from rocketline.pipelines.archive import archive, archived, restore
from rocketline.pipelines.dlq import dlq, dlq_origin
from rocketline.pipelines.lag import lag
from rocketline.pipelines.medallion import GoldSettings, medallion
from rocketline.pipelines.orders import order_messages
from rocketline.pipelines.origin import Origin
from rocketline.pipelines.replay import replay
from rocketline.pipelines.trace import TRACE_TOPIC, trace
from rocketline.protocol.trace import decode_traces
from rocketline.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = 200
JOBS = 20


def ignore(text: str) -> None:
    pass


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    """A cluster with orders, and with jobs of which some ended as dead letters."""
    with LocalCluster(config={"traceTopicEnable": True}) as cluster:
        for topic in ("orders", "jobs"):
            create_topic(cluster.brokers[0].address, topic, 2)
        asyncio.run(send_orders(cluster.namesrv))
        yield cluster.namesrv


async def send_orders(namesrv: str) -> None:
    async with Producer(namesrv, group="shop") as producer:
        for order in order_messages(ORDERS):
            await producer.send(Message("orders", order.body, tag="new", keys=[order.order_id]))


def test_orders_become_tables_and_totals_go_back(spark: SparkSession, namesrv: str, tmp_path: Path) -> None:
    origin, target = Origin(("orders",), namesrv=namesrv), str(tmp_path / "tables")
    outcome = medallion(spark, origin, target, ignore, GoldSettings(namesrv=namesrv, topic="totals"))
    again = [message.keys for message in stored(namesrv, "totals")]
    assert len(set(again)) == len(again) == spark.read.parquet(f"{target}/gold/customers").count()
    assert outcome.notes[0] == "208 messages: 199 orders, 5 of them late, 8 duplicates, 1 rejected"


def test_an_archive_of_a_topic_and_the_way_back(spark: SparkSession, namesrv: str, tmp_path: Path) -> None:
    live, target = Origin(("orders",), namesrv=namesrv), str(tmp_path / "archive")
    for _ in range(2):
        archive(spark, live, target, ignore, per_batch=80)
    kept = archived(spark, target).select("batch", "queueId", "queueOffset", "msgId", "keys").collect()
    assert len({(row["queueId"], row["queueOffset"]) for row in kept}) == len(kept) == 208
    assert {row["batch"] for row in kept} == {0, 1, 2}
    restore(spark, target, archived(spark, target), namesrv, ignore, to_topic="copy", where="keys = 'o-3'")
    copies = Origin(("copy",), namesrv=namesrv)
    outcome = replay(spark, copies, namesrv, ignore, to_topic="copy2", where="tags = 'new'", rate=1000)
    assert outcome.rows == [("copy", "copy2", 2)]
    ids = {row["msgId"] for row in kept if row["keys"] == "o-3"}
    found = {(message.message_id, message.tag, message.keys) for message in stored(namesrv, "copy2")}
    assert found == {(one, "new", ("o-3",)) for one in ids}


async def commit_half(namesrv: str, group: str) -> None:
    async with PullConsumer(namesrv, group=group, auto_commit=False) as consumer:
        queues = await consumer.queues("orders")
        await consumer.commit({queue: await consumer.end_offset(queue) // 2 for queue in queues})


def test_lag_of_a_group_that_read_half(spark: SparkSession, namesrv: str, tmp_path: Path) -> None:
    asyncio.run(commit_half(namesrv, "half"))
    outcome = lag(spark, namesrv, ["half"], ignore, topics=["orders"], times=2, every_s=0.1, out=tmp_path)
    assert sum(int(row[4]) for row in outcome.rows) == 104
    assert (tmp_path / "lag.svg").read_text().startswith("<svg")


async def work_and_fail(namesrv: str) -> None:
    """Traced jobs, of which a consumer that never tries again fails every fourth."""
    done = asyncio.Semaphore(0)

    async def work(message: MessageView) -> None:
        done.release()
        if int(message.keys[0]) % 4 == 0:
            raise ValueError("cannot be done")

    async with (
        Producer(namesrv, group="shop", options=ClientOptions(trace=True)) as producer,
        PushConsumer(
            namesrv,
            group="workers",
            from_where=ConsumeFrom.FIRST,
            max_reconsume_times=0,
            options=ClientOptions(trace=True),
        ) as consumer,
    ):
        consumer.subscribe("jobs", "*", work)
        await consumer.start()
        for number in range(JOBS):
            await producer.send(Message("jobs", b"job", keys=[str(number)], properties={"why": f"w{number % 8}"}))
        for _ in range(JOBS):
            await done.acquire()


def traced(namesrv: str) -> int:
    """How many records the trace topic has: for each job one of the producer and two of the consumer."""
    return sum(len(list(decode_traces(message.body))) for message in stored(namesrv, TRACE_TOPIC))


def dead_letters(namesrv: str) -> int:
    with BulkReader(namesrv, group="look") as reader:
        try:
            return sum(reader.ends(reader.queues("%DLQ%workers")).values())
        except RouteNotFound:
            return 0


def test_dead_letters_are_told_of_and_sent_again_and_traces_made_into_times(
    spark: SparkSession, namesrv: str, tmp_path: Path
) -> None:
    nothing = dlq(spark, dlq_origin(namesrv, None), ignore)
    assert nothing.notes == ["there are none: the cluster has no dead-letter topic"]
    asyncio.run(work_and_fail(namesrv))
    eventually(lambda: dead_letters(namesrv) == JOBS // 4, "dead letters")
    eventually(lambda: traced(namesrv) == 3 * JOBS, "traces")

    outcome = dlq(spark, dlq_origin(namesrv, None), ignore, error_property="why", redrive="error = 'w4'")
    assert {(row[0], row[1], row[2], row[4]) for row in outcome.rows} == {
        ("workers", "jobs", "w0", 3), ("workers", "jobs", "w4", 2),
    }  # fmt: skip
    assert outcome.notes == ["2 were sent to the topics they came from"]
    again = [message for message in stored(namesrv, "jobs") if message.keys in (("4",), ("12",))]
    assert len(again) == 4 and len({message.message_id for message in again}) == 2
    assert {message.reconsume_times for message in again} == {0}
    assert not {"RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"} & {name for message in again for name in message.properties}

    outcome = trace(spark, Origin((TRACE_TOPIC,), namesrv=namesrv), ignore, out=tmp_path)
    assert [tuple(row[:4]) for row in outcome.rows] == [
        ("jobs", "workers", "end to end", JOBS),
        ("jobs", "workers", "handle", JOBS),
        ("jobs", "shop", "send", JOBS),
    ]
    assert "<rect" in (tmp_path / "latencies.svg").read_text()
