from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketline.client.consumer.assignment import allocate_averagely
from rocketline.message import MessageQueue

GOLDEN = json.loads((Path(__file__).parent / "data" / "avg_allocations.json").read_text())


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("T", "b", number) for number in range(count)]


def members(count: int) -> list[str]:
    return [f"10.0.0.{number:03d}@{number}" for number in range(count)]


@pytest.mark.parametrize(("queue_count", "member_count", "own", "expected"), GOLDEN)
def test_shares_are_those_of_javas_client(queue_count: int, member_count: int, own: int, expected: list[int]) -> None:
    ids = members(member_count)
    share = allocate_averagely("g", ids[own] if own >= 0 else "stranger", queues(queue_count), ids)
    assert [queue.queue_id for queue in share] == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.integers(1, 60))
def test_every_queue_has_exactly_one_owner_and_shares_differ_by_one_at_most(
    queue_count: int, member_count: int
) -> None:
    ids = members(member_count)
    shares = [allocate_averagely("g", own, queues(queue_count), ids) for own in ids]
    assert sorted(queue for share in shares for queue in share) == queues(queue_count)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("own", "queue_count", "ids"),
    [("", 1, ["a"]), ("a", 0, ["a"]), ("a", 1, [])],
    ids=["no id", "no queues", "no members"],
)
def test_nothing_cannot_be_shared(own: str, queue_count: int, ids: list[str]) -> None:
    with pytest.raises(ValueError, match="needed"):
        allocate_averagely("g", own, queues(queue_count), ids)


def test_a_stranger_gets_nothing() -> None:
    assert allocate_averagely("g", "x", queues(4), ["a"]) == []
