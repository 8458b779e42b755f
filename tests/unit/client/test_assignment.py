"""Shares of queues: equal to Java's, complete, without overlap."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.allocations import our_share

from rocketline.client import PushConsumer, by_config, by_machine_room, consistent_hash, machine_room_nearby
from rocketline.client.consumer.group.assignment import (
    Strategy,
    allocate_averagely,
    allocate_by_circle,
    find_strategy,
    java_order,
)
from rocketline.errors import ConfigError
from rocketline.message import MessageQueue

AVERAGES = json.loads((Path(__file__).parent / "data" / "avg_allocations.json").read_text())
SHARES = Path(__file__).parents[2] / "golden" / "allocations" / "shares.jsonl.gz"
BY_NAME = ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"]


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("T", "b", number) for number in range(count)]


def members(count: int) -> list[str]:
    return [f"10.0.0.{number:03d}@{number}" for number in range(count)]


def owners(strategy: Strategy, queue_count: int, ids: list[str]) -> dict[MessageQueue, str]:
    """Who owns each queue; fails when two do."""
    table: dict[MessageQueue, str] = {}
    for own in ids:
        for queue in strategy("g", own, queues(queue_count), ids):
            assert table.setdefault(queue, own) == own
    return table


@pytest.mark.parametrize(("queue_count", "member_count", "own", "expected"), AVERAGES)
def test_shares_are_those_of_javas_client(queue_count: int, member_count: int, own: int, expected: list[int]) -> None:
    ids = members(member_count)
    share = allocate_averagely("g", ids[own] if own >= 0 else "stranger", queues(queue_count), ids)
    assert [queue.queue_id for queue in share] == expected


def test_six_hundred_random_shares_of_all_strategies_are_those_of_javas_classes() -> None:
    cases = [json.loads(line) for line in gzip.decompress(SHARES.read_bytes()).splitlines()]
    assert len(cases) == 600
    assert [(case, our_share(case)) for case in cases if our_share(case) != case["share"]] == []


def test_cards_are_dealt() -> None:
    ids = members(4)
    shares = [[queue.queue_id for queue in allocate_by_circle("g", own, queues(10), ids)] for own in ids]
    assert shares == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]


@pytest.mark.parametrize("name", BY_NAME)
@settings(max_examples=60)
@given(st.integers(1, 64), st.integers(1, 32))
def test_every_queue_has_exactly_one_owner(name: str, queue_count: int, member_count: int) -> None:
    assert sorted(owners(find_strategy(name), queue_count, members(member_count))) == queues(queue_count)


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE"])
@settings(max_examples=60)
@given(st.integers(1, 200), st.integers(1, 60))
def test_shares_differ_by_one_at_most(name: str, queue_count: int, member_count: int) -> None:
    ids = members(member_count)
    sizes = [len(find_strategy(name)("g", own, queues(queue_count), ids)) for own in ids]
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=60)
@given(st.integers(1, 128), st.integers(2, 24), st.data())
def test_only_the_queues_of_who_comes_or_goes_move_on_the_ring(
    queue_count: int, member_count: int, data: st.DataObject
) -> None:
    ids = members(member_count)
    gone = data.draw(st.sampled_from(ids))
    before = owners(consistent_hash(), queue_count, ids)
    after = owners(consistent_hash(), queue_count, [own for own in ids if own != gone])
    assert {queue for queue in before if before[queue] != after[queue]} == {
        queue for queue in before if before[queue] == gone
    }


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(["north-a", "north-b", "south-a", "west-a"]), min_size=1, unique=True),
    st.lists(st.sampled_from(["north-1", "north-2", "south-1", "south-2"]), min_size=1, unique=True),
    st.sampled_from(BY_NAME),
)
def test_nearby_rooms_first_and_nothing_left_over(brokers: list[str], ids: list[str], inner: str) -> None:
    def room(name: str) -> str:
        return name.partition("-")[0]

    rooms = {room(own) for own in ids}
    strategy = machine_room_nearby(inner, lambda queue: room(queue.broker_name), room)
    everything = sorted(MessageQueue("T", broker, number) for broker in brokers for number in range(3))
    shares = {own: strategy("g", own, everything, sorted(ids)) for own in ids}
    assert sorted(queue for share in shares.values() for queue in share) == everything
    for own, share in shares.items():
        assert all(room(queue.broker_name) in {room(own)} | ({"north", "south", "west"} - rooms) for queue in share)


@pytest.mark.parametrize("strategy", [*map(find_strategy, BY_NAME), by_machine_room(["r"])])
@pytest.mark.parametrize(
    ("own", "queue_count", "ids"),
    [("", 1, ["a"]), ("a", 0, ["a"]), ("a", 1, [])],
    ids=["no id", "no queues", "no members"],
)
def test_nothing_cannot_be_shared(strategy: Strategy, own: str, queue_count: int, ids: list[str]) -> None:
    with pytest.raises(ValueError, match="needed"):
        strategy("g", own, queues(queue_count), ids)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_stranger_gets_nothing(name: str) -> None:
    assert find_strategy(name)("g", "x", queues(4), ["a"]) == []


def test_configured_queues_are_had_whoever_else_is_there() -> None:
    fixed = queues(4)[1:3]
    assert by_config(fixed)("g", "x", queues(9), ["a"]) == fixed


def test_rooms_are_a_collection_of_names() -> None:
    with pytest.raises(ConfigError, match="collection"):
        by_machine_room("north")


def test_a_place_without_room_is_an_error() -> None:
    strategy = machine_room_nearby("AVG", lambda queue: "", lambda own: "north")
    with pytest.raises(ValueError, match="no machine room is known for queue T@b:0"):
        strategy("g", "a", queues(1), ["a"])


def test_a_hash_of_ones_own_replaces_md5() -> None:
    strategy = consistent_hash(1, lambda text: {"a-0": 0, "b-0": 10}.get(text, 5))
    assert (strategy("g", "a", queues(3), ["a", "b"]), strategy("g", "b", queues(3), ["a", "b"])) == ([], queues(3))
    with pytest.raises(ConfigError, match="virtual_nodes=-1"):
        consistent_hash(-1)


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        ("AVERAGE", "there is no strategy 'AVERAGE'; there are AVG, "),
        ("CONFIG", "by_config"),
        ("MACHINE_ROOM_NEARBY", "room_of_queue"),
        (5, "neither a function nor"),
    ],
)
def test_a_strategy_nobody_knows_is_refused_before_anything_starts(strategy: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        PushConsumer("127.0.0.1:9876", group="g", strategy=strategy)


def test_ids_are_in_javas_order() -> None:
    """Java compares UTF-16 units, so a character outside the first plane comes before U+FF01."""
    assert java_order(["\uff01", "\N{COW FACE}", "b", "a"]) == ["a", "b", "\N{COW FACE}", "\uff01"]
