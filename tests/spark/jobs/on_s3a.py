"""A program that keeps a table and an archive on `s3a://`, with its checkpoint, twice each.

python -m tests.spark.jobs.on_s3a NAMESRV SETTINGS
"""

from __future__ import annotations

import json
import sys

from tests.spark.clusters import quick
from tests.spark.live import send

from rocketline.pipelines.archive import archive, archived
from rocketline.pipelines.origin import Origin
from rocketline.pipelines.tables.formats import table_in
from rocketline.pipelines.tables.table import TopicTable, keep_table
from rocketline.spark.sessions import open_session

TOPIC = "orders"


def tell(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    namesrv, settings = sys.argv[1:]
    wanted = TopicTable(namesrv, TOPIC, "s3a://lake/tables", "parquet")
    with open_session("s3a", "local[2]", {**quick(), **json.loads(settings), "spark.driver.memory": "700m"}) as spark:
        for count in (50, 60):
            keep_table(spark, wanted, tell)
            archive(spark, Origin((TOPIC,), namesrv=namesrv), "s3a://lake/archive", tell)
            tell(f"{count} messages")
            table = table_in(spark, wanted.target, TOPIC, "parquet").read()
            assert table is not None
            assert (table.count(), archived(spark, "s3a://lake/archive").count()) == (count, count)
            send(namesrv, TOPIC, [b'{"id": %d}' % number for number in range(10)])
    print("done")


if __name__ == "__main__":
    main()
