"""Offsets as JSON: equal texts for equal offsets, and mistakes of users."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketline.errors import ConfigError
from rocketline.message import MessageQueue
from rocketline.spark.offsets import Assignment, from_json, parse_offsets, to_json

names = st.sampled_from(["orders", "payments", "broker-a", "broker-b"])
queues = st.builds(MessageQueue, names, names, st.integers(0, 12))


@given(st.dictionaries(queues, st.integers(0, (1 << 63) - 1)))
def test_positions_survive_a_checkpoint_and_equal_ones_have_the_same_text(offsets: dict[MessageQueue, int]) -> None:
    text = json.dumps(to_json(offsets))
    assert from_json(json.loads(text), "x") == offsets
    shuffled = dict(reversed(list(offsets.items())))
    assert json.dumps(to_json(shuffled)) == text


def test_offsets_of_a_user_may_name_both_ends() -> None:
    found = parse_offsets('{"orders": {"broker-a": {"0": -2, "1": -1, "10": 7}}}', "x")
    assert [(queue.queue_id, offset) for queue, offset in found.items()] == [(0, -2), (1, -1), (10, 7)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON: .*column 2"),
        ("[]", "three levels are expected"),
        ("{}", "no queue is named"),
        ('{"orders": {"0": 12}}', "three levels are expected"),
        ('{"orders": {"broker-a": {"0": -3}}}', "orders@broker-a:0 is -3: a whole number from -2 on"),
        ('{"orders": {"broker-a": {"0": "5"}}}', "orders@broker-a:0 is '5'"),
        ('{"orders": {"broker-a": {"0": true}}}', "orders@broker-a:0 is True"),
        ('{"orders": {"broker-a": {"0": 9223372036854775808}}}', "a whole number"),
        ('{"orders": {"broker-a": {"first": 1}}}', "'first' of orders@broker-a is not the number of a queue"),
    ],
)
def test_what_is_wrong_with_offsets_is_told(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^startingOffsets.*{problem}"):
        parse_offsets(text, "startingOffsets")


def test_an_assignment_names_queues_of_a_broker_or_of_all() -> None:
    chosen = Assignment.parse('{"A": [0], "B": {"broker-a": [1], "broker-b": [1, 2]}}', "assign")
    there = [MessageQueue("A", "broker-a", 0), MessageQueue("B", "broker-b", 1), MessageQueue("B", "broker-a", 2)]
    assert [queue in chosen for queue in there] == [True, True, False]
    assert chosen.missing(there) == ["B@broker-a:1", "B@broker-b:2"]
    assert chosen.missing(there[1:])[0] == "A@*:0"


@pytest.mark.parametrize("text", ['{"A": 1}', '{"A": {"b": 1}}', '{"A": [-1]}', '{"A": ["0"]}', '{"A": []}', "7"])
def test_what_is_no_assignment_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^assign"):
        Assignment.parse(text, "assign")
