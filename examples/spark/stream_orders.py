# %% [markdown]
# A topic as a streaming table: orders of each customer, counted while they come.
#
#     python examples/spark/stream_orders.py 127.0.0.1:9876 orders /tmp/orders-checkpoint
#
# Stop it and start it again: it goes on where it was, because the checkpoint knows.

# %%
from __future__ import annotations

import sys

from rocketline.pipelines.session import open_session


def main(
    namesrv: str, topic: str, checkpoint: str, once: bool = False, master: str = "local[*]"
) -> list[tuple[str, int]]:
    with open_session("stream orders", master) as spark:
        # %% A stream of messages; what a body means is up to you.
        messages = (
            spark.readStream.format("rocketmq")
            .option("namesrv", namesrv)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        orders = messages.selectExpr("from_json(cast(body AS string), 'customer string, amount double') AS o").select(
            "o.*"
        )

        # %% A table that is kept up to date; `once` ends with what is there now.
        counts = orders.where("customer IS NOT NULL").groupBy("customer").count()
        writer = counts.writeStream.format("memory").queryName("customers").outputMode("complete")
        writer = writer.option("checkpointLocation", checkpoint)
        query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="2 seconds")).start()
        query.awaitTermination()
        table = spark.table("customers").orderBy("count", ascending=False)
        table.show()
        return [(row["customer"], row["count"]) for row in table.collect()]


if __name__ == "__main__":
    main(*sys.argv[1:4])
