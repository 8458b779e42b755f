"""Tables of topics in Delta Lake, on the Spark it is for: a job is killed, and the next one loses and doubles nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.clusters import as_conf, kill_when, quick
from tests.spark.conftest import require_spark
from tests.spark.live import send
from tests.support.admin import create_topic
from tests.support.delta import DELTA, delta_environment, delta_jars
from tests.support.java import require_java
from tests.support.patience import PATIENCE_S

from rocketline.testing import LocalCluster


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_killed_job_loses_and_doubles_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    require_spark()
    require_java(DELTA)
    for topic in ("orders", "changes", "copy", "nested"):
        create_topic(cluster.brokers[0].address, topic, 2)
    for queue_id in (0, 1):
        numbers = range(queue_id, 300, 2)
        send(cluster.namesrv, "orders", [b'{"id": %d, "customer": "c"}' % number for number in numbers], queue_id)
    send(cluster.namesrv, "orders", [b"no JSON"], 0)
    log = tmp_path / "tables" / "orders" / "_delta_log"
    command = [
        sys.executable, "-m", "rocketline", "pipeline", "table", str(tmp_path / "tables"), "--namesrv", cluster.namesrv,
        "--topic", "orders", "--format", "delta", "--body", "json", "--schema", "id int, customer string",
        "--per-batch", "20", "--master", "local[1]", *as_conf(quick()), "--conf", f"spark.jars={delta_jars()}",
        "--conf", "spark.driver.memory=700m", "--conf", "spark.databricks.delta.snapshotPartitions=1",
    ]  # fmt: skip
    kill_when(lambda: len(list(log.glob("*.json"))) >= 2, command, tmp_path / "job.log", delta_environment())
    assert not (log / f"{14:020}.json").exists(), "it was killed in the middle"

    command = [
        sys.executable,
        "-m",
        "tests.spark.jobs.delta_tables",
        cluster.namesrv,
        str(tmp_path / "tables"),
        delta_jars(),
    ]
    done = subprocess.run(command, env=delta_environment(), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout.endswith("done\n"), done.stdout + done.stderr[-3000:]
