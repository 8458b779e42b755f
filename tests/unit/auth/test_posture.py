"""A server without accounts that other machines reach: what it takes from whom, and what is told of the others."""

from __future__ import annotations

import logging

import pytest
from tests.support.request_table import KINDS, Kind
from tests.unit.auth.peers import peer

from rocketline.auth.metrics import access_families
from rocketline.auth.posture import OPERATORS_CODES, LocalOperators
from rocketline.clock import ManualClock
from rocketline.errors import RequestRejected
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command

STRANGER = "198.51.100.9"
TRUSTED = "192.0.2.0/24"


def operators() -> LocalOperators:
    return LocalOperators(TRUSTED, ManualClock())


def test_operators_are_asked_about_every_change() -> None:
    """And besides about tickets for the log, and about accounts. Brokers of other machines register their topics."""
    assert set(KINDS[Kind.CHANGE]) <= OPERATORS_CODES
    assert OPERATORS_CODES - set(KINDS[Kind.CHANGE]) == {906, 908, 3004, 3005, 3009, 3010}


@pytest.mark.parametrize("ip", ["127.0.0.1", "::1", "192.0.2.7", "::ffff:192.0.2.7"])
@pytest.mark.parametrize("code", sorted(OPERATORS_CODES))
def test_operators_are_on_this_machine_and_where_it_is_said(code: int, ip: str) -> None:
    guard = operators()
    guard.refusal(peer(ip), Command(code))
    assert not guard.refusals.counts


@pytest.mark.parametrize("code", sorted(OPERATORS_CODES))
def test_changes_of_strangers_are_refused(code: int) -> None:
    with pytest.raises(RequestRejected, match=r"rocketline\.adminFrom") as caught:
        operators().refusal(peer(STRANGER), Command(code))
    assert caught.value.code == 16


def test_messages_of_strangers_are_taken() -> None:
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT):
        operators().refusal(peer(STRANGER), Command(code))


async def test_refusals_are_counted_and_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rocketline.audit")
    guard = operators()
    for _ in range(3):
        with pytest.raises(RequestRejected):
            guard.refusal(peer(STRANGER), Command(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=2"))
    guard.refusals.close()
    lines = [vars(record)["fields"] for record in caplog.records if record.name == "rocketline.audit"]
    assert [(line["who"], line["what"], line["reason"], line["count"]) for line in lines] == [
        (f"{STRANGER}:5000", "UPDATE_BROKER_CONFIG", "not_from_there", count) for count in (1, 2)
    ]
    is_open, refused = access_families(guard.refusals, is_open=True)
    assert list(is_open.samples.values()) == [1]
    assert refused.samples[("reason", "not_from_there"),] == sum(refused.samples.values()) == 3
