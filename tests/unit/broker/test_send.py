"""Sends: what a broker refuses, what it adds, what it answers, and when."""

from __future__ import annotations

import asyncio
import errno
import threading

import pytest
from tests.unit.broker.parts import BROKER, STORE_HOST, GatedDisk, MakeParts, Parts, send_request

from rocketline.message import MessageQueue
from rocketline.protocol.bodies import TopicConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import ONEWAY, ROCKETMQ
from rocketline.protocol.message_ids import decode_host, offset_id, parse_offset_id
from rocketline.protocol.names import NOT_SENDABLE
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.records import BatchItem, Record, decode_record, encode_batch

REGION = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
ILLEGAL_NAMES = [
    "",
    "../../x",
    "/etc/passwd",
    "..",
    "a b",
    "a.b",
    "tab\t",
    "nul\0",
    "line\n",
    "grün",
    "x" * 128,
    "%RETRY%" + "g" * 249,
    "%RETRY%../../x",
    "%DLQ%a b",
]


def stored_record(parts: Parts, answer_ext: dict[str, str]) -> Record:
    _, log_offset = parse_offset_id(answer_ext["msgId"])
    view = parts.store.record_at(log_offset)
    assert view is not None
    return decode_record(view, 0, len(view), check_crc=True)


def nothing_stored(parts: Parts) -> bool:
    return parts.store.log_next_offset == 0 and parts.appends == 0


# The answer


@pytest.mark.parametrize(
    "code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]
)
async def test_an_answer_says_where_the_message_is(parts: Parts, code: int) -> None:
    parts.put_topic("orders")
    peer = parts.peer()
    for queue_offset in range(2):
        answer = peer.ask(send_request(code=code, queue_id=3, body=b"body %d" % queue_offset))
        assert answer.code == ResponseCode.SUCCESS
        assert answer.ext == {
            "msgId": answer.ext["msgId"],
            "queueId": "3",
            "queueOffset": str(queue_offset),
            "transactionId": "7F0000010001AAAA",
            **REGION,
        }
        assert answer.ext["msgId"][: len(STORE_HOST) * 2] == STORE_HOST.hex().upper()
        assert bytes(stored_record(parts, answer.ext).body) == b"body %d" % queue_offset
    assert [message.body for message in parts.messages("orders", 3)] == [b"body 0", b"body 1"]


async def test_the_answer_comes_in_the_encoding_of_the_request(parts: Parts) -> None:
    answer = parts.peer().ask(send_request(encoding=ROCKETMQ))
    assert (answer.encoding, answer.code) == (ROCKETMQ, ResponseCode.SUCCESS)
    assert {"msgId", "queueId", "queueOffset", "transactionId"} | REGION.keys() == answer.ext.keys()


async def test_what_a_producer_sends_is_what_is_stored(parts: Parts) -> None:
    properties = {"UNIQ_KEY": "U1", "TAGS": "größe", "KEYS": "k1 k2", "own": "välue\x7f", "WAIT": "true"}
    answer = parts.peer(("203.0.113.9", 5555)).ask(
        send_request(body=b"\x00\xff" * 50, queue_id=2, properties=properties, flag=-7, sys_flag=0x1, reconsume_times=3)
    )
    record = stored_record(parts, answer.ext)
    assert (record.topic, record.queue_id, record.queue_offset) == ("orders", 2, 0)
    assert (record.flag, record.sys_flag, record.reconsume_times) == (-7, 0x1, 3)
    assert (record.born_ms, record.store_ms) == (1_600_000_000_123, parts.clock.now_ms())
    assert decode_host(record.born_host) == "203.0.113.9:5555"
    assert decode_host(record.store_host) == "10.9.8.7:10911"
    assert bytes(record.body) == b"\x00\xff" * 50
    added = {**REGION, "CLUSTER": "DefaultCluster"}
    assert decode_properties(record.properties.decode()) == properties | added


async def test_a_peer_with_an_ipv6_address_is_stored_as_such(parts: Parts) -> None:
    answer = parts.peer(("2001:db8::7", 9)).ask(send_request())
    record = stored_record(parts, answer.ext)
    assert decode_host(record.born_host) == "[2001:db8::7]:9"
    assert decode_host(record.store_host) == "10.9.8.7:10911"


async def test_a_oneway_send_is_stored_and_never_answered(parts: Parts) -> None:
    peer = parts.peer()
    sent = send_request()
    sent.flag |= ONEWAY
    refused = send_request(topic="../../x")
    refused.flag |= ONEWAY
    peer.send(sent, refused)
    assert peer.received() == []
    assert [message.body for message in parts.messages("orders")] == [b"hello"]


async def test_the_dispatcher_is_told_of_every_append_and_of_no_refusal(parts: Parts) -> None:
    peer = parts.peer()
    peer.ask(send_request())
    peer.ask(send_request(topic="a b"))
    assert parts.appends == 1


# Properties the broker adds or takes away


@pytest.mark.parametrize("end", ["", "\x02"])
async def test_a_property_string_may_lack_its_last_separator(parts: Parts, end: str) -> None:
    """Apache's 4.9 clients leave it out."""
    answer = parts.peer().ask(send_request(properties=f"UNIQ_KEY\x01U1\x02TAGS\x01a{end}"))
    raw = stored_record(parts, answer.ext).properties.decode()
    assert raw.startswith("UNIQ_KEY\x01U1\x02TAGS\x01a\x02")
    assert decode_properties(raw) == {"UNIQ_KEY": "U1", "TAGS": "a", "CLUSTER": "DefaultCluster", **REGION}


async def test_a_message_without_unique_id_gets_one(parts: Parts) -> None:
    peer = parts.peer()
    answers = [peer.ask(send_request(properties=properties)) for properties in ("", "TAGS\x01a\x02")]
    ids = [answer.ext["transactionId"] for answer in answers]
    assert len(set(ids)) == 2
    for answer, unique in zip(answers, ids):
        assert len(bytes.fromhex(unique)) == 16
        assert decode_properties(stored_record(parts, answer.ext).properties.decode())["UNIQ_KEY"] == unique


async def test_a_message_that_was_popped_before_loses_its_check_point(parts: Parts) -> None:
    answer = parts.peer().ask(send_request(properties={"UNIQ_KEY": "U1", "POP_CK": "0 1 2 3", "x": "y"}))
    stored = decode_properties(stored_record(parts, answer.ext).properties.decode())
    assert stored == {"UNIQ_KEY": "U1", "x": "y", "CLUSTER": "DefaultCluster", **REGION}


async def test_a_client_cannot_name_another_cluster_region_or_trace_switch(parts: Parts) -> None:
    forged = {"UNIQ_KEY": "U1", "CLUSTER": "other", "MSG_REGION": "other", "TRACE_ON": "false"}
    raw = stored_record(parts, parts.peer().ask(send_request(properties=forged)).ext).properties.decode()
    assert decode_properties(raw) == {"UNIQ_KEY": "U1", "CLUSTER": "DefaultCluster", **REGION}
    assert raw.count("CLUSTER\x01") == 1


# Refusals, in the order in which they are checked


async def test_a_broker_that_may_not_be_written_to_refuses_and_creates_nothing(make_parts: MakeParts) -> None:
    parts = make_parts(permission=4)
    parts.put_topic("known")
    before = set(parts.topics.table)
    for topic in ("known", "unknown", "%RETRY%readers"):
        answer = parts.peer().ask(send_request(topic=topic))
        assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, REGION)
        assert "broker" in answer.remark
    assert nothing_stored(parts)
    assert set(parts.topics.table) == before


@pytest.mark.parametrize("name", ILLEGAL_NAMES)
@pytest.mark.parametrize("batch", [False, True])
async def test_an_illegal_name_is_refused(parts: Parts, name: str, batch: bool) -> None:
    before = set(parts.topics.table)
    answer = parts.peer().ask(send_request(topic=name, batch=batch))
    assert (answer.code, answer.ext) == (ResponseCode.INVALID_PARAMETER, REGION)
    assert "topic" in answer.remark
    assert nothing_stored(parts)
    assert set(parts.topics.table) == before


@pytest.mark.parametrize("name", sorted(NOT_SENDABLE))
async def test_a_topic_of_the_system_cannot_be_sent_to(parts: Parts, name: str) -> None:
    answer = parts.peer().ask(send_request(topic=name))
    assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, REGION)
    assert name in answer.remark
    assert nothing_stored(parts)


@pytest.mark.parametrize("template", ["no-such-topic", "plain", "", "../../x"])
async def test_an_unknown_topic_needs_a_template_that_may_be_inherited(parts: Parts, template: str) -> None:
    parts.put_topic("plain", perm=6)
    answer = parts.peer().ask(send_request(topic="unknown", template=template))
    assert (answer.code, answer.ext) == (ResponseCode.TOPIC_NOT_EXIST, REGION)
    assert "topic[unknown] not exist" in answer.remark
    assert parts.topics.get("unknown") is None
    assert nothing_stored(parts)


async def test_without_auto_creation_an_unknown_topic_stays_unknown(make_parts: MakeParts) -> None:
    parts = make_parts(auto_create_topics=False)
    assert parts.peer().ask(send_request(topic="unknown")).code == ResponseCode.TOPIC_NOT_EXIST
    assert parts.topics.get("TBW102") is None


async def test_a_dead_letter_topic_is_not_made_by_sending_to_it(parts: Parts) -> None:
    assert parts.peer().ask(send_request(topic="%DLQ%readers")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_topic_may_forbid_writing(parts: Parts) -> None:
    parts.put_topic("read-only", perm=4)
    answer = parts.peer().ask(send_request(topic="read-only"))
    assert (answer.code, answer.ext) == (ResponseCode.NO_PERMISSION, REGION)
    assert "read-only" in answer.remark
    assert nothing_stored(parts)


@pytest.mark.parametrize("properties", [None, {"TRAN_MSG": "true"}])
async def test_a_queue_the_topic_does_not_have_is_refused(parts: Parts, properties: dict[str, str] | None) -> None:
    parts.put_topic("orders", queue_count=4)
    answer = parts.peer().ask(send_request(queue_id=4, properties=properties))
    assert (answer.code, answer.ext) == (ResponseCode.INVALID_PARAMETER, REGION)
    assert "queueId[4]" in answer.remark
    assert nothing_stored(parts)


async def test_any_queue_below_the_larger_queue_count_will_do(parts: Parts) -> None:
    parts.peer()
    parts.topics.put([parts.topics.require("BenchmarkTest")])
    config = parts.topics.require("BenchmarkTest")
    config.write_queue_nums, config.read_queue_nums = 2, 5
    assert parts.peer().ask(send_request("BenchmarkTest", queue_id=4)).code == ResponseCode.SUCCESS
    assert parts.peer().ask(send_request("BenchmarkTest", queue_id=5)).code == ResponseCode.INVALID_PARAMETER


async def test_a_negative_queue_means_any(parts: Parts) -> None:
    parts.put_topic("orders", queue_count=3)
    peer = parts.peer()
    answers = [peer.ask(send_request(queue_id=-1)) for _ in range(60)]
    assert {answer.ext["queueId"] for answer in answers} == {"0", "1", "2"}
    assert sum(len(parts.messages("orders", queue_id)) for queue_id in range(3)) == 60


@pytest.mark.parametrize("tran_msg", [None, "false"])
@pytest.mark.parametrize("sys_flag", [0x4, 0x8, 0xC])
async def test_a_transaction_flag_without_its_property_is_refused(
    parts: Parts, tran_msg: str | None, sys_flag: int
) -> None:
    properties = {"UNIQ_KEY": "U1", **({"TRAN_MSG": tran_msg} if tran_msg else {})}
    answer = parts.peer().ask(send_request(properties=properties, sys_flag=sys_flag))
    assert (answer.code, answer.ext) == (ResponseCode.MESSAGE_ILLEGAL, REGION)
    assert "transaction" in answer.remark
    assert nothing_stored(parts)


async def test_a_property_that_says_no_makes_no_transaction(parts: Parts) -> None:
    plain = parts.peer().ask(send_request(properties={"UNIQ_KEY": "U1", "TRAN_MSG": "false"}))
    assert plain.code == ResponseCode.SUCCESS
    assert len(parts.messages("orders")) == 1


@pytest.mark.parametrize("sys_flag", [0x40, 0x80, 0xC0])
async def test_a_message_that_claims_to_be_a_stored_batch_is_refused(parts: Parts, sys_flag: int) -> None:
    """Such a record would be acknowledged, counted and never be found in its queue."""
    answer = parts.peer().ask(send_request(sys_flag=sys_flag))
    assert (answer.code, answer.ext) == (ResponseCode.MESSAGE_ILLEGAL, REGION)
    assert nothing_stored(parts)


async def test_a_body_over_4_mib_is_refused_and_one_of_4_mib_is_not(make_parts: MakeParts) -> None:
    parts = make_parts(log_segment_bytes=6 << 20)
    peer = parts.peer()
    answer = peer.ask(send_request(body=bytes((4 << 20) + 1)))
    assert (answer.code, answer.ext) == (ResponseCode.MESSAGE_ILLEGAL, REGION)
    assert "4194304" in answer.remark
    assert nothing_stored(parts)
    assert peer.ask(send_request(body=bytes(4 << 20))).code == ResponseCode.SUCCESS
    assert len(parts.messages("orders")[0].body) == 4 << 20


async def test_properties_are_limited_with_what_the_broker_adds(parts: Parts) -> None:
    added = "".join(f"{name}\x01{value}\x02" for name, value in {**REGION, "CLUSTER": "DefaultCluster"}.items())
    room = 32767 - len(added) - len("UNIQ_KEY\x01U1\x02x\x01\x02")
    peer = parts.peer()
    answer = peer.ask(send_request(properties={"UNIQ_KEY": "U1", "x": "v" * (room + 1)}))
    assert (answer.code, answer.ext) == (ResponseCode.MESSAGE_ILLEGAL, REGION)
    assert "32767" in answer.remark
    assert nothing_stored(parts)
    assert peer.ask(send_request(properties={"UNIQ_KEY": "U1", "x": "v" * room})).code == ResponseCode.SUCCESS
    assert parts.messages("orders")[0].properties["x"] == "v" * room


async def test_a_full_store_says_so(parts: Parts) -> None:
    parts.disk.fail("reserve", errno.ENOSPC, forever=True)
    answer = parts.peer().ask(send_request())
    assert (answer.code, answer.ext) == (ResponseCode.SERVICE_NOT_AVAILABLE, REGION)
    assert "No space left" in answer.remark
    parts.disk.heal()
    assert parts.peer().ask(send_request()).ext["queueOffset"] == "0"


# Topics made by sending


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (8, 8), (100, 8), (1, 1), (0, 1), (-3, 1)])
async def test_a_new_topic_gets_the_queues_asked_for_up_to_those_of_its_template(
    parts: Parts, asked: int, made: int
) -> None:
    announced: list[TopicConfig] = []
    parts.topics.subscribe(announced.extend)
    answer = parts.peer().ask(send_request(topic="fresh", queue_count=asked))
    assert answer.code == ResponseCode.SUCCESS
    topic = parts.topics.require("fresh")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (made, made, 6)
    assert announced == [topic]


async def test_a_known_topic_is_neither_changed_nor_announced_by_a_send(parts: Parts) -> None:
    parts.put_topic("orders", queue_count=2)
    parts.topics.subscribe(pytest.fail)
    assert parts.peer().ask(send_request(queue_count=8)).code == ResponseCode.SUCCESS
    assert parts.topics.require("orders").write_queue_nums == 2


# Retry topics


async def test_a_send_to_a_retry_topic_makes_it(make_parts: MakeParts) -> None:
    parts = make_parts(auto_create_topics=False)
    assert parts.peer().ask(send_request("%RETRY%readers")).code == ResponseCode.SUCCESS
    topic = parts.topics.require("%RETRY%readers")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


@pytest.mark.parametrize(
    ("tries", "limit", "version", "dead"),
    [
        (16, None, 493, False),
        (17, None, 493, True),
        (2, 2, 493, False),
        (3, 2, 493, True),
        (3, 2, 120, False),  # clients before 3.4.9 know no limit of their own
        (3, 2, 121, True),
    ],
)
async def test_a_retry_ends_in_the_dead_letters(
    parts: Parts, tries: int, limit: int | None, version: int, dead: bool
) -> None:
    answer = parts.peer().ask(
        send_request(
            "%RETRY%readers",
            reconsume_times=tries,
            max_reconsume_times=limit,
            properties={"UNIQ_KEY": "U1", "DELAY": "3"},
            version=version,
        )
    )
    assert answer.code == ResponseCode.SUCCESS
    if dead:
        [message] = parts.messages("%DLQ%readers")
        assert (message.reconsume_times, message.properties["DELAY"]) == (tries, "0")
        topic = parts.topics.require("%DLQ%readers")
        assert (topic.write_queue_nums, topic.perm) == (1, 6)
    else:
        assert parts.topics.get("%DLQ%readers") is None
        [message] = parts.messages("SCHEDULE_TOPIC_XXXX", 2)
        assert message.properties["REAL_TOPIC"] == "%RETRY%readers"


async def test_a_group_that_holds_queue_locks_sends_its_retries_to_the_dead_letters(parts: Parts) -> None:
    parts.locks.lock("orderly", "client-1", [MessageQueue("orders", BROKER, 0)])
    parts.peer().ask(send_request("%RETRY%orderly"))
    parts.peer().ask(send_request("%RETRY%free"))
    assert len(parts.messages("%DLQ%orderly")) == 1
    assert len(parts.messages("%RETRY%free")) == 1


async def test_a_retry_of_a_group_that_may_not_exist_is_refused(make_parts: MakeParts) -> None:
    parts = make_parts(auto_create_groups=False)
    answer = parts.peer().ask(send_request("%RETRY%nobody"))
    assert (answer.code, answer.ext) == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, REGION)
    assert nothing_stored(parts)


# Delayed messages


async def test_a_delayed_message_goes_to_the_schedule_topic_and_is_answered_with_its_own_queue(parts: Parts) -> None:
    parts.put_topic("orders")
    answer = parts.peer().ask(send_request(queue_id=3, properties={"UNIQ_KEY": "U1", "DELAY": "5"}))
    assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, "3", "0")
    [message] = parts.messages("SCHEDULE_TOPIC_XXXX", 4)
    assert message.properties["REAL_TOPIC"] == "orders"
    assert message.properties["REAL_QID"] == "3"
    assert message.properties["DELAY"] == "5"
    assert parts.messages("orders", 3) == []


async def test_the_highest_level_is_taken_for_a_higher_one(parts: Parts) -> None:
    parts.peer().ask(send_request(properties={"UNIQ_KEY": "U1", "DELAY": "999"}))
    [message] = parts.messages("SCHEDULE_TOPIC_XXXX", 17)
    assert message.properties["DELAY"] == "18"


@pytest.mark.parametrize("level", ["0", "-1"])
async def test_no_level_is_no_delay(parts: Parts, level: str) -> None:
    parts.peer().ask(send_request(properties={"UNIQ_KEY": "U1", "DELAY": level}))
    assert len(parts.messages("orders")) == 1


async def test_a_delay_that_is_no_number_is_refused(parts: Parts) -> None:
    answer = parts.peer().ask(send_request(properties={"UNIQ_KEY": "U1", "DELAY": "soon"}))
    assert (answer.code, answer.ext) == (ResponseCode.MESSAGE_ILLEGAL, REGION)
    assert "'soon'" in answer.remark
    assert nothing_stored(parts)


# Batches

ITEMS = [BatchItem(7, b"one", b"UNIQ_KEY\x01A\x02TAGS\x01t\x02"), BatchItem(8, b"two", b"UNIQ_KEY\x01B\x02")]


@pytest.mark.parametrize("code", [RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_batch_is_stored_as_its_messages(parts: Parts, code: int) -> None:
    parts.put_topic("orders")
    parts.peer().ask(send_request(queue_id=1))
    answer = parts.peer().ask(send_request(code=code, batch=True, queue_id=1, body=encode_batch(ITEMS)))
    assert answer.code == ResponseCode.SUCCESS
    messages = parts.messages("orders", 1, 1)
    assert [(item.flag, item.body, item.queue_offset) for item in messages] == [(7, b"one", 1), (8, b"two", 2)]
    assert [item.properties for item in messages] == [{"UNIQ_KEY": "A", "TAGS": "t"}, {"UNIQ_KEY": "B"}]
    assert answer.ext == {
        "msgId": ",".join(offset_id(STORE_HOST, item.log_offset) for item in messages),
        "queueId": "1",
        "queueOffset": "1",
        "transactionId": "7F0000010001AAAA",
        **REGION,
    }


async def test_a_batch_of_a_4_9_client_has_no_unique_id_of_its_own(parts: Parts) -> None:
    answer = parts.peer().ask(send_request(batch=True, properties="WAIT\x01true", body=encode_batch(ITEMS)))
    assert answer.code == ResponseCode.SUCCESS
    assert "transactionId" not in answer.ext


async def test_a_batch_code_without_the_batch_flag_is_one_message(parts: Parts) -> None:
    body = encode_batch(ITEMS)
    parts.peer().ask(send_request(code=RequestCode.SEND_BATCH_MESSAGE, body=body))
    assert [message.body for message in parts.messages("orders")] == [body]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00\x00\x00",
        encode_batch(ITEMS)[:-1],
        encode_batch(ITEMS) + b"\x00",
        b"\xff" * 40,
        b"\x7f\xff\xff\xff" + bytes(40),
        bytes(400),
    ],
    ids=["empty", "stub", "cut", "trailing", "negative", "huge", "zeros"],
)
async def test_a_batch_that_does_not_add_up_is_refused_as_a_whole(parts: Parts, body: bytes) -> None:
    answer = parts.peer().ask(send_request(code=RequestCode.SEND_BATCH_MESSAGE, batch=True, body=body))
    assert (answer.code, answer.ext) == (ResponseCode.MESSAGE_ILLEGAL, REGION)
    assert "batch" in answer.remark
    assert nothing_stored(parts)


async def test_a_batch_to_a_retry_topic_is_refused(parts: Parts) -> None:
    answer = parts.peer().ask(send_request("%RETRY%readers", batch=True, body=encode_batch(ITEMS)))
    assert (answer.code, answer.ext) == (ResponseCode.MESSAGE_ILLEGAL, REGION)
    assert nothing_stored(parts)


async def test_a_delayed_batch_is_refused(parts: Parts) -> None:
    """Apache refuses it too; storing it at once would deliver messages before their time."""
    properties = {"UNIQ_KEY": "U1", "DELAY": "3"}
    answer = parts.peer().ask(send_request(batch=True, properties=properties, body=encode_batch(ITEMS)))
    assert (answer.code, answer.ext) == (ResponseCode.MESSAGE_ILLEGAL, REGION)
    assert "delay" in answer.remark
    assert nothing_stored(parts)


async def test_a_transactional_batch_is_refused(parts: Parts) -> None:
    properties = {"UNIQ_KEY": "U1", "TRAN_MSG": "true"}
    answer = parts.peer().ask(send_request(batch=True, properties=properties, body=encode_batch(ITEMS)))
    assert (answer.code, answer.ext) == (ResponseCode.MESSAGE_ILLEGAL, REGION)


async def test_bodies_of_a_batch_count_together(make_parts: MakeParts) -> None:
    parts = make_parts(log_segment_bytes=12 << 20)
    items = [BatchItem(0, bytes(2 << 20), b""), BatchItem(0, bytes((2 << 20) + 1), b"")]
    answer = parts.peer().ask(send_request(batch=True, body=encode_batch(items)))
    assert (answer.code, answer.ext) == (ResponseCode.MESSAGE_ILLEGAL, REGION)
    assert nothing_stored(parts)


# SYNC_FLUSH


async def _shut(parts: Parts) -> threading.Event:
    """The gate, shut from now on; the topic and the first file are there, for making them takes flushes too."""
    parts.put_topic("orders")
    peer = parts.peer()
    peer.send(send_request(topic="before"))
    await peer.next()
    assert isinstance(parts.disk, GatedDisk)
    parts.disk.gate.clear()
    return parts.disk.gate


async def test_with_sync_flush_the_answer_and_the_message_come_after_the_flush(make_parts: MakeParts) -> None:
    parts = make_parts(sync_flush=True)
    gate = await _shut(parts)
    peer = parts.peer()
    peer.send(send_request(body=b"a"), send_request(body=b"b"))
    assert parts.messages("orders") == []
    assert peer.received() == []
    assert peer.channel.waiting_count == 2
    gate.set()
    answers = [await peer.next(), await peer.next()]
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 2
    assert [answer.ext["queueOffset"] for answer in answers] == ["0", "1"]
    assert all(answer.ext.keys() >= {"msgId", "queueId", "transactionId", *REGION} for answer in answers)
    assert [message.body for message in parts.messages("orders")] == [b"a", b"b"]
    assert parts.store.flushed_offset == parts.store.log_next_offset


async def test_a_message_that_need_not_wait_is_answered_at_once(make_parts: MakeParts) -> None:
    parts = make_parts(sync_flush=True)
    await _shut(parts)
    answer = parts.peer().ask(send_request(properties={"UNIQ_KEY": "U1", "WAIT": "false"}))
    assert answer.code == ResponseCode.SUCCESS


async def test_a_slow_disk_is_answered_with_10_and_the_whole_header(make_parts: MakeParts) -> None:
    parts = make_parts(sync_flush=True, sync_timeout_s=0.01)
    gate = await _shut(parts)
    peer = parts.peer()
    peer.send(send_request(body=b"late"), send_request(batch=True, body=encode_batch(ITEMS)))
    for _ in range(2):
        answer = await peer.next()
        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert answer.ext.keys() == {"msgId", "queueId", "queueOffset", "transactionId", *REGION}
    gate.set()
    await asyncio.to_thread(parts.store.flush_now)
    assert [message.body for message in parts.messages("orders")] == [b"late", b"one", b"two"]


async def test_a_failed_flush_is_never_a_success(make_parts: MakeParts) -> None:
    parts = make_parts(sync_flush=True)
    parts.disk.fail("sync", part="commitlog", forever=True)
    peer = parts.peer()
    peer.send(send_request(), send_request())
    for _ in range(2):
        answer = await peer.next()
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "commitlog" in answer.remark
    assert parts.messages("orders") == []
    refused = parts.peer().ask(send_request())
    assert (refused.code, refused.ext) == (ResponseCode.SERVICE_NOT_AVAILABLE, REGION)
    assert "commitlog" in refused.remark


async def test_a_producer_that_leaves_while_it_waits_costs_nothing(make_parts: MakeParts) -> None:
    parts = make_parts(sync_flush=True)
    gate = await _shut(parts)
    peer, other = parts.peer(), parts.peer()
    peer.send(send_request(body=b"gone"))
    other.send(send_request(body=b"here"))
    await peer.close()
    gate.set()
    assert (await other.next()).code == ResponseCode.SUCCESS
    assert [message.body for message in parts.messages("orders")] == [b"gone", b"here"]
