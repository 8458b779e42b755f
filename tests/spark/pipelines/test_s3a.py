"""Tables, archives and their checkpoints in an object store, through Hadoop's `s3a://`."""

from __future__ import annotations

import json
import sys

import pytest
from tests.spark.clusters import run_program
from tests.spark.conftest import require_spark
from tests.spark.live import send
from tests.support.admin import create_topic
from tests.support.hadoop_s3 import hadoop_aws, s3a_settings
from tests.support.java import require_java
from tests.support.s3_server import S3Server

from rocketline.testing import LocalCluster


@pytest.mark.large
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_table_and_an_archive_on_s3a(cluster: LocalCluster, s3: S3Server) -> None:
    require_spark()
    require_java(hadoop_aws())
    create_topic(cluster.brokers[0].address, "orders", 2)
    send(cluster.namesrv, "orders", [b'{"id": %d}' % number for number in range(50)])
    settings = json.dumps(s3a_settings(s3))
    said = run_program([sys.executable, "-m", "tests.spark.jobs.on_s3a", cluster.namesrv, settings])
    assert said.endswith("done\n"), said
    from pyarrow.fs import FileSelector

    stored = [info.path for info in s3.files.get_file_info(FileSelector("lake", recursive=True)) if info.is_file]
    for part in ("lake/tables/orders/rows/", "lake/archive/messages/", "lake/archive/checkpoint/commits/"):
        assert any(path.startswith(part) for path in stored), part
