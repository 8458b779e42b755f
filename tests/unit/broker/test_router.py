"""The table of requests a broker serves, and what happens to the ones it does not."""

from __future__ import annotations

import pytest
from tests.support.request_table import NOT_ANSWERED_CODES, served_by
from tests.unit.broker.parts import Parts

from rocketline.auth.needs import ACCOUNT_CODES
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import ONEWAY, Command

SERVED = served_by("broker") - {1002, 1004, 1005, 1006, 1011}  # those only in a group with elections
WITHOUT_FIELDS = {
    18, 21, 25, 26, 28, 34, 41, 42, 43, 45, 46, 60, 61, 200, 201, 225, 305, 306, 316, 328, 329, 400, 401, 402, 906, 907,
    1007, 200151,
}  # fmt: skip


async def test_the_table_of_requests_says_what_is_served(parts: Parts) -> None:
    assert parts.router.codes == SERVED


@pytest.mark.parametrize("code", [0, -1, 9999, 39, 105, *NOT_ANSWERED_CODES, (1 << 31) - 1, -(1 << 31)])
async def test_others_are_answered_with_3(parts: Parts, code: int) -> None:
    answer = parts.peer().ask(Command(code, {"a": "b"}, b"body"))
    assert (answer.code, str(code) in answer.remark) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, True)


async def test_an_unknown_oneway_request_is_silent(parts: Parts) -> None:
    peer = parts.peer()
    peer.send(Command(9999, flag=ONEWAY))
    assert peer.received() == []


@pytest.mark.parametrize("code", sorted(SERVED - WITHOUT_FIELDS - ACCOUNT_CODES))
@pytest.mark.parametrize("ext", [None, {}])
async def test_a_request_without_its_fields_names_the_first_that_is_missing(
    parts: Parts, code: int, ext: dict[str, str] | None
) -> None:
    answer = parts.peer().ask(Command(code, ext))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"request {code}: field" in answer.remark
    assert "missing" in answer.remark


async def test_a_handler_that_fails_answers_with_its_reason_and_serves_on(parts: Parts) -> None:
    peer = parts.peer()
    parts.close()
    answer = peer.ask(Command(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "StoreClosed: the store /data is not open")
    assert peer.ask(Command(RequestCode.GET_ALL_TOPIC_CONFIG)).code == ResponseCode.SUCCESS
