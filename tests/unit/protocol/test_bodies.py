from __future__ import annotations

import json

import msgspec
import pytest
from tests.golden.wire.load import config, ids

from rocketline.errors import ConfigError, RemoteProtocolError
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerConnection,
    ConsumerOffsetTable,
    ConsumeStats,
    DataVersion,
    DelayOffsetTable,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MappingItem,
    OffsetWrapper,
    QueueBody,
    QueueData,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
    TopicStatsTable,
    decode_body,
    decode_file,
    decode_reset_offsets,
    encode_body,
    encode_route,
    parse_queue_key,
    pretty_json,
    queue_key,
)
from rocketline.protocol.bodies.consuming import StatsItem
from rocketline.protocol.fastjson import MAX_LOOSE_CHARS, parse
from rocketline.protocol.hashing import java_string_hash

QUEUE = MessageQueue("T ü", 'b"1', 3)


def test_null_members_are_never_written() -> None:
    assert json.loads(encode_body(TopicList(["null"]))) == {"topicList": ["null"]}
    assert json.loads(encode_body(ConsumerConnection())) == {"connectionSet": [], "subscriptionTable": {}}
    route = TopicRouteData([BrokerData("c", "b", {0: "a:1"})])
    assert b"null" not in encode_body(route)


def test_defaults_are_written() -> None:
    assert json.loads(encode_body(SubscriptionGroupConfig("G"))) == {
        "groupName": "G", "consumeEnable": True, "consumeFromMinEnable": True, "consumeBroadcastEnable": True,
        "consumeMessageOrderly": False, "retryQueueNums": 1, "retryMaxTimes": 16, "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1, "notifyConsumerIdsChangedEnable": True, "groupSysFlag": 0,
        "consumeTimeoutMinute": 15, "attributes": {},
    }  # fmt: skip


def test_doubles_keep_their_fraction() -> None:
    assert b'"consumeTps":0.0' in encode_body(ConsumeStats())


def test_explicit_null_counts_as_absent() -> None:
    heartbeat = decode_body(
        HeartbeatData,
        b'{"clientID":"c","producerDataSet":null,"consumerDataSet":[{"groupName":"G","subscriptionDataSet":'
        b'[{"topic":"T","tagsSet":null,"codeSet":null,"subString":null}],"consumeType":null},null]}',
    )
    (consumer,) = heartbeat.consumer_data_set
    assert consumer.consume_type == "CONSUME_PASSIVELY"
    (subscription,) = consumer.subscription_data_set
    assert (subscription.tags_set, subscription.code_set, subscription.sub_string) == ([], [], "*")
    assert heartbeat.producer_data_set == []


def test_defaults_are_not_shared() -> None:
    first, second = decode_body(TopicList, b"{}"), decode_body(TopicList, b"{}")
    first.topic_list.append("T")
    assert second.topic_list == []


def test_enum_ordinals_as_cpp_clients_send_them() -> None:
    (consumer,) = decode_body(
        HeartbeatData,
        b'{"clientID":"c","consumerDataSet":[{"groupName":"G","consumeType":1,"messageModel":0,"consumeFromWhere":4}]}',
    ).consumer_data_set
    assert consumer.consume_type == "CONSUME_PASSIVELY"
    assert consumer.message_model == "BROADCASTING"
    assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"


@pytest.mark.parametrize("perm", [-(2**31), 2**31 - 1])
def test_numbers_have_32_bits(perm: int) -> None:
    text = '{"topicName":"T","perm":%d}'
    assert decode_body(TopicConfig, (text % perm).encode()).perm == perm
    with pytest.raises(RemoteProtocolError, match="perm"):
        decode_body(TopicConfig, (text % (perm + (1 if perm > 0 else -1))).encode())


def test_absent_members_are_what_java_makes_them() -> None:
    assert decode_body(OffsetWrapper, b"{}") == OffsetWrapper(0, 0, 0, 0)
    assert decode_body(MappingItem, b"{}") == MappingItem(0, 0, None, 0, 0, -1, -1, -1)
    assert decode_body(DataVersion, b"{}") == DataVersion(0, 0, 0)
    assert decode_body(TopicConfig, b'{"topicName":"T"}') == TopicConfig("T", 16, 16, 6, "SINGLE_TAG", 0, False, {})


def test_numbers_as_text_and_unknown_members() -> None:
    data = decode_body(QueueData, b'{"brokerName":"b","readQueueNums":"4","writeQueueNums":4,"perm":"6","x":{"y":[1]}}')
    assert data == QueueData("b", 4, 4, 6)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"7", b"null", b"{", b'{"clientID":7}', b'{"clientID":"c","producerDataSet":{}}', b"\xff\xfe",
        b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{"topic":"T","codeSet":["x"]}]}]}',
        b'{"clientID":"c","heartbeatFingerprint":2147483648}', b'{"clientID":"c","withoutSub":"maybe"}',
        b'{"producerDataSet":[]}', b'{"clientID":"c","consumerDataSet":[{"$ref":"$"}]}', b"[" * 1_000_000,
        b'{"clientID":"c","x":' + b"[" * 1_000_000, b'{"clientID":"c","x":' + b"{a:" * 100_000,
    ],
)  # fmt: skip
def test_wrong_shapes(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="HeartbeatData"):
        decode_body(HeartbeatData, data)


def test_references_are_refused_even_where_they_would_fit() -> None:
    with pytest.raises(RemoteProtocolError, match="references are not supported"):
        decode_body(TopicConfig, b'{"topicName":"T","attributes":{"$ref":"$.x"}}')


def test_integer_keys_in_every_form() -> None:
    for data in (b'{"cluster":"c","brokerName":"b","brokerAddrs":{0:"a:1",1:"b:1"}}',
                 b'{"cluster":"c","brokerName":"b","brokerAddrs":{"0":"a:1","1":"b:1"}}'):  # fmt: skip
        broker = decode_body(BrokerData, data)
        assert broker.broker_addrs == {0: "a:1", 1: "b:1"}
        assert b'"brokerAddrs":{"0":"a:1","1":"b:1"}' in encode_body(broker)
    with pytest.raises(RemoteProtocolError):
        decode_body(BrokerData, b'{"cluster":"c","brokerName":"b","brokerAddrs":{"x":"a:1"}}')


def test_queue_keys_round_trip() -> None:
    assert queue_key(QUEUE) == '{"brokerName":"b\\"1","queueId":3,"topic":"T ü"}'
    assert parse_queue_key(queue_key(QUEUE)) == QUEUE
    assert parse_queue_key("{topic:'T',queueId:'1',brokerName:'b',}") == MessageQueue("T", "b", 1)


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "{}", '{"brokerName":"b","queueId":1}', '{"brokerName":1,"queueId":1,"topic":"T"}', "\ud800"],
)
def test_queue_keys_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_queue_key(text)


def test_maps_keyed_by_queue() -> None:
    stats = ConsumeStats(1.5, {queue_key(QUEUE): OffsetWrapper(9, 5, 6, 7)})
    written = encode_body(stats)
    assert decode_body(ConsumeStats, written) == stats
    assert f'"offsetTable":{{{queue_key(QUEUE)}:'.encode() in written, "bare: Java 5.x cannot read it as a string"
    assert f"{queue_key(QUEUE)}:".encode() in pretty_json(stats)
    quoted = encode_body({"offsetTable": {"x" + queue_key(QUEUE): {}}})
    assert list(json.loads(quoted)["offsetTable"]) == ["x" + queue_key(QUEUE)]
    quoted = encode_body({"value": queue_key(QUEUE), '"' + queue_key(QUEUE): 1})
    assert json.loads(quoted) == {"value": queue_key(QUEUE), '"' + queue_key(QUEUE): 1}
    bare = b'{"offsetTable":{{"topic":"T","brokerName":"b","queueId":2}:{"brokerOffset":4}}}'
    (key,) = decode_body(ConsumeStats, bare).offset_table
    assert key == queue_key(MessageQueue("T", "b", 2))


def test_locks() -> None:
    body = LockBatchRequestBody("G", "c", [QueueBody.of(QUEUE)])
    again = decode_body(LockBatchRequestBody, encode_body(body))
    assert [item.queue for item in again.mq_set] == [QUEUE]
    assert json.loads(encode_body(LockBatchResponseBody([QueueBody.of(QUEUE)]))) == {
        "lockOKMQSet": [{"brokerName": 'b"1', "queueId": 3, "topic": "T ü"}]
    }


def test_reset_offsets_in_map_and_list_form() -> None:
    wanted = ResetOffsetBody({queue_key(MessageQueue("T", "b", 1)): 42})
    assert decode_reset_offsets(b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:42}}') == wanted
    assert decode_reset_offsets(b'{"offsetTable":[{"brokerName":"b","queueId":1,"topic":"T","offset":42}]}') == wanted
    assert decode_reset_offsets(encode_body(wanted)) == wanted
    for data in (b"", b"[]", b'{"offsetTable":7}', b'{"offsetTable":[{"topic":"T"}]}'):
        with pytest.raises(RemoteProtocolError):
            decode_reset_offsets(data)


def test_routes_in_both_forms() -> None:
    route = TopicRouteData(
        [BrokerData("c", "bü😀", {0: "a:1", 2: 'b"\\'})], [QueueData("b", 4, 8, 6)], order_topic_conf="b:4"
    )
    standard, old = encode_route(route, True), encode_route(route, False)
    assert standard.isascii()
    assert json.loads(standard) == parse(old)
    assert b'{0:"a:1",2:"b\\"\\\\"}' in old
    assert decode_body(TopicRouteData, standard) == decode_body(TopicRouteData, old) == route
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(old)


def test_cluster_info_as_apache_sends_it() -> None:
    info = decode_body(
        ClusterInfo,
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"a:1"},"brokerName":"b","cluster":"c"}},"clusterAddrTable":{"c":["b"]}}',
    )
    assert info == ClusterInfo({"b": BrokerData("c", "b", {0: "a:1"})}, {"c": ["b"]})


def test_data_version_counts_up() -> None:
    assert DataVersion(3, 7, 100).advanced(200) == DataVersion(4, 7, 200)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("topics.json", TopicConfigSerializeWrapper),
        ("subscriptionGroup.json", SubscriptionGroupWrapper),
        ("consumerOffset.json", ConsumerOffsetTable),
        ("delayOffset.json", DelayOffsetTable),
    ],
)
def test_config_files_of_apache(name: str, kind: type[msgspec.Struct]) -> None:
    data = config(name)
    table = decode_file(kind, data)
    wanted = parse(data)
    wanted.pop("groupTopicMap", None)
    assert json.loads(pretty_json(table)) == wanted
    assert decode_file(kind, pretty_json(table)) == table


def test_config_files_are_pretty() -> None:
    table = ConsumerOffsetTable(DataVersion(1, 0, 2), {"T@G": {0: 5, 1: 6}})
    assert pretty_json(table).decode() == (
        '{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":0,\n\t\t"timestamp":2\n\t},\n'
        '\t"offsetTable":{\n\t\t"T@G":{\n\t\t\t"0":5,\n\t\t\t"1":6\n\t\t}\n\t}\n}'
    )
    topics = TopicConfigSerializeWrapper(topic_config_table={"ü": TopicConfig("ü")})
    assert decode_file(TopicConfigSerializeWrapper, pretty_json(topics)) == topics
    assert b"null" not in pretty_json(topics)


def test_config_files_may_be_long_and_loose() -> None:
    name = "T" * 100
    entries = ",".join(f'"{name}{number}@G":{{0:{number},1:{number}}}' for number in range(40_000))
    assert len(entries) > MAX_LOOSE_CHARS
    table = decode_file(ConsumerOffsetTable, f'{{"offsetTable":{{{entries}}}}}'.encode())
    assert table.offset_table[f"{name}39999@G"] == {0: 39999, 1: 39999}


@pytest.mark.parametrize("data", [b"", b"{", b'{"offsetTable":[]}', b'{"offsetTable":{"T@G":{"x":1}}}'])
def test_config_files_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match="ConsumerOffsetTable"):
        decode_file(ConsumerOffsetTable, data)


def test_heartbeats_have_all_members_of_javas() -> None:
    """Java's fingerprint hashes the JSON of a heartbeat: it comes out right only if every member is there and in place."""
    for vector in ids()["heartbeat_fingerprint"]:
        heartbeat = decode_body(HeartbeatData, vector["json"].encode())
        assert msgspec.json.encode(heartbeat, order="sorted").decode() == vector["json"]
        heartbeat.client_id = ""
        for consumer in heartbeat.consumer_data_set:
            for subscription in consumer.subscription_data_set:
                subscription.sub_version = 0
        text = msgspec.json.encode(heartbeat, order="sorted").decode()
        assert java_string_hash(text) == vector["fingerprint"]


@pytest.mark.parametrize("name", ["broker-a", 'quo\\"ted', "b}:,{"])
def test_a_large_table_by_queue_is_read_quickly_and_right(name: str) -> None:
    entries = ",".join(
        f'{{"brokerName":"{name}","queueId":{number},"topic":"T"}}:{{"maxOffset":{number}}}' for number in range(20_000)
    )
    table = decode_body(TopicStatsTable, f'{{"offsetTable":{{{entries}}},"topicPutTps":1.5}}'.encode()).offset_table
    assert len(table) == 20_000, "the tolerant reader would refuse this much"
    queues = {parse_queue_key(key): offsets.max_offset for key, offsets in table.items()}
    assert queues[MessageQueue("T", name.replace("\\", ""), 123)] == 123


def test_what_looks_like_a_queue_inside_a_text_stays_text() -> None:
    text = '{"brokerName":"b","queueId":1,"topic":"T"}:'
    body = decode_body(TopicList, json.dumps({"topicList": [text, "," + text], "brokerAddr": text}).encode())
    assert (body.topic_list, body.broker_addr) == ([text, "," + text], text)


def test_a_counter_without_figures_counts_nothing() -> None:
    item = StatsItem()
    assert (item.sum, item.tps, item.avgpt) == (0, 0.0, 0.0)
