"""The ledger of a journey finds messages that are lost, duplicated, changed or invented."""

from __future__ import annotations

import pytest

from rocketline.cli.demo.journey import problems_in
from rocketline.cli.demo.ledger import Ledger
from rocketline.message import MessageQueue

QUEUE = MessageQueue("journey", "broker-a", 0)


@pytest.fixture
def ledger() -> Ledger:
    """Three messages, all acknowledged."""
    ledger = Ledger(3, body_bytes=40)
    for number in range(3):
        ledger.send(number)
        ledger.acknowledge(number, QUEUE, number)
    return ledger


def test_a_journey_without_loss(ledger: Ledger) -> None:
    assert not ledger.all_arrived
    assert [ledger.arrive(ledger.body(number)) for number in (2, 0, 1)] == [2, 0, 1]
    assert ledger.all_arrived
    assert (ledger.sent, ledger.acknowledged, ledger.consumed, ledger.duplicates) == (3, 3, 3, 0)
    assert ledger.lost() == []
    assert problems_in(ledger) == []


def test_a_lost_message_is_found_behind_a_duplicate(ledger: Ledger) -> None:
    for number in (0, 2, 2):
        ledger.arrive(ledger.body(number))
    assert (ledger.consumed, ledger.duplicates, ledger.lost()) == (2, 1, [1])
    assert not ledger.all_arrived
    (problem,) = problems_in(ledger)
    assert "1 acknowledged messages were never consumed, the first is number 1" in problem


def test_what_nobody_sent_is_invented(ledger: Ledger) -> None:
    body = ledger.body(0)
    other_end, other_start = body[:-1] + bytes([body[-1] ^ 1]), bytes([body[0] ^ 1]) + body[1:]
    for strange in (b"", b"short", body[:-1], other_end, other_start, ledger.body(3), Ledger(3, 40).body(0)):
        assert ledger.arrive(strange) is None
    assert (ledger.invented, ledger.consumed) == (7, 0)
    assert any("7 messages were consumed that were not sent" in problem for problem in problems_in(ledger))


def test_a_message_that_was_not_acknowledged_may_arrive_or_not() -> None:
    ledger = Ledger(2)
    ledger.send(0)
    ledger.send(1)
    ledger.acknowledge(0, QUEUE, 0)
    ledger.arrive(ledger.body(0))
    assert ledger.lost() == []
    assert ledger.place_of(0) == (QUEUE, 0)
    assert ledger.place_of(1) is None
    (problem,) = problems_in(ledger)
    assert problem == "1 of 2 messages were not acknowledged"


def test_a_message_acknowledged_twice_counts_once(ledger: Ledger) -> None:
    ledger.acknowledge(0, QUEUE, 7)
    assert ledger.acknowledged == 3
    assert ledger.place_of(0) == (QUEUE, 7)


@pytest.mark.parametrize("size", [1, 16, 17, 128, 5000])
def test_bodies_have_the_size_asked_for(size: int) -> None:
    assert len(Ledger(1, size).body(0)) == max(size, 16)
