"""A real standalone cluster, a master and two workers, whose executors get rocketline from a package."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.clusters import as_conf, bin_path, quick, run_program, standalone_cluster
from tests.spark.conftest import ROOT, require_spark
from tests.spark.jobs.on_a_cluster import ROWS, number_of
from tests.spark.live import send, stored
from tests.spark.pipelines.stores import CONFIG, fill
from tests.support.admin import create_topic

from rocketline.pipelines.offload import offload
from rocketline.pipelines.package import package
from rocketline.spark.log.offloaded import find_offloaded
from rocketline.testing import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

SETTINGS = {"spark.executor.memory": "512m", "spark.sql.execution.arrow.maxRecordsPerBatch": "50"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The master's address, and the folder in which the workers work."""
    require_spark()
    folder = tmp_path_factory.mktemp("cluster")
    with standalone_cluster(folder, 2) as master:
        yield master, folder


def test_a_table_a_stream_and_rows_sent_again_after_an_executor_was_killed(
    cluster: tuple[str, Path], tmp_path: Path
) -> None:
    master, folder = cluster
    package(tmp_path / "rocketline.zip")
    with LocalCluster() as brokers:
        for topic in ("orders", "target", "target_stream", "changes"):
            create_topic(brokers.brokers[0].address, topic, 2)
        send(brokers.namesrv, "orders", [b"%d" % number for number in range(100)])
        send(brokers.namesrv, "changes", [b'{"id": %d, "v": %d}' % (number % 7, number) for number in range(30)], 0)
        offload(fill(tmp_path / "store", 1000, deleted=False), str(tmp_path / "cold"), print)
        job = str(ROOT / "tests" / "spark" / "jobs" / "on_a_cluster.py")
        said = run_program(
            [
                bin_path("spark-submit"), "--master", master, "--py-files", str(tmp_path / "rocketline.zip"),
                *as_conf({**quick(), **SETTINGS}), job, brokers.namesrv, "orders", "target", str(tmp_path),
            ],
            PYTHONPATH="",
        )  # fmt: skip
        sent, streamed = stored(brokers.namesrv, "target"), stored(brokers.namesrv, "target_stream")
    found = json.loads(said.splitlines()[-1])
    assert (found["rows"], found["batches"]) == (100, [60, 40])
    assert found["table"] == [*range(100)], "every message once, though an executor was killed"
    assert found["merged"] == [[number % 7, number] for number in sorted(range(23, 30), key=lambda number: number % 7)]
    (manifest,) = [manifest for _, manifest in find_offloaded(str(tmp_path / "cold"))]
    assert found["cold"] == sum(file.units for file in manifest.files) > 0
    assert sorted(int(message.body) for message in streamed) == [*range(100)]
    assert all("rocketline.zip" in home for home in found["homes"])
    killed = sum(log.read_text().count("exitStatus 137") for log in folder.glob("worker-*.log"))
    assert killed >= 2, "one while a table was written, one while rows were sent"
    # Every row is there; those that were stored when the executor died came again, and have the ids they had.
    times = Counter(number_of(message.body) for message in sent)
    assert times.keys() == set(range(ROWS))
    again = {number for number, count in times.items() if count > 1}
    assert again and min(again) >= ROWS // 2
    assert len({message.message_id for message in sent}) == ROWS
    assert len({(message.body, message.message_id) for message in sent}) == ROWS


def test_an_audit_with_everything_in_an_archive(cluster: tuple[str, Path], tmp_path: Path) -> None:
    master, folder = cluster
    store = fill(tmp_path / "store", 1000)
    package(tmp_path / "rocketline.tar.gz")
    settings = {
        **quick(),
        **SETTINGS,
        "spark.archives": f"{tmp_path / 'rocketline.tar.gz'}#rocketline_package",
        "spark.executorEnv.PYTHONPATH": "rocketline_package",
    }
    shape = ["--set", f"maxHashSlotNum={CONFIG.index_slots}", "--set", f"maxIndexNum={CONFIG.index_entries}"]
    command = [sys.executable, "-m", "rocketline.cli", "pipeline", "audit", str(store), "--master", master, *shape]
    said = run_program([*command, *as_conf(settings)], PYTHONPATH=str(ROOT / "src"))
    assert "1,000 records" in said
    assert said.rstrip().endswith("sound")
    unpacked = list(folder.glob("work-*/app-*/*/rocketline_package/rocketline/__init__.py"))
    assert len(unpacked) == 2, "each worker's executor unpacked the package"
