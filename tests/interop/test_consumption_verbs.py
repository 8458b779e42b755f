"""What operators do about consumption, through Apache's own MQAdminExt: our broker and Apache's, each with a Java
consumer and with ours online. The same test on all four, so what holds is what Apache does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import pytest
from tests.interop.conftest import Cluster
from tests.support.java_client import BROKER_ADDRESS, JavaClient, JavaPushConsumer, Queue, Sent
from tests.support.java_driver import JavaCallError
from tests.support.patience import PATIENCE_S
from tests.support.reading import eventually

from rocketline.client import ClientOptions, ConsumeFrom, blocking
from rocketline.client.timing import ClientTiming
from rocketline.message import MessageView
from rocketline.testing import LocalCluster

pytestmark = pytest.mark.interop

COUNT = 6


class Consumer(Protocol):
    """A push consumer of either kind."""

    def wait(self, count: int) -> list[bytes]:
        """The next bodies, at least so many."""

    def persist(self) -> None:
        """Have the broker told of progress soon."""


class JavaConsumer:
    def __init__(self, consumer: JavaPushConsumer) -> None:
        self._consumer = consumer

    def wait(self, count: int) -> list[bytes]:
        return [seen.body for seen in self._consumer.poll(count, PATIENCE_S)]

    def persist(self) -> None:
        self._consumer.persist()


class OurConsumer:
    def __init__(self) -> None:
        self._grown = threading.Condition()
        self._bodies: list[bytes] = []

    def handle(self, message: MessageView) -> None:
        with self._grown:
            self._bodies.append(message.body)
            self._grown.notify_all()

    def wait(self, count: int) -> list[bytes]:
        with self._grown:
            self._grown.wait_for(lambda: len(self._bodies) >= count, PATIENCE_S)
            taken, self._bodies = self._bodies, []
        return taken

    def persist(self) -> None:
        """Its timer does that."""


@pytest.fixture(params=["rocketline", "apache"], ids=["our_broker", "apaches_broker"])
def servers(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue(request.param)
    return found


Online = Callable[[str, str], Any]


@pytest.fixture(params=["java", "ours"])
def online(request: pytest.FixtureRequest, java: JavaClient, servers: Cluster) -> Online:
    """`with online(group, topic) as consumer:` has a member of the group running."""
    return partial({"java": javas, "ours": ours}[request.param], java, servers.namesrv)


@contextmanager
def javas(java: JavaClient, namesrv: str, group: str, topic: str) -> Iterator[Consumer]:
    with java.push_consumer(namesrv, group, {topic: "*"}) as consumer:
        yield JavaConsumer(consumer)


@contextmanager
def ours(_: JavaClient, namesrv: str, group: str, topic: str) -> Iterator[Consumer]:
    consumer = OurConsumer()
    timing = ClientTiming(persist_s=0.5)
    with blocking.PushConsumer(
        namesrv, group=group, from_where=ConsumeFrom.FIRST, options=ClientOptions(timing=timing)
    ) as push:
        push.subscribe(topic, "*", consumer.handle)
        push.start()
        yield consumer


class Operator:
    """MQAdminExt on one topic, one group and the only broker."""

    def __init__(self, java: JavaClient, namesrv: str, topic: str, group: str) -> None:
        self._java = java
        self._namesrv = namesrv
        self.topic = topic
        self.group = group
        java.create_topic(namesrv, topic, queues=1)
        (self.queue,) = java.read_queues(namesrv, topic)

    def ask(self, method: str, *params: str | int | bool) -> Any:
        return self._java.admin(self._namesrv, method, *params)

    def send(self, count: int = COUNT) -> list[Sent]:
        with self._java.producer(self._namesrv, "pg_verbs") as producer:
            return [producer.send(self.topic, b"%d" % number, queue_id=0) for number in range(count)]

    def committed(self, group: str | None = None) -> int | None:
        return self._java.committed(self._namesrv, group or self.group, self.queue)

    def client_id(self) -> str:
        (connection,) = self.ask("examineConsumerConnectionInfo", self.group)["connectionSet"]
        return str(connection["clientId"])


@pytest.fixture
def operator(java: JavaClient, servers: Cluster, name: Callable[[str], str]) -> Operator:
    return Operator(java, servers.namesrv, name("verbs"), name("group"))


BODIES = [b"%d" % number for number in range(COUNT)]


def all_read(operator: Operator, consumer: Consumer) -> None:
    assert sorted(consumer.wait(COUNT)) == BODIES

    def committed() -> int | None:
        consumer.persist()
        return operator.committed()

    assert eventually(committed, COUNT) == COUNT


def shown(table: dict[str, Any], queue: Queue) -> Any:
    return table[f"{queue.topic}@{queue.broker}:{queue.queue_id}"]


def test_a_group_is_reset_and_reads_again(operator: Operator, online: Online) -> None:
    sent = operator.send()
    with online(operator.group, operator.topic) as consumer:
        all_read(operator, consumer)
        stored_ms = operator.ask("viewMessage", operator.topic, sent[0].offset_msg_id)["storeTimestamp"]

        moved = operator.ask("resetOffsetByTimestamp", operator.topic, operator.group, stored_ms, True)

        assert shown(moved, operator.queue) == 0
        all_read(operator, consumer)


@pytest.mark.parametrize("kind", [javas, ours])
def test_a_broker_that_does_not_reset_by_itself_tells_the_consumers(
    java: JavaClient, name: Callable[[str], str], kind: Callable[..., Any]
) -> None:
    with LocalCluster(config={"useServerSideResetOffset": False}) as cluster:
        operator = Operator(java, cluster.namesrv, name("verbs"), name("group"))
        operator.send()
        with kind(java, cluster.namesrv, operator.group, operator.topic) as consumer:
            all_read(operator, consumer)
            operator.ask("resetOffsetByTimestamp", operator.topic, operator.group, 0, True)
            all_read(operator, consumer)
        java.release(cluster.namesrv)


def test_a_group_that_is_away_is_reset_too(operator: Operator, online: Online) -> None:
    operator.send()
    with online(operator.group, operator.topic) as consumer:
        all_read(operator, consumer)
    moved = operator.ask("resetOffsetByTimestamp", operator.topic, operator.group, 0, True)
    assert shown(moved, operator.queue) == 0
    with online(operator.group, operator.topic) as consumer:
        all_read(operator, consumer)


def test_offsets_are_cloned(operator: Operator, online: Online, name: Callable[[str], str]) -> None:
    operator.send()
    with online(operator.group, operator.topic) as consumer:
        all_read(operator, consumer)
    copy = name("copy")
    operator.ask("cloneGroupOffset", operator.group, copy, operator.topic, True)
    assert operator.committed(copy) == COUNT


def test_lag_and_times(operator: Operator, online: Online) -> None:
    operator.send()
    with online(operator.group, operator.topic) as consumer:
        all_read(operator, consumer)

        def progress() -> tuple[set[int], int]:
            queue = shown(operator.ask("examineConsumeStats", operator.group)["offsetTable"], operator.queue)
            (span,) = operator.ask("queryConsumeTimeSpan", operator.topic, operator.group)
            times = {span["maxTimeStamp"], span["consumeTimeStamp"], queue["lastTimestamp"]}
            return {queue["brokerOffset"], queue["consumerOffset"], queue["pullOffset"]}, len(times)

        assert eventually(progress, ({COUNT}, 1)) == ({COUNT}, 1)
        (span,) = operator.ask("queryConsumeTimeSpan", operator.topic, operator.group)
        assert span["minTimeStamp"] <= span["maxTimeStamp"]
        assert (span["delayTime"], span["messageQueue"]["queueId"]) == (0, 0)
        assert operator.group in operator.ask("queryTopicConsumeByWho", operator.topic)["groupList"]


def test_how_a_consumer_is(operator: Operator, online: Online) -> None:
    operator.send()
    with online(operator.group, operator.topic) as consumer:
        all_read(operator, consumer)
        info = operator.ask("getConsumerRunningInfo", operator.group, operator.client_id(), True)
        assert {item["topic"] for item in info["subscriptionSet"]} == {operator.topic, f"%RETRY%{operator.group}"}
        queue = shown(info["mqTable"], operator.queue)
        assert (queue["commitOffset"], queue["cachedMsgCount"], queue["droped"]) == (COUNT, 0, False)
        assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert operator.topic in info["statusTable"]
        assert "hread" in info["jstack"]
        where = operator.ask("getConsumeStatus", operator.topic, operator.group, "")
        assert shown(where[operator.client_id()], operator.queue) == COUNT


def test_one_message_is_consumed_directly(operator: Operator, online: Online) -> None:
    sent = operator.send()
    with online(operator.group, operator.topic) as consumer:
        all_read(operator, consumer)
        message_id = sent[3].offset_msg_id
        assert message_id is not None
        result = operator.ask(
            "consumeMessageDirectly", operator.group, operator.client_id(), operator.topic, message_id
        )
        assert result["consumeResult"] == "CR_SUCCESS"
        assert consumer.wait(1) == [b"3"]
        assert operator.committed() == COUNT


def test_a_consumer_that_is_not_there(operator: Operator) -> None:
    operator.ask("examineTopicStats", operator.topic)
    for method, params in (
        ("getConsumerRunningInfo", ("nobody", False)),
        ("examineConsumerConnectionInfo", ()),
    ):
        with pytest.raises(JavaCallError) as refused:
            operator.ask(method, "TOOLS_CONSUMER", *params)
        assert refused.value.code in (1, 17, 206)


def test_counters(operator: Operator, online: Online) -> None:
    operator.send()
    with online(operator.group, operator.topic) as consumer:
        all_read(operator, consumer)

        def counted(name: str, key: str) -> int:
            data = operator.ask("viewBrokerStatsData", BROKER_ADDRESS, name, key)
            return int(data["statsMinute"]["sum"])

        assert eventually(lambda: counted("TOPIC_PUT_NUMS", operator.topic), COUNT) == COUNT
        key = f"{operator.topic}@{operator.group}"
        assert eventually(lambda: counted("GROUP_GET_NUMS", key), COUNT) == COUNT
        with pytest.raises(JavaCallError) as refused:
            counted("TOPIC_PUT_NUMS", "no_such_topic")
        assert (refused.value.code, "not exist" in (refused.value.message or "")) == (1, True)


def test_operators_with_tools_of_4_9(
    java_clients: Callable[[str], JavaClient], rocketline: Cluster, name: Callable[[str], str]
) -> None:
    old, namesrv = java_clients("4.9.7"), rocketline.namesrv
    operator = Operator(old, namesrv, name("verbs"), name("group"))
    operator.send()
    with ours(old, namesrv, operator.group, operator.topic) as consumer:
        all_read(operator, consumer)
        queue = shown(operator.ask("examineConsumeStats", operator.group)["offsetTable"], operator.queue)
        assert (queue["brokerOffset"], queue["consumerOffset"]) == (COUNT, COUNT)
        info = operator.ask("getConsumerRunningInfo", operator.group, operator.client_id(), False)
        assert shown(info["mqTable"], operator.queue)["commitOffset"] == COUNT
        moved = operator.ask("resetOffsetByTimestamp", operator.topic, operator.group, 0, True)
        assert shown(moved, operator.queue) == 0
        all_read(operator, consumer)
    operator.ask("deleteSubscriptionGroup", BROKER_ADDRESS, operator.group, True)
    assert operator.group not in operator.ask("queryTopicConsumeByWho", operator.topic)["groupList"]


def test_a_group_is_deleted_with_its_offsets(operator: Operator, online: Online) -> None:
    operator.send()
    with online(operator.group, operator.topic) as consumer:
        all_read(operator, consumer)
    operator.ask("deleteSubscriptionGroup", BROKER_ADDRESS, operator.group, True)
    assert operator.group not in operator.ask("queryTopicConsumeByWho", operator.topic)["groupList"]
