"""Spark Connect: a declarative pipeline from a topic to tables and back; source, sink and tables over a connection."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.clusters import bin_path, connect_server, run_program
from tests.spark.conftest import ROOT, require_spark
from tests.spark.live import stored

from rocketline.client import Producer
from rocketline.message import Message
from rocketline.pipelines.declarative import write_project
from rocketline.pipelines.orders import order_messages
from rocketline.pipelines.tables.bodies import MESSAGE_COLUMNS
from rocketline.testing import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

PYTHON_PATH = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_spark()
    if importlib.util.find_spec("grpc") is None:
        problem = "Spark Connect needs grpcio: pip install 'rocketline[spark]'"
        pytest.fail(problem) if os.environ.get("CI", "").lower() == "true" else pytest.skip(problem)
    with connect_server(tmp_path_factory.mktemp("connect"), PYTHON_PATH) as address:
        yield address


async def send_orders(namesrv: str, count: int) -> None:
    async with Producer(namesrv, group="shop") as producer:
        for order in order_messages(count):
            await producer.send(Message("orders", order.body, keys=[order.order_id]))


def test_a_declarative_pipeline_and_both_ways_over_a_connection(connect: str, tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        asyncio.run(send_orders(cluster.namesrv, 200))
        project = tmp_path / "shop"
        spec, _ = write_project(project, cluster.namesrv, "orders", "orders_clean")
        spec.write_text(spec.read_text().replace('shuffle.partitions: "4"', 'shuffle.partitions: "1"'))
        run_program(
            [bin_path("spark-pipelines"), "--remote", connect, "run", "--spec", str(spec)],
            PYTHONPATH=PYTHON_PATH,
        )
        job = [sys.executable, "-m", "tests.spark.jobs.over_connect", connect, cluster.namesrv, str(tmp_path)]
        said = run_program(job, PYTHONPATH=os.pathsep.join([PYTHON_PATH, str(ROOT)]))
        copied = stored(cluster.namesrv, "copy")
    found = json.loads(said.splitlines()[-1])
    # 208 messages: eight orders came twice and one message is none.
    assert (found["bronze"], found["topic"]) == (208, [207, 1])
    assert found["layout"] == [
        ["message", "order_id", "customer", "amount", "at", "day"], ["message", "error", "day"],
    ]  # fmt: skip
    assert found["message"] == list(MESSAGE_COLUMNS), "as `rocketline pipeline table` has it"
    assert found["errors"][0].startswith("the body is no JSON of the schema struct<order_id:string")
    assert (found["windows"], found["customers"][1]) == ([199, 5], 199)
    assert len(found["keys"]) == len(set(found["keys"])) == found["streamed"] == 199
    assert found["tables"] == [199, 199, found["customers"][0]]
    assert [message.keys for message in copied] == [("o-3",)]
    assert "nowhere" in found["problem"] and "topic does not exist" in found["problem"]
