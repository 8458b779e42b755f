"""RocketMQ's SQL92 filter language: text -> tokens -> tree -> closures, with the same results as Apache's, oddities
included.

There is no LIKE and no arithmetic; only `NULL`, booleans, numbers, strings and properties, which are always text. Logic has
three values. An expression may fail on a message, for example when a property compared with a number is not a number. A
message matches only if the result is true.
"""

from rocketline.filtering.sql92.sql_filter import SqlFilter

__all__ = ["SqlFilter"]
