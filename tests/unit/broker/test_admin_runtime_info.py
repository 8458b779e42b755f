"""What a broker says of itself (28): every key tools read, and the numbers in it."""

from __future__ import annotations

import pytest
from tests.unit.broker.parts import Parts, fill, pull_request, send_request

from rocketline.broker.statistics.statistics import MINUTE
from rocketline.broker.statistics.totals import Totals, TotalsHistory
from rocketline.clock import ManualClock
from rocketline.protocol.bodies import KVTable, decode_body
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command

NUMBERS = [
    "rocketline.setAside",
    "bootTimestamp", "putMessageEntireTimeMax", "putMessageTimesTotal", "putMessageFailedTimes", "putMessageSizeTotal",
    "putMessageAverageSize", "dispatchMaxBuffer", "getMessageEntireTimeMax", "putLatency99", "putLatency999",
    "commitLogDiskRatio", "consumeQueueDiskRatio", "commitLogMinOffset", "commitLogMaxOffset", "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning", "msgPutTotalTodayNow", "msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow", "dispatchBehindBytes", "pageCacheLockTimeMills", "earliestMessageTimeStamp",
    "startAcceptSendRequestTimeStamp", "timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps",
    "timerDequeueTps", "remainTransientStoreBufferNumbs", "EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity",
    *(f"{pool}ThreadPoolQueue{what}" for pool in ("send", "pull", "litePull", "query", "ack")
      for what in ("Size", "Capacity", "HeadWaitTimeMills")),
]  # fmt: skip
RATES = ["putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps"]
TEXTS = ["runtime", "putMessageDistributeTime", "brokerVersionDesc", "commitLogDirCapacity", "remainHowManyDataToFlush"]


def info(parts: Parts) -> dict[str, str]:
    return decode_body(KVTable, parts.peer().ask(Command(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table


async def test_every_key_that_tools_read_is_there_and_numbers_are_numbers(parts: Parts) -> None:
    table = info(parts)
    for key in NUMBERS:
        float(table[key])
    for key in RATES:
        assert len([float(rate) for rate in table[key].split(" ")]) == 3
    assert all(table[key] for key in TEXTS)
    assert (table["brokerActive"], table["brokerVersionDesc"]) == ("true", "V5_4_0")


async def test_messages_are_counted(parts: Parts) -> None:
    parts.clock.advance(60)
    fill(parts, 6, step_s=1.0)
    parts.peer().ask(pull_request())
    parts.peer().ask(pull_request(queue_offset=6))
    table = info(parts)
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("6", "6")
    assert table["putTps"] == " ".join([str(6 / 66)] * 3), "there is no sample yet but the start"
    assert float(table["getMissTps"].split(" ")[0]) > 0
    assert int(table["putMessageSizeTotal"]) == int(table["commitLogMaxOffset"])
    assert int(table["earliestMessageTimeStamp"]) == parts.started_ms + 60_000
    assert table["dispatchBehindBytes"] == "0"
    assert table["runtime"] == "[ 0 days, 0 hours, 1 minutes, 6 seconds ]"


async def test_the_slowest_read_is_remembered(parts: Parts) -> None:
    for took_s in (0.004, 0.25, 0.001):
        parts.statistics.got("readers", "orders", 1, 100, took_s)
    assert info(parts)["getMessageEntireTimeMax"] == "250"


async def test_timers_that_wait_are_not_behind(parts: Parts) -> None:
    at_ms = str(parts.clock.now_ms() + 3_600_000)
    parts.peer().ask(send_request(properties={"UNIQ_KEY": "U", "TIMER_DELIVER_MS": at_ms}))
    parts.dispatch()
    assert info(parts)["timerOffsetBehind"] == "1"
    parts.timers.turn()
    parts.clock.advance(1800)
    table = info(parts)
    assert (table["timerOffsetBehind"], table["timerCongestNum"], table["timerReadBehind"]) == ("0", "1", "0")
    parts.clock.advance(1900)
    assert info(parts)["timerReadBehind"] == "100"


async def test_an_empty_store_has_no_earliest_message(parts: Parts) -> None:
    assert info(parts)["earliestMessageTimeStamp"] == "-1"


async def test_delayed_messages_show_how_far_their_level_is(parts: Parts) -> None:
    parts.peer().ask(send_request(properties={"UNIQ_KEY": "U", "DELAY": "3"}))
    parts.dispatch()
    parts.clock.advance(11)
    parts.delays.deliver_due()
    parts.peer().ask(send_request(properties={"UNIQ_KEY": "V", "DELAY": "3"}))
    parts.dispatch()
    assert info(parts)["scheduleMessageOffset_3"] == "1,2"


async def test_samples_are_taken_with_those_of_the_minute(parts: Parts) -> None:
    fill(parts, 5, step_s=1.0)
    parts.statistics.sample(MINUTE)
    parts.clock.advance(10)
    assert info(parts)["putTps"] == f"0.0 {5 / 15} {5 / 15}"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_rates_over_their_windows(clock: ManualClock) -> None:
    put = 0
    history = TotalsHistory(clock, lambda: Totals(put=put))
    for _ in range(100):
        clock.advance(10)
        put += 10
        history.sample()
    clock.advance(10)
    put += 500
    assert history.rates(lambda totals: totals.put) == f"50.0 {(500 + 50) / 60} {(500 + 590) / 600}"


def test_counters_that_went_with_their_topic_are_no_negative_rate(clock: ManualClock) -> None:
    put = 100
    history = TotalsHistory(clock, lambda: Totals(put=put))
    history.sample()
    clock.advance(10)
    put = 10
    assert history.rates(lambda totals: totals.put).split(" ")[0] == "0.0"


def test_a_morning_is_remembered_for_two_days(clock: ManualClock) -> None:
    put = 0
    history = TotalsHistory(clock, lambda: Totals(put=put))
    for day in (1, 2, 3):
        put = day * 100
        clock.advance(86_400)
        history.sample()
    assert (history.yesterday_morning.put, history.this_morning.put) == (200, 300)
