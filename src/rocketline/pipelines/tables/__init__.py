"""Topics as tables: a table for each topic, in Delta Lake, Iceberg or Parquet, every message exactly once.

    DIR/orders             the messages of topic `orders`: the columns of their bodies, and a column `message` with the rest
    DIR/orders_rejected    messages whose bodies do not fit the schema, with the error

A commit of a table contains its rows and the offsets up to which the topic was read (its position). The next run continues
from there. There is no other progress that could disagree with the data.
"""
