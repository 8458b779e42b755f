"""How long brokers are left alone: RocketMQ's table, failures, and what probing adds."""

from __future__ import annotations

from collections import Counter

import pytest

from rocketline.client.producer.broker_health import BrokerHealth, SlowBrokers
from rocketline.client.producer.queue_choice import QueuesInTurn
from rocketline.clock import ManualClock
from rocketline.errors import ConfigError, ConnectionLost, SystemBusy
from rocketline.message import MessageQueue

QUEUES = [MessageQueue("T", name, number) for name in "ab" for number in range(4)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.mark.parametrize(
    ("took_s", "unused_s"),
    [(0.549, 0), (0.55, 2), (1.799, 2), (1.8, 5), (3, 6), (4.999, 6), (5, 10), (14.999, 10), (15, 30), (600, 30)],
)
def test_a_slow_send_keeps_others_away_by_rocketmqs_table(clock: ManualClock, took_s: float, unused_s: float) -> None:
    health = BrokerHealth(clock.monotonic)
    health.took("a", took_s)
    assert health.all_healthy == health.is_available("a") == (unused_s == 0)
    assert health.is_available("b")
    clock.advance(max(0.0, unused_s - 0.001))
    assert health.is_available("a") == (unused_s == 0)
    clock.advance(0.002)
    assert health.is_available("a") and health.all_healthy


def test_a_failure_counts_as_ten_seconds(clock: ManualClock) -> None:
    health = BrokerHealth(clock.monotonic)
    health.failed("a", ConnectionLost("gone"))
    assert health.is_reachable("a"), "only probing says more"
    clock.advance(9.999)
    assert not health.is_available("a")
    clock.advance(0.001)
    assert health.is_available("a")


def test_a_shorter_penalty_never_ends_a_longer_one(clock: ManualClock) -> None:
    health = BrokerHealth(clock.monotonic)
    health.took("a", 15)
    health.took("a", 0.6)
    health.took("a", 0.001)
    clock.advance(29.9)
    assert not health.is_available("a")


def test_a_wall_clock_that_jumps_changes_nothing(clock: ManualClock) -> None:
    health = BrokerHealth(clock.monotonic)
    health.took("a", 1.0)
    clock.jump_wall(3600)
    assert not health.is_available("a")
    clock.jump_wall(-7200)
    clock.advance(2.0)
    assert health.is_available("a")


async def test_probing_keeps_away_until_an_answer_comes(clock: ManualClock) -> None:
    health = BrokerHealth(clock.monotonic, SlowBrokers(probe=True))
    asked: list[str] = []
    there = False

    async def answers(name: str) -> bool:
        asked.append(name)
        return there

    await health.probe(answers)
    assert asked == [], "nobody asks after brokers that are well"
    health.failed("a", ConnectionLost("gone"))
    health.failed("b", SystemBusy(2, "busy"))
    clock.advance(60)
    await health.probe(answers)
    assert asked == ["a"]
    assert not health.is_available("a") and not health.is_reachable("a") and health.is_available("b")
    there = True
    await health.probe(answers)
    assert health.is_available("a") and health.all_healthy


async def test_a_broker_no_route_names_any_more_is_forgotten(clock: ManualClock) -> None:
    health = BrokerHealth(clock.monotonic, SlowBrokers(probe=True))
    health.failed("a", ConnectionLost("gone"))

    async def gone(name: str) -> None:
        return None

    await health.probe(gone)
    assert health.all_healthy


def test_an_answer_to_a_send_is_proof_enough(clock: ManualClock) -> None:
    health = BrokerHealth(clock.monotonic, SlowBrokers(probe=True))
    health.failed("a", ConnectionLost("gone"))
    health.took("a", 0.001)
    assert health.is_reachable("a")


@pytest.mark.parametrize("steps", [(), ((0.0, 1.0),), ((1.0, 2.0), (0.5, 1.0)), ((0.5, -1.0),)])
def test_steps_that_make_no_sense_are_refused(steps: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ConfigError, match="latency_steps"):
        SlowBrokers(steps)


def test_queues_of_brokers_that_are_well_come_first(clock: ManualClock) -> None:
    health, turns = BrokerHealth(clock.monotonic), QueuesInTurn()
    health.took("a", 0.6)
    assert Counter(turns.choose_healthy(QUEUES, health) for _ in range(40)) == dict.fromkeys(QUEUES[4:], 10)
    clock.advance(2.0)
    assert Counter(turns.choose_healthy(QUEUES, health).broker_name for _ in range(40)) == {"a": 20, "b": 20}


def test_with_nobody_well_those_that_can_be_reached_are_taken(clock: ManualClock) -> None:
    health, turns = BrokerHealth(clock.monotonic, SlowBrokers(probe=True)), QueuesInTurn()
    health.failed("a", ConnectionLost("gone"))
    health.took("b", 15.0)
    assert {turns.choose_healthy(QUEUES, health).broker_name for _ in range(16)} == {"b"}


def test_with_all_in_disgrace_queues_are_taken_in_turn(clock: ManualClock) -> None:
    health, turns = BrokerHealth(clock.monotonic, SlowBrokers(probe=True)), QueuesInTurn()
    for name in "ab":
        health.failed(name, ConnectionLost("gone"))
    assert Counter(turns.choose_healthy(QUEUES, health) for _ in range(16)) == dict.fromkeys(QUEUES, 2)
    assert {turns.choose_healthy(QUEUES, health, "a").broker_name for _ in range(8)} == {"b"}


def test_a_retry_avoids_the_last_broker_even_when_the_other_is_slow(clock: ManualClock) -> None:
    health, turns = BrokerHealth(clock.monotonic), QueuesInTurn()
    health.took("b", 1.0)
    assert turns.choose_healthy(QUEUES, health, "a").broker_name == "b"
