"""Messages handed back: refusals in their order, where the copy goes, what it keeps and when it ends as a dead letter."""

from __future__ import annotations

import asyncio
import errno

import pytest
from tests.unit.broker.parts import STORE_HOST, GatedDisk, MakeParts, Parts, send_request

from rocketline.message import MessageView
from rocketline.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import ConsumerSendMsgBackHeader
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, decode_properties
from rocketline.protocol.records import decode_message
from rocketline.store.message_store import AppendStatus, StoreMessage

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
RETRY = "%RETRY%readers"
DLQ = "%DLQ%readers"


def send_back(
    log_offset: int,
    group: str = "readers",
    delay_level: int = 0,
    max_reconsume_times: int | None = 16,
    version: int = 493,
    unit_mode: bool = False,
) -> Command:
    header = ConsumerSendMsgBackHeader(
        log_offset=log_offset,  # type: ignore[arg-type]
        group=group,
        delay_level=delay_level,
        origin_msg_id="whatever",
        origin_topic="whatever",
        unit_mode=unit_mode,
        max_reconsume_times=max_reconsume_times,
    )
    return Command(RequestCode.CONSUMER_SEND_MSG_BACK, header.encode(), version=version)


def one_message(parts: Parts, **changes: object) -> MessageView:
    properties = {"UNIQ_KEY": "U1", "TAGS": "t", "KEYS": "k", "own": "värde"}
    parts.peer().ask(send_request(body=b"work", properties=properties, flag=3, **changes))  # type: ignore[arg-type]
    return parts.messages("orders")[-1]


def back(parts: Parts, log_offset: int, **changes: object) -> Command:
    answer = parts.peer().ask(send_back(log_offset, **changes))  # type: ignore[arg-type]
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    return answer


def scheduled(parts: Parts, level: int) -> MessageView:
    return parts.messages(SCHEDULE, level - 1)[-1]


async def test_refusals_come_in_apaches_order(make_parts: MakeParts) -> None:
    """Each request has everything wrong that is checked later."""
    read_only = make_parts(permission=4, auto_create_groups=False)
    answer = read_only.peer().ask(send_back(999, "nobody"))
    assert (answer.code, "nobody" in answer.remark) == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, True)
    read_only.groups.put(SubscriptionGroupConfig("readers", retry_queue_nums=0))
    answer = read_only.peer().ask(send_back(999))
    assert (answer.code, "broker" in answer.remark) == (ResponseCode.NO_PERMISSION, True)

    parts = make_parts()
    parts.groups.put(SubscriptionGroupConfig("readers", retry_queue_nums=0))
    parts.put_topic(RETRY, perm=4)
    assert parts.peer().ask(send_back(999)).code == ResponseCode.SUCCESS
    parts.groups.put(SubscriptionGroupConfig("readers", retry_queue_nums=1))
    answer = parts.peer().ask(send_back(999))
    assert (answer.code, RETRY in answer.remark) == (ResponseCode.NO_PERMISSION, True)
    parts.put_topic(RETRY)
    answer = parts.peer().ask(send_back(999))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "look message by offset failed, 999")
    assert parts.appends == 0


async def test_a_group_without_retry_queues_drops_what_comes_back(parts: Parts) -> None:
    parts.groups.put(SubscriptionGroupConfig("readers", retry_queue_nums=0))
    message = one_message(parts)
    back(parts, message.log_offset)
    assert parts.appends == 1
    assert parts.topics.get(RETRY) is None


@pytest.mark.parametrize("queue_count", [1, 3])
async def test_the_retry_topic_is_made_on_demand(parts: Parts, queue_count: int) -> None:
    parts.groups.put(SubscriptionGroupConfig("readers", retry_queue_nums=queue_count))
    announced: list[TopicConfig] = []
    parts.topics.subscribe(announced.extend)
    message = one_message(parts)
    announced.clear()
    for _ in range(30):
        back(parts, message.log_offset)
    topic = parts.topics.require(RETRY)
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (queue_count, queue_count, 6)
    assert announced == [topic]
    assert {item.properties["REAL_QID"] for item in parts.messages(SCHEDULE, 2)} == {
        str(number) for number in range(queue_count)
    }


async def test_the_retry_topic_of_a_consumer_in_unit_mode_is_marked(parts: Parts) -> None:
    message = one_message(parts)
    back(parts, message.log_offset, unit_mode=True)
    assert parts.topics.require(RETRY).topic_sys_flag == 2


async def test_the_copy_keeps_what_the_message_was(parts: Parts) -> None:
    message = one_message(parts)
    parts.clock.advance(5)
    back(parts, message.log_offset)
    copy = scheduled(parts, 3)
    assert (copy.body, copy.flag, copy.sys_flag, copy.born_ms) == (b"work", 3, 0, message.born_ms)
    assert (copy.born_host, copy.store_host) == (message.born_host, message.store_host)
    assert (copy.store_ms, copy.reconsume_times) == (message.store_ms + 5000, 1)
    assert copy.log_offset != message.log_offset
    assert copy.properties == {
        **message.properties,
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": message.offset_id,
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
    }
    assert parts.messages("orders")[0] == message


async def test_it_reaches_the_retry_topic_after_ten_seconds(parts: Parts) -> None:
    message = one_message(parts)
    back(parts, message.log_offset)
    parts.dispatch()
    parts.clock.advance(9.999)
    parts.delays.deliver_due()
    assert parts.messages(RETRY) == []
    parts.clock.advance(0.001)
    parts.delays.deliver_due()
    [again] = parts.messages(RETRY)
    assert (again.body, again.reconsume_times, again.properties["RETRY_TOPIC"]) == (b"work", 1, "orders")


async def test_every_attempt_waits_longer_and_remembers_the_first(parts: Parts) -> None:
    message = one_message(parts)
    log_offset = message.log_offset
    waits = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18]
    for tries, level in enumerate(waits):
        back(parts, log_offset)
        assert scheduled(parts, level).reconsume_times == tries + 1
        parts.clock.advance(7200)
        parts.delays.deliver_due()
        again = parts.messages(RETRY)[-1]
        assert again.properties["RETRY_TOPIC"] == "orders"
        assert again.properties["ORIGIN_MESSAGE_ID"] == message.offset_id
        assert (again.body, again.reconsume_times) == (b"work", tries + 1)
        log_offset = again.log_offset
    assert parts.messages(DLQ) == []
    back(parts, log_offset)
    [dead] = parts.messages(DLQ)
    assert (dead.reconsume_times, dead.properties["DELAY"]) == (17, "0")
    assert dead.properties["RETRY_TOPIC"] == "orders"
    topic = parts.topics.require(DLQ)
    assert (topic.write_queue_nums, topic.perm) == (1, 6)


async def test_the_consumer_may_choose_the_level(parts: Parts) -> None:
    message = one_message(parts)
    back(parts, message.log_offset, delay_level=7)
    assert scheduled(parts, 7).properties["DELAY"] == "7"
    back(parts, message.log_offset, delay_level=100)
    assert scheduled(parts, 18).properties["DELAY"] == "18"


async def test_a_negative_level_means_dead_at_once(parts: Parts) -> None:
    message = one_message(parts)
    back(parts, message.log_offset, delay_level=-1)
    [dead] = parts.messages(DLQ)
    assert (dead.body, dead.reconsume_times, dead.properties["DELAY"]) == (b"work", 1, "0")


@pytest.mark.parametrize(
    ("tries", "asked", "version", "configured", "dead"),
    [
        (1, 2, 493, 16, False),
        (2, 2, 493, 16, True),
        (2, None, 493, 16, False),
        (2, None, 493, 2, True),
        (2, 0, 493, 16, True),
        (2, 2, 120, 16, False),  # older than 3.4.9: its limit does not count
        (2, 2, 121, 16, True),
        (5, 10, 493, 2, False),
    ],
)
async def test_the_limit_is_the_clients_when_it_has_one_and_else_the_groups(
    parts: Parts, tries: int, asked: int | None, version: int, configured: int, dead: bool
) -> None:
    parts.groups.put(SubscriptionGroupConfig("readers", retry_max_times=configured))
    message = one_message(parts, reconsume_times=tries)
    back(parts, message.log_offset, max_reconsume_times=asked, version=version)
    assert (len(parts.messages(DLQ)) == 1) is dead


@pytest.mark.parametrize("log_offset", [-1, 1, 7, 10_000_000, (1 << 63) - 1, -(1 << 63)])
async def test_only_the_start_of_a_record_is_a_message(parts: Parts, log_offset: int) -> None:
    one_message(parts)
    answer = parts.peer().ask(send_back(log_offset))
    assert (answer.code, str(log_offset) in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert parts.appends == 1


async def test_a_retry_topic_without_write_queues_does_not_break_the_handler(parts: Parts) -> None:
    message = one_message(parts)
    parts.topics.put([TopicConfig(RETRY, 1, 0)])
    back(parts, message.log_offset)
    assert scheduled(parts, 3).properties["REAL_QID"] == "0"


async def test_a_store_that_takes_nothing_is_answered_with_1(parts: Parts) -> None:
    message = one_message(parts)
    parts.store._refusal = "read-only for the test"
    answer = parts.peer().ask(send_back(message.log_offset))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "read-only for the test")


async def test_a_retry_topic_that_cannot_be_saved_is_answered_with_1(parts: Parts) -> None:
    message = one_message(parts)
    parts.disk.fail("write", errno.ENOSPC, part="subscriptionGroup")
    answer = parts.peer().ask(send_back(message.log_offset))
    assert (answer.code, "No space left" in answer.remark) == (ResponseCode.SYSTEM_ERROR, True)
    back(parts, message.log_offset)


async def test_a_message_with_a_long_topic_comes_back_too(parts: Parts) -> None:
    """255 bytes of topic make a record of format 2; derived topics may be that long."""
    group = "g" * 248
    parts.peer().ask(send_request("%RETRY%" + group))
    [message] = parts.messages("%RETRY%" + group)
    back(parts, message.log_offset, group=group)
    assert scheduled(parts, 3).properties["REAL_TOPIC"] == "%RETRY%" + group


async def test_under_sync_flush_the_copy_is_on_disk_before_the_answer(make_parts: MakeParts) -> None:
    """The consumer commits past the message after this answer: nobody else would remember it."""
    parts = make_parts(sync_flush=True)
    peer = parts.peer()
    peer.send(send_request(body=b"work"))
    assert (await peer.next()).code == ResponseCode.SUCCESS
    [message] = parts.messages("orders")
    disk = parts.disk
    assert isinstance(disk, GatedDisk)
    disk.gate.clear()
    peer.send(send_back(message.log_offset))
    assert peer.received() == []
    disk.gate.set()
    assert (await peer.next()).code == ResponseCode.SUCCESS
    assert parts.store.flushed_offset == parts.store.log_next_offset


async def test_a_disk_that_is_too_slow_for_the_copy_is_a_failure(make_parts: MakeParts) -> None:
    parts = make_parts(sync_flush=True, sync_timeout_s=0.01)
    disk = parts.disk
    assert isinstance(disk, GatedDisk)
    peer = parts.peer()
    peer.send(send_request(body=b"work"))
    await peer.next()
    await asyncio.to_thread(parts.store.flush_now)
    [message] = parts.messages("orders")
    disk.gate.clear()
    peer.send(send_back(message.log_offset))
    answer = await peer.next()
    disk.gate.set()
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "FLUSH_DISK_TIMEOUT")


async def test_a_hook_hears_of_failed_consumption_and_cannot_hurt(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    message = one_message(parts)
    failures: list[ConsumerSendMsgBackHeader] = []
    parts.on_failure = failures.append
    back(parts, message.log_offset)
    anonymous = ConsumerSendMsgBackHeader(message.log_offset, "readers", 0)
    assert parts.peer().ask(Command(RequestCode.CONSUMER_SEND_MSG_BACK, anonymous.encode())).code == 0
    parts.peer().ask(send_back(10**9))
    assert [(header.group, header.origin_msg_id) for header in failures] == [("readers", "whatever")]

    def broken(header: ConsumerSendMsgBackHeader) -> None:
        raise ValueError("a broken hook")

    parts.on_failure = broken
    back(parts, message.log_offset)
    assert "a broken hook" in caplog.text


def full(parts: Parts, size: int, raw: bytes = b"") -> MessageView:
    """A message whose properties take so many bytes as they are stored."""
    own = b"UNIQ_KEY\x01U1\x02TAGS\x01t\x02filler\x01"
    properties = raw or own + b"f" * (size - len(own) - 1) + b"\x02"
    decoded = decode_properties(properties.decode("utf-8", "replace"))
    result = parts.store.append(
        StoreMessage("orders", 0, b"full", decoded, properties, 0, 0, parts.clock.now_ms(), STORE_HOST)
    )
    assert result.status is AppendStatus.OK
    parts.dispatch()
    return last(parts, "orders")


def last(parts: Parts, topic: str) -> MessageView:
    unit = parts.store.unit_at(topic, 0, parts.store.max_offset(topic, 0) - 1)
    assert unit is not None
    view = parts.store.record_at(unit.log_offset)
    assert view is not None
    return decode_message(view, 0, len(view))


@pytest.mark.parametrize("delay_level", [0, -1], ids=["retry", "dead"])
async def test_properties_of_any_size_come_back(parts: Parts, delay_level: int) -> None:
    """What the broker adds for another attempt may have no room: then the message is dead, and says what it can."""
    retried = dead = 0
    for size in [*range(MAX_PROPERTIES_BYTES - 330, MAX_PROPERTIES_BYTES, 5), MAX_PROPERTIES_BYTES]:
        message = full(parts, size)
        back(parts, message.log_offset, delay_level=delay_level)
        parts.dispatch()
        parts.clock.advance(11)
        parts.delays.deliver_due()
        parts.dispatch()
        if parts.store.max_offset(RETRY, 0) > retried:
            retried += 1
            again = last(parts, RETRY)
            assert again.properties["RETRY_TOPIC"] == "orders"
        else:
            dead += 1
            assert parts.store.max_offset(DLQ, 0) == dead
            again = last(parts, DLQ)
        assert (again.body, again.reconsume_times) == (b"full", 1)
        assert message.properties.items() <= again.properties.items()
    assert dead > 0
    assert (retried > 0) is (delay_level == 0)
    assert parts.aside.counts == {}


async def test_properties_that_grow_when_they_are_mended_end_as_they_were(parts: Parts) -> None:
    message = full(parts, 0, b"UNIQ_KEY\x01U1\x02x\x01" + b"\xff" * 20_000)
    back(parts, message.log_offset)
    [dead] = parts.messages(DLQ)
    assert (dead.body, dead.properties, dead.reconsume_times) == (b"full", message.properties, 1)
