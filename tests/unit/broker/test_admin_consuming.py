"""What operators hear about consumption: lag, times, who reads what; and offsets handed from group to group."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.unit.broker.parts import ADDRESS, BROKER, Parts, fill, heartbeat, pull_request

from rocketline.broker.handlers.admin.consuming import GROUPS_AT_ONCE
from rocketline.broker.statistics.statistics import MINUTE
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    CorrectionOffsets,
    GroupList,
    OffsetWrapper,
    QuerySubscriptionBody,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicList,
    decode_body,
    queue_key,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command

JAVA_LONG_MAX = (1 << 63) - 1


def key(queue_id: int = 0, topic: str = "orders") -> str:
    return queue_key(MessageQueue(topic, BROKER, queue_id))


def stats(parts: Parts, **more: str) -> ConsumeStats:
    answer = parts.peer().ask(Command(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "readers", **more}))
    assert answer.code == ResponseCode.SUCCESS
    return decode_body(ConsumeStats, answer.body)


def lag(table: Mapping[str, OffsetWrapper]) -> dict[str, tuple[int, int, int]]:
    return {name: (item.broker_offset, item.consumer_offset, item.pull_offset) for name, item in table.items()}


async def test_lag_by_queue_with_what_is_in_flight(parts: Parts) -> None:
    parts.put_topic("orders", 2)
    fill(parts, 5)
    parts.offsets.commit("c", "readers", "orders", 0, 2)
    parts.peer().ask(pull_request(queue_offset=2, max_messages=2))
    shown = stats(parts).offset_table
    assert lag(shown) == {key(0): (5, 2, 4), key(1): (0, 0, 0)}
    assert shown[key(0)].last_timestamp == parts.store.store_ms_of("orders", 0, 1)
    assert shown[key(1)].last_timestamp == 0


async def test_the_rate_of_a_group_is_its_last_minute(parts: Parts) -> None:
    fill(parts, 20)
    parts.peer().ask(pull_request())
    parts.offsets.commit("c", "readers", "orders", 0, 20)
    parts.statistics.sample(MINUTE)
    assert stats(parts).consume_tps == 2.0


async def test_which_topics_are_shown(parts: Parts) -> None:
    for topic in ("orders", "bills", "other"):
        parts.put_topic(topic, 1)
    for topic in ("orders", "bills", "gone"):
        parts.offsets.commit("c", "readers", topic, 0, 0)
    assert set(stats(parts).offset_table) == {key(0, "orders"), key(0, "bills")}
    assert set(stats(parts, topic="other").offset_table) == {key(0, "other")}
    parts.peer().ask(heartbeat(subscriptions={"orders": "*"}))
    assert set(stats(parts).offset_table) == {key(0, "orders")}
    assert stats(parts, topic="bills").offset_table == {}
    assert set(stats(parts, topicList="bills;other").offset_table) == {key(0, "bills"), key(0, "other")}


async def test_all_groups_at_once(parts: Parts) -> None:
    parts.topics.put([TopicConfig("orders", 1, 1, order=True), TopicConfig("bills", 1, 1)])
    fill(parts, 5)
    parts.groups.put(SubscriptionGroupConfig("readers"))
    for topic in ("orders", "bills"):
        parts.offsets.commit("c", "readers", topic, 0, 0)
    parts.peer().ask(pull_request(max_messages=3))

    def ask(is_order: str) -> ConsumeStatsList:
        answer = parts.peer().ask(Command(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": is_order}))
        return decode_body(ConsumeStatsList, answer.body)

    shown = ask("false")
    assert (shown.broker_addr, shown.total_diff, shown.total_inflight_diff) == (ADDRESS, 5, 3)
    groups = {name: topics for item in shown.consume_stats_list for name, topics in item.items()}
    assert {queue for topic in groups["readers"] for queue in topic.offset_table} == {key(), key(0, "bills")}
    assert groups["TOOLS_CONSUMER"] == []
    (ordered,) = [item["readers"] for item in ask("true").consume_stats_list if "readers" in item]
    assert [set(topic.offset_table) for topic in ordered] == [{key()}]


async def test_the_lag_of_very_many_groups_lets_others_in_between(parts: Parts) -> None:
    count = 3 * GROUPS_AT_ONCE
    parts.put_topic("orders", 1)
    fill(parts, 2)
    parts.groups.put(*(SubscriptionGroupConfig(f"group{number}") for number in range(count)))
    for number in range(count):
        parts.offsets.commit("c", f"group{number}", "orders", 0, 1)
    peer = parts.peer()
    peer.send(Command(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}))
    assert parts.peer().ask(Command(RequestCode.GET_BROKER_CONFIG)).code == ResponseCode.SUCCESS
    assert peer.received() == [], "not answered yet"
    shown = decode_body(ConsumeStatsList, (await peer.next()).body)
    assert shown.total_diff == count
    assert len(shown.consume_stats_list) == len(parts.groups.table)


async def test_the_times_of_what_a_group_reads(parts: Parts) -> None:
    parts.put_topic("orders", 2)
    fill(parts, 5)
    parts.offsets.commit("c", "readers", "orders", 0, 2)
    ext = {"topic": "orders", "group": "readers"}
    answer = parts.peer().ask(Command(RequestCode.QUERY_CONSUME_TIME_SPAN, ext))
    span, empty = decode_body(ConsumeTimeSpans, answer.body).consume_time_span_set
    at = [parts.store.store_ms_of("orders", 0, offset) for offset in range(5)]
    assert span.message_queue.queue == MessageQueue("orders", BROKER, 0)
    assert (span.min_time_stamp, span.max_time_stamp, span.consume_time_stamp) == (at[0], at[4], at[1])
    assert span.delay_time == parts.clock.now_ms() - at[2] == 3000
    assert [span.min_time_stamp_str[-4:], span.max_time_stamp_str[:2]] == [f":{at[0] % 1000:03}", "20"]
    assert (empty.min_time_stamp, empty.max_time_stamp, empty.consume_time_stamp, empty.delay_time) == (-1, -1, -1, 0)


async def test_times_of_a_topic_that_is_not_there(parts: Parts) -> None:
    ext = {"topic": "nothing", "group": "readers"}
    answer = parts.peer().ask(Command(RequestCode.QUERY_CONSUME_TIME_SPAN, ext))
    assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[nothing] not exist")


async def test_who_reads_a_topic_and_what_a_group_reads(parts: Parts) -> None:
    parts.offsets.commit("c", "before", "orders", 0, 1)
    parts.offsets.commit("c", "before", "bills", 0, 1)
    parts.peer().ask(heartbeat(group="now"))
    peer = parts.peer()
    answer = peer.ask(Command(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"}))
    assert decode_body(GroupList, answer.body).group_list == ["before", "now"]
    answer = peer.ask(Command(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "before"}))
    assert decode_body(TopicList, answer.body) == TopicList(["bills", "orders"], ADDRESS)


async def test_the_subscription_of_a_group(parts: Parts) -> None:
    parts.peer().ask(heartbeat(subscriptions={"orders": "a || b"}))
    ext = {"group": "readers", "topic": "orders"}
    answer = parts.peer().ask(Command(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, ext))
    body = decode_body(QuerySubscriptionBody, answer.body)
    assert body.subscription_data is not None
    assert (body.group, body.topic, body.subscription_data.sub_string) == ("readers", "orders", "a || b")
    for unknown in ({"group": "nobody", "topic": "orders"}, {"group": "readers"}):
        answer = parts.peer().ask(Command(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, unknown))
        assert decode_body(QuerySubscriptionBody, answer.body).subscription_data is None


def clone(parts: Parts, **more: str) -> None:
    ext = {"srcGroup": "readers", "destGroup": "copy", **more}
    assert parts.peer().ask(Command(RequestCode.CLONE_GROUP_OFFSET, ext)).code == ResponseCode.SUCCESS


@pytest.fixture
async def cloned(parts: Parts) -> Parts:
    for topic in ("orders", "bills"):
        parts.put_topic(topic, 2)
        parts.offsets.commit("c", "readers", topic, 0, 3)
        parts.offsets.commit("c", "readers", topic, 1, 4)
    return parts


async def test_one_topic_is_cloned(cloned: Parts) -> None:
    cloned.offsets.commit("c", "copy", "orders", 0, 9)
    clone(cloned, topic="orders")
    assert cloned.offsets.of("copy", "orders") == {0: 3, 1: 4}
    assert cloned.offsets.of("copy", "bills") == {}
    cloned.offsets.commit("c", "readers", "orders", 0, 8)
    assert cloned.offsets.of("copy", "orders")[0] == 3, "a copy, not the same table"


async def test_all_topics_are_cloned(cloned: Parts) -> None:
    clone(cloned)
    assert cloned.offsets.topics_of("copy") == ["bills", "orders"]


async def test_of_a_group_online_only_what_it_subscribes_to_is_cloned_unless_told(cloned: Parts) -> None:
    cloned.peer().ask(heartbeat(subscriptions={"orders": "*"}))
    clone(cloned)
    assert cloned.offsets.topics_of("copy") == ["orders"]
    clone(cloned, offline="true")
    assert cloned.offsets.topics_of("copy") == ["bills", "orders"]


async def test_unknown_topics_and_groups_are_not_cloned(cloned: Parts) -> None:
    clone(cloned, topic="nothing")
    clone(cloned, srcGroup="nobody", topic="orders")
    assert cloned.offsets.topics_of("copy") == []


async def test_the_lowest_offset_of_all_groups(parts: Parts) -> None:
    for group, first, second in (("a", 5, 7), ("b", 3, 9), ("slow", 1, 8)):
        parts.offsets.commit("c", group, "orders", 0, first)
        parts.offsets.commit("c", group, "orders", 1, second)

    def ask(**ext: str) -> dict[int, int]:
        answer = parts.peer().ask(Command(RequestCode.QUERY_CORRECTION_OFFSET, {"topic": "orders", **ext}))
        return decode_body(CorrectionOffsets, answer.body).correction_offsets

    assert ask(compareGroup="a") == {0: 1, 1: 7}
    assert ask(compareGroup="slow", filterGroups="slow,other") == {0: JAVA_LONG_MAX, 1: 7}
    assert ask(compareGroup="nobody") == {0: 1, 1: 7}
