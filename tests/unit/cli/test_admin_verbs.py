"""`rocketline admin`: every verb on a real cluster, its results for people and for scripts, and its exit codes."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.admin import Admin as Cluster
from rocketline.cli import verbs
from rocketline.cli.verb import VERBS
from rocketline.client import ClientOptions, ConsumeFrom, RetryLater, blocking
from rocketline.client.timing import ClientTiming
from rocketline.errors import RouteNotFound
from rocketline.message import Message, MessageView
from rocketline.protocol.bodies import RegisterBrokerBody, TopicConfig, encode_registration
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.connection import frame_bytes
from rocketline.protocol.headers import RegisterBrokerHeader
from rocketline.testing import LocalCluster
from rocketline.transport.client import split_address

CLUSTER = "DefaultCluster"

Called = Callable[..., Any]
Admin = Callable[..., Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def admin(called: Called, cluster: LocalCluster) -> Admin:
    """Runs a verb that must succeed; its rows as a script gets them."""

    def run(verb: str, *arguments: object, code: int = 0) -> Any:
        result = called("admin", verb, *arguments, "-n", cluster.namesrv, "--output", "json")
        assert result.returncode == code, result.stderr
        return json.loads(result.stdout)

    return run


@pytest.fixture(scope="module")
def orders(cluster: LocalCluster) -> list[Any]:
    """Four messages of `orders`, on both brokers, and their receipts."""
    asyncio.run(make_topic_everywhere(cluster.namesrv, "orders"))
    with blocking.Producer(cluster.namesrv, group="shop") as producer:
        receipts = []
        for number in range(4):
            message = Message(
                "orders", b"body %d" % number, tag="even" if number % 2 == 0 else "odd", keys=[f"k{number}"]
            )
            receipts.append(producer.send(message))
        return receipts


async def make_topic_everywhere(namesrv: str, topic: str) -> None:
    """A topic that came into being by a send is where that went, which may be one broker."""
    async with asyncio.timeout(PATIENCE_S), Cluster(namesrv) as admin:
        brokers = await admin.brokers()
        for broker in brokers:
            await broker.put_topic(TopicConfig(topic, 4, 4))
        while await _count_brokers(admin, topic) < len(brokers):
            await asyncio.sleep(0.05)


async def _count_brokers(admin: Cluster, topic: str) -> int:
    admin.forget()
    try:
        return len(await admin.brokers_of(topic))
    except RouteNotFound:
        return 0


class Reader:
    """Handles the messages of a group; `fails` lets it refuse all."""

    def __init__(self, count: int, fails: bool = False) -> None:
        self._left = count
        self._fails = fails
        self.done = threading.Event()

    def __call__(self, message: MessageView) -> RetryLater | None:
        self._left -= 1
        if self._left <= 0:
            self.done.set()
        return RetryLater() if self._fails else None


@pytest.fixture(scope="module")
def billing(cluster: LocalCluster, orders: list[Any]) -> Iterator[None]:
    """A consumer of group `billing` that is online and has read all orders."""
    reader = Reader(len(orders))
    timing = ClientTiming(persist_s=0.05)
    with blocking.PushConsumer(
        cluster.namesrv, group="billing", from_where=ConsumeFrom.FIRST, options=ClientOptions(timing=timing)
    ) as consumer:
        consumer.subscribe("orders", "*", reader)
        consumer.start()
        assert reader.done.wait(PATIENCE_S)
        yield


def column(rows: list[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows]


def eventually(condition: Callable[[], bool]) -> None:
    """Bounded polling: a consumer tells its progress in its own time."""
    tick = threading.Event()
    for _ in range(int(PATIENCE_S / 0.05)):
        if condition():
            return
        tick.wait(0.05)
    raise AssertionError("it never came true")


# Brokers and name servers


def test_brokers_are_listed(admin: Admin, cluster: LocalCluster) -> None:
    rows = admin("clusterList")
    assert column(rows, "broker") == ["broker-a", "broker-b"]
    assert column(rows, "address") == [broker.address for broker in cluster.brokers]
    assert column(rows, "active") == [True, True]
    assert column(admin("clusterList", "-m"), "broker") == ["broker-a", "broker-b"]


def test_rates_are_rows_for_each_broker(admin: Admin) -> None:
    rows = admin("clusterRates", "--seconds", "0.05", "--rows", "2")
    assert column(rows, "broker") == ["broker-a", "broker-b"] * 2
    assert all(rate >= 0 for rate in [*column(rows, "in_per_s"), *column(rows, "out_per_s")])


@contextmanager
def registered(namesrv: str, address: str) -> Iterator[None]:
    """A broker that says it is at an address, and is not."""
    header = RegisterBrokerHeader("ghost", address, CLUSTER, 0)
    request = Command(RequestCode.REGISTER_BROKER, header.encode(), encode_registration(RegisterBrokerBody()))
    with socket.create_connection(split_address(namesrv), PATIENCE_S) as connection:
        connection.sendall(frame_bytes(request))
        assert connection.recv(1 << 16)
        yield


def test_an_address_that_cannot_be_reached_is_named(called: Called) -> None:
    with LocalCluster() as cluster, registered(cluster.namesrv, "127.0.0.1:1"):
        result = called("admin", "clusterList", "-n", cluster.namesrv, "--output", "json")
        row = json.loads(result.stdout)[-1]
        assert (row["address"], "Connection refused" in row["version"]) == ("127.0.0.1:1", True)
        result = called("admin", "doctor", "-n", cluster.namesrv, "--output", "json")
        assert result.returncode == 1
        (row,) = json.loads(result.stdout)
        assert (row["level"], row["where"]) == ("error", "ghost 127.0.0.1:1")
        assert "brokerIP1" in row["advice"]


@pytest.mark.parametrize("verb", ["consumerProgress", "dlqList"])
def test_a_result_without_a_broker_says_so(called: Called, verb: str) -> None:
    with LocalCluster() as cluster, registered(cluster.namesrv, "127.0.0.1:1"):
        result = called("admin", verb, "-n", cluster.namesrv, "--output", "json")
        assert result.returncode == 0
        assert isinstance(json.loads(result.stdout), list)
        assert "warning: without ghost 127.0.0.1:1: cannot connect" in result.stderr


def test_a_setting_is_changed_and_shown(admin: Admin, cluster: LocalCluster) -> None:
    address = cluster.brokers[1].address
    admin("updateBrokerConfig", "-b", address, "-k", "fileReservedTime", "-v", 48)
    assert admin("getBrokerConfig", "-b", address)[0]["settings"]["fileReservedTime"] == 48
    (other,) = admin("getBrokerConfig", "-b", cluster.brokers[0].address)
    assert (other["broker"], other["settings"]["fileReservedTime"]) == ("broker-a", 72)


def test_a_broker_tells_how_it_is(admin: Admin, cluster: LocalCluster) -> None:
    assert admin("brokerStatus", "-b", cluster.brokers[0].address)[0]["status"]["brokerActive"] is True
    assert len(admin("brokerStatus", "-c", CLUSTER)) == 2


@pytest.mark.parametrize("verb", ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"])
def test_clean_ups(admin: Admin, verb: str) -> None:
    assert "broker-a" in admin(verb, "-c", CLUSTER)["message"]


def test_name_servers(admin: Admin) -> None:
    assert admin("getNamesrvConfig")[0]["settings"]["orderMessageEnable"] is False
    admin("updateNamesrvConfig", "-k", "waitSecondsForService", "-v", 44)
    assert admin("getNamesrvConfig")[0]["settings"]["waitSecondsForService"] == 44
    admin("updateKvConfig", "-s", "space", "-k", "key", "-v", "value")
    assert admin("getKvConfig", "-s", "space") == {"key": "value"}
    admin("deleteKvConfig", "-s", "space", "-k", "key")


def test_a_broker_is_drained_and_comes_back(admin: Admin, orders: list[Any]) -> None:
    assert "read-only" in admin("wipeWritePerm", "-b", "broker-b")["message"]
    assert column(admin("topicRoute", "-t", "orders"), "permission")[-1] == "R"
    admin("addWritePerm", "-b", "broker-b")
    assert column(admin("topicRoute", "-t", "orders"), "permission")[-1] == "RW"


def test_order_configurations(admin: Admin) -> None:
    admin("updateOrderConf", "-t", "ordered", "-m", "put", "-v", "broker-a:2")
    assert admin("updateOrderConf", "-t", "ordered", "-m", "get") == {"ordered": "broker-a:2"}
    admin("updateOrderConf", "-t", "ordered", "-m", "delete")


# Topics


def test_a_topic_is_made_changed_and_deleted(admin: Admin, called: Called, cluster: LocalCluster) -> None:
    admin("updateTopic", "-t", "made", "-c", CLUSTER, "-r", 3, "-w", 2, "-a", "+message.type=FIFO")
    eventually(lambda: "made" in column(admin("topicList"), "topic"))
    rows = admin("topicRoute", "-t", "made")
    assert [(row["read_queues"], row["write_queues"], row["permission"]) for row in rows] == [(3, 2, "RW")] * 2
    admin("updateTopicPerm", "-t", "made", "-p", 4, "-c", CLUSTER)
    config = cluster.brokers[0].parts.topics.require("made")
    assert (config.perm, config.attributes) == (4, {"message.type": "FIFO"})
    assert admin("topicClusterList", "-t", "made") == [{"cluster": CLUSTER}]
    assert len(admin("topicStatus", "-t", "made")) == 6
    admin("deleteTopic", "-t", "made", "-c", CLUSTER)
    result = called("admin", "topicStatus", "-t", "made", "-n", cluster.namesrv)
    assert (result.returncode, "'made' has no route" in result.stderr) == (1, True)


def test_topics_of_the_system_are_shown_with_all(admin: Admin, orders: list[Any], billing: None) -> None:
    shown, every = column(admin("topicList"), "topic"), column(admin("topicList", "--all"), "topic")
    assert "orders" in shown
    own = {"TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "broker-a", CLUSTER, "%RETRY%billing"}
    assert (own & set(shown), own - set(every)) == (set(), set())
    assert [name for name in shown if name.startswith(("%", "rmq_sys_", "RMQ_SYS_"))] == []


def test_topics_and_groups_from_files(admin: Admin, tmp_path: Path, cluster: LocalCluster) -> None:
    topics, groups = tmp_path / "topics.json", tmp_path / "groups.json"
    topics.write_text('[{"topicName":"listed1","readQueueNums":1},{"topicName":"listed2","perm":4}]')
    groups.write_text('[{"groupName":"listed","retryMaxTimes":2}]')
    admin("updateTopicList", "-f", topics, "-b", cluster.brokers[0].address)
    admin("updateSubGroupList", "-f", groups, "-b", cluster.brokers[0].address)
    assert cluster.brokers[0].parts.topics.require("listed1").read_queue_nums == 1
    assert cluster.brokers[0].parts.groups.require("listed").retry_max_times == 2


def test_what_lies_in_a_topic(admin: Admin, orders: list[Any]) -> None:
    rows = admin("topicStatus", "-t", "orders")
    assert sum(column(rows, "messages")) == 4
    for row in rows:
        assert row["last_stored"] > 1_600_000_000_000 if row["messages"] else row["last_stored"] is None


def test_topics_with_their_clusters_and_groups(admin: Admin, billing: None) -> None:
    wanted = {"clusters": [CLUSTER], "topic": "orders", "group": "billing"}
    eventually(lambda: wanted in admin("topicList", "-c"))
    eventually(lambda: {"group": "billing", "lag": 0} in [
        {"group": row["group"], "lag": row["lag"]} for row in admin("statsAll", "-t", "orders")
    ])  # fmt: skip


def test_how_queues_would_be_shared(admin: Admin, orders: list[Any]) -> None:
    rows = admin("allocateMQ", "-t", "orders", "-i", "10.0.0.2,10.0.0.1")
    assert {row["consumer"] for row in rows} == {"10.0.0.1", "10.0.0.2"}
    assert len(rows) == 8


# Groups and their progress


def test_a_group_is_made_and_deleted(admin: Admin, cluster: LocalCluster) -> None:
    admin("updateSubGroup", "-g", "made", "-c", CLUSTER, "-r", 5, "-o", "true", "-s", "false")
    settings = admin("getConsumerConfig", "-g", "made")[0]["settings"]
    assert (settings["retryMaxTimes"], settings["consumeMessageOrderly"], settings["consumeEnable"]) == (5, True, False)
    assert "made" in column(admin("groupList"), "group")
    admin("deleteSubGroup", "-g", "made", "-c", CLUSTER, "-r", "true")
    assert "made" not in column(admin("groupList"), "group")


def test_progress_of_a_group_that_has_read_all(admin: Admin, billing: None) -> None:
    eventually(lambda: sum(column(admin("consumerProgress", "-g", "billing", "-t", "orders"), "consumed")) == 4)
    rows = admin("consumerProgress", "-g", "billing", "-t", "orders")
    assert (sum(column(rows, "end")), sum(column(rows, "lag"))) == (4, 0)
    owners = set(column(admin("consumerProgress", "-g", "billing", "-t", "orders", "-s", "true"), "client"))
    assert len(owners) == 1
    assert all("@" in owner for owner in owners)
    (row,) = [row for row in admin("consumerProgress") if row["group"] == "billing"]
    assert (row["topics"], row["lag"]) == (["orders"], 0)
    (row,) = [row for row in admin("whoConsumes", "-t", "orders") if row["group"] == "billing"]
    assert row["lag"] == 0
    assert {row["waiting_s"] for row in admin("consumeTimeSpan", "-g", "billing", "-t", "orders")} == {0}


def test_progress_of_a_group_without_members_names_no_client(
    admin: Admin, orders: list[Any], cluster: LocalCluster
) -> None:
    with blocking.PushConsumer(cluster.namesrv, group="absent", from_where=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("orders", lambda message: None)
        consumer.start()
    assert set(column(admin("consumerProgress", "-g", "absent", "-s", "true"), "client")) == {""}


def test_groups_of_the_system_are_shown_with_all(admin: Admin, billing: None) -> None:
    shown, every = column(admin("groupSummary"), "group"), column(admin("groupSummary", "--all"), "group")
    assert "billing" in shown
    assert ("TOOLS_CONSUMER" in shown, "TOOLS_CONSUMER" in every) == (False, True)


def test_progress_is_moved_and_given_to_another_group(admin: Admin, orders: list[Any], cluster: LocalCluster) -> None:
    admin("updateSubGroup", "-g", "away", "-c", CLUSTER)
    assert sum(column(admin("skipAccumulatedMessage", "-g", "away", "-t", "orders"), "new_offset")) == 4
    assert sum(column(admin("resetOffsetByTime", "-g", "away", "-t", "orders", "-s", 0), "new_offset")) == 0
    place = orders[0].queue
    (broker,) = [broker for broker in cluster.brokers if broker.name == place.broker_name]
    one = ("-b", broker.address, "-q", place.queue_id, "-o", 1)
    (row,) = admin("resetOffsetByTime", "-g", "away", "-t", "orders", "-s", 0, *one)
    assert row["new_offset"] == 1
    admin("cloneGroupOffset", "-s", "away", "-d", "copy", "-t", "orders")
    assert broker.parts.offsets.get("copy", "orders", place.queue_id) == 1


def test_who_is_connected(admin: Admin, billing: None, cluster: LocalCluster) -> None:
    tables = admin("consumerConnection", "-g", "billing")
    (client,) = tables["consumers"]
    assert (client["language"], client["version"]) == ("PYTHON", "V5_4_0")
    assert {row["topic"] for row in tables["subscriptions"]} == {"orders", "%RETRY%billing"}
    state = admin("consumerStatus", "-g", "billing", "-s")
    assert {row["topic"] for row in state["queues"]} == {"orders", "%RETRY%billing"}
    assert client["client"] in column(state["stacks"], "client")
    assert set(column(admin("getConsumerStatus", "-g", "billing", "-t", "orders"), "client")) == {client["client"]}
    with blocking.Producer(cluster.namesrv, group="makers") as producer:
        producer.send(Message("orders2", b"x"))
        eventually(lambda: "makers" in column(admin("producer"), "group"))
        assert len(admin("producerConnection", "-g", "makers", "-t", "orders2")) == 1
    assert admin("brokerConsumeStats", "-b", cluster.brokers[0].address) is not None


# Messages


def test_messages_are_found(admin: Admin, orders: list[Any]) -> None:
    for number, receipt in enumerate(orders):
        body, queue = f"body {number}", receipt.queue
        assert admin("queryMsgByUniqueKey", "-t", "orders", "-i", receipt.message_id)[0]["body"] == body
        (found,) = admin("queryMsgById", "-i", receipt.offset_id)
        assert (found["body"], found["queue_offset"], found["keys"]) == (body, receipt.queue_offset, [f"k{number}"])
        assert found["message_id"] == receipt.message_id
        assert isinstance(found["consumed_by"], list)
        place = ("-b", queue.broker_name, "-i", queue.queue_id, "-o", receipt.queue_offset)
        assert admin("queryMsgByOffset", "-t", "orders", *place)[0]["body"] == body
        assert column(admin("queryMsgByKey", "-t", "orders", "-k", f"k{number}"), "body") == [body]
        address = admin("decodeMessageId", "-i", receipt.offset_id)["address"]
        (row,) = admin(
            "queryCq", "-t", "orders", "-q", queue.queue_id, "-i", receipt.queue_offset, "-c", 1, "-b", address
        )
        assert row["log_offset"] == found["log_offset"]


def test_stretches_of_a_topic_are_read(admin: Admin, orders: list[Any], called: Called, cluster: LocalCluster) -> None:
    assert sorted(column(admin("printMsg", "-t", "orders"), "body")) == [f"body {number}" for number in range(4)]
    assert sorted(column(admin("printMsg", "-t", "orders", "-s", "even"), "body")) == ["body 0", "body 2"]
    assert admin("printMsg", "-t", "orders", "-b", "2099-01-01T00:00:00") == []
    assert admin("consumeMessage", "-t", "orders", "-e", "2001-01-01#00:00:00:000") == []
    assert len(admin("consumeMessage", "-t", "orders", "-c", 3)) == 3
    queue = orders[0].queue
    place = ("-a", queue.broker_name, "-i", queue.queue_id)
    assert "body 0" in column(admin("printMsgByQueue", "-t", "orders", *place), "body")
    tags = admin("printMsgByQueue", "-t", "orders", *place, "-f", "true", "-p", "false")
    assert sum(column(tags["tags"], "messages")) >= 1
    result = called("admin", "printMsg", "-t", "orders", "--max", 2, "-n", cluster.namesrv)
    assert "there are more than these 2" in result.stdout


def test_a_message_is_sent(admin: Admin) -> None:
    (row,) = admin("sendMessage", "-t", "sent", "-p", "grüße", "-k", "a b", "-c", "T")
    assert row["status"] == "SEND_OK"
    (found,) = admin("queryMsgByUniqueKey", "-t", "sent", "-i", row["id"])
    assert (found["body"], found["keys"], found["tag"]) == ("grüße", ["a", "b"], "T")
    (row,) = admin("sendMessage", "-t", "sent", "-p", "x", "-b", row["broker"], "-i", row["queue"])
    (again,) = admin("queryMsgById", "-i", row["offset_id"], "-s", "true")
    assert (again["body"], "sent again as" in again["message"]) == ("x", True)
    assert len(admin("printMsg", "-t", "sent")) == 3


def test_sends_are_timed(admin: Admin) -> None:
    assert column(admin("checkMsgSendRT", "-t", "sent", "-a", 3), "stored") == [True] * 3
    assert set(column(admin("sendMsgStatus", "-b", "broker-a", "-c", 2), "broker")) == {"broker-a"}
    assert column(admin("clusterRT", "-a", 2), "failed") == [0, 0]


def test_a_message_is_handed_to_a_consumer(admin: Admin, billing: None, orders: list[Any]) -> None:
    (client,) = admin("consumerConnection", "-g", "billing")["consumers"]
    arguments = ("-t", "orders", "-i", orders[0].message_id, "-g", "billing", "-d", client["client"])
    (found,) = admin("queryMsgByUniqueKey", *arguments)
    assert (found["handled"]["client"], found["handled"]["result"]) == (client["client"], "CR_SUCCESS")


# Dead letters


@pytest.fixture(scope="module")
def dead(cluster: LocalCluster) -> None:
    """Two messages that group `doomed` failed at once too often."""
    with blocking.Producer(cluster.namesrv, group="shop2") as producer:
        for number in range(2):
            producer.send(
                Message("doomed_orders", b"dead %d" % number, tag="T", keys=[f"d{number}"], properties={"mine": "1"})
            )
    reader = Reader(2, fails=True)
    with blocking.PushConsumer(
        cluster.namesrv, group="doomed", from_where=ConsumeFrom.FIRST, max_reconsume_times=0
    ) as consumer:
        consumer.subscribe("doomed_orders", "*", reader)
        consumer.start()
        assert reader.done.wait(PATIENCE_S)


def test_dead_letters_are_listed_shown_sent_again_and_exported(
    admin: Admin, called: Called, dead: None, tmp_path: Path, cluster: LocalCluster
) -> None:
    eventually(lambda: [(row["group"], row["dead_letters"]) for row in admin("dlqList")] == [("doomed", 2)])
    rows = admin("dlqShow", "-g", "doomed")
    assert sorted(column(rows, "body")) == ["dead 0", "dead 1"]
    assert set(column(rows, "topic")) == {"doomed_orders"}
    chosen = rows[0]
    assert admin("dlqShow", "-g", "doomed", "-i", chosen["id"])[0]["body"] == chosen["body"]

    assert column(admin("dlqRedrive", "-g", "doomed", "--dryRun"), "topic") == ["doomed_orders"] * 2
    assert len(admin("printMsg", "-t", "doomed_orders")) == 2, "a dry run sends nothing"
    (sent,) = admin("dlqRedrive", "-g", "doomed", "-i", chosen["id"])
    (again,) = admin("queryMsgByUniqueKey", "-t", "doomed_orders", "-i", sent["sent_as"])
    assert (again["body"], again["tag"], again["reconsume_times"]) == (chosen["body"], "T", 0)
    assert again["properties"]["mine"] == "1"
    assert "RETRY_TOPIC" not in again["properties"]
    admin("dlqRedrive", "-g", "doomed", "-t", "elsewhere")
    assert len(admin("printMsg", "-t", "elsewhere")) == 2

    path = tmp_path / "letters.jsonl"
    admin("dlqExport", "-g", "doomed", "-f", path)
    assert sorted(json.loads(line)["body"] for line in path.read_text().splitlines()) == ["dead 0", "dead 1"]
    result = called("admin", "dlqExport", "-g", "doomed", "-f", path, "-n", cluster.namesrv)
    assert (result.returncode, "File exists" in result.stderr) == (1, True)


# Health, exports, output


def test_a_sound_cluster_has_nothing_wrong(called: Called) -> None:
    with LocalCluster() as cluster:
        result = called("admin", "doctor", "-n", cluster.namesrv)
        assert (result.returncode, "no problem" in result.stdout) == (0, True)


def test_members_that_contradict_each_other_are_found(called: Called, cluster: LocalCluster, orders: list[Any]) -> None:
    timing = ClientTiming(persist_s=0.05)
    with (
        blocking.PushConsumer(
            cluster.namesrv, group="torn", from_where=ConsumeFrom.FIRST, options=ClientOptions(timing=timing)
        ) as one,
        blocking.PushConsumer(
            cluster.namesrv, group="torn", from_where=ConsumeFrom.FIRST, options=ClientOptions(timing=timing)
        ) as other,
    ):
        one.subscribe("orders", "even", Reader(1))
        other.subscribe("orders", "odd", Reader(1))
        one.start()
        other.start()

        def is_found() -> bool:
            result = called("admin", "doctor", "--pause", 0, "-n", cluster.namesrv, "--output", "json")
            rows = json.loads(result.stdout)
            return any(row["where"] == "group torn" and "orders (even)" in row["problem"] for row in rows)

        eventually(is_found)


def test_no_name_server_is_one_line_and_exit_code_1(called: Called) -> None:
    result = called("admin", "topicList", "-n", "127.0.0.1:1")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line == "error: no name server answers: cannot connect to 127.0.0.1:1: Connection refused"


def test_a_second_name_server_helps_out(called: Called, cluster: LocalCluster) -> None:
    assert called("admin", "topicList", "-n", f"127.0.0.1:1;{cluster.namesrv}").returncode == 0
    result = called("admin", "doctor", "-n", f"127.0.0.1:1;{cluster.namesrv}", "--output", "json")
    assert result.returncode == 1
    assert "127.0.0.1:1" in column(json.loads(result.stdout), "where")


def test_exports(admin: Admin, tmp_path: Path, orders: list[Any]) -> None:
    admin("exportMetadata", "-f", tmp_path)
    metadata = json.loads((tmp_path / "metadata.json").read_text())
    assert metadata["topicConfigTable"]["orders"]["perm"] == 6
    assert "TOOLS_CONSUMER" in metadata["subscriptionGroupTable"]
    admin("exportConfigs", "-c", CLUSTER, "-f", tmp_path)
    assert json.loads((tmp_path / "configs.json").read_text())["brokerConfigs"]["broker-a"]["brokerPermission"] == "6"
    admin("exportMetrics", "-c", CLUSTER, "-f", tmp_path)
    assert json.loads((tmp_path / "metrics.json").read_text())["sizes"]["broker-a"]["topicSize"] > 5


def test_output_for_spreadsheets_and_pipes(called: Called, cluster: LocalCluster) -> None:
    result = called("admin", "clusterList", "-n", cluster.namesrv, "--output", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["broker"] for row in rows] == ["broker-a", "broker-b"]
    result = called("admin", "clusterList", "-n", cluster.namesrv)
    header, *lines = result.stdout.splitlines()
    assert (header.split("\t")[0], len(lines)) == ("cluster", 2)


def test_a_watch_goes_on_until_it_is_ended(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, called: Called
) -> None:
    from rocketline.cli import admin as command

    shown: list[Any] = []

    def show(tables: Any, output: str) -> None:
        shown.append(tables)
        if len(shown) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(command, "show", show)
    assert called("admin", "topicList", "--watch", 0.1, "-n", cluster.namesrv).returncode == 130
    assert len(shown) == 3


@pytest.mark.parametrize("name", ["topicStatus", "topic-status", "TOPICSTATUS", "topic_status"])
def test_names_are_understood_in_any_form(admin: Admin, orders: list[Any], name: str) -> None:
    assert sum(column(admin(name, "--topic", "orders"), "messages")) == 4


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["fly"], "there is no verb 'fly'"),
        (["topicStatu"], "did you mean 'topicStatus'"),
        (["topicStatus"], "-t/--topic"),
        (["topicStatus", "-t", "x", "--wings"], "--wings"),
        (["updateTopic", "-t", "x"], "which broker?"),
        (["updateTopic", "-t", "x", "-c", CLUSTER, "-o", "perhaps"], "neither true nor false"),
        (["updateTopic", "-t", "x", "-c", CLUSTER, "-r", "many"], "-r"),
        (["updateTopic", "-t", "x", "-c", CLUSTER, "-a", "colour"], "+name=value"),
        (["resetOffsetByTime", "-g", "g", "-t", "t", "-s", "yesterday"], "is not a time"),
        (["resetOffsetByTime", "-g", "g", "-t", "t", "-s", "0", "-q", "1"], "-q needs -b"),
        (["sendMessage", "-t", "x", "-p", "y", "-b", "broker-a"], "belong together"),
        (["topicList", "--output", "xml"], "--output"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    called: Called, cluster: LocalCluster, arguments: list[str], named: str
) -> None:
    result = called("admin", *arguments, "-n", cluster.namesrv)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert named in line
    assert result.stdout == ""


@pytest.mark.parametrize("name", sorted(VERBS))
def test_every_verb_explains_itself(called: Called, name: str) -> None:
    assert verbs.__all__
    result = called("admin", name, "--help")
    assert result.returncode == 0
    assert f"rocketline admin {name}" in result.stdout


def test_all_verbs_are_listed(called: Called) -> None:
    result = called("admin")
    assert result.returncode == 0
    assert [name for name in VERBS if name not in result.stdout] == []
    assert len(VERBS) >= 55


def test_control_characters_of_others_do_not_reach_the_terminal(
    called: Called, cluster: LocalCluster, admin: Admin
) -> None:
    admin("sendMessage", "-t", "evil", "-p", "a\x1b[31mb\tc")
    result = called("admin", "printMsg", "-t", "evil", "-n", cluster.namesrv)
    assert "a\\x1b[31mb\\tc" in result.stdout
    assert "\x1b" not in result.stdout
