"""Members that contradict each other about what their group reads: said once, and no longer than it is so."""

from __future__ import annotations

import logging

import pytest
from tests.unit.broker.parts import Parts, heartbeat

from rocketline.broker.disagreements import Disagreements
from rocketline.protocol.bodies import ConsumerData
from rocketline.protocol.subscription import build_subscription

LOG = "rocketline.broker.registries"


async def test_members_that_agree_are_left_alone(parts: Parts) -> None:
    first, second = parts.peer(), parts.peer(("192.0.2.6", 1))
    first.ask(heartbeat("a", subscriptions={"orders": "x || y", "bills": "*"}))
    assert second.ask(heartbeat("b", subscriptions={"bills": "*", "orders": "y||x"}, version_ms=2)).remark is None
    assert first.ask(heartbeat("a", subscriptions={"orders": "x || y", "bills": "*"})).remark is None


async def test_another_expression_is_told_to_both_and_logged_once_for_each(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, LOG)
    first, second = parts.peer(), parts.peer(("192.0.2.6", 1))
    first.ask(heartbeat("a", subscriptions={"orders": "x"}))
    answers = [second.ask(heartbeat("b", subscriptions={"orders": "y"}, version_ms=2)).remark for _ in range(3)]
    assert answers == 3 * [
        "subscription conflict in group readers: b subscribes to orders with TAG 'y' and a subscribes to orders with "
        "TAG 'x'; all members of a group must subscribe alike, or they lose messages"
    ]
    told = first.ask(heartbeat("a", subscriptions={"orders": "x"})).remark
    assert told is not None
    assert "a subscribes to orders with TAG 'x' and b" in told
    assert [record.getMessage() for record in caplog.records] == [
        f"{answers[0]} (heartbeat from 192.0.2.6:1)",
        f"{told} (heartbeat from 192.0.2.5:40001)",
    ]


async def test_other_topics_and_another_model_are_conflicts(parts: Parts) -> None:
    first, second = parts.peer(), parts.peer(("192.0.2.6", 1))
    first.ask(heartbeat("a", subscriptions={"orders": "*"}))
    more = second.ask(heartbeat("b", subscriptions={"orders": "*", "bills": "z"})).remark
    assert more is not None
    assert "b subscribes to bills with TAG 'z' and a subscribes to nothing of that" in more
    model = second.ask(heartbeat("b", subscriptions={"orders": "*"}, model="BROADCASTING")).remark
    assert model is not None
    assert "b consumes BROADCASTING and a consumes CLUSTERING" in model


async def test_a_conflict_ends_when_one_gives_in_or_leaves(parts: Parts) -> None:
    first, second, third = parts.peer(), parts.peer(("192.0.2.6", 1)), parts.peer(("192.0.2.7", 1))
    first.ask(heartbeat("a", subscriptions={"orders": "x"}))
    assert second.ask(heartbeat("b", subscriptions={"orders": "y"})).remark is not None
    assert second.ask(heartbeat("b", subscriptions={"orders": "x"})).remark is None
    assert third.ask(heartbeat("c", subscriptions={"orders": "y"})).remark is not None
    await third.close()
    assert first.ask(heartbeat("a", subscriptions={"orders": "x"})).remark is None


async def test_what_clients_say_cannot_flood_or_break_the_log(parts: Parts) -> None:
    first, second = parts.peer(), parts.peer(("192.0.2.6", 1))
    first.ask(heartbeat("a"))
    many = {f"topic\n{number}": "x" * 100_000 for number in range(50)}
    told = second.ask(heartbeat("b\r\nERROR", subscriptions=many)).remark
    assert told is not None
    assert told.isprintable()
    assert "b??ERROR subscribes to topic?0 with TAG" in told
    assert "45 more" in told
    assert len(told) < 2000


def test_pull_consumers_read_what_each_was_told_to() -> None:
    group, channels = Disagreements("readers"), [object(), object()]
    for channel, topic in zip(channels, ("orders", "bills")):
        data = ConsumerData("readers", "CONSUME_ACTIVELY", subscription_data_set=[build_subscription(topic)])
        group.note(channel, topic, data)  # type: ignore[arg-type]
    assert [group.about(channel) for channel in channels] == [None, None]  # type: ignore[arg-type]


async def test_a_member_that_subscribes_to_nothing_yet_contradicts_nobody(parts: Parts) -> None:
    first, second = parts.peer(), parts.peer(("192.0.2.6", 1))
    first.ask(heartbeat("a", subscriptions={"orders": "x"}))
    assert second.ask(heartbeat("b", subscriptions={})).remark is None
    assert second.ask(heartbeat("b", subscriptions={"orders": "x"})).remark is None
    assert first.ask(heartbeat("a", subscriptions={"orders": "x"})).remark is None
