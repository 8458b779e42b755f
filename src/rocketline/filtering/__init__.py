"""What a consumer wants of a topic: TAG and SQL92 expressions, compiled once and asked for every message."""

from rocketline.filtering.expression import Filter, compile_filter
from rocketline.filtering.sql92 import SqlFilter
from rocketline.filtering.tags import TagFilter

__all__ = ["Filter", "SqlFilter", "TagFilter", "compile_filter"]
