"""Compiling a filter expression of any type; unknown types are refused.

The SQL92 modules are imported with the first SQL92 expression: many brokers never see one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from rocketline.errors import InvalidExpression
from rocketline.filtering.tags import TagFilter
from rocketline.protocol.bodies.heartbeat import SQL92, TAG

if TYPE_CHECKING:
    from rocketline.filtering.sql92 import SqlFilter

Filter: TypeAlias = "TagFilter | SqlFilter"


def compile_filter(expression_type: str | None, text: str | None) -> Filter:
    """The filter of an expression; InvalidExpression says what is wrong with it and where.

    >>> compile_filter("SQL92", "price BETWEEN 10 AND 20").matches({"price": "15"})
    True
    >>> compile_filter("TAG", "paid || sent").accept_text("sent")
    True
    """
    if not expression_type or expression_type == TAG:
        return TagFilter(text)
    if expression_type == SQL92:
        return sql_filter(text or "")
    raise InvalidExpression(f"expression type {expression_type[:40]!r} is not known: there are {TAG} and {SQL92}")


def sql_filter(text: str) -> SqlFilter:
    """The filter of an SQL92 expression; InvalidExpression says what is wrong with it."""
    from rocketline.filtering.sql92 import SqlFilter

    return SqlFilter(text)
