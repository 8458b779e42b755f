"""Pipelines on a real standalone cluster whose workers get rocketline from a package."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.support.java import JavaUnavailable, tool

from rocketline.errors import ConfigError
from rocketline.pipelines.package import package

from .clusters import standalone_cluster
from .stores import CONFIG, fill

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 400


def test_a_package_holds_everything_and_is_the_same_each_time(tmp_path: Path) -> None:
    first, again = tmp_path / "a.tar.gz", tmp_path / "b.tar.gz"
    parts = dict(package(first))
    package(again)
    assert first.read_bytes() == again.read_bytes()
    assert parts.keys() >= {"rocketline", "pyspark_rocketmq_log", "msgspec", "lz4", "zstandard"}
    with tarfile.open(first) as archive:
        names = archive.getnames()
    assert {"rocketline/spark/log_source.py", "msgspec/__init__.py"} <= set(names)
    assert not [name for name in names if name.startswith(("/", "..")) or name.endswith(".pyc")]


def test_a_zip_has_the_sources_alone(tmp_path: Path) -> None:
    package(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} <= {"rocketline", "pyspark_rocketmq", "pyspark_rocketmq_log"}
    assert "rocketline/pipelines/medallion_project.py.txt" in names
    with pytest.raises(ConfigError, match="for --py-files"):
        package(tmp_path / "a.rar")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("spark")
def test_an_audit_on_a_master_and_two_workers(tmp_path: Path) -> None:
    try:
        tool("java")
    except JavaUnavailable as error:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"CI must have Java: {error}", pytrace=False)
        pytest.skip(str(error))
    store = fill(tmp_path / "store", 1000)
    package(tmp_path / "rocketline.tar.gz")
    shape = [f"maxHashSlotNum={CONFIG.index_slots}", f"maxIndexNum={CONFIG.index_entries}"]
    environment = {"PYSPARK_PYTHON": sys.executable}
    with standalone_cluster(tmp_path, 2, environment) as master:
        done = subprocess.run(
            [
                sys.executable, "-m", "rocketline.cli", "pipeline", "audit", str(store), "--master", master,
                "--conf", f"spark.archives={tmp_path / 'rocketline.tar.gz'}#rocketline_package",
                "--conf", "spark.executorEnv.PYTHONPATH=rocketline_package",
                "--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1",
                "--conf", "spark.ui.enabled=false", "--set", shape[0], "--set", shape[1],
            ],
            env={**os.environ, **environment, "PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "1,000 records" in done.stdout
    assert done.stdout.rstrip().endswith("sound")
    executors = list(tmp_path.glob("work-*/app-*/*/rocketline_package/rocketline/__init__.py"))
    assert len(executors) == 2, "each worker's executor unpacked the package"
