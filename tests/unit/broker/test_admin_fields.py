"""What operators' tools may get wrong: fields of the wrong type, of no meaning, bodies that are none. Each is refused with
the field named, or passed over, and never an unforeseen failure."""

from __future__ import annotations

import logging

import msgspec
import pytest
from tests.unit.broker.parts import Parts
from tests.unit.broker.test_router import SERVED

from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import REQUEST_HEADERS

BODIES = [b"", b"null", b"[]", b"7", b'"text"', b"{", b"\xff\xfe", b"\0" * 64, b'{"a":' * 5000, b"[" * 5000]
WITH_BODIES = (18, 25, 200, 225)
SENDS = {310, 320, 324, 325}
OF_OPERATORS = sorted(code for code in SERVED - SENDS if 17 <= code <= 28 or 200 <= code <= 353 or code == 513)


def valid(code: int) -> dict[str, str]:
    """Every field of a request with some value of its type."""
    header = REQUEST_HEADERS.get(code)
    if header is None:
        return {}
    return {item.encode_name: _value(item.type) for item in msgspec.structs.fields(header)}


def _value(kind: object) -> str:
    text = str(kind)
    return "true" if "bool" in text else "0" if "int" in text else "orders"


def numbers(code: int) -> list[str]:
    return [name for name, value in valid(code).items() if value == "0"]


CASES = [(code, name) for code in OF_OPERATORS for name in numbers(code)]


@pytest.mark.parametrize(("code", "name"), CASES)
@pytest.mark.parametrize("value", ["many", "", "1.5", "9" * 30, "-"])
async def test_a_field_that_is_no_number_is_named(parts: Parts, code: int, name: str, value: str) -> None:
    answer = parts.peer().ask(Command(code, {**valid(code), name: value}))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"request {code}: field {name} is" in (answer.remark or "")


@pytest.mark.parametrize("code", OF_OPERATORS)
async def test_fields_nobody_knows_change_nothing(parts: Parts, code: int) -> None:
    if code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
        pytest.skip("asks a client")
    parts.put_topic("orders")
    plain = parts.peer().ask(Command(code, valid(code)))
    more = parts.peer().ask(Command(code, {**valid(code), "colour": "red", "\0": "x" * 1000}))
    assert (more.code, more.remark) == (plain.code, plain.remark)


@pytest.mark.parametrize("code", WITH_BODIES)
@pytest.mark.parametrize("body", BODIES)
async def test_a_body_that_is_none_is_refused_in_words(
    parts: Parts, caplog: pytest.LogCaptureFixture, code: int, body: bytes
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = parts.peer().ask(Command(code, {}, body))
    assert answer.code != ResponseCode.SUCCESS
    assert answer.remark
    assert "Traceback" not in answer.remark
    assert [record for record in caplog.records if record.exc_info] == []
