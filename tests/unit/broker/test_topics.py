"""The table of topics: what is there from the start, how topics come into being, and what is kept."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.golden.wire import load as golden

from rocketline.broker.config import TopicConfigDefaults
from rocketline.broker.tables.json_table import JsonTable
from rocketline.broker.tables.topics import MAX_QUEUE_COUNT, Topics, system_topics
from rocketline.clock import ManualClock
from rocketline.errors import ConfigError, RequestRejected, StoreError
from rocketline.protocol.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rocketline.protocol.codes import ResponseCode
from rocketline.testing.disks import FaultyDisk, MemoryDisk

FILE = Path("/config/topics.json")

# Queues and permission of each, as an Apache broker 5.4.0 called broker-a in DefaultCluster registers them.
FROM_THE_START = {
    "TBW102": (8, 7),
    "SELF_TEST_TOPIC": (1, 6),
    "BenchmarkTest": (1024, 6),
    "DefaultCluster": (16, 7),
    "broker-a": (1, 7),
    "OFFSET_MOVED_EVENT": (1, 6),
    "SCHEDULE_TOPIC_XXXX": (18, 6),
    "DefaultCluster_REPLY_TOPIC": (1, 6),
    "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
    "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": (1, 6),
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": (1, 6),
    "rmq_sys_wheel_timer": (1, 6),
}

MakeTopics = Callable[..., Topics]


@pytest.fixture
def disk() -> FaultyDisk:
    memory = MemoryDisk()
    memory.make_folder(FILE.parent)
    return FaultyDisk(memory)


@pytest.fixture
def make(disk: FaultyDisk) -> MakeTopics:
    """Topics as a broker has them right after its start; a second one is a restart."""

    def start(*, auto_create: bool = True, writable: bool = True, queue_count: int = 8, **more: Any) -> Topics:
        defaults = TopicConfigDefaults(auto_create, queue_count, **more)
        topics = Topics(
            JsonTable(disk, FILE, TopicConfigSerializeWrapper),
            system_topics("DefaultCluster", "broker-a", defaults),
            ManualClock(5000),
            auto_create=auto_create,
            writable=writable,
        )
        topics.load()
        return topics

    return start


def refusal(call: Callable[[], object]) -> int:
    with pytest.raises(RequestRejected) as caught:
        call()
    return caught.value.code


def test_a_new_broker_has_the_system_topics(make: MakeTopics) -> None:
    topics = make()
    assert {name: (topic.write_queue_nums, topic.perm) for name, topic in topics.table.items()} == FROM_THE_START
    assert all(topic.read_queue_nums == topic.write_queue_nums for topic in topics.table.values())
    assert make().table == topics.table


def test_without_auto_creation_there_is_no_template(make: MakeTopics) -> None:
    make()
    assert make(auto_create=False).get("TBW102") is None
    assert make(auto_create=True, queue_count=3).require("TBW102").write_queue_nums == 3


def test_a_trace_topic_is_made_when_asked_for(make: MakeTopics) -> None:
    assert make().get("RMQ_SYS_TRACE_TOPIC") is None
    topics = make(has_trace_topic=True)
    made = topics.require("RMQ_SYS_TRACE_TOPIC")
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (1, 1, 6)
    assert topics.is_system("RMQ_SYS_TRACE_TOPIC")
    assert topics.for_send("RMQ_SYS_TRACE_TOPIC", "TBW102", 4) is made
    assert make(has_trace_topic=True, trace_topic="traces").require("traces").write_queue_nums == 1
    with pytest.raises(ConfigError, match="msgTraceTopicName"):
        make(has_trace_topic=True, trace_topic="../traces")


def test_topics_first_used_in_unit_mode_are_marked(make: MakeTopics) -> None:
    topics = make()
    assert topics.for_send("orders", "TBW102", 4, unit_mode=True).topic_sys_flag == 1
    assert topics.for_send("%RETRY%readers", "TBW102", 4, unit_mode=True).topic_sys_flag == 2
    assert topics.for_send("bills", "TBW102", 4).topic_sys_flag == 0
    assert topics.for_send("bills", "TBW102", 4, unit_mode=True).topic_sys_flag == 0


def test_topics_survive_a_restart_with_their_version(make: MakeTopics) -> None:
    topics = make()
    topics.put([TopicConfig("orders", 3, 5, 4, order=True, attributes={"message.type": "FIFO"})])
    again = make()
    assert again.require("orders") == topics.require("orders")
    assert again.version == topics.version == DataVersion(1, 0, 5000)


def test_every_change_gets_a_new_version(make: MakeTopics) -> None:
    topics = make()
    versions = [topics.version]
    topics.put([TopicConfig("orders")])
    versions.append(topics.version)
    topics.put([TopicConfig("orders", 4, 4)])
    versions.append(topics.version)
    topics.remove("orders")
    versions.append(topics.version)
    assert [version.counter for version in versions] == [0, 1, 2, 3]
    assert not topics.remove("orders")
    assert topics.version.counter == 3


def test_a_change_is_saved_before_anyone_is_told(make: MakeTopics, disk: FaultyDisk) -> None:
    topics = make()
    saved_when_told: list[bool] = []
    topics.subscribe(lambda changed: saved_when_told.append(b'"orders"' in (disk.read(FILE) or b"")))
    topics.put([TopicConfig("orders")])
    assert saved_when_told == [True]


def test_a_topic_that_cannot_be_saved_is_neither_announced_nor_there(make: MakeTopics, disk: FaultyDisk) -> None:
    topics = make()
    topics.put([TopicConfig("bills", 2, 2)])
    topics.subscribe(pytest.fail)
    disk.fail("write", errno.ENOSPC, forever=True)
    with pytest.raises(StoreError, match="No space left"):
        topics.for_send("orders", "TBW102", 4)
    with pytest.raises(StoreError):
        topics.put([TopicConfig("bills", 8, 8)])
    with pytest.raises(StoreError):
        topics.remove("bills")
    disk.heal()
    assert topics.get("orders") is None
    assert topics.require("bills").write_queue_nums == 2
    assert make().table == topics.table


def test_an_apache_file_is_taken_as_it_is(make: MakeTopics, disk: FaultyDisk) -> None:
    disk.write_atomic(FILE, golden.config("topics.json"))
    topics = make()
    assert topics.require("F_bcq").attributes == {"queue.type": "BatchCQ"}
    assert topics.require("rmq_sys_SYNC_BROKER_MEMBER_broker-g").perm == 1
    assert set(FROM_THE_START) <= set(topics.table)
    again = make()
    assert (again.table, again.version) == (topics.table, topics.version)


def test_an_unreadable_table_is_not_replaced_by_an_empty_one(make: MakeTopics, disk: FaultyDisk) -> None:
    disk.write_atomic(FILE, b"{broken")
    with pytest.raises(StoreError, match=r"topics\.json"):
        make()
    assert disk.read(FILE) == b"{broken"


def test_a_new_topic_inherits_from_its_template(make: MakeTopics) -> None:
    topics = make()
    topics.put([TopicConfig("template", 2, 6, 5, topic_filter_type="MULTI_TAG", topic_sys_flag=3)])
    assert refusal(lambda: topics.for_send("orders", "template", 9)) == ResponseCode.NO_PERMISSION
    made = topics.require("orders")
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (6, 6, 4)
    assert (made.topic_filter_type, made.topic_sys_flag) == ("MULTI_TAG", 3)


def test_the_topics_of_cluster_and_broker_are_templates_too(make: MakeTopics) -> None:
    topics = make()
    assert topics.for_send("orders", "DefaultCluster", 100).write_queue_nums == 16
    assert topics.for_send("bills", "broker-a", 100).write_queue_nums == 1


def test_a_derived_topic_is_made_once_with_at_least_one_queue(make: MakeTopics) -> None:
    topics = make()
    made = topics.require_derived("%RETRY%readers", 3)
    assert (made.write_queue_nums, made.perm) == (3, 6)
    assert topics.require_derived("%RETRY%readers", 9) is made
    assert topics.require_derived("%DLQ%readers", 0).write_queue_nums == 1


def test_what_belongs_to_the_system(make: MakeTopics) -> None:
    topics = make()
    assert all(topics.is_system(name) for name in FROM_THE_START)
    assert topics.is_system("rmq_sys_anything")
    assert not topics.is_system("orders")
    assert not topics.is_system("RMQ_SYS_anything")


def test_an_unknown_topic_is_17(make: MakeTopics) -> None:
    assert refusal(lambda: make().require("nowhere")) == ResponseCode.TOPIC_NOT_EXIST


def test_a_snapshot_does_not_change_with_the_table(make: MakeTopics) -> None:
    topics = make()
    before = topics.snapshot()
    topics.put([TopicConfig("orders")])
    assert "orders" not in before.topic_config_table


def test_topics_that_are_only_found_by_their_queues_come_back(make: MakeTopics) -> None:
    """Producers may know more queues than had a message; a group's own topics have as many as it uses."""
    topics = make()
    topics.put([TopicConfig("known", 3, 3)])
    impossible = ("%LMQ%light", "rmq_sys_other", "bad name")
    found = {"known": 9, "few": 1, "many": 20, "%RETRY%g": 1, "%DLQ%g": MAX_QUEUE_COUNT + 1}
    topics.adopt(dict.fromkeys(impossible, 1) | found)
    counts = {name: topics.table[name].write_queue_nums for name in found}
    assert counts == {"known": 3, "few": 8, "many": 20, "%RETRY%g": 1, "%DLQ%g": MAX_QUEUE_COUNT}
    assert {topics.table[name].perm for name in found} == {6}
    assert not topics.table.keys() & set(impossible)


def test_without_a_template_they_have_the_queues_that_were_found(make: MakeTopics) -> None:
    topics = make(auto_create=False)
    topics.adopt({"few": 2, "%DLQ%g": 1})
    assert [topics.table[name].write_queue_nums for name in ("few", "%DLQ%g")] == [2, 1]
