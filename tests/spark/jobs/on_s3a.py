"""A program that keeps tables and an archive on `s3a://`, with its checkpoint, twice each.

python -m tests.spark.jobs.on_s3a NAMESRV SETTINGS

The table of Iceberg is in the catalog `lake`, which the environment describes.
"""

from __future__ import annotations

import json
import sys

from tests.spark.clusters import quick
from tests.spark.live import send

from rocketline.pipelines.archive import archive, archived
from rocketline.pipelines.origin import Origin
from rocketline.pipelines.tables.auditing import audit_table
from rocketline.pipelines.tables.formats import table_in
from rocketline.pipelines.tables.table import TopicTable, keep_table
from rocketline.spark.sessions import open_session

TOPIC = "orders"


def tell(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    namesrv, settings = sys.argv[1:]
    wanted = TopicTable(namesrv, TOPIC, "s3a://lake/tables", "parquet")
    listed = TopicTable(namesrv, TOPIC, "catalog:lake", "iceberg")
    with open_session("s3a", "local[2]", {**quick(), **json.loads(settings), "spark.driver.memory": "700m"}) as spark:
        for count in (50, 60):
            for each in (wanted, listed):
                keep_table(spark, each, tell, compact=True)
                table = table_in(spark, each.target, TOPIC, each.table_format).read()
                assert table is not None
                assert table.count() == count
            assert not audit_table(spark, listed, tell).is_bad
            archive(spark, Origin((TOPIC,), namesrv=namesrv), "s3a://lake/archive", tell)
            tell(f"{count} messages")
            assert archived(spark, "s3a://lake/archive").count() == count
            send(namesrv, TOPIC, [b'{"id": %d}' % number for number in range(10)])
    print("done")


if __name__ == "__main__":
    main()
