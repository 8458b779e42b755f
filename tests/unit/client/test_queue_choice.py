from __future__ import annotations

import random
from collections import Counter

from rocketline.client import at_random, by_hash, in_machine_rooms
from rocketline.client.producer.queue_choice import QueuesInTurn, by_sharding_key
from rocketline.message import Message, MessageQueue

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


MESSAGE = Message("T", b"x")


def test_a_key_has_the_queue_javas_selector_gives_it() -> None:
    """SelectMessageQueueByHash takes the remainder first and then its absolute value: that of MIN_VALUE has none."""
    queues = [MessageQueue("T", "a", number) for number in range(7)]
    hashes = {
        "hello": 99162322,
        "polygenelubricants": -(1 << 31),
        "Ab": 2113,
        "": 0,
        "order-4711": 708276994,
        "TagB": 2598920,
    }
    for key, code in hashes.items():
        assert by_hash(key)(queues, MESSAGE).queue_id == abs(code) % 7, key
    assert by_hash(4711)(queues, MESSAGE) == by_hash("4711")(queues, MESSAGE), "keys go by their text"


def test_a_sharding_key_goes_by_the_same_hash() -> None:
    message = Message("T", b"x", sharding_key="hello")
    assert by_sharding_key(TWO_BROKERS, message) == by_hash("hello")(TWO_BROKERS, message)


def test_at_random_comes_everywhere() -> None:
    select = at_random(random.Random(1))
    assert {select(TWO_BROKERS, MESSAGE) for _ in range(200)} == set(TWO_BROKERS)


def test_a_machine_room_is_the_start_of_a_brokers_name() -> None:
    queues = [MessageQueue("T", name, number) for name in ("hz@a", "sh@b", "hz@c") for number in range(2)]
    select = in_machine_rooms({"hz"})
    assert Counter(select(queues, MESSAGE).broker_name for _ in range(8)) == {"hz@a": 4, "hz@c": 4}
    nowhere = in_machine_rooms({"bj"})
    assert {nowhere(queues, MESSAGE) for _ in range(6)} == set(queues), "rather far away than not at all"
