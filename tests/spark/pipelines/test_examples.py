"""The examples for Spark run; tests/spark/test_documents.py runs the one that goes on."""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.live import send
from tests.support.admin import create_topic
from tests.support.store_files import walk_log

from rocketline.pipelines.tables.table import TopicTable, keep_table
from rocketline.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "spark"


def test_a_log_as_a_table(spark: SparkSession, golden: Callable[[str], Path]) -> None:
    known = {"join_orders.py", "log_to_table.py", "stream_orders.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == known, "run the new one too"
    root = golden("clean")
    found = runpy.run_path(str(EXAMPLES / "log_to_table.py"))["main"](str(root))
    assert dict(found) == Counter(entry.topic for entry in walk_log(root).records)


def test_orders_joined_with_a_table(spark: SparkSession, cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    lake, target = str(tmp_path / "lake"), tmp_path / "cities"
    create_topic(cluster.brokers[0].address, "customers", 1)
    # Of rows that were stored in the same millisecond any may be the newest.
    send(cluster.namesrv, "customers", [b'{"customer": "c-1", "city": "Rome"}'] * 2)
    wanted = TopicTable(cluster.namesrv, "customers", lake, "parquet", "json", "customer string, city string")
    keep_table(spark, wanted, lambda text: None)
    send(cluster.namesrv, topic, [b'{"customer": "c-%d", "amount": %d}' % (n % 2, n) for n in range(6)])
    main = runpy.run_path(str(EXAMPLES / "join_orders.py"))["main"]
    assert main(cluster.namesrv, topic, lake, str(target), follow=False) == [("Rome", 9.0)]
    rows = spark.read.parquet(str(target / "orders"))
    assert Counter(row.city for row in rows.collect()) == {"Rome": 3, None: 3}
