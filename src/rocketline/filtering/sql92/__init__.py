"""RocketMQ's SQL92 filter language: text -> tokens -> tree -> closures, with Apache's results and oddities.

No LIKE and no arithmetic; only `NULL`, booleans, numbers, strings and properties, which are always text. Logic has three
values, and an expression may fail on a message: a property that is not the number it is compared with. Only true selects.
"""

from rocketline.filtering.sql92.sql_filter import SqlFilter

__all__ = ["SqlFilter"]
