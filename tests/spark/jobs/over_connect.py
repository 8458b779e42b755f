"""What `test_connect` has done over Spark Connect: ADDRESS NAMESRV FOLDER.

Tables of the declarative pipeline are read, its output topic as a table and as a stream; tables of that topic are kept, and
rows are sent to a topic. The last line printed is JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from rocketline.pipelines.sending import send
from rocketline.pipelines.tables.formats import table_in
from rocketline.pipelines.tables.table import TopicTable, keep_table


def main(address: str, namesrv: str, folder: str) -> dict[str, Any]:
    spark = SparkSession.builder.remote(address).getOrCreate()
    windows = spark.table("gold_windows").selectExpr("sum(orders) AS orders", "sum(late) AS late").first()
    customers = spark.table("gold_customers").selectExpr("count(*) AS n", "sum(orders) AS orders").first()
    assert windows is not None and customers is not None
    found: dict[str, Any] = {
        "bronze": spark.table("bronze").count(),
        "topic": [spark.table(name).count() for name in ("topic_table", "topic_table_rejected")],
        "layout": [spark.table(name).columns for name in ("topic_table", "topic_table_rejected")],
        "message": spark.table("topic_table_rejected").select("message.*").columns,
        "errors": [row.error for row in spark.table("topic_table_rejected").collect()],
        "windows": [windows.orders, windows.late],
        "customers": [customers.n, customers.orders],
    }
    options = {"namesrv": namesrv, "subscribe": "orders_clean", "startingOffsets": "earliest"}
    table = spark.read.format("rocketmq").options(**options).load()
    found["keys"] = sorted(row["keys"] for row in table.select("keys").collect())

    rows = table.where("keys = 'o-3'").selectExpr("body", "keys", "'copy' AS topic")
    send(rows, namesrv, "over a connection", {}, rate=1000)

    found["tables"] = kept_tables(spark, namesrv, folder)
    stream = spark.readStream.format("rocketmq").options(**options).load()
    places = {"path": f"{folder}/out", "checkpointLocation": f"{folder}/check"}
    query = stream.writeStream.format("parquet").options(**places).trigger(availableNow=True).start()
    assert query.awaitTermination(200)
    found["streamed"] = spark.read.parquet(f"{folder}/out").count()
    try:
        spark.read.format("rocketmq").options(namesrv=namesrv, subscribe="nowhere").load().count()
    except Exception as error:
        found["problem"] = str(error)
    spark.stop()
    return found


def kept_tables(spark: SparkSession, namesrv: str, folder: str) -> list[int]:
    """Rows of tables that are written in batches and compacted; the last one has the latest row of each customer."""
    counts = []
    for number, (table_format, key) in enumerate((("parquet", ()), ("iceberg", ()), ("iceberg", ("customer",)))):
        wanted = TopicTable(
            namesrv, "orders_clean", f"{folder}/lake-{number}", table_format, "json", "customer string",
            merge_key=key, per_batch=120,
        )  # fmt: skip
        keep_table(spark, wanted, print, compact=True)
        rows = table_in(spark, wanted.target, wanted.topic, table_format).read()
        assert rows is not None
        counts.append(rows.count())
    return counts


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:4])))
