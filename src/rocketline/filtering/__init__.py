"""TAG and SQL92 filter expressions, compiled once and evaluated for every message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketline.filtering.expression import Filter, compile_filter, sql_filter
from rocketline.filtering.tags import TagFilter

if TYPE_CHECKING:
    from rocketline.filtering.sql92 import SqlFilter

__all__ = ["Filter", "SqlFilter", "TagFilter", "compile_filter", "sql_filter"]


def __getattr__(name: str) -> Any:
    if name != "SqlFilter":
        raise AttributeError(f"module 'rocketline.filtering' has no attribute {name!r}")
    from rocketline.filtering.sql92 import SqlFilter

    return SqlFilter
