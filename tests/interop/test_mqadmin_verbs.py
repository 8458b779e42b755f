"""Apache's `mqadmin` 5.4.0 on our cluster and on Apache's with the same history: the same facts; and our own verbs on
Apache's cluster."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.interop.conftest import Cluster
from tests.support.apache import SERVER_VERSION
from tests.support.java import require_java
from tests.support.java_driver import client_coordinates
from tests.support.mqadmin import MqAdmin, Printed

from rocketline.cli.entry import main
from rocketline.client import ConsumeFrom, blocking
from rocketline.client.timing import ClientTiming
from rocketline.message import Message, MessageQueue, MessageView

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]  # the tools sleep for seconds now and then

WAIT_S = 60.0
TOPIC, GROUP, COPY = "mqadmin_orders", "mqadmin_billing", "mqadmin_copy"
BODIES = [b"hello", b"world", b"again"]


class Side(NamedTuple):
    """A cluster with the history, and what differs from the other one's."""

    namesrv: str
    broker: str
    messages: list[MessageView]
    """As consumed; in the order of BODIES."""
    tools: MqAdmin
    """In a JVM for this cluster: some verbs keep a client they have closed, and can be used but once."""


def with_history(namesrv: str, tools: MqAdmin) -> Side:
    """A topic of two queues with three messages, all consumed by a group that is away now."""
    assert main(["admin", "updateTopic", "-t", TOPIC, "-c", "DefaultCluster", "-r", "2", "-w", "2", "-n", namesrv]) == 0
    for group in (GROUP, COPY):
        assert main(["admin", "updateSubGroup", "-g", group, "-c", "DefaultCluster", "-r", "3", "-n", namesrv]) == 0
    with blocking.Producer(namesrv, group="mqadmin_shop") as producer:
        for number, body in enumerate(BODIES):
            message = Message(TOPIC, body, tag=f"Tag{number}", keys=[f"k{number}"])
            receipt = producer.send(message, queue=MessageQueue(TOPIC, "broker-a", number % 2))
    assert receipt.offset_id is not None
    return Side(namesrv, broker_of(namesrv), consumed(namesrv), tools)


def consumed(namesrv: str) -> list[MessageView]:
    seen: dict[bytes, MessageView] = {}
    complete = threading.Event()

    def handle(message: MessageView) -> None:
        seen[message.body] = message
        if len(seen) == len(BODIES):
            complete.set()

    with blocking.PushConsumer(
        namesrv, group=GROUP, from_where=ConsumeFrom.FIRST, timing=ClientTiming(persist_s=0.2)
    ) as consumer:
        consumer.subscribe(TOPIC, "*", handle)
        consumer.start()
        assert complete.wait(WAIT_S)
    return [seen[body] for body in BODIES]


def broker_of(namesrv: str) -> str:
    from asyncio import run

    from rocketline.admin import Admin

    async def ask() -> str:
        async with Admin(namesrv) as admin:
            (broker,) = await admin.brokers()
            return broker.address

    return run(ask())


@pytest.fixture(scope="module")
def ours(rocketline_session_cluster: Cluster) -> Iterator[Side]:
    require_java(*client_coordinates(SERVER_VERSION))
    with MqAdmin(SERVER_VERSION) as tools:
        yield with_history(rocketline_session_cluster.namesrv, tools)


@pytest.fixture(scope="module")
def theirs(apache: Cluster) -> Iterator[Side]:
    with MqAdmin(SERVER_VERSION) as tools:
        yield with_history(apache.namesrv, tools)


def run(side: Side, words: str) -> Printed:
    """A verb on one side; `{...}` are what differs there."""
    message = side.messages[0]
    filled = words.format(broker=side.broker, offset_id=message.offset_id, unique_id=message.message_id)
    return side.tools.run(side.namesrv, *filled.split())


def told(printed: Printed, side: Side) -> list[str]:
    """What a verb says, without times, addresses and ids."""
    text = printed.out.replace(side.broker, "BROKER").replace(side.namesrv, "NAMESRV")
    text = re.sub(r"\b[0-9A-F]{32,56}\b", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?", "TIME", text)
    text = re.sub(r"/?127\.0\.0\.1:\d+", "ADDRESS", text)
    text = re.sub(r"\b1\d{12}\b", "MS", text)
    text = re.sub(r"((?:CommitLog Offset: +)|(?:(?:commitLogOffset|storeSize|bodyCRC)=))\d+", r"\1N", text)
    text = re.sub(r"\b\d+\.\d+\b", "N", text)
    return sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())


SAME = [
    f"topicRoute -t {TOPIC}",
    f"topicRoute -t {TOPIC} -l",
    f"topicStatus -t {TOPIC}",
    f"topicClusterList -t {TOPIC}",
    f"consumerProgress -g {GROUP} -t {TOPIC}",
    f"getConsumerConfig -g {GROUP}",
    f"queryMsgById -t {TOPIC} -i {{offset_id}}",
    f"queryMsgByUniqueKey -t {TOPIC} -i {{unique_id}}",
    f"queryMsgByOffset -t {TOPIC} -b broker-a -i 1 -o 0",
    f"printMsgByQueue -t {TOPIC} -a broker-a -i 0 -p true -d true -f true",
    f"allocateMQ -t {TOPIC} -i 10.0.0.1,10.0.0.2",
    f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s 0",
    f"skipAccumulatedMessage -g {GROUP} -t {TOPIC}",
    f"cloneGroupOffset -s {GROUP} -d {COPY} -t {TOPIC} -o true",
    f"updateTopicPerm -t {TOPIC} -p 4 -b {{broker}}",
    f"updateTopicPerm -t {TOPIC} -p 6 -b {{broker}}",
    f"updateOrderConf -t {TOPIC} -m put -v broker-a:2",
    f"updateOrderConf -t {TOPIC} -m get",
    f"updateOrderConf -t {TOPIC} -m delete",
    "updateKvConfig -s space -k key -v value",
    "deleteKvConfig -s space -k key",
    "updateBrokerConfig -b {broker} -k fileReservedTime -v 71",
    "updateTopic -t mqadmin_made -c DefaultCluster -r 3 -w 3 -p 6",
    "deleteTopic -t mqadmin_made -c DefaultCluster",
    "cleanExpiredCQ -b {broker}",
    "topicStatus -t mqadmin_absent",
    "producerConnection -g mqadmin_absent -t mqadmin_orders",
]


@pytest.mark.parametrize("words", SAME)
def test_a_verb_tells_the_same_of_both(ours: Side, theirs: Side, words: str) -> None:
    here, there = run(ours, words), run(theirs, words)
    assert told(here, ours) == told(there, theirs)
    assert here.failed == there.failed, here.err


WORKS = [
    "clusterList",
    "clusterList -m",
    "getBrokerConfig -b {broker}",
    "getNamesrvConfig",
    "consumerProgress",
    f"statsAll -t {TOPIC}",
    "brokerConsumeStats -b {broker}",
    f"printMsg -t {TOPIC} -d true",
    f"queryMsgByKey -t {TOPIC} -k k1",
    f"queryCq -t {TOPIC} -q 0 -i 0 -c 2 -b {{broker}}",
    "producer -b {broker}",
    "cleanUnusedTopic -b {broker}",
    "deleteExpiredCommitLog -b {broker}",
]


@pytest.mark.parametrize("words", WORKS)
def test_a_verb_whose_numbers_differ_works_on_ours(ours: Side, words: str) -> None:
    printed = run(ours, words)
    assert not printed.failed, printed
    assert printed.out.strip() or words.startswith("producer")


def test_a_broker_says_everything_of_itself_that_apaches_does(ours: Side, theirs: Side) -> None:
    def keys(side: Side) -> set[str]:
        lines = run(side, "brokerStatus -b {broker}").out.splitlines()
        found = {line.partition(":")[0].strip() for line in lines if ":" in line}
        return {key for key in found if not key.startswith(("commitLogDiskRatio_", "scheduleMessageOffset_"))}

    assert keys(theirs) - keys(ours) == set()


def test_what_must_not_be_changed_is_refused_to_the_tools_too(ours: Side) -> None:
    printed = run(ours, "updateBrokerConfig -b {broker} -k storePathRootDir -v /x")
    assert printed.failed
    assert "CODE: 16" in printed.err
    assert "'storePathRootDir' cannot be changed" in printed.err


# Our verbs on both


@pytest.fixture
def admin(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def call(side: Side, *arguments: object) -> Any:
        code = main(["admin", *map(str, arguments), "-n", side.namesrv, "--output", "json"])
        output = capsys.readouterr()
        assert code == 0, output.err
        return json.loads(output.out)

    return call


@pytest.fixture(params=["ours", "theirs"])
def side(request: pytest.FixtureRequest) -> Side:
    found: Side = request.getfixturevalue(request.param)
    return found


def test_our_verbs_about_topics_and_groups(admin: Callable[..., Any], side: Side) -> None:
    (row,) = admin(side, "topicRoute", "-t", TOPIC)
    assert (row["read queues"], row["write queues"], row["permission"]) == (2, 2, "RW")
    rows = admin(side, "topicStatus", "-t", TOPIC)
    assert [(row["queue"], row["max offset"]) for row in rows] == [(0, 2), (1, 1)]
    assert TOPIC in [row["topic"] for row in admin(side, "topicList")]
    assert GROUP in [row["group"] for row in admin(side, "groupList")]
    assert [row["lag"] for row in admin(side, "consumerProgress", "-g", GROUP, "-t", TOPIC)] == [0, 0]
    assert GROUP in [row["group"] for row in admin(side, "consumerProgress")]
    assert GROUP in [row["group"] for row in admin(side, "whoConsumes", "-t", TOPIC)]
    assert len(admin(side, "consumeTimeSpan", "-g", GROUP, "-t", TOPIC)) == 2


def test_our_verbs_about_messages(admin: Callable[..., Any], side: Side) -> None:
    message = side.messages[0]

    def body(tables: dict[str, Any]) -> str:
        return {row["name"]: row["value"] for row in next(iter(tables.values()))}["body"]

    assert body(admin(side, "queryMsgById", "-i", message.offset_id)) == "hello"
    assert body(admin(side, "queryMsgByUniqueKey", "-t", TOPIC, "-i", message.message_id)) == "hello"
    assert body(admin(side, "queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", 0, "-o", 0)) == "hello"
    assert [row["body"] for row in admin(side, "queryMsgByKey", "-t", TOPIC, "-k", "k1")] == ["world"]
    assert sorted(row["body"] for row in admin(side, "printMsg", "-t", TOPIC)) == ["again", "hello", "world"]
    (row,) = admin(side, "sendMessage", "-t", "mqadmin_sent", "-p", "x")
    assert row["status"] == "SEND_OK"


def test_our_verbs_about_brokers_and_name_servers(admin: Callable[..., Any], side: Side, tmp_path: Path) -> None:
    (row,) = admin(side, "clusterList")
    assert (row["address"], row["active"]) == (side.broker, True)
    settings = {row["name"]: row["value"] for row in admin(side, "getBrokerConfig", "-b", side.broker)}
    assert settings["brokerName"] == "broker-a"
    admin(side, "updateBrokerConfig", "-b", side.broker, "-k", "fileReservedTime", "-v", 70)
    settings = {row["name"]: row["value"] for row in admin(side, "getBrokerConfig", "-b", side.broker)}
    assert settings["fileReservedTime"] == "70"
    admin(side, "updateKvConfig", "-s", "space", "-k", "key", "-v", "value")
    assert admin(side, "getKvConfig", "-s", "space") == [{"name": "key", "value": "value"}]
    admin(side, "deleteKvConfig", "-s", "space", "-k", "key")
    admin(side, "exportMetadata", "-f", tmp_path)
    assert TOPIC in json.loads((tmp_path / "metadata.json").read_text())["topicConfigTable"]
    rows = admin(side, "resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", 0)
    assert [row["new offset"] for row in rows] == [0, 0]
