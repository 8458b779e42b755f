"""The examples for Spark run."""

from __future__ import annotations

import asyncio
import runpy
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.store_files import walk_log

from rocketline.cli.servers.child import ChildCluster
from rocketline.client import Producer
from rocketline.message import Message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "spark"


def test_a_log_as_a_table(spark: SparkSession, golden: Callable[[str], Path]) -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"log_to_table.py", "stream_orders.py"}, (
        "run the new one too"
    )
    root = golden("clean")
    found = runpy.run_path(str(EXAMPLES / "log_to_table.py"))["main"](str(root))
    assert dict(found) == Counter(entry.topic for entry in walk_log(root).records)


def test_a_topic_as_a_streaming_table(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("pyspark_rocketmq", reason="the live source is not part of this tree")
    main = runpy.run_path(str(EXAMPLES / "stream_orders.py"))["main"]
    with ChildCluster(["--data", str(tmp_path / "data")]) as cluster:
        asyncio.run(send_orders(cluster.namesrv))
        found = main(cluster.namesrv, "orders", str(tmp_path / "checkpoint"), True)
    assert dict(found) == {"c-0": 5, "c-1": 4}


async def send_orders(namesrv: str) -> None:
    async with Producer(namesrv, group="shop") as producer:
        for number in range(9):
            await producer.send(Message("orders", b'{"customer": "c-%d", "amount": 1}' % (number % 2)))
