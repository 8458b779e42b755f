# %% [markdown]
# A commit log as a table, without a broker.
#
#     python log_to_table.py /data/store
#
# The folder is the one given to `rocketline up --data`, or the store of an Apache broker; it may be in use.

# %%
from __future__ import annotations

import sys

from rocketline.spark import session


def main(folder: str) -> list[tuple[str, int]]:
    spark = session("log to table")

    # %% Every record of the log is a row; no option is needed but the folder.
    messages = spark.read.format("rocketmq-log").load(folder)
    messages.printSchema()

    # %% From here on it is Spark as everywhere.
    messages.createOrReplaceTempView("messages")
    counted = spark.sql(
        """
        SELECT topic, count(*) AS messages, sum(length(body)) AS body_bytes, max(storeTimestamp) AS last
        FROM messages GROUP BY topic ORDER BY messages DESC, topic
        """
    )
    counted.show(truncate=False)
    return [(row.topic, row.messages) for row in counted.collect()]


if __name__ == "__main__":
    main(sys.argv[1])
