from __future__ import annotations

from collections import Counter

from rocketline.client.producer.queue_choice import QueuesInTurn
from rocketline.message import MessageQueue

ONE_BROKER = [MessageQueue("T", "a", number) for number in range(4)]
TWO_BROKERS = [*ONE_BROKER, *(MessageQueue("T", "b", number) for number in range(4))]


def test_queues_are_used_evenly() -> None:
    turns = QueuesInTurn(start=17)
    counts = Counter(turns.choose(ONE_BROKER) for _ in range(400))
    assert set(counts.values()) == {100}


def test_a_retry_avoids_the_broker_that_failed() -> None:
    for start in range(8):
        turns = QueuesInTurn(start)
        assert turns.choose(TWO_BROKERS, avoid_broker="a").broker_name == "b"
        assert turns.choose(TWO_BROKERS, avoid_broker="b").broker_name == "a"


def test_a_single_broker_is_tried_again() -> None:
    turns = QueuesInTurn()
    first = turns.choose(ONE_BROKER)
    second = turns.choose(ONE_BROKER, avoid_broker="a")
    assert {first.queue_id, second.queue_id} == {0, 1}


def test_the_counter_has_no_end() -> None:
    turns = QueuesInTurn(start=(1 << 31) - 1)
    assert [turns.choose(ONE_BROKER).queue_id for _ in range(5)] == [3, 0, 1, 2, 3]


def test_queues_may_become_fewer() -> None:
    turns = QueuesInTurn(start=7)
    assert turns.choose(TWO_BROKERS).queue_id == 3
    assert turns.choose(ONE_BROKER[:1]) == ONE_BROKER[0]
