from __future__ import annotations

import pytest

from rocketline.client.routes import borrowed_route, topic_route
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import BrokerData, QueueData, TopicRouteData


def route_data(*queues: QueueData, brokers: dict[str, dict[int, str]], order: str | None = None) -> TopicRouteData:
    return TopicRouteData(
        [BrokerData("c", name, ids) for name, ids in brokers.items()], list(queues), order_topic_conf=order
    )


def names(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}:{queue.queue_id}" for queue in queues]


def test_read_and_write_queues_are_counted_apart_and_sorted_by_broker() -> None:
    route = topic_route(
        "T",
        route_data(QueueData("b", 1, 2, 6), QueueData("a", 2, 1, 6), brokers={"a": {0: "a:1"}, "b": {0: "b:1"}}),
    )
    assert names(route.writable) == ["a:0", "b:0", "b:1"]
    assert names(route.readable) == ["a:0", "a:1", "b:0"]
    assert route.addresses == {"a:1", "b:1"}


@pytest.mark.parametrize(
    ("perm", "can_write", "can_read"),
    [(6, True, True), (2, True, False), (4, False, True), (0, False, False), (7, True, True)],
)
def test_queues_need_their_permission(perm: int, can_write: bool, can_read: bool) -> None:
    route = topic_route("T", route_data(QueueData("a", 1, 1, perm), brokers={"a": {0: "a:1"}}))
    assert bool(route.writable) is can_write
    assert bool(route.readable) is can_read


def test_a_broker_without_master_can_be_read_but_not_written() -> None:
    route = topic_route("T", route_data(QueueData("a", 1, 1, 6), brokers={"a": {1: "a:2"}}))
    assert not route.writable
    assert names(route.readable) == ["a:0"]


def test_queues_of_a_broker_nobody_knows_are_left_out() -> None:
    route = topic_route("T", route_data(QueueData("ghost", 4, 4, 6), brokers={"a": {0: "a:1"}}))
    assert not route.writable
    assert not route.readable


def test_an_order_configuration_rules_the_writing() -> None:
    data = route_data(QueueData("a", 8, 8, 6), brokers={"a": {0: "a:1"}, "b": {0: "b:1"}}, order="b:2;a:1")
    assert names(topic_route("T", data).writable) == ["b:0", "b:1", "a:0"]


def test_an_unreadable_order_configuration_is_ignored() -> None:
    data = route_data(QueueData("a", 1, 1, 6), brokers={"a": {0: "a:1"}}, order="nonsense")
    assert names(topic_route("T", data).writable) == ["a:0"]


def test_a_borrowed_route_has_the_new_topic_and_few_queues() -> None:
    template = route_data(QueueData("a", 8, 8, 7), QueueData("b", 2, 2, 7), brokers={"a": {0: "a:1"}, "b": {0: "b:1"}})
    route = borrowed_route("new", template, 4)
    assert names(route.writable) == ["a:0", "a:1", "a:2", "a:3", "b:0", "b:1"]
    assert {queue.topic for queue in route.writable} == {"new"}


def test_absurd_queue_counts_do_not_fill_the_memory() -> None:
    route = topic_route("T", route_data(QueueData("a", 2**31 - 1, -5, 6), brokers={"a": {0: "a:1"}}))
    assert len(route.readable) == 65536
    assert not route.writable
