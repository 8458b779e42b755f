"""Clients that come and go: heartbeats, goodbyes, the members of a group, and which filters the broker knows."""

from __future__ import annotations

import pytest
from tests.golden.wire import load as golden
from tests.unit.broker.parts import MakeParts, Parts, heartbeat

from rocketline.protocol.bodies import (
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    SubscriptionGroupConfig,
    decode_body,
    encode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.subscription import build_subscription


def members(group: str = "readers") -> Command:
    return Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})


def unregister(client_id: str = "client-1", **groups: str) -> Command:
    return Command(RequestCode.UNREGISTER_CLIENT, {"clientID": client_id, **groups})


def check(expression_type: str = "TAG", expression: str = "*") -> Command:
    subscription = {"topic": "orders", "subString": expression, "expressionType": expression_type}
    return Command(
        RequestCode.CHECK_CLIENT_CONFIG,
        {},
        encode_body({"clientId": "c", "group": "readers", "subscriptionData": subscription}),
    )


def member_ids(parts: Parts, group: str = "readers") -> list[str]:
    answer = parts.peer().ask(members(group))
    return decode_body(ConsumerIdList, answer.body).consumer_id_list if answer.code == 0 else []


async def test_a_heartbeat_is_answered_as_old_clients_expect(parts: Parts) -> None:
    answer = parts.peer().ask(heartbeat())
    assert (answer.code, answer.ext) == (
        ResponseCode.SUCCESS,
        {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"},
    )


def short(fingerprint: int, *, without_sub: bool = True, client_id: str = "client-1") -> Command:
    """A heartbeat of version 2; one without subscriptions relies on what the broker has."""
    subscriptions = [] if without_sub else [build_subscription("orders", "x")]
    data = HeartbeatData(
        client_id,
        consumer_data_set=[ConsumerData("readers", subscription_data_set=subscriptions)],
        heartbeat_fingerprint=fingerprint,
        without_sub=without_sub,
    )
    return Command(RequestCode.HEART_BEAT, {}, encode_body(data))


def changed(answer: Command) -> str:
    return (answer.ext or {})["IS_SUB_CHANGE"]


async def test_a_short_heartbeat_keeps_what_the_group_subscribes_to(parts: Parts) -> None:
    peer = parts.peer()
    assert changed(peer.ask(short(7, without_sub=False))) == "false"
    peer.received()
    assert changed(peer.ask(short(7))) == "false"
    group = parts.consumers.get("readers")
    assert group is not None
    assert group.subscriptions["orders"].sub_string == "x"
    assert [item.code for item in peer.received()] == []


async def test_a_digest_that_differs_asks_for_the_subscriptions(parts: Parts) -> None:
    peer, other = parts.peer(), parts.peer(("192.0.2.6", 1))
    peer.ask(short(7, without_sub=False))
    assert changed(other.ask(short(8, without_sub=False, client_id="client-2"))) == "true"
    assert changed(peer.ask(short(7))) == "true"
    assert changed(peer.ask(short(7))) == "false"
    peer.ask(heartbeat())  # the long form has no digest, so the next short one differs from it
    assert changed(peer.ask(short(7))) == "true"


async def test_a_broker_that_knows_no_subscription_asks_for_it(parts: Parts) -> None:
    """As after a restart, when clients go on with short heartbeats."""
    peer = parts.peer()
    assert changed(peer.ask(short(7))) == "true"
    assert member_ids(parts) == ["client-1"]
    assert changed(peer.ask(short(7, without_sub=False))) == "false"
    assert parts.peer().ask(members()).code == ResponseCode.SUCCESS


async def test_a_short_heartbeat_of_a_new_member_is_announced(parts: Parts) -> None:
    peer, other = parts.peer(), parts.peer(("192.0.2.6", 1))
    peer.ask(short(7, without_sub=False))
    peer.received()
    other.ask(short(7, client_id="client-2"))
    assert [item.code for item in peer.received()] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]


async def test_a_client_connected_twice_is_one_member(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    """Named twice it would be given two shares and read one."""
    peer, again = parts.peer(), parts.peer(("192.0.2.6", 1))
    peer.ask(heartbeat())
    again.ask(heartbeat())
    assert member_ids(parts) == ["client-1"]
    assert "client client-1 of group readers is connected twice, now from 192.0.2.6:1" in caplog.text
    await peer.close()
    assert member_ids(parts) == ["client-1"]


async def test_a_heartbeat_makes_group_retry_topic_and_member(parts: Parts) -> None:
    peer = parts.peer()
    peer.ask(heartbeat(producers=("shop", "bank")))
    assert "readers" in parts.groups.table
    topic = parts.topics.require("%RETRY%readers")
    assert (topic.read_queue_nums, topic.perm) == (1, 6)
    assert member_ids(parts) == ["client-1"]
    [producer] = parts.producers.members("shop").values()
    assert (producer.client_id, producer.version, producer.language) == ("client-1", 493, "PYTHON")
    assert list(parts.producers.members("bank")) == [peer.channel]
    assert (peer.channel.version, peer.channel.language) == (493, "PYTHON")


async def test_the_retry_topic_of_a_group_in_unit_mode_is_marked(parts: Parts) -> None:
    beat = HeartbeatData("client-1", [], [ConsumerData("units", unit_mode=True), ConsumerData("others")])
    parts.peer().ask(Command(RequestCode.HEART_BEAT, {}, encode_body(beat)))
    assert parts.topics.require("%RETRY%units").topic_sys_flag == 2
    assert parts.topics.require("%RETRY%others").topic_sys_flag == 0


async def test_a_group_has_as_many_retry_queues_as_configured_or_none(parts: Parts) -> None:
    parts.groups.put(SubscriptionGroupConfig("many", retry_queue_nums=5))
    parts.groups.put(SubscriptionGroupConfig("none", retry_queue_nums=0))
    parts.peer().ask(heartbeat(group="many"))
    parts.peer().ask(heartbeat(group="none"))
    assert parts.topics.require("%RETRY%many").write_queue_nums == 5
    assert parts.topics.get("%RETRY%none") is None


@pytest.mark.parametrize("group", ["../../x", "a b", "", "g" * 256])
async def test_a_group_with_an_illegal_name_is_passed_over(parts: Parts, group: str) -> None:
    before = set(parts.topics.table)
    assert parts.peer().ask(heartbeat(group=group)).code == ResponseCode.SUCCESS
    assert parts.consumers.get(group) is None
    assert set(parts.topics.table) == before


async def test_without_group_creation_unknown_groups_are_passed_over_silently(make_parts: MakeParts) -> None:
    parts = make_parts(auto_create_groups=False)
    assert parts.peer().ask(heartbeat(producers=("shop",))).code == ResponseCode.SUCCESS
    assert parts.consumers.get("readers") is None
    assert len(parts.producers.members("shop")) == 1


async def test_all_that_is_new_in_a_heartbeat_is_saved_and_announced_at_once(parts: Parts) -> None:
    """One by one, a thousand groups in one heartbeat would hold up every other client for seconds."""
    announced: list[int] = []
    parts.topics.subscribe(lambda topics: announced.append(len(topics)))
    topics, groups = parts.topics.version.counter, parts.groups.version.counter
    consumers = [ConsumerData(f"readers-{number}") for number in range(200)]
    answer = parts.peer().ask(Command(RequestCode.HEART_BEAT, {}, encode_body(HeartbeatData("c", [], consumers))))
    assert answer.code == ResponseCode.SUCCESS
    assert (parts.topics.version.counter, parts.groups.version.counter) == (topics + 1, groups + 1)
    assert announced == [200]
    assert len(list(parts.consumers)) == 200


async def test_a_client_cannot_be_in_any_number_of_groups(parts: Parts) -> None:
    before = dict(parts.groups.table)
    consumers = [ConsumerData(f"readers-{number}") for number in range(4097)]
    answer = parts.peer().ask(Command(RequestCode.HEART_BEAT, {}, encode_body(HeartbeatData("c", [], consumers))))
    assert (answer.code, "4096" in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert parts.groups.table == before


async def test_members_are_told_when_one_joins_and_when_one_disconnects(parts: Parts) -> None:
    first, second = parts.peer(), parts.peer()
    first.ask(heartbeat("client-1"))
    first.received()
    second.ask(heartbeat("client-2"))
    [joined] = first.received()
    assert (joined.code, joined.ext) == (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "readers"})
    assert member_ids(parts) == ["client-1", "client-2"]
    await second.close()
    [left] = first.received()
    assert left.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert member_ids(parts) == ["client-1"]


async def test_many_heartbeats_leave_one_trace_on_the_connection(parts: Parts) -> None:
    peer = parts.peer()
    for _ in range(5):
        peer.ask(heartbeat(producers=("shop",)))
    assert len(peer.channel.on_close) == 2
    await peer.close()
    assert (parts.consumers.get("readers"), parts.producers.members("shop")) == (None, {})


async def test_a_heartbeat_keeps_a_member_alive(parts: Parts) -> None:
    peer = parts.peer()
    for _ in range(5):
        peer.ask(heartbeat())
        parts.clock.advance(100)
        parts.consumers.drop_expired()
    assert member_ids(parts) == ["client-1"]
    parts.clock.advance(100)
    parts.consumers.drop_expired()
    assert member_ids(parts) == []
    assert not peer.channel.is_open


async def test_unregistering_leaves_the_groups_named(parts: Parts) -> None:
    peer = parts.peer()
    peer.ask(heartbeat(producers=("shop",)))
    peer.received()
    answer = peer.ask(unregister(consumerGroup="readers"))
    assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {})
    assert member_ids(parts) == []
    assert len(parts.producers.members("shop")) == 1
    peer.ask(unregister(producerGroup="shop"))
    assert parts.producers.members("shop") == {}


async def test_nobody_can_unregister_somebody_else(parts: Parts) -> None:
    peer, stranger = parts.peer(), parts.peer()
    peer.ask(heartbeat())
    assert stranger.ask(unregister(consumerGroup="readers")).code == ResponseCode.SUCCESS
    peer.ask(unregister("client-9", consumerGroup="readers"))
    assert member_ids(parts) == ["client-1"]


@pytest.mark.parametrize("group", ["nobody", "../../x", ""])
async def test_a_group_without_members_is_an_error_and_not_an_empty_list(parts: Parts, group: str) -> None:
    """An empty list makes a Java client's allocation throw."""
    answer = parts.peer().ask(members(group))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")


async def test_a_subscription_is_checked_before_a_consumer_starts(parts: Parts) -> None:
    assert parts.peer().ask(check("TAG", "a || b")).code == ResponseCode.SUCCESS
    assert parts.peer().ask(check("SQL92", "a > 5")).code == ResponseCode.SUCCESS
    answer = parts.peer().ask(check("SQL92", "a > 'x'"))
    assert (answer.code, "character 3" in answer.remark) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, True)
    assert parts.peer().ask(check("nonsense", "a")).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_sql_can_be_switched_off(make_parts: MakeParts) -> None:
    answer = make_parts(sql_enabled=False).peer().ask(check("SQL92", "a > 5"))
    assert (answer.code, "enablePropertyFilter" in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"not json",
        b"{}",
        b'{"clientID":null}',
        b'{"clientID":"c","consumerDataSet":{}}',
        b'{"clientID":"c","consumerDataSet":[{}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":5}]}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"t","subVersion":1e99}]}]}',
        b'{"clientID":"c","producerDataSet":[{"groupName":{"$ref":"$"}}]}',
        b'{"clientID":' + b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff\xfe" * 1000,
    ],
    ids=lambda body: repr(body[:40]),
)
async def test_a_heartbeat_that_is_none_changes_nothing(parts: Parts, body: bytes) -> None:
    answer = parts.peer().ask(Command(RequestCode.HEART_BEAT, {}, body))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert list(parts.consumers) == []


async def test_heartbeats_of_apaches_clients_are_understood(parts: Parts) -> None:
    """Every kind of heartbeat that was recorded, 4.9.7 and 5.4.0, JSON and binary header."""
    from rocketline.protocol.connection import Connection

    seen = 0
    for frame in golden.frames():
        if frame.request != RequestCode.HEART_BEAT or frame.sender != "client" or frame.peer != "broker":
            continue
        [command] = Connection().receive(frame.data)
        if "errors" in frame.recording:
            continue  # deliberately broken
        peer = parts.peer()
        answer = peer.ask(command)
        assert (answer.code, answer.encoding) == (ResponseCode.SUCCESS, command.encoding), frame.recording
        beat = decode_body(HeartbeatData, command.body)
        for consumer in beat.consumer_data_set:
            group = parts.consumers.get(consumer.group_name)
            assert group is not None
            assert beat.client_id in group.client_ids
        seen += 1
        await peer.close()
    assert seen >= 4
