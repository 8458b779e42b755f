"""An archive of Spark's loaded classes under `build/`: a JVM that maps it starts in half the time.

The tests start a dozen of them. The file is made once for a Spark and a Java, by a small job that loads what most need;
a JVM that cannot use it does without. `python -m tests.spark.class_archive FILE` is that job.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

from tests.support.java import BUILD, ROOT, locked, tool
from tests.support.patience import PATIENCE_S


@cache
def archive_path() -> Path:
    java = Path(tool("java")).resolve()
    known = f"{version('pyspark')} {sys.prefix} {java} {java.stat().st_mtime_ns}"
    return BUILD / f"spark-{hashlib.sha256(known.encode()).hexdigest()[:12]}.jsa"


@cache
def make_archive() -> None:
    """See to it that there is one, if this machine can make it."""
    path = archive_path()
    with locked(path.with_suffix(".lock")):
        if path.exists():
            return
        draft = path.with_suffix(f".{os.getpid()}")
        command = [sys.executable, "-m", "tests.spark.class_archive", str(draft)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
        try:
            subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            return
        if draft.exists():
            draft.replace(path)


def archive_option() -> str:
    """For a JVM that runs Spark."""
    path = archive_path()
    # Named without being there, it would keep the JVM from using the one of its own classes.
    return f"-XX:SharedArchiveFile={path}" if path.exists() else ""


def main(path: str) -> None:
    from pyspark.sql import SparkSession
    from tests.spark.clusters import quick

    with tempfile.TemporaryDirectory() as scratch:
        builder = SparkSession.builder.master("local[1]").config("spark.driver.memory", "512m")
        settings = {**quick(), "spark.sql.warehouse.dir": scratch, "spark.local.dir": scratch}
        settings["spark.driver.extraJavaOptions"] += f" -XX:ArchiveClassesAtExit={path}"
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        table = spark.range(1000).selectExpr("id % 7 AS k", "CAST(id AS string) AS body").groupBy("k").count()
        table.orderBy("k").write.mode("overwrite").partitionBy("k").parquet(f"{scratch}/out")
        assert spark.read.parquet(f"{scratch}/out").where("k = 3").collect()
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
