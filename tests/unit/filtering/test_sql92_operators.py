"""The meaning of each SQL92 operator; `test_sql92` compares the language with Apache's."""

from __future__ import annotations

import pytest

from rocketline.errors import FilterFailed, InvalidExpression
from rocketline.filtering import SqlFilter


def selects(expression: str, **properties: str) -> bool:
    try:
        return SqlFilter(expression).evaluate(properties) is True
    except FilterFailed:
        return False


def refused(expression: str) -> bool:
    with pytest.raises(InvalidExpression):
        SqlFilter(expression)
    return True


def test_is_null_asks_whether_a_property_is_there() -> None:
    assert selects("a IS NULL")
    assert not selects("a IS NULL", a="x")
    assert selects("a IS NOT NULL", a="x")
    assert not selects("a IS NOT NULL")


def test_comparisons_are_of_numbers_and_numeric_texts() -> None:
    assert selects("a > 100", a="101")
    assert not selects("a > 100", a="100")
    assert selects("a >= 100 AND a <= 100", a="100")
    assert selects("a < 0.5", a="0.25")
    assert not selects("a > 1", a="x")
    assert refused("a > 'abc'")


def test_between_has_both_ends() -> None:
    for number, inside in (("9", False), ("10", True), ("50", True), ("100", True), ("101", False)):
        assert selects("a BETWEEN 10 AND 100", a=number) is inside
        assert selects("a NOT BETWEEN 10 AND 100", a=number) is not inside
    assert refused("a BETWEEN 'x' AND 'y'")


def test_in_equality_and_their_combinations() -> None:
    assert selects("a IN ('abc', 'def')", a="def")
    assert not selects("a IN ('abc', 'def')", a="x")
    assert selects("a NOT IN ('abc', 'def')", a="x")
    assert refused("a IN (1, 2)")
    assert selects("a = 3", a="3")
    assert selects("a = 'abc'", a="abc")
    assert selects("a <> 'def'", a="abc")
    both = "a IS NOT NULL AND (a > 100) OR (b IS NULL)"
    assert selects(both, a="101", b="x")
    assert selects(both, a="1")
    assert not selects(both, a="1", b="x")


def test_the_tag_is_a_property() -> None:
    expression = "TAGS IN ('TagA', 'TagB') AND a BETWEEN 0 AND 3"
    assert selects(expression, TAGS="TagA", a="3")
    assert not selects(expression, TAGS="TagC", a="3")
    assert not selects(expression, a="3")
