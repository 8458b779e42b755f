"""SQL92: values and refusals as Apache has them, where errors are, what is refused for its size, records read as bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketline.errors import FilterFailed, InvalidExpression
from rocketline.filtering import SqlFilter
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.properties import decode_properties, encode_properties, property_in
from rocketline.protocol.record_layout import BORN_IPV6, STORE_IPV6
from rocketline.protocol.records import RecordHead, encode_record, topic_part

GOLDEN = Path(__file__).parents[2] / "golden" / "filters" / "sql92.jsonl"


def value(expression: str, properties: dict[str, str]) -> Any:
    try:
        compiled = SqlFilter(expression)
    except InvalidExpression:
        return "refused"
    try:
        return compiled.evaluate(properties)
    except FilterFailed:
        return "error"


def test_every_captured_value_is_apaches() -> None:
    cases = [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]
    assert len(cases) == 300
    wrong = [case for case in cases if value(case["expression"], case["properties"]) != case["result"]]
    assert wrong == []


def test_every_captured_value_is_the_same_when_read_from_a_record() -> None:
    for line in GOLDEN.read_text("utf-8").splitlines():
        case = json.loads(line)
        if case["result"] != "refused" and "" not in case["properties"].values():
            record = stored(encode_properties({"X": "1", **case["properties"]}))
            assert SqlFilter(case["expression"]).accept_record(record) is (case["result"] is True), case


@pytest.mark.parametrize(
    ("expression", "properties", "result"),
    [
        ("NOT a = 1", {"a": "2"}, False),  # (NOT a) = 1, and a boolean never equals a number
        ("a", {"a": "true"}, False),
        ("NOT a", {"a": "true"}, True),
        ("a LIKE 'x%'", {"a": "x"}, False),
        ("a = 1 foo #", {"a": "1"}, True),
        ("a = 1 #", {"a": "1"}, "refused"),
        ("a = b", {}, True),
        ("a <> b", {"b": "1"}, None),
        ("b <> a", {"b": "1"}, True),
        ("TRUE = a", {"a": "true"}, "error"),
        ("a = TRUE", {"a": "tRUE"}, True),
        ("a = 1", {"a": "3000000000"}, "error"),
        ("a = 1", {"a": "01"}, True),
        ("a > b", {"a": "NaN", "b": "Infinity"}, True),
        ("a > b", {"a": "0.0", "b": "-0.0"}, True),
        ("a BETWEEN 5 AND 1", {}, "refused"),
        ("a NOT BETWEEN 5 AND 1", {"a": "3"}, True),
        ("a > 0.0", {}, "refused"),
        ("a > 0", {"a": "1"}, True),
        ("a = 0L", {"a": "0"}, True),
        ("", {}, "refused"),
        ("a = NULL", {}, "refused"),
        ("NULL", {}, None),
        ("a NOT CONTAINS ''", {"a": "x"}, False),
        ("a CONTAINS 'y'", {"a": "xyz"}, True),
        ("a STARTSWITH 'y'", {"a": "xyz"}, False),
        ("a STARTSWITH 'x'", {"a": "xyz"}, True),
        ("a ENDSWITH 'y'", {"a": "xyz"}, False),
        ("a ENDSWITH 'z'", {"a": "xyz"}, True),
        ("a < 0.5", {"a": "-0x1p2000"}, True),
        ("a > 0.5", {"a": "0x1p2000"}, True),
        ("a BETWEEN 1.0 AND 3", {"a": "1.5"}, "error"),  # compared with a long, too
        ("b = 'x' OR a > 1", {"a": "?", "b": "x"}, True),
        ("a > 1 OR b = 'x'", {"a": "?", "b": "x"}, "error"),
    ],
)
def test_oddities(expression: str, properties: dict[str, str], result: object) -> None:
    assert value(expression, properties) == result


@pytest.mark.parametrize(
    ("expression", "position", "named"),
    [
        ("a = ", 4, "found the end"),
        ("a > 'x'", 2, "numbers and properties"),
        ("price IN (1)", 10, "expected a string in quotes, found '1'"),
        ("a = 'x", 4, "no closing quote"),
        ("a = 1 /* x", 6, "does not end"),
        ("a ! 1", 2, "'!' has no meaning"),
        ("5", 0, "a condition is needed"),
        ("a AND (b = 1 OR 'x')", 16, "a condition is needed"),
        ("a = NULL", 2, "IS NULL"),
        ("a = 99999999999999999999", 4, "above 9223372036854775807"),
        ("a > 1e999", 4, "does not fit"),
        ("a NOT 5", 6, "after NOT"),
        ("1 IN ('a')", 2, "a property on its left"),
    ],
)
def test_an_error_says_where_it_is(expression: str, position: int, named: str) -> None:
    with pytest.raises(InvalidExpression, match=named) as caught:
        SqlFilter(expression)
    assert caught.value.position == position
    assert f"character {position + 1}" in str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 60_000,
        "(" * 1000 + "a" + ")" * 1000,
        "NOT " * 10_000 + "a",
        "- " * 30_000 + "1 = 1",
        "+" * 60_000 + "1 = 1",
        "a" + " IS NULL" * 8000,
        "a = 1" + " = TRUE" * 9000,
        "a OR " * 10_000 + "a",
        "a IN (" + "'x'," * 10_000 + "'x')",
        "a = '" + "x" * 1_000_000 + "'",
        "'" + "''" * 30_000,
        "/*" * 30_000,
        "/*" + "*" * 60_000,
        "9" * 60_000 + " = a",
        "(a" + " IS NULL" * 60 + ")" + " IS NULL" * 60,
        "1." + "0" * 60_000 + "e" + "9" * 5000 + " = a",
    ],
    ids=lambda text: text[:12],
)
def test_hostile_expressions_are_refused(expression: str) -> None:
    with pytest.raises(InvalidExpression) as caught:
        SqlFilter(expression)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 60 + "a = 1" + ")" * 60,
        " AND ".join(["a = 1"] * 1000),
        " OR ".join(["a = 2"] * 1000) + " OR a = 1",
        "a IN (" + ", ".join(f"'{number}'" for number in range(4000)) + ")",
        "NOT " * 62 + "(a = 1)",
    ],
    ids=lambda text: text[:12],
)
def test_large_expressions_that_make_sense_work(expression: str) -> None:
    assert SqlFilter(expression).matches({"a": "1"})


@pytest.mark.parametrize(
    ("expression", "most"),
    [
        (lambda count: "(" * count + "a = 1" + ")" * count, 64),
        (lambda count: "a OR " * (count - 2) + "a = 1", 2048),
        (lambda count: "a IN (" + ", ".join(["'1'"] * count) + ")", 4096),
    ],
)
def test_the_largest_expression_is_known_exactly(expression: Callable[[int], str], most: int) -> None:
    assert SqlFilter(expression(most)).matches({"a": "1"})
    with pytest.raises(InvalidExpression):
        SqlFilter(expression(most + 1))


def test_a_failure_is_no_match() -> None:
    compiled = SqlFilter("a > 1")
    with pytest.raises(FilterFailed, match="'x' is not a whole number"):
        compiled.evaluate({"a": "x"})
    assert not compiled.matches({"a": "x"})
    assert not compiled.accept_record(stored("a\x01x\x02"))


@pytest.mark.parametrize("sys_flag", [0, BORN_IPV6, STORE_IPV6, BORN_IPV6 | STORE_IPV6])
@pytest.mark.parametrize("topic", ["T", "t" * 127, "t" * 200])
def test_records_of_every_layout_are_read(sys_flag: int, topic: str) -> None:
    record = stored("KEYS\x01k\x02a\x0110\x02", topic, sys_flag)
    assert SqlFilter("a = 10 AND KEYS = 'k'").accept_record(memoryview(record))
    assert not SqlFilter("a = 11").accept_record(memoryview(record))


@pytest.mark.parametrize("size", [0, 10, 40, 88, 90])
def test_a_record_that_is_cut_off_does_not_match(size: int) -> None:
    assert not SqlFilter("a = 10").accept_record(stored("a\x0110\x02")[:size])


@pytest.mark.parametrize(
    "encoded",
    [
        "", "a\x011\x02", "a\x011", "b\x012\x02a\x011\x02", "ba\x012\x02", "a\x011\x02a\x012\x02", "a\x011\x02a\x01\x02",
        "a\x01\x02", "\x02a\x011", "x\x01a\x011\x02", "a\x01\x01\x02", "a", "\x01a\x011\x02", "a\x01ü\x02",
        "b\x01\x02a\x01\x02",
    ],
)  # fmt: skip
def test_one_property_looked_up_is_the_one_of_all(encoded: str) -> None:
    assert property_in("a")(encoded) == decode_properties(encoded).get("a")


def stored(properties: str, topic: str = "T", sys_flag: int = 0) -> bytes:
    magic, part = topic_part(topic)
    born = encode_host("2001:db8::1" if sys_flag & BORN_IPV6 else "10.0.0.1", 1)
    store = encode_host("2001:db8::1" if sys_flag & STORE_IPV6 else "10.0.0.1", 1)
    return encode_record(
        RecordHead(magic, part, 0, 0, 0, 0, sys_flag, 1, born, 1, store, 0, 0), b"body", properties.encode()
    )
