"""A job with a table of Iceberg that is killed when the files of its second batch are there and the commit is not.

python -m tests.spark.jobs.iceberg_then_die NAMESRV TOPIC DIR
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from tests.spark.clusters import quick

from rocketline.pipelines.tables.iceberg import IcebergTable
from rocketline.pipelines.tables.table import TopicTable, keep_table
from rocketline.spark.sessions import open_session


def main() -> None:
    namesrv, topic, target = sys.argv[1:]
    write = IcebergTable._write

    def die(table: IcebergTable, rows: Any, folder: str) -> list[str]:
        written = write(table, rows, folder)
        if "/batch-1-" in folder and table.path.endswith(topic):
            os.killpg(0, signal.SIGKILL)
        return written

    IcebergTable._write = die  # type: ignore[method-assign]
    wanted = TopicTable(namesrv, topic, target, "iceberg", "json", "id int, customer string", per_batch=40)
    with open_session("iceberg", "local[1]", {**quick(), "spark.driver.memory": "600m"}) as spark:
        keep_table(spark, wanted, print)


if __name__ == "__main__":
    main()
