# %% [markdown]
# A topic as a stream: the orders of each customer, counted while they come, until Ctrl-C.
#
#     python stream_orders.py 127.0.0.1:9876 orders /tmp/orders-checkpoint
#
# Start it again, and it goes on where it was: the checkpoint knows.

# %%
from __future__ import annotations

import sys

from rocketline.spark import session


def main(namesrv: str, topic: str, checkpoint: str) -> None:
    spark = session("stream orders")
    messages = (
        spark.readStream.format("rocketmq")
        .option("namesrv", namesrv)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )

    # %% What a body means is up to you. Here it is JSON.
    orders = messages.selectExpr("from_json(cast(body AS string), 'customer string, amount double') AS o").select("o.*")
    counts = orders.where("customer IS NOT NULL").groupBy("customer").count().orderBy("customer")

    # %% Every batch prints the whole table.
    query = (
        counts.writeStream.format("console")
        .outputMode("complete")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="2 seconds")
        .start()
    )
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4])
