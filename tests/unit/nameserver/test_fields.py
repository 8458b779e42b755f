"""Every request of a name server with fields that are missing, of the wrong type or unknown, and with wrong bodies: refused
with a reason or ignored, and the next request is answered."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
from tests.support.request_table import Kind, Request, requests, served_by
from tests.support.wrong_fields import (
    check_missing_field,
    check_unknown_fields,
    check_wrong_bodies,
    check_wrong_numbers,
    name_of,
)
from tests.unit.broker.parts import Peer
from tests.unit.nameserver.brokers import body, header

from rocketline.auth.needs import ACCOUNT_CODES
from rocketline.clock import ManualClock
from rocketline.nameserver.config import NameServerConfig
from rocketline.nameserver.handlers import Handlers
from rocketline.nameserver.kv_config import KvConfig
from rocketline.nameserver.routes import RouteTable
from rocketline.protocol.bodies import encode_registration
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command

SERVED = [item for item in requests() if "name server" in item.answered_by and item.code not in ACCOUNT_CODES]
WITH_NUMBERS = [(item, field.name) for item in SERVED for field in item.fields if field.type == "integer"]
WITH_REQUIRED = [(item, field.name) for item in SERVED for field in item.fields if field.required]
QUESTIONS = [item for item in SERVED if item.kind is Kind.QUESTION]


@pytest.fixture
def handlers() -> Handlers:
    config, clock = NameServerConfig(), ManualClock()
    return Handlers(config, RouteTable(config, clock, lambda *_: None), KvConfig.open(""), clock)


@pytest.fixture
async def peer(handlers: Handlers, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Peer]:
    """A client of a name server with one broker; after the test it is still served, and no handler failed unexpectedly."""
    caplog.set_level(logging.ERROR)
    peer = Peer(handlers.router())
    registered = Command(RequestCode.REGISTER_BROKER, header().encode(), encode_registration(body()))
    assert peer.ask(registered).code == ResponseCode.SUCCESS
    yield peer
    assert peer.ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO)).code == ResponseCode.SUCCESS
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


async def test_the_table_of_requests_says_what_is_served(handlers: Handlers) -> None:
    assert served_by("name server") == handlers.router().codes | ACCOUNT_CODES
    assert len(SERVED) > 20


@pytest.mark.parametrize(("item", "name"), WITH_REQUIRED, ids=name_of)
async def test_a_field_that_is_missing_is_named(peer: Peer, item: Request, name: str) -> None:
    check_missing_field(peer, item, name)


@pytest.mark.parametrize(("item", "name"), WITH_NUMBERS, ids=name_of)
async def test_a_field_that_is_no_number_is_named(peer: Peer, item: Request, name: str) -> None:
    check_wrong_numbers(peer, item, name)


@pytest.mark.parametrize("item", SERVED, ids=name_of)
async def test_fields_nobody_knows_change_nothing(peer: Peer, item: Request) -> None:
    check_unknown_fields(peer, item)


@pytest.mark.parametrize("item", SERVED, ids=name_of)
async def test_a_wrong_body_is_refused_with_a_reason_or_ignored(peer: Peer, item: Request) -> None:
    check_wrong_bodies(peer, item)


@pytest.mark.parametrize("item", QUESTIONS, ids=name_of)
async def test_a_question_changes_nothing(handlers: Handlers, peer: Peer, item: Request) -> None:
    def state() -> tuple[object, ...]:
        routes = handlers._routes
        return routes.generation, routes.cluster_info(), routes.all_topics(), handlers.config

    before = state()
    peer.ask(Command(item.code, item.valid()))
    assert state() == before
