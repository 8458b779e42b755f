"""Expressions of every kind, random and garbled: a value or an error that says where, and the same from a record."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.expressions import JUNK, NUMBERS, PROPERTIES, Expressions

from rocketline.errors import FilterFailed, InvalidExpression
from rocketline.filtering import SqlFilter
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.properties import decode_properties, encode_properties, property_in
from rocketline.protocol.records import RecordHead, encode_record, topic_part

WORDS = (*PROPERTIES, *NUMBERS, *JUNK, "=", "<>", ">", "<=", "BETWEEN", "IN", "CONTAINS", "NULL", "TRUE", "OR", "'x'")
HOST = encode_host("10.0.0.1", 1)


def record(properties: str) -> bytes:
    magic, part = topic_part("T")
    return encode_record(RecordHead(magic, part, 0, 0, 0, 0, 0, 1, HOST, 1, HOST, 0, 0), b"", properties.encode())


@given(st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join) | st.text(max_size=60))
def test_any_text_compiles_or_says_where_it_does_not(text: str) -> None:
    try:
        value = SqlFilter(text).evaluate({"a": "1"})
    except InvalidExpression as error:
        assert error.position is None or 0 <= error.position <= len(text)
    except FilterFailed as error:
        assert str(error)
    else:
        assert value in (True, False, None)


@settings(max_examples=300)
@given(st.integers(0, 1 << 32))
def test_a_record_matches_when_its_properties_do(seed: int) -> None:
    made = Expressions(seed)
    expression, properties = made.expression(), {name: value for name, value in made.properties().items() if value}
    try:
        compiled = SqlFilter(expression)
    except InvalidExpression:
        return
    assert compiled.accept_record(record(encode_properties(properties))) == compiled.matches(properties)


@given(st.text(alphabet="ab\x01\x02ü", max_size=40), st.sampled_from(["a", "b", "ab", "ü"]))
def test_one_property_is_found_as_among_all(encoded: str, name: str) -> None:
    assert property_in(name)(encoded) == decode_properties(encoded).get(name)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_record_do_not_match(data: bytes) -> None:
    assert SqlFilter("a IS NOT NULL AND b = 1").accept_record(data) in (True, False)
