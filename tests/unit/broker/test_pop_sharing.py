"""What pop mode is for, seen from outside: shared queues, consumers that hang, more consumers than queues; and slaves."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.unit.broker.parts import MakeParts, Parts
from tests.unit.broker.popper import REVIVE_TOPIC, Popper, bodies, numbers, put

from rocketline.broker.pop.revive_log import REVIVE_GROUP
from rocketline.broker.pop.reviver import GRACE_MS
from rocketline.protocol.bodies import ConsumeStats, decode_body
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import GetConsumeStatsHeader
from rocketline.store.log.commit_log import refused
from rocketline.store.message_store import AppendResult, AppendStatus, StoreMessage


async def test_more_consumers_than_queues_all_receive(parts: Parts) -> None:
    put(parts, *numbers(40))
    consumers = [Popper(parts) for _ in range(4)]
    got: list[list[bytes]] = [[] for _ in consumers]
    while any(found := [consumer.pop(3) for consumer in consumers]):
        for mine, taken, consumer in zip(got, found, consumers):
            mine += bodies(taken)
            consumer.ack_all(taken)
    assert all(got)
    assert Counter(body for mine in got for body in mine) == Counter(numbers(40))


async def test_a_consumer_that_hangs_holds_up_only_what_it_holds(parts: Parts) -> None:
    put(parts, *numbers(50), queue_count=2)
    put(parts, *numbers(50, 50), queue_id=1)
    hung, working = Popper(parts), Popper(parts)
    held = bodies(hung.pop(8, invisible_ms=10_000))
    drained: list[bytes] = []
    while taken := working.pop():
        drained += bodies(taken)
        working.ack_all(taken)
    assert sorted(drained + held, key=int) == numbers(100)
    parts.pass_time(14)
    assert sorted(bodies(working.pop())) == sorted(held)


async def test_a_master_keeps_and_redelivers(make_parts: MakeParts) -> None:
    assert set(make_parts().pops.background()) == {"check points", "redeliveries"}


async def test_redeliveries_come_within_seconds_of_the_end_of_the_invisible_time(parts: Parts) -> None:
    put(parts, b"0")
    popper = Popper(parts)
    popper.pop(invisible_ms=5000)
    waited = 0
    while not popper.pop():
        parts.pass_time(1)
        waited += 1
    assert 5 + GRACE_MS / 1000 <= waited <= 5 + GRACE_MS / 1000 + 2


async def test_one_unacknowledged_message_is_redelivered_without_further_traffic(parts: Parts) -> None:
    put(parts, b"0")
    Popper(parts).pop(invisible_ms=1000)
    parts.pass_time(5)
    assert parts.store.max_offset("%RETRY%readers_orders", 0) == 1
    assert parts.pops.reviver.turn() is None, "nothing to wait for"


async def test_timers_that_fell_behind_hold_redeliveries_up(parts: Parts) -> None:
    put(parts, *numbers(2))
    popper = Popper(parts)
    one, other = popper.pop(invisible_ms=3000)
    parts.pass_time(2)
    popper.ack(one)
    parts.dispatch()
    parts.clock.advance(30)  # nobody turned the timer meanwhile: the acknowledgement is still on its way
    parts.pops.reviver.turn()
    parts.dispatch()
    assert parts.topics.get("%RETRY%readers_orders") is None
    parts.pass_time(2)
    assert bodies(popper.pop()) == [other.body]


async def test_lag_and_what_is_in_flight_are_seen_by_operators(parts: Parts) -> None:
    put(parts, *numbers(10))
    Popper(parts).pop(4)
    header = GetConsumeStatsHeader(consumer_group="readers", topic="orders")
    answer = parts.peer().ask(Command(RequestCode.GET_CONSUME_STATS, header.encode()))
    [queue] = decode_body(ConsumeStats, answer.body).offset_table.values()
    assert (queue.broker_offset, queue.consumer_offset, queue.pull_offset) == (10, 4, 4)
    assert parts.pops.in_flight.of_group("orders", "readers") == 4


async def test_a_message_the_retry_topic_never_takes_goes_to_the_dead_letters_at_once(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(parts, b"0", b"1")
    popper = Popper(parts)
    popper.pop(invisible_ms=1000)
    append = parts.store.append

    def refusing(message: StoreMessage) -> AppendResult:
        is_refused = message.topic.startswith("%RETRY%") and message.body == b"0"
        return refused(AppendStatus.MESSAGE_ILLEGAL, "too large") if is_refused else append(message)

    monkeypatch.setattr(parts.store, "append", refusing)
    parts.pass_time(6)
    assert bodies(popper.pop()) == [b"1"], "the others are not held up"
    assert [message.body for message in parts.messages("%DLQ%readers")] == [b"0"]
    assert parts.aside.counts == {"redeliveries": 1}


async def test_the_revive_group_keeps_its_own_offsets(parts: Parts) -> None:
    put(parts, *numbers(3))
    popper = Popper(parts)
    popper.ack_all(popper.pop(invisible_ms=1000))
    parts.pass_time(6)
    assert parts.offsets.get(REVIVE_GROUP, REVIVE_TOPIC, 0) == parts.store.max_offset(REVIVE_TOPIC, 0) - 1
