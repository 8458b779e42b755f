"""Consumer groups by hand."""

from __future__ import annotations

import pytest
from tests.unit.broker.parts import MakeParts, Parts, heartbeat, pull_request

from rocketline.broker.tables.groups import Groups
from rocketline.protocol.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
    decode_body,
    encode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command


def create(group: SubscriptionGroupConfig | bytes) -> Command:
    body = group if isinstance(group, bytes) else encode_body(group)
    return Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)


def get(group: str) -> Command:
    return Command(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})


async def test_a_group_is_created_and_changed(parts: Parts) -> None:
    peer = parts.peer()
    for config in (
        SubscriptionGroupConfig("readers", retry_max_times=3, attributes={"a": "b"}),
        SubscriptionGroupConfig("readers", consume_enable=False, retry_queue_nums=0),
    ):
        answer = peer.ask(create(config))
        assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {})
        assert parts.groups.table["readers"] == config
        assert decode_body(SubscriptionGroupConfig, peer.ask(get("readers")).body) == config


@pytest.mark.parametrize("name", ["", "a b", "../../x", "g" * 256])
async def test_an_illegal_name_is_refused(parts: Parts, name: str) -> None:
    answer = parts.peer().ask(create(SubscriptionGroupConfig(name)))
    assert (answer.code, "group" in answer.remark) == (ResponseCode.INVALID_PARAMETER, True)
    assert name not in parts.groups.table


async def test_retry_queues_are_range_checked(parts: Parts) -> None:
    """Each becomes a queue of the retry topic: a billion of them would kill every client that asks for its route."""
    answer = parts.peer().ask(create(SubscriptionGroupConfig("readers", retry_queue_nums=1 << 30)))
    assert (answer.code, "retryQueueNums" in answer.remark) == (ResponseCode.INVALID_PARAMETER, True)
    assert "readers" not in parts.groups.table


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"groupName":5}', b'{"groupName":"g","retryMaxTimes":"x"}', b"{"]
)
async def test_a_body_that_is_no_group_is_refused(parts: Parts, body: bytes) -> None:
    before = dict(parts.groups.table)
    answer = parts.peer().ask(create(body))
    assert (answer.code, parts.groups.table) == (ResponseCode.SYSTEM_ERROR, before)
    assert "SubscriptionGroupConfig" in answer.remark


async def test_asking_for_an_unknown_group_creates_it_where_that_is_allowed(make_parts: MakeParts) -> None:
    parts = make_parts()
    answer = parts.peer().ask(get("readers"))
    assert decode_body(SubscriptionGroupConfig, answer.body) == SubscriptionGroupConfig("readers")
    strict = make_parts(auto_create_groups=False)
    assert strict.peer().ask(get("readers")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_all_groups_are_shown(parts: Parts) -> None:
    peer = parts.peer()
    peer.ask(create(SubscriptionGroupConfig("readers")))
    answer = peer.ask(Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}))
    shown = decode_body(SubscriptionGroupWrapper, answer.body)
    assert shown.subscription_group_table == parts.groups.table
    assert answer.ext == {"totalGroupNum": str(len(parts.groups.table))}


def create_all(*groups: SubscriptionGroupConfig) -> Command:
    body = encode_body(SubscriptionGroupList(list(groups)))
    return Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body)


async def test_groups_are_created_together_or_not_at_all(parts: Parts) -> None:
    peer = parts.peer()
    a, b = SubscriptionGroupConfig("a", retry_max_times=1), SubscriptionGroupConfig("b")
    assert peer.ask(create_all(a, SubscriptionGroupConfig("b/c"))).code == ResponseCode.INVALID_PARAMETER
    assert "a" not in parts.groups.table
    version = parts.groups.version.counter
    assert peer.ask(create_all(a, b)).code == ResponseCode.SUCCESS
    assert (parts.groups.table["a"], parts.groups.table["b"]) == (a, b)
    assert parts.groups.version.counter == version + 1
    assert peer.ask(create_all()).code == ResponseCode.SUCCESS


def forbid(topic: str, readable: str | None = None, group: str = "readers") -> Command:
    ext = {"group": group, "topic": topic}
    return Command(
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, ext if readable is None else ext | {"readable": readable}
    )


async def test_a_group_is_barred_from_a_topic_and_let_in_again(make_parts: MakeParts) -> None:
    parts = make_parts()
    for topic in ("orders", "bills"):
        parts.put_topic(topic)
    peer = parts.peer()
    peer.ask(heartbeat(subscriptions={"orders": "*", "bills": "*"}))
    for topic in ("orders", "bills"):
        assert peer.ask(forbid(topic, "false")).body == b'{"group":"readers","topic":"%s","readable":false}' % (
            topic.encode()
        )
        assert peer.ask(pull_request(topic, sys_flag=0)).code == ResponseCode.NO_PERMISSION
    assert parts.groups.snapshot().forbidden_table == {"readers": {"orders": 4, "bills": 4}}
    assert b'"readable":true' in peer.ask(forbid("orders", "true")).body
    assert peer.ask(pull_request("orders", sys_flag=0)).code == ResponseCode.PULL_NOT_FOUND
    assert b'"readable":false' in peer.ask(forbid("bills")).body, "lifting one bar lifts no other"
    again = Groups(parts.json_table("subscriptionGroup.json", SubscriptionGroupWrapper), parts.clock)
    again.load()
    assert (again.may_read("readers", "orders"), again.may_read("readers", "bills")) == (True, False)


async def test_deleting_a_group_lifts_its_bars(parts: Parts) -> None:
    peer = parts.peer()
    peer.ask(forbid("orders", "false"))
    peer.ask(Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "readers"}))
    assert parts.groups.may_read("readers", "orders")


def delete(group: str, **more: str) -> Command:
    return Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": group, **more})


@pytest.mark.parametrize("word", ["cleanOffset", "removeOffset"])
async def test_a_deleted_group_keeps_its_offsets_unless_told(parts: Parts, word: str) -> None:
    peer = parts.peer()
    peer.ask(create(SubscriptionGroupConfig("readers", retry_max_times=3)))
    parts.offsets.commit("c", "readers", "orders", 0, 7)
    parts.offsets.commit("c", "others", "orders", 0, 5)
    assert peer.ask(delete("readers")).code == ResponseCode.SUCCESS
    assert "readers" not in parts.groups.table
    assert parts.offsets.get("readers", "orders", 0) == 7
    assert peer.ask(delete("readers", **{word: "true"})).code == ResponseCode.SUCCESS
    assert parts.offsets.get("readers", "orders", 0) is None
    assert parts.offsets.get("others", "orders", 0) == 5


async def test_a_deleted_group_is_gone_after_a_restart(parts: Parts) -> None:
    peer = parts.peer()
    peer.ask(create(SubscriptionGroupConfig("readers")))
    peer.ask(delete("readers"))
    parts.groups.load()
    assert "readers" not in parts.groups.table
