"""Java's push consumers in pop mode (setMessageRequestMode POP, setClientRebalance(false)).

Run with ROCKETLINE_INTEROP_TARGET=apache the same tests hold for Apache's own broker, except for dead letters, which only
our broker has in pop mode.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest
from tests.support.java_client import JavaClient, JavaPushConsumer, Seen
from tests.support.patience import PATIENCE_S
from tests.support.reading import eventually

pytestmark = pytest.mark.interop

QUEUES = 4
INVISIBLE_MS = 300_000
"""As long as Java's client allows: what is popped does not come again because a busy machine is slow to acknowledge it."""
COUNT = 200


def popping_group(java: JavaClient, namesrv: str, topic: str, group: str, share: int = 0, **settings: int) -> None:
    java.create_topic(namesrv, topic, QUEUES)
    java.create_group(namesrv, group, **settings)
    java.set_request_mode(namesrv, topic, group, "POP", share)


def send(java: JavaClient, namesrv: str, topic: str, group: str, count: int) -> set[bytes]:
    with java.producer(namesrv, group) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, tags="T", keys=[f"k{number}"])
    return {b"%d" % number for number in range(count)}


def collect(
    consumers: list[JavaPushConsumer], enough: Callable[[list[Seen]], bool], timeout_s: float = PATIENCE_S
) -> list[Seen]:
    seen: list[Seen] = []

    def is_enough() -> bool:
        for consumer in consumers:
            seen.extend(consumer.poll(1, timeout_s=0.2))
        return enough(seen)

    assert eventually(is_enough, True, timeout_s), f"only {len(seen)} deliveries"
    return seen


@pytest.mark.parametrize("share", [0, 1])
def test_two_consumers_share_four_queues_and_get_everything_once(share, java, cluster, name):
    topic, group, namesrv = name("pop"), name("poppers"), cluster.namesrv
    popping_group(java, namesrv, topic, group, share)
    with (
        java.push_consumer(namesrv, group, {topic: "*"}, pop_invisible_ms=INVISIBLE_MS) as first,
        java.push_consumer(namesrv, group, {topic: "*"}, pop_invisible_ms=INVISIBLE_MS) as second,
    ):
        sent = send(java, namesrv, topic, name("pg"), COUNT)
        seen = collect([first, second], lambda seen: len({one.body for one in seen}) == COUNT)
        # Long enough for anything that would come twice: nothing is hidden, everything was acknowledged.
        seen += first.poll(1, timeout_s=3.0) + second.poll(1, timeout_s=0.1)
    assert Counter(one.body for one in seen) == Counter(sent)
    assert {one.queue_id for one in seen} == set(range(QUEUES))
    assert {one.properties["POP_CK"].split(" ")[5] for one in seen} == {seen[0].broker_name}


def test_what_a_listener_refuses_comes_again_with_one_more_attempt(java, cluster, name):
    topic, group, namesrv = name("popretry"), name("poppers"), cluster.namesrv
    popping_group(java, namesrv, topic, group)
    with java.push_consumer(namesrv, group, {topic: "T"}, pop_invisible_ms=INVISIBLE_MS, fail_first=1) as consumer:
        sent = send(java, namesrv, topic, name("pg"), 5)
        seen = collect([consumer], lambda seen: sum(one.accepted is True for one in seen) == 5)
        seen += consumer.poll(1, timeout_s=3.0)
    assert {(one.body, one.reconsume_times, one.accepted) for one in seen} == {
        (body, attempt, attempt == 1) for body in sent for attempt in (0, 1)
    }
    assert len(seen) == 10
    again = [one for one in seen if one.reconsume_times == 1]
    assert {one.topic for one in again} == {topic}
    assert {one.tags for one in again} == {"T"}
    assert all(one.properties["1ST_POP_TIME"] and one.properties["ORIGIN_GROUP"] == group for one in again)


@pytest.mark.skipif(
    os.environ.get("ROCKETLINE_INTEROP_TARGET") == "apache", reason="Apache's broker has no dead letters in pop mode"
)
def test_too_many_attempts_end_among_the_dead_letters(java, cluster, name):
    topic, group, namesrv = name("popdead"), name("poppers"), cluster.namesrv
    popping_group(java, namesrv, topic, group, retry_max_times=0)
    with java.push_consumer(namesrv, group, {topic: "*"}, pop_invisible_ms=INVISIBLE_MS, fail_first=100) as consumer:
        sent = send(java, namesrv, topic, name("pg"), 3)
        collect([consumer], lambda seen: {one.body for one in seen} == sent)
        assert eventually(lambda: f"%DLQ%{group}" in java.topic_list(namesrv), True)
    with java.push_consumer(namesrv, name("undertakers"), {f"%DLQ%{group}": "*"}) as undertaker:
        dead = collect([undertaker], lambda seen: {one.body for one in seen} == sent)
    assert {one.properties["RETRY_TOPIC"] for one in dead} == {topic}
    assert len(dead) == 3


def test_a_group_that_pops_and_one_that_pulls_read_the_same_topic(java, cluster, name):
    topic, popping, pulling, namesrv = name("popboth"), name("poppers"), name("pullers"), cluster.namesrv
    popping_group(java, namesrv, topic, popping)
    with (
        java.push_consumer(namesrv, popping, {topic: "*"}, pop_invisible_ms=INVISIBLE_MS) as popper,
        java.push_consumer(namesrv, pulling, {topic: "*"}) as puller,
    ):
        sent = send(java, namesrv, topic, name("pg"), 40)
        popped = collect([popper], lambda seen: {one.body for one in seen} == sent)
        pulled = collect([puller], lambda seen: {one.body for one in seen} == sent)
    assert len(popped) == len(pulled) == 40
