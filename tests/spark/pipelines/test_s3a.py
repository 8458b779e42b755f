"""Tables, archives and their checkpoints in an object store, through Hadoop's `s3a://`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.spark.clusters import run_program
from tests.spark.conftest import require_spark
from tests.spark.live import send
from tests.support.admin import create_topic
from tests.support.hadoop_s3 import hadoop_aws, s3a_settings
from tests.support.java import require_java
from tests.support.s3_server import ACCOUNT, S3Server

from rocketline.testing import LocalCluster


def catalog(s3: S3Server, folder: Path) -> dict[str, str]:
    """The catalog `lake` of PyIceberg, as its environment variables have it."""
    settings = {
        "TYPE": "sql",
        "URI": f"sqlite:///{folder}/catalog.db",
        "WAREHOUSE": "s3a://lake/iceberg",
        "S3__ENDPOINT": f"http://127.0.0.1:{s3.port}",
        "S3__REGION": ACCOUNT["AWS_REGION"],
        "S3__ACCESS_KEY_ID": ACCOUNT["AWS_ACCESS_KEY_ID"],
        "S3__SECRET_ACCESS_KEY": ACCOUNT["AWS_SECRET_ACCESS_KEY"],
    }
    return {f"PYICEBERG_CATALOG__LAKE__{name}": value for name, value in settings.items()}


@pytest.mark.large
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_tables_and_an_archive_on_s3a(cluster: LocalCluster, s3: S3Server, tmp_path: Path) -> None:
    require_spark()
    require_java(hadoop_aws())
    create_topic(cluster.brokers[0].address, "orders", 2)
    send(cluster.namesrv, "orders", [b'{"id": %d}' % number for number in range(50)])
    settings = json.dumps(s3a_settings(s3))
    said = run_program(
        [sys.executable, "-m", "tests.spark.jobs.on_s3a", cluster.namesrv, settings], **catalog(s3, tmp_path)
    )
    assert said.endswith("done\n"), said
    from pyarrow.fs import FileSelector

    stored = [info.path for info in s3.files.get_file_info(FileSelector("lake", recursive=True)) if info.is_file]
    parts = (
        "tables/orders/rows/",
        "iceberg/rocketline/orders/data/",
        "archive/messages/",
        "archive/checkpoint/commits/",
    )
    for part in parts:
        assert any(path.startswith(f"lake/{part}") for path in stored), part
