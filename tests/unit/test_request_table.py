"""The table of requests is complete, true, and what its page says: a new code without an entry fails here."""

from __future__ import annotations

from collections import Counter

from tests.support.request_table import KINDS, NOT_ANSWERED_CODES, PAGE, page, requests

from rocketline.protocol.codes import RequestCode


def test_every_code_has_one_kind() -> None:
    entered = Counter(code for codes in KINDS.values() for code in codes)
    assert [code for code, times in entered.items() if times > 1] == []
    assert {RequestCode(code).name for code in set(RequestCode) - entered.keys()} == set(), "enter its kind"
    assert entered.keys() == set(RequestCode)


def test_the_page_is_what_its_tool_writes() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python tools/write_request_reference.py"


def test_what_nobody_answers_is_none_of_ours() -> None:
    assert set(NOT_ANSWERED_CODES) & set(RequestCode) == set()
    assert {*range(50, 55), *range(200070, 200080)} <= set(NOT_ANSWERED_CODES)
    unanswered = [item.name for item in requests() if not item.answered_by]
    assert unanswered == ["NOTIFY_MIN_BROKER_ID_CHANGE"], "brokers are told, ours has nothing to do with it"
