"""What operators' tools may get wrong: fields that are missing, of the wrong type or of no meaning, bodies that are none.
Each is refused with the field named, or passed over, never an unforeseen failure, and the next request is answered."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
from tests.support.request_table import Kind, Request, requests
from tests.support.wrong_fields import (
    check_missing_field,
    check_unknown_fields,
    check_wrong_bodies,
    check_wrong_numbers,
    name_of,
)
from tests.unit.broker.conftest import MakeParts
from tests.unit.broker.parts import Parts, Peer

from rocketline.auth.needs import ACCOUNT_CODES
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command

NEEDS_A_BODY = (18, 25, 200, 225, 401)
OF_OPERATORS = [
    item
    for item in requests()
    if "broker" in item.answered_by
    and item.kind in (Kind.QUESTION, Kind.CHANGE, Kind.SERVERS)
    # Without accounts a broker answers these all alike (tests/unit/auth/test_access_requests.py has them with accounts).
    and item.code not in ACCOUNT_CODES
    # Served only in a group with elections.
    and item.code not in (1002, 1004, 1005, 1006, 1011)
]
WITH_NUMBERS = [(item, field.name) for item in OF_OPERATORS for field in item.fields if field.type == "integer"]
WITH_REQUIRED = [(item, field.name) for item in OF_OPERATORS for field in item.fields if field.required]
LATE = RequestCode.CONSUME_MESSAGE_DIRECTLY, RequestCode.NOTIFY_BROKER_ROLE_CHANGED
ANSWERED_HERE = [item for item in OF_OPERATORS if item.code not in LATE]
"""One of those asks a client, the other waits for replicas."""
QUESTIONS = [item for item in OF_OPERATORS if item.kind is not Kind.CHANGE]


@pytest.fixture
async def peer(parts: Parts, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Peer]:
    """Somebody whose connection is served on afterwards, and who made nothing fail in a way nobody had thought of."""
    caplog.set_level(logging.ERROR)
    peer = parts.peer()
    yield peer
    assert peer.ask(Command(RequestCode.GET_BROKER_CONFIG)).code == ResponseCode.SUCCESS
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def test_the_table_has_operators_requests() -> None:
    assert len(OF_OPERATORS) > 45
    assert len(WITH_REQUIRED) > 40


@pytest.mark.parametrize(("item", "name"), WITH_REQUIRED, ids=name_of)
async def test_a_field_that_is_missing_is_named(peer: Peer, item: Request, name: str) -> None:
    check_missing_field(peer, item, name)


@pytest.mark.parametrize(("item", "name"), WITH_NUMBERS, ids=name_of)
async def test_a_field_that_is_no_number_is_named(peer: Peer, item: Request, name: str) -> None:
    check_wrong_numbers(peer, item, name)


@pytest.mark.parametrize("item", ANSWERED_HERE, ids=name_of)
async def test_fields_nobody_knows_change_nothing(parts: Parts, peer: Peer, item: Request) -> None:
    parts.put_topic("orders")
    check_unknown_fields(peer, item)


@pytest.mark.parametrize("item", ANSWERED_HERE, ids=name_of)
async def test_a_body_that_is_none_is_refused_in_words_or_passed_over(peer: Peer, item: Request) -> None:
    codes = check_wrong_bodies(peer, item)
    assert ResponseCode.SUCCESS not in codes or item.code not in NEEDS_A_BODY


@pytest.mark.parametrize("item", QUESTIONS, ids=name_of)
async def test_a_question_changes_nothing(make_parts: MakeParts, item: Request) -> None:
    parts = make_parts(auto_create_groups=False)  # asking for a group makes it, as with Apache

    def state() -> tuple[object, ...]:
        return parts.topics.snapshot(), parts.groups.snapshot(), parts.offsets.snapshot(), parts.store.log_next_offset

    parts.put_topic("orders")
    before = state()
    parts.peer().ask(Command(item.code, item.valid()))
    assert state() == before
