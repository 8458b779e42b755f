"""Every request of a name server with fields that are missing, of the wrong type or of no meaning, and with bodies that are
none: refused in words or passed over, and the next request is answered."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
from tests.support.request_table import Kind, Request, requests, served_by
from tests.unit.broker.parts import Peer
from tests.unit.nameserver.brokers import body, header

from rocketline.clock import ManualClock
from rocketline.nameserver.config import NameServerConfig
from rocketline.nameserver.handlers import Handlers
from rocketline.nameserver.kv_config import KvConfig
from rocketline.nameserver.routes import RouteTable
from rocketline.protocol.bodies import encode_registration
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command

BODIES = [b"", b"null", b"[]", b"7", b'"text"', b"{", b"\xff\xfe", b"\0" * 64, b'{"a":' * 5000, b"[" * 5000]
NO_NUMBERS = ["many", "", "1.5", "9" * 30, "-"]
SERVED = [item for item in requests() if "name server" in item.answered_by]
WITH_NUMBERS = [(item, field.name) for item in SERVED for field in item.fields if field.type == "integer"]
WITH_REQUIRED = [(item, field.name) for item in SERVED for field in item.fields if field.required]
QUESTIONS = [item for item in SERVED if item.kind is Kind.QUESTION]


def named(value: object) -> str | None:
    return value.name if isinstance(value, Request) else None


@pytest.fixture
def handlers() -> Handlers:
    config, clock = NameServerConfig(), ManualClock()
    return Handlers(config, RouteTable(config, clock, lambda *_: None), KvConfig.open(""), clock)


@pytest.fixture
async def peer(handlers: Handlers, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Peer]:
    """Somebody who knows a broker, is served on afterwards, and made nothing fail in a way nobody had thought of."""
    caplog.set_level(logging.ERROR)
    peer = Peer(handlers.router())
    registered = Command(RequestCode.REGISTER_BROKER, header().encode(), encode_registration(body()))
    assert peer.ask(registered).code == ResponseCode.SUCCESS
    yield peer
    assert peer.ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO)).code == ResponseCode.SUCCESS
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


async def test_the_table_of_requests_says_what_is_served(handlers: Handlers) -> None:
    assert served_by("name server") == handlers.router().codes
    assert len(SERVED) > 20


@pytest.mark.parametrize(("item", "name"), WITH_REQUIRED, ids=named)
async def test_a_field_that_is_missing_is_named(peer: Peer, item: Request, name: str) -> None:
    ext = {key: value for key, value in item.valid().items() if key != name}
    answer = peer.ask(Command(item.code, ext))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"header of request {item.code}: field {name} is missing"


@pytest.mark.parametrize(("item", "name"), WITH_NUMBERS, ids=named)
async def test_a_field_that_is_no_number_is_named(peer: Peer, item: Request, name: str) -> None:
    for value in NO_NUMBERS:
        answer = peer.ask(Command(item.code, {**item.valid(), name: value}))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert f"request {item.code}: field {name} is" in (answer.remark or "")


@pytest.mark.parametrize("item", SERVED, ids=named)
async def test_fields_nobody_knows_change_nothing(peer: Peer, item: Request) -> None:
    plain = peer.ask(Command(item.code, item.valid()))
    more = peer.ask(Command(item.code, {**item.valid(), "colour": "red", "\0": "x" * 1000}))
    assert (more.code, more.remark) == (plain.code, plain.remark)


@pytest.mark.parametrize("item", SERVED, ids=named)
async def test_a_body_that_is_none_is_refused_in_words_or_passed_over(peer: Peer, item: Request) -> None:
    for content in BODIES:
        answer = peer.ask(Command(item.code, item.valid(), content))
        assert answer.code == ResponseCode.SUCCESS or answer.remark
        assert "Traceback" not in (answer.remark or "")


@pytest.mark.parametrize("item", QUESTIONS, ids=named)
async def test_a_question_changes_nothing(handlers: Handlers, peer: Peer, item: Request) -> None:
    def state() -> tuple[object, ...]:
        routes = handlers._routes
        return routes.generation, routes.cluster_info(), routes.all_topics(), handlers.config

    before = state()
    peer.ask(Command(item.code, item.valid()))
    assert state() == before
