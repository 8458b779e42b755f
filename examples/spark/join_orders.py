# %% [markdown]
# Orders of a topic with what a table knows about their customers: first all orders there are, then each one as it comes.
#
#     rocketline pipeline table /data/lake --topic customers --format parquet \
#         --body json --schema 'customer string, city string'
#     python join_orders.py 127.0.0.1:9876 orders /data/lake /tmp/cities
#
# The table is a topic kept as a table, so it may grow while this runs: the stream looks at it anew with every batch.

# %%
from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rocketline.pipelines.tables.formats import table_in
from rocketline.spark import session

ORDER = "customer string, amount double"


def customers(spark: SparkSession, lake: str) -> DataFrame:
    """The newest row of each customer."""
    rows = table_in(spark, lake, "customers", "parquet").read()
    if rows is None:
        raise SystemExit(f"{lake} has no table of customers: make it as described above")
    newest = rows.groupBy("customer").agg(f.max_by("city", "message.storeTimestamp").alias("city"))
    return newest.where("customer IS NOT NULL")


def with_cities(messages: DataFrame, lake: str) -> DataFrame:
    orders = messages.selectExpr(f"from_json(cast(body AS string), '{ORDER}') AS o").select("o.*")
    return orders.join(customers(orders.sparkSession, lake), "customer", "left")


def main(namesrv: str, topic: str, lake: str, target: str, follow: bool = True) -> list[tuple[str, float]]:
    spark = session("join orders")
    cluster = {"namesrv": namesrv, "subscribe": topic, "startingOffsets": "earliest"}

    # %% A batch joined with the table: the revenue of each city so far.
    messages = spark.read.format("rocketmq").options(**cluster).load()
    revenue = with_cities(messages, lake).where("city IS NOT NULL").groupBy("city").sum("amount").orderBy("city")
    revenue.show()

    # %% A stream joined with the table: each order goes to the folder of its city.
    def write(batch: DataFrame, number: int) -> None:
        rows = with_cities(batch, lake)
        rows.write.mode("append").partitionBy("city").parquet(f"{target}/orders")

    stream = spark.readStream.format("rocketmq").options(**cluster).load().writeStream.foreachBatch(write)
    stream = stream.option("checkpointLocation", f"{target}/checkpoint")
    query = (stream.trigger(processingTime="2 seconds") if follow else stream.trigger(availableNow=True)).start()
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    return [(row[0], row[1]) for row in revenue.collect()]


if __name__ == "__main__":
    main(*sys.argv[1:5])
