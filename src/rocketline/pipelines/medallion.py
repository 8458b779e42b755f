"""`medallion`: makes orders from a topic into tables of three grades, and sends totals to a topic.

    bronze      every message as it came, with queue and offset, exactly once; each run adds a batch (see `archive`)
    silver      orders: parsed, each key once (the first to be stored), marked if late; other messages are in `rejected`
    gold        `windows`: orders and revenue in each window of time; `customers`: totals and last order of each customer

Each run makes silver and gold again from bronze: a late order corrects its window, and after a killed run nothing has to be
undone. For tables that grow for years, the declarative project (`rocketline pipeline project`) does the same incrementally.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketline.errors import ConfigError
from rocketline.pipelines.archive import archive, archived
from rocketline.pipelines.origin import Origin
from rocketline.pipelines.outcome import Outcome
from rocketline.pipelines.sending import send
from rocketline.pipelines.tasks import Progress, reporting_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDER = "order_id string, customer string, amount decimal(18,2), at timestamp"
FIRST_FIELDS = ("order_id", "customer", "amount", "at")
_TIME = re.compile(r"(\d+ +(milli)?seconds?|\d+ +(minute|hour|day|week)s?)( +(?=\d)|$)", re.IGNORECASE)


@dataclass(frozen=True)
class GoldSettings:
    """Lengths of windows and lateness, and the topic that totals are sent to."""

    window: str = "1 minute"
    late_after: str = "5 minutes"
    namesrv: str | None = None
    topic: str | None = None

    def __post_init__(self) -> None:
        # Spark would find this only after all earlier steps are done.
        for name, value in (("window", self.window), ("late_after", self.late_after)):
            if _TIME.sub("", value.strip()) or not value.strip():
                raise ConfigError(
                    f"{name} {value!r} is not a length of time: write '1 minute', '90 seconds' or '1 hour 30 minutes'"
                )


DEFAULT_SETTINGS = GoldSettings()


def parsed(messages: DataFrame) -> DataFrame:
    """Messages with the fields of their order; the fields are null where the body is no order."""
    from pyspark.sql import functions as f

    order = f.from_json(f.col("body").cast("string"), ORDER)
    place = ("topic", "brokerName", "queueId", "queueOffset", "msgId", "storeTimestamp")
    return messages.select(*place, "body", order.alias("order")).select(*place, "body", "order.*")


def silver(messages: DataFrame, late_after: str) -> tuple[DataFrame, DataFrame]:
    """(orders, rejected messages)."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    rows = parsed(messages)
    is_order = f.lit(True)
    for name in FIRST_FIELDS:
        is_order = is_order & f.col(name).isNotNull()
    first = Window.partitionBy("order_id").orderBy("storeTimestamp", "brokerName", "queueId", "queueOffset")
    orders = (
        rows.where(is_order)
        .drop("body")
        .withColumn("place", f.row_number().over(first))
        .where("place = 1")
        .drop("place")
        .withColumn("late", f.col("storeTimestamp") > f.col("at") + f.expr(f"INTERVAL {late_after}"))
    )
    return orders, rows.where(~is_order).drop(*FIRST_FIELDS)


def gold(orders: DataFrame, window: str) -> tuple[DataFrame, DataFrame]:
    """(windows, customers)."""
    from pyspark.sql import functions as f

    sums = f.count("*").alias("orders"), f.sum("amount").alias("revenue")
    windows = orders.groupBy(f.window("at", window).alias("w")).agg(*sums, f.count_if("late").alias("late"))
    customers = orders.groupBy("customer").agg(*sums, f.max("at").alias("last_order"))
    return windows.select("w.start", "w.end", "orders", "revenue", "late"), customers


def medallion(
    spark: SparkSession, origin: Origin, target: str, tell: Progress, settings: GoldSettings = DEFAULT_SETTINGS
) -> Outcome:
    """Update the tables under `target`."""
    archive(spark, origin, f"{target}/bronze", tell)
    with reporting_tasks(spark, tell, "silver"):
        orders, rejected = silver(archived(spark, f"{target}/bronze"), settings.late_after)
        _save({"silver/orders": orders, "silver/rejected": rejected}, target)
    orders = spark.read.parquet(f"{target}/silver/orders")
    windows, customers = gold(orders, settings.window)
    with reporting_tasks(spark, tell, "gold"):
        _save({"gold/windows": windows.orderBy("start"), "gold/customers": customers}, target)
    best = spark.read.parquet(f"{target}/gold/customers").orderBy("revenue", ascending=False)
    outcome = Outcome.of("gold: customers by revenue", best, 10)
    outcome.notes = [_counts(spark, target), f"tables are in {target}: bronze, silver and gold"]
    if settings.namesrv and settings.topic:
        _send_back(best, settings.namesrv, settings.topic, origin.access)
        outcome.notes.append(f"totals of {best.count():,} customers were sent to topic {settings.topic}")
    return outcome


def _save(tables: Mapping[str, DataFrame], target: str) -> None:
    for name, table in tables.items():
        table.write.mode("overwrite").parquet(f"{target}/{name}")


def _counts(spark: SparkSession, target: str) -> str:
    rows = {name: spark.read.parquet(f"{target}/{name}").count() for name in ("silver/orders", "silver/rejected")}
    bronze = archived(spark, f"{target}/bronze").count()
    late = spark.read.parquet(f"{target}/silver/orders").where("late").count()
    twice = bronze - sum(rows.values())
    return (
        f"{bronze:,} messages: {rows['silver/orders']:,} orders, {late:,} of them late, {twice:,} duplicates, "
        f"{rows['silver/rejected']:,} rejected"
    )


def _send_back(customers: DataFrame, namesrv: str, topic: str, access: Mapping[str, str]) -> None:
    from pyspark.sql import functions as f

    messages = customers.select(
        f.to_json(f.struct(*customers.columns)).alias("body"),
        f.lit(topic).alias("topic"),
        f.lit("customer").alias("tags"),
        f.col("customer").alias("keys"),
        f.col("customer").alias("shardingKey"),
    )
    last = customers.agg(f.max("last_order"), f.sum("orders")).collect()[0]
    send(messages.coalesce(1), namesrv, f"medallion {topic} {last}", access)
