"""A compiled SQL92 expression, to be evaluated on properties or on stored records.

A record is not decoded: its properties are one text at its end, in which only the values that the expression needs are
looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocketline.errors import BAD_ITEM, FilterFailed
from rocketline.filtering.sql92.closures import compile_tree
from rocketline.filtering.sql92.parser import parse
from rocketline.protocol.properties import property_in
from rocketline.protocol.records import Buffer, properties_part

_NO_MATCH = (FilterFailed, *BAD_ITEM)
"""Whatever it is about a message that keeps a filter from judging it."""


class SqlFilter:
    """A compiled SQL92 expression.

    >>> SqlFilter("price > 10 AND region IN ('eu', 'us')").matches({"price": "11", "region": "eu"})
    True
    """

    __slots__ = ("_evaluate", "_evaluate_encoded", "text")

    def __init__(self, text: str) -> None:
        """InvalidExpression, with the position of the error, when the text is not an expression."""
        tree = parse(text)
        self.text = text
        self._evaluate: Callable[[Mapping[str, str]], bool | None] = compile_tree(tree, _in_mapping)
        self._evaluate_encoded: Callable[[str], bool | None] = compile_tree(tree, property_in)

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """True, False or None for unknown; FilterFailed when a property cannot be converted for a comparison."""
        return self._evaluate(properties)

    def matches(self, properties: Mapping[str, str]) -> bool:
        try:
            return self._evaluate(properties) is True
        except _NO_MATCH:
            return False

    def accept_record(self, record: Buffer) -> bool:
        """Whether a stored record matches."""
        try:
            return self._evaluate_encoded(properties_part(record)) is True
        except _NO_MATCH:
            return False


def _in_mapping(name: str) -> Callable[[Mapping[str, str]], str | None]:
    return lambda properties: properties.get(name)
