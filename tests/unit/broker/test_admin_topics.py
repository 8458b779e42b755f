"""Topics by hand: created, changed, deleted and looked at; what is not a topic is refused."""

from __future__ import annotations

import pytest
from tests.unit.broker.parts import Parts, send_request

from rocketline.protocol.bodies import (
    TopicConfig,
    TopicConfigList,
    TopicConfigSerializeWrapper,
    TopicList,
    decode_body,
    encode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command

ILLEGAL_NAMES = ["", "../../x", "a b", "x" * 128, "a/b", "nul\0", "grün"]


def create(topic: str = "orders", **changes: str) -> Command:
    ext = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "6",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        **changes,
    }
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)


def delete(topic: str = "orders") -> Command:
    return Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})


async def test_a_topic_is_created_as_asked_for_and_announced(parts: Parts) -> None:
    announced: list[TopicConfig] = []
    parts.topics.subscribe(announced.extend)
    answer = parts.peer().ask(
        create(perm="4", topicFilterType="MULTI_TAG", topicSysFlag="2", order="true", attributes="+message.type=FIFO")
    )
    assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {})
    expected = TopicConfig("orders", 4, 6, 4, "MULTI_TAG", 2, True, {"message.type": "FIFO"})
    assert parts.topics.require("orders") == expected
    assert announced == [expected]


async def test_a_topic_is_changed_and_keeps_its_attributes(parts: Parts) -> None:
    peer = parts.peer()
    peer.ask(create(attributes="+message.type=FIFO,+queue.type=SimpleCQ"))
    peer.ask(create(readQueueNums="9", attributes="-message.type,+cleanup.policy=DELETE"))
    topic = parts.topics.require("orders")
    assert topic.read_queue_nums == 9
    assert topic.attributes == {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}
    peer.ask(create())
    assert parts.topics.require("orders").attributes == {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        *[({"topic": name}, "topic") for name in ILLEGAL_NAMES],
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "system topic"),
        ({"topic": "rmq_sys_mine"}, "system topic"),
        ({"topic": "DefaultCluster"}, "system topic"),
        ({"topicFilterType": "NO_TAG"}, "NO_TAG"),
        ({"readQueueNums": "-1"}, "queue counts"),
        ({"writeQueueNums": "65537"}, "queue counts"),
        ({"perm": "8"}, "permission 8"),
        ({"perm": "-1"}, "permission -1"),
    ],
)
async def test_what_makes_no_topic_is_refused(parts: Parts, changes: dict[str, str], word: str) -> None:
    before, version = dict(parts.topics.table), parts.topics.version
    answer = parts.peer().ask(create(**changes))
    assert (answer.code, word in answer.remark) == (ResponseCode.INVALID_PARAMETER, True), answer
    assert (parts.topics.table, parts.topics.version) == (before, version)


@pytest.mark.parametrize(
    "attributes",
    [
        "+unknown=1",
        "message.type=FIFO",
        "*message.type=FIFO",
        "+message.type=NONSENSE",
        "+message.type",
        "+queue.type=BatchCQ",
        "+cleanup.policy=COMPACTION",
        "+reserve.time=soon",
        "+reserve.time=72",
        "+",
        "=",
    ],
)
async def test_attributes_that_mean_nothing_here_are_refused_and_not_remembered(parts: Parts, attributes: str) -> None:
    """A topic that says BatchCQ or COMPACTION and is neither would mislead every tool that looks at it."""
    answer = parts.peer().ask(create(attributes=attributes))
    assert (answer.code, "attribute" in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert parts.topics.get("orders") is None


async def test_a_reserve_time_that_came_with_a_folder_is_kept_and_can_be_taken_away(parts: Parts) -> None:
    """Apache's broker keeps it in topics.json, and only its tiered storage goes by it."""
    parts.topics.put([TopicConfig("orders", attributes={"reserve.time": "72"})])
    answer = parts.peer().ask(create(attributes="+reserve.time=24"))
    assert "fileReservedTime" in answer.remark
    assert parts.topics.require("orders").attributes == {"reserve.time": "72"}
    assert parts.peer().ask(create(attributes="-reserve.time")).code == ResponseCode.SUCCESS
    assert parts.topics.require("orders").attributes == {}


async def test_deleting_takes_topic_queues_and_offsets(parts: Parts) -> None:
    peer = parts.peer()
    for name in ("orders", "others"):
        peer.ask(create(name))
        peer.ask(send_request(name))
        parts.offsets.commit("c", "readers", name, 0, 1)
    parts.dispatch()
    assert peer.ask(delete()).code == ResponseCode.SUCCESS
    assert parts.topics.get("orders") is None
    assert parts.store.topics() == {"others"}
    assert parts.offsets.items() == [("others@readers", 0, 1)]


async def test_a_topic_made_again_starts_at_0(parts: Parts) -> None:
    peer = parts.peer()
    peer.ask(send_request(body=b"old"))
    parts.dispatch()
    peer.ask(delete())
    answer = peer.ask(send_request(body=b"new"))
    assert answer.ext["queueOffset"] == "0"
    assert [message.body for message in parts.messages("orders")] == [b"new"]


async def test_a_message_still_on_its_way_to_the_queue_does_not_break_the_topic_made_again(parts: Parts) -> None:
    """Send, delete and send arrive in one read: the first is appended, not yet dispatched, when its queue goes."""
    peer = parts.peer()
    peer.ask(send_request(body=b"old 0"))
    parts.dispatch()
    peer.ask(send_request(body=b"old 1"))
    peer.ask(delete())
    answer = peer.ask(send_request(body=b"new"))
    assert answer.code == ResponseCode.SUCCESS
    found = parts.messages("orders", 0, int(answer.ext["queueOffset"]))
    assert [message.body for message in found] == [b"new"]


@pytest.mark.parametrize("name", [*ILLEGAL_NAMES, "TBW102", "rmq_sys_mine", "broker-a"])
async def test_what_is_no_topic_of_users_cannot_be_deleted(parts: Parts, name: str) -> None:
    before = dict(parts.topics.table)
    answer = parts.peer().ask(delete(name))
    assert (answer.code, parts.topics.table) == (ResponseCode.INVALID_PARAMETER, before)


async def test_deleting_what_is_not_there_is_fine(parts: Parts) -> None:
    version = parts.topics.version
    assert parts.peer().ask(delete("never-was")).code == ResponseCode.SUCCESS
    assert parts.topics.version == version


async def test_one_topic_is_shown(parts: Parts) -> None:
    peer = parts.peer()
    peer.ask(create())
    answer = peer.ask(Command(RequestCode.GET_TOPIC_CONFIG, {"topic": "orders"}))
    assert decode_body(TopicConfig, answer.body) == parts.topics.require("orders")
    answer = peer.ask(Command(RequestCode.GET_TOPIC_CONFIG, {"topic": "../../x"}))
    assert (answer.code, answer.remark) == (17, "No topic in this broker. topic: ../../x")


async def test_all_topics_are_shown(parts: Parts) -> None:
    peer = parts.peer()
    peer.ask(create())
    answer = peer.ask(Command(RequestCode.GET_ALL_TOPIC_CONFIG, {}))
    shown = decode_body(TopicConfigSerializeWrapper, answer.body)
    assert shown.topic_config_table == parts.topics.table
    assert shown.data_version == parts.topics.version
    assert answer.ext == {"totalTopicNum": str(len(parts.topics.table))}


def create_all(*topics: TopicConfig) -> Command:
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, encode_body(TopicConfigList(list(topics))))


async def test_many_topics_are_created_at_once(parts: Parts) -> None:
    parts.peer().ask(create(attributes="+queue.type=SimpleCQ"))
    announced: list[TopicConfig] = []
    parts.topics.subscribe(announced.extend)
    topics = [
        TopicConfig("orders", 2, 3, attributes={"+message.type": "FIFO", "-queue.type": ""}),
        TopicConfig("other", attributes={"message.type": "DELAY"}),
    ]
    assert parts.peer().ask(create_all(*topics)).code == ResponseCode.SUCCESS
    assert parts.topics.require("orders").attributes == {"message.type": "FIFO"}
    assert parts.topics.require("other").attributes == {"message.type": "DELAY"}
    assert [topic.topic_name for topic in announced] == ["orders", "other"]


@pytest.mark.parametrize(
    "bad",
    [
        TopicConfig("a b"),
        TopicConfig("TBW102"),
        TopicConfig("x", -1, 1),
        TopicConfig("x", perm=99),
        TopicConfig("x", topic_filter_type="?"),
        TopicConfig("x", attributes={"+colour": "red"}),
    ],
)
async def test_one_bad_topic_of_many_keeps_all_away(parts: Parts, bad: TopicConfig) -> None:
    answer = parts.peer().ask(create_all(TopicConfig("fine"), bad))
    assert answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR)
    assert parts.topics.get("fine") is None


async def test_too_many_topics_are_refused(parts: Parts) -> None:
    answer = parts.peer().ask(create_all(*(TopicConfig(f"t{number}") for number in range(4097))))
    assert (answer.code, "4097 topics" in (answer.remark or "")) == (ResponseCode.INVALID_PARAMETER, True)


async def test_the_brokers_own_topics(parts: Parts) -> None:
    answer = parts.peer().ask(Command(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))
    names = decode_body(TopicList, answer.body).topic_list
    assert {"SCHEDULE_TOPIC_XXXX", "TBW102", "rmq_sys_wheel_timer"} <= set(names)


async def test_static_topics_are_refused_in_plain_words(parts: Parts) -> None:
    ext = create().ext
    answer = parts.peer().ask(Command(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, ext))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "static topics are not supported" in (answer.remark or "")
