"""Compiles a tree to closures: the function of a node takes a message and returns the value of the node.

The caller decides how a property is read: from a mapping, or from the bytes of a stored record. Kinds of values are known at
compile time, so every conversion is chosen once, and a test of a property against a literal is one call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

from rocketline.errors import FilterFailed, InvalidExpression
from rocketline.filtering.sql92.java_values import boolean, double, double_rank, whole_number
from rocketline.filtering.sql92.tree import (
    NUMBERS,
    AllOf,
    AnyOf,
    Equal,
    IsNull,
    Literal,
    Negated,
    Node,
    Not,
    OneOf,
    Ordered,
    Property,
    TextTest,
    Truth,
    ValueKind,
    kind_of,
)

T = TypeVar("T")
Evaluate = Callable[[T], Any]
ReadProperty = Callable[[str], Callable[[T], str | None]]
"""From the name of a property to the function that reads it."""

Convert = Callable[[Any], Any]
Compare = Callable[[Any, Any], bool]

MAX_LEVELS = 100
"""Each level is a nested call when a message is tested."""

_FROM_TEXT: dict[ValueKind, Convert] = {
    ValueKind.INT32: whole_number(32),
    ValueKind.INT64: whole_number(64),
    ValueKind.DOUBLE: double,
    ValueKind.BOOLEAN: boolean,
}
_COMPARE: dict[str, Compare] = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def compile_tree(node: Node, read: ReadProperty[T], level: int = 0) -> Evaluate[T]:
    """The function of a tree; called with a message, it may raise FilterFailed."""
    if level > MAX_LEVELS:
        raise InvalidExpression(f"SQL92 expression: operators nested deeper than {MAX_LEVELS} levels")
    level += 1
    match node:
        case Literal(value):
            return lambda message: value
        case Property(name):
            return read(name)
        case Negated(inner):
            return _negated(compile_tree(inner, read, level), kind_of(inner))
        case Truth(inner):
            return _truth(compile_tree(inner, read, level))
        case Not(Equal(Property(name), Literal(value, kind))):
            return _equals_literal(read(name), value, kind, operator.ne)
        case Not(inner):
            return _not(compile_tree(inner, read, level))
        case AllOf(
            (Ordered(">=", Property(name), Literal() as low), Ordered("<=", Property(other), Literal() as high))
        ) if name == other:
            return _between(read(name), low, high)
        case AllOf(terms):
            return _joined([compile_tree(term, read, level) for term in terms], deciding=False)
        case AnyOf(terms):
            return _joined([compile_tree(term, read, level) for term in terms], deciding=True)
        case Equal(Property(name), Literal(value, kind)):
            return _equals_literal(read(name), value, kind, operator.eq)
        case Equal(left, right):
            same = _same(kind_of(left), kind_of(right))
            return _equal(compile_tree(left, read, level), compile_tree(right, read, level), same)
        case IsNull(inner):
            return _is_null(compile_tree(inner, read, level))
        case Ordered(sign, Property(name), Literal(value, kind)):
            return _ordered_literal(read(name), _FROM_TEXT[kind], _COMPARE[sign], value)
        case Ordered(sign, left, right):
            convert = _for_order(kind_of(left), kind_of(right))
            return _ordered(compile_tree(left, read, level), compile_tree(right, read, level), convert, _COMPARE[sign])
        case OneOf(inner, texts, negated):
            return _one_of(compile_tree(inner, read, level), texts, negated)
        case TextTest(test, inner, search, negated):
            if not search:
                return lambda message: False
            return _text_test(compile_tree(inner, read, level), test, search, negated)


def _negated(inner: Evaluate[T], kind: ValueKind) -> Evaluate[T]:
    if kind in NUMBERS:
        return lambda message: None if (value := inner(message)) is None else -value

    def evaluate(message: T) -> None:
        inner(message)  # it may fail

    return evaluate


def _truth(read: Evaluate[T]) -> Evaluate[T]:
    return lambda message: None if read(message) is None else False


def _not(inner: Evaluate[T]) -> Evaluate[T]:
    return lambda message: None if (value := inner(message)) is None else not value


def _joined(terms: list[Evaluate[T]], deciding: bool) -> Evaluate[T]:
    """AND (`deciding` is False) or OR (True): the first deciding term gives the result; otherwise one null makes null."""

    if len(terms) == 2:
        return _pair(terms[0], terms[1], deciding)

    def evaluate(message: T) -> bool | None:
        result: bool | None = not deciding
        for term in terms:
            value: bool | None = term(message)
            if value is deciding:
                return deciding
            if value is None:
                result = None
        return result

    return evaluate


def _pair(first: Evaluate[T], second: Evaluate[T], deciding: bool) -> Evaluate[T]:
    def evaluate(message: T) -> bool | None:
        one: bool | None = first(message)
        if one is deciding:
            return deciding
        two: bool | None = second(message)
        if two is deciding:
            return deciding
        return None if one is None or two is None else not deciding

    return evaluate


def _is_null(inner: Evaluate[T]) -> Evaluate[T]:
    return lambda message: inner(message) is None


def _equals_literal(read: Evaluate[T], literal: Any, kind: ValueKind, compare: Compare) -> Evaluate[T]:
    if kind is ValueKind.TEXT:
        if compare is operator.eq:  # the most frequent test of all
            return lambda message: None if (text := read(message)) is None else text == literal
        return lambda message: None if (text := read(message)) is None else compare(text, literal)
    convert = _FROM_TEXT[kind]
    return lambda message: None if (text := read(message)) is None else compare(convert(text), literal)


def _ordered_literal(read: Evaluate[T], convert: Convert, compare: Compare, literal: Any) -> Evaluate[T]:
    return lambda message: None if (text := read(message)) is None else compare(convert(text), literal)


def _between(read: Evaluate[T], low: Literal, high: Literal) -> Evaluate[T]:
    """Two comparisons of one property, which is read only once."""
    above, below = _FROM_TEXT[low.kind], _FROM_TEXT[high.kind]
    least: Any = low.value
    most: Any = high.value
    if above is below:
        return lambda message: None if (text := read(message)) is None else least <= above(text) <= most

    def evaluate(message: T) -> bool | None:
        text = read(message)
        if text is None:
            return None
        return bool(above(text) >= least and below(text) <= most)

    return evaluate


def _equal(left: Evaluate[T], right: Evaluate[T], same: Compare) -> Evaluate[T]:
    def evaluate(message: T) -> bool | None:
        first, second = left(message), right(message)
        if first is None:
            # For Apache two missing properties are equal; one missing on the left gives null, on the right false.
            return True if second is None else None
        return False if second is None else same(first, second)

    return evaluate


def _same(left: ValueKind, right: ValueKind) -> Compare:
    """The equality test for two values that are not null."""
    if left is right or not (left is ValueKind.TEXT or right is ValueKind.TEXT):
        if left in NUMBERS and right in NUMBERS:
            return _as_doubles if ValueKind.DOUBLE in (left, right) else operator.eq
        return operator.eq if left is right else _never
    if left is ValueKind.BOOLEAN:
        return _cannot_compare
    if ValueKind.NULL in (left, right):
        return _never
    if left is ValueKind.TEXT:
        parse = _FROM_TEXT[right]
        return lambda first, second: bool(parse(first) == second)
    parse = _FROM_TEXT[left]
    return lambda first, second: bool(first == parse(second))


def _as_doubles(first: Any, second: Any) -> bool:
    return float(first) == float(second)


def _never(first: Any, second: Any) -> bool:
    return False


def _cannot_compare(first: Any, second: Any) -> bool:
    # Apache casts the boolean on the left to a string and fails; `a = TRUE` is the way that works.
    raise FilterFailed(f"{first} on the left cannot be compared with {str(second)[:40]!r}")


def _for_order(left: ValueKind, right: ValueKind) -> tuple[Convert | None, Convert | None]:
    """Conversions that make both values comparable by order; None where none is needed."""
    if left is ValueKind.TEXT and right is ValueKind.TEXT:
        return double_rank, double_rank
    if left is ValueKind.TEXT:
        return _FROM_TEXT.get(right), None
    if right is ValueKind.TEXT:
        return None, _FROM_TEXT.get(left)
    if ValueKind.DOUBLE in (left, right):
        return float, float
    return None, None


def _ordered(
    left: Evaluate[T], right: Evaluate[T], convert: tuple[Convert | None, Convert | None], compare: Compare
) -> Evaluate[T]:
    left_value, right_value = convert

    def evaluate(message: T) -> bool | None:
        first = left(message)
        if first is None:
            return None
        second = right(message)
        if second is None:
            return None
        return compare(
            first if left_value is None else left_value(first),
            second if right_value is None else right_value(second),
        )

    return evaluate


def _one_of(read: Evaluate[T], texts: frozenset[str], negated: bool) -> Evaluate[T]:
    return lambda message: None if (text := read(message)) is None else (text in texts) is not negated


def _text_test(inner: Evaluate[T], test: str, search: str, negated: bool) -> Evaluate[T]:
    """A search in a text; false for a value that is missing or no text, also when negated."""
    if test == "CONTAINS":
        return lambda message: isinstance(text := inner(message), str) and (search in text) is not negated
    if test == "STARTSWITH":
        return lambda message: isinstance(text := inner(message), str) and text.startswith(search) is not negated
    return lambda message: isinstance(text := inner(message), str) and text.endswith(search) is not negated
