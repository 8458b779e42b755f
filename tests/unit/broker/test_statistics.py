"""The broker's counters: what they count, their windows, and what operators see of them."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from tests.support.patching import patch_here
from tests.unit.broker.parts import CLUSTER, Parts, fill, pull_request, send_request
from tests.unit.broker.test_send_back import back

from rocketline.broker.statistics.statistics import (
    DAY,
    DELAY,
    FIFO,
    HOUR,
    MINUTE,
    NORMAL,
    BrokerStatistics,
    StoredMessages,
)
from rocketline.clock import ManualClock
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import BrokerStatsData, StatsItem, TopicStatsTable, decode_body, queue_key
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.records import BatchItem, encode_batch


def view(parts: Parts, name: str, key: str) -> BrokerStatsData:
    answer = parts.peer().ask(Command(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key}))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_body(BrokerStatsData, answer.body)


def in_minute(parts: Parts, name: str, key: str) -> int:
    return view(parts, name, key).stats_minute.sum


async def test_sends_count_by_topic(parts: Parts) -> None:
    fill(parts, 3)
    parts.statistics.sample(MINUTE)
    sizes = [message.stored_bytes for message in parts.messages("orders")]
    assert view(parts, "TOPIC_PUT_NUMS", "orders").stats_minute == StatsItem(3, 0.3, 1.0)
    assert in_minute(parts, "TOPIC_PUT_SIZE", "orders") == sum(sizes)
    assert view(parts, "BROKER_PUT_NUMS", CLUSTER).stats_minute == StatsItem(3, 0.3, 0.0)


async def test_a_batch_counts_as_its_messages(parts: Parts) -> None:
    body = encode_batch([BatchItem(0, b"a", b""), BatchItem(0, b"b", b"")])
    parts.peer().ask(send_request(body=body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True))
    parts.statistics.sample(MINUTE)
    assert view(parts, "TOPIC_PUT_NUMS", "orders").stats_minute == StatsItem(2, 0.2, 2.0)


async def test_a_refused_send_counts_nowhere(parts: Parts) -> None:
    parts.peer().ask(send_request(queue_id=99))
    assert parts.statistics.view("TOPIC_PUT_NUMS", "orders") is None


async def test_reads_count_by_group(parts: Parts) -> None:
    fill(parts, 3)
    size = sum(message.stored_bytes for message in parts.messages("orders"))
    parts.peer().ask(pull_request())
    parts.peer().ask(pull_request(queue_offset=3, sys_flag=4))
    parts.statistics.sample(MINUTE)
    assert view(parts, "GROUP_GET_NUMS", "orders@readers").stats_minute == StatsItem(3, 0.3, 3.0)
    assert in_minute(parts, "GROUP_GET_SIZE", "orders@readers") == size
    assert in_minute(parts, "BROKER_GET_NUMS", CLUSTER) == 3


async def test_the_times_of_reads_are_averaged_by_group(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(parts, 3)
    ticks = itertools.chain([10.0, 10.004, 20.0, 20.002, 30.0], itertools.repeat(99.0))
    monkeypatch.setattr(parts.clock, "monotonic", lambda: next(ticks))
    for offset in (0, 1, 3):  # the last one finds nothing and does not count
        parts.peer().ask(pull_request(queue_offset=offset, sys_flag=4))
    parts.statistics.sample(MINUTE)
    item = view(parts, "GROUP_GET_LATENCY", "orders@readers").stats_minute
    assert (item.sum, item.tps) == (0, 0)
    assert item.avgpt == pytest.approx(3.0)
    assert view(parts, "GROUP_GET_LATENCY", "orders@readers").stats_day.avgpt == 0
    assert parts.statistics.view("GROUP_GET_LATENCY", "orders@nobody") is None


async def test_what_comes_back_counts_by_group_and_real_topic(parts: Parts) -> None:
    fill(parts, 1)
    (message,) = parts.messages("orders")
    back(parts, message.log_offset)
    back(parts, message.log_offset, delay_level=-1)
    parts.statistics.sample(MINUTE)
    assert in_minute(parts, "SNDBCK_PUT_NUMS", "orders@readers") == 2
    assert in_minute(parts, "SNDBCK2DLQ_TIMES", "null@orders@readers@SEND_BACK_TO_DLQ") == 1
    assert in_minute(parts, "TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX") == 1
    assert in_minute(parts, "BROKER_PUT_NUMS", CLUSTER) == 2
    assert in_minute(parts, "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER) == 1


async def test_a_delayed_message_counts_where_it_comes_out(parts: Parts) -> None:
    parts.peer().ask(send_request(properties={"UNIQ_KEY": "U", "DELAY": "1"}))
    parts.dispatch()
    parts.clock.advance(2)
    parts.delays.deliver_due()
    parts.statistics.sample(MINUTE)
    assert in_minute(parts, "TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX") == 1
    assert in_minute(parts, "TOPIC_PUT_NUMS", "orders") == 1


async def test_how_far_a_reader_is_behind(parts: Parts) -> None:
    fill(parts, 4)
    parts.peer().ask(pull_request(max_messages=1))
    unit = parts.store.unit_at("orders", 0, 1)
    assert unit is not None
    behind_bytes = parts.store.log_next_offset - unit.log_offset
    assert in_minute(parts, "GROUP_GET_FALL_SIZE", "0@orders@readers") == behind_bytes > 0
    assert in_minute(parts, "GROUP_GET_FALL_TIME", "0@orders@readers") == 3000
    parts.peer().ask(pull_request(queue_offset=1))
    assert in_minute(parts, "GROUP_GET_FALL_SIZE", "0@orders@readers") == 0
    assert in_minute(parts, "GROUP_GET_FALL_TIME", "0@orders@readers") == 0


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "nothing"),
        ("NO_SUCH", "orders"),
        ("GROUP_GET_FALL_SIZE", "0@orders@nobody"),
        ("GROUP_GET_FALL_SIZE", "x@orders@readers"),
        ("GROUP_GET_FALL_TIME", ""),
    ],
)
async def test_a_counter_that_is_not_there(parts: Parts, name: str, key: str) -> None:
    fill(parts, 1)
    answer = parts.peer().ask(Command(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key}))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")


async def test_what_lies_in_a_topic(parts: Parts) -> None:
    parts.put_topic("orders", 2)
    fill(parts, 5, queue_id=1)
    parts.statistics.sample(MINUTE)
    answer = parts.peer().ask(Command(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"}))
    body = decode_body(TopicStatsTable, answer.body)
    shown = body.offset_table[queue_key(MessageQueue("orders", "broker-a", 1))]
    newest_ms = parts.store.store_ms_of("orders", 1, 4)
    assert (shown.min_offset, shown.max_offset, shown.last_update_timestamp) == (0, 5, newest_ms)
    assert (len(body.offset_table), body.topic_put_tps) == (2, 0.5)
    answer = parts.peer().ask(Command(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "nothing"}))
    assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[nothing] not exist")


# Windows


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def counted(clock: ManualClock) -> BrokerStatistics:
    return BrokerStatistics(CLUSTER, clock, lambda topic: topic.startswith("SYS"))


def test_before_the_first_sample_a_counter_shows_nothing(counted: BrokerStatistics) -> None:
    counted.put("orders", 5, 100)
    assert counted.view("TOPIC_PUT_NUMS", "orders") == BrokerStatsData()
    assert (counted.put_rate("orders"), counted.put_rate("nothing")) == (0.0, 0.0)


def test_a_window_forgets_what_is_older(counted: BrokerStatistics, clock: ManualClock) -> None:
    counted.put("orders", 100, 1)
    for _ in range(7):
        counted.sample(MINUTE)
        clock.advance(10)
    assert counted.put_rate("orders") == 0.0
    counted.put("orders", 6, 1)
    counted.sample(MINUTE)
    counted.sample(HOUR)
    shown = counted.view("TOPIC_PUT_NUMS", "orders")
    assert shown is not None
    assert shown.stats_minute == StatsItem(6, 0.1, 6.0)
    assert shown.stats_hour == StatsItem(106, 106 / 600, 53.0)
    assert shown.stats_day == StatsItem()


async def test_samples_are_taken_by_the_clock(counted: BrokerStatistics, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[object] = []
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > 360:
            raise asyncio.CancelledError

    patch_here(monkeypatch, asyncio, "sleep", sleep)
    monkeypatch.setattr(counted, "sample", taken.append)
    with pytest.raises(asyncio.CancelledError):
        await counted.run()
    assert [taken.count(window) for window in (MINUTE, HOUR, DAY)] == [360, 6, 1]
    assert set(slept) == {10.0}


def counters() -> BrokerStatistics:
    return BrokerStatistics(CLUSTER, ManualClock(), lambda topic: False)


def test_messages_are_told_apart_by_kind_and_size() -> None:
    counted = counters()
    for size in (100, 1024, 1025, 5000, 5 << 20):
        counted.put("orders", 1, size)
    counted.put("orders", 4, 4 * 600)  # a batch of small ones
    counted.put("orders", 2, 2 * 2000)
    counted.put("orders", 1, 100, FIFO)
    counted.delivered("orders", 3000)
    found = {incoming.kind: incoming for incoming in counted.incoming("orders")}
    assert found[FIFO] == StoredMessages("orders", FIFO, 1, 100, (1, 0, 0, 0, 0, 0, 0))
    assert found[DELAY] == StoredMessages("orders", DELAY, 1, 3000, (0, 1, 0, 0, 0, 0, 0))
    normal = found[NORMAL]
    assert normal.messages == 11
    assert normal.size == 100 + 1024 + 1025 + 5000 + (5 << 20) + 2400 + 4000
    assert normal.by_size == (6, 3, 1, 0, 0, 0, 1)
    assert counted.totals().put == 13


def test_counters_of_what_is_gone_are_forgotten() -> None:
    counted = counters()
    for topic in ("orders", "gone"):
        counted.put(topic, 1, 5000, FIFO)
        for group in ("readers", "left"):
            counted.got(group, topic, 1, 100)
            counted.acked(group, topic, 1)
            counted.sent_back(group, topic, dead=True)
            counted.given_up(group, topic)
    counted.forget(lambda topic, group: topic == "gone" or group == "left")
    assert counted.topics() == ["orders"]
    assert counted.incoming("gone") == []
    assert [(item.topic, item.group) for item in counted.outgoing()] == [("orders", "readers")]
    assert {(item.topic, item.group, item.messages) for item in counted.dead_letters()} == {("orders", "readers", 1)}
    for name in ("GROUP_GET_NUMS", "GROUP_ACK_NUMS", "SNDBCK_PUT_NUMS"):
        assert counted.view(name, "orders@left") is None
        assert counted.view(name, "orders@readers") is not None


def test_totals_do_not_go_back_when_a_topic_or_group_goes(clock: ManualClock) -> None:
    statistics = BrokerStatistics(CLUSTER, clock, lambda topic: topic == "TBW102")
    for topic in ("orders", "other", "TBW102"):
        statistics.put(topic, 10, 1000)
        statistics.got("readers", topic, 4, 400)
        statistics.acked("readers", topic, 3)
    totals = statistics.totals()
    statistics.sample(MINUTE)
    statistics.forget(lambda topic, group: topic in ("orders", "TBW102") or group == "readers")
    clock.advance(10)
    statistics.sample(MINUTE)
    assert statistics.topics() == ["other"]
    assert statistics.totals() == totals
    for name, count in {
        "BROKER_PUT_NUMS": 30,
        "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": 20,
        "BROKER_GET_NUMS": 12,
        "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": 8,
        "BROKER_ACK_NUMS": 9,
    }.items():
        shown = statistics.view(name, CLUSTER)
        assert shown is not None
        assert shown.stats_minute.sum == count, name
