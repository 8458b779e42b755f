"""Thousands of random SQL92 expressions on random messages: our value is Apache's, or both refuse or both fail."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.apache import SERVER_VERSION, server_coordinates
from tests.support.expressions import Expressions
from tests.support.java import require_java
from tests.support.java_driver import JavaDriver

from rocketline.errors import FilterFailed, InvalidExpression
from rocketline.filtering import SqlFilter

pytestmark = pytest.mark.interop

EXPRESSIONS = 6000
MESSAGES = 4
CHUNK = 500
SEED = 92


def our_values(expression: str, messages: list[dict[str, str]]) -> list[Any] | None:
    try:
        compiled = SqlFilter(expression)
    except InvalidExpression:
        return None
    return [our_value(compiled, properties) for properties in messages]


def our_value(compiled: SqlFilter, properties: dict[str, str]) -> Any:
    try:
        return compiled.evaluate(properties)
    except FilterFailed:
        return "error"


def apache_values(java: JavaDriver, cases: list[tuple[str, list[dict[str, str]]]]) -> list[Any]:
    given = [
        {"expression": text, "messages": [{"properties": properties} for properties in messages]}
        for text, messages in cases
    ]
    values: list[Any] = java.call("evaluate_sql", cases=given)
    return values


def test_every_value_and_every_refusal_is_apaches() -> None:
    require_java(*server_coordinates(SERVER_VERSION))
    made = Expressions(SEED)
    cases = [(made.expression(), [made.properties() for _ in range(MESSAGES)]) for _ in range(EXPRESSIONS)]
    refused = 0
    with JavaDriver(SERVER_VERSION, coordinates=server_coordinates(SERVER_VERSION)) as java:
        for start in range(0, EXPRESSIONS, CHUNK):
            chunk = cases[start : start + CHUNK]
            for (text, messages), theirs in zip(chunk, apache_values(java, chunk), strict=True):
                assert our_values(text, messages) == theirs, (text, messages)
                refused += theirs is None
    assert 0.1 < refused / EXPRESSIONS < 0.7, "the generator has to make both kinds"
