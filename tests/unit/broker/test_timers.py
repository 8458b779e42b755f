"""Timer messages on a virtual clock: when they come out, what a crash or a clock may do to them, and taking them back."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import msgspec
import pytest
from tests.support.scraping import parse
from tests.unit.broker.parts import ROOT, STORE_HOST, GatedDisk, MakeParts, Parts, eventually, send_request

from rocketline.broker.metrics.collector import BrokerMetrics
from rocketline.broker.timer.redirect import ADDED_LATER_BYTES, TIMER_TOPIC
from rocketline.broker.timer.timers import ENTRIES_A_TURN
from rocketline.clock import ManualClock
from rocketline.errors import StoreError
from rocketline.message import MessageView
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import RecallMessageHeader
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, encode_properties
from rocketline.protocol.recall import RecallHandle
from rocketline.protocol.records import decode_messages
from rocketline.protocol.timer_mark import TimerMark
from rocketline.store.config import TimerConfig
from rocketline.store.message_store import StoreMessage
from rocketline.testing.disks import MemoryDisk

DAY_S = 24 * 3600
SMALL_LOG = 52 * 400
FEW_SLOTS = 1024
"""Enough for short delays, and little for a disk in memory to copy."""


def send(parts: Parts, body: bytes = b"x", unique_id: str = "U1", **properties: object) -> Command:
    texts = {"UNIQ_KEY": unique_id, "TAGS": "t"} | {name: str(value) for name, value in properties.items()}
    answer = parts.peer().ask(send_request(body=body, properties=texts))
    parts.dispatch()
    return answer


def delayed(parts: Parts, seconds: float, body: bytes = b"x", unique_id: str = "U1") -> str:
    """Send with a delay and have it taken in; returns the recall handle."""
    answer = send(parts, body, unique_id, TIMER_DELAY_MS=round(seconds * 1000))
    assert answer.code == ResponseCode.SUCCESS
    parts.timers.turn()
    return answer.ext["recallHandle"]


def recall(parts: Parts, handle: str, topic: str = "orders", group: str | None = "producers") -> Command:
    header = RecallMessageHeader(topic, handle, group)
    answer = parts.peer().ask(Command(RequestCode.RECALL_MESSAGE, header.encode()))
    parts.dispatch()
    return answer


def settle(parts: Parts) -> None:
    """Turns until there is nothing to do now."""
    while True:
        wait_ms = parts.timers.turn()
        parts.dispatch()
        if wait_ms != 0 and parts.timers.turn() == wait_ms:
            return


def delivered(parts: Parts, topic: str = "orders") -> list[MessageView]:
    parts.dispatch()
    messages: list[MessageView] = []
    while len(messages) < parts.store.max_offset(topic, 0):
        found = parts.store.read(topic, 0, len(messages), 10_000, max_bytes=1 << 26)
        assert found.chunks
        messages += [message for chunk in found.chunks for message in decode_messages(chunk)]
    return messages


def bodies(parts: Parts) -> list[bytes]:
    return [message.body for message in delivered(parts)]


def save(parts: Parts) -> bool:
    """Flush the log and save, as a broker does every second; False when there is nothing to save."""
    parts.store.flush_now()
    changes = parts.timers.take_changes()
    if changes is not None:
        parts.timers.write(changes)
    return changes is not None


def restarted(make_parts: MakeParts, before: Parts, disk: Any = None) -> Parts:
    before.close()
    return make_parts(disk=disk or before.disk, clock=before.clock, timers=before.setup.timers)


def after_power_cut(make_parts: MakeParts, before: Parts, memory: MemoryDisk, seed: int | None = None) -> Parts:
    """Another broker on what the disk kept."""
    disk = GatedDisk(memory.crash(seed))
    return make_parts(disk=disk, clock=before.clock, timers=before.setup.timers, timer_slots=before.setup.timer_slots)


class TestSending:
    @pytest.mark.parametrize(
        ("name", "value", "after_s"),
        [("TIMER_DELAY_SEC", 5, 5), ("TIMER_DELAY_MS", 2500, 2.5), ("TIMER_DELIVER_MS", 1_700_000_004_000, 4)],
    )
    async def test_a_message_comes_out_in_its_second_and_not_before(
        self, parts: Parts, name: str, value: int, after_s: float
    ) -> None:
        assert send(parts, **{name: value}).code == ResponseCode.SUCCESS
        parts.timers.turn()
        parts.clock.advance(int(after_s) - (after_s == int(after_s)) + 0.999)
        parts.timers.turn()
        assert bodies(parts) == []
        parts.clock.advance(0.001)
        settle(parts)
        assert bodies(parts) == [b"x"]

    async def test_it_waits_in_the_timer_queue_with_its_destination(self, parts: Parts) -> None:
        answer = send(parts, TIMER_DELAY_MS=2500)
        assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("0", "0")
        [stored] = parts.messages(TIMER_TOPIC)
        assert stored.properties["TIMER_OUT_MS"] == "1700000002000"
        assert (stored.properties["REAL_TOPIC"], stored.properties["REAL_QID"]) == ("orders", "0")
        assert RecallHandle.decode(answer.ext["recallHandle"]) == ("orders", "broker-a", 1_700_000_002_001, "U1")

    async def test_the_delivered_copy_has_the_properties_apache_leaves(self, parts: Parts) -> None:
        delayed(parts, 2.5)
        parts.clock.advance(3.2)
        settle(parts)
        [message] = delivered(parts)
        assert message.properties == {
            "UNIQ_KEY": "U1",
            "TAGS": "t",
            "TIMER_DELAY_MS": "2500",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
            "TIMER_OUT_MS": "1700000002000",
            "REAL_TOPIC": "orders",
            "REAL_QID": "0",
            "TIMER_ENQUEUE_MS": "1700000000000",
            "TIMER_DEQUEUE_MS": "1700000003200",
        }
        assert (message.born_ms, message.born_host) == (1_600_000_000_123, "192.0.2.5:40001")

    @pytest.mark.parametrize("value", [0, -5, 1_699_999_999_999])
    async def test_a_time_that_is_over_means_at_once(self, parts: Parts, value: int) -> None:
        name = "TIMER_DELIVER_MS" if value > 0 else "TIMER_DELAY_MS"
        answer = send(parts, **{name: value})
        assert (answer.code, "recallHandle" in answer.ext) == (ResponseCode.SUCCESS, False)
        assert bodies(parts) == [b"x"]

    @pytest.mark.parametrize(
        "properties",
        [
            {"TIMER_DELAY_SEC": 259_201},
            {"TIMER_DELAY_MS": 259_200_001},
            {"TIMER_DELIVER_MS": 1 << 80},
            {"TIMER_DELAY_MS": "soon"},
            {"TIMER_DELIVER_MS": 1_699_999_999_999, "TIMER_DEL_UNIQKEY": "U1"},
        ],
    )
    async def test_a_delay_nobody_can_keep_is_refused(self, parts: Parts, properties: dict[str, object]) -> None:
        answer = send(parts, **properties)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark == (
            "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; or if set del msg, "
            "the delay time should be bigger than the current time"
        )
        assert parts.store.log_next_offset == 0

    async def test_without_the_wheel_timers_are_refused(self, make_parts: MakeParts) -> None:
        parts = make_parts(timers=TimerConfig(enabled=False))
        answer = send(parts, TIMER_DELAY_MS=1000)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )
        assert parts.timers.turn() is None
        assert parts.timers.take_changes() is None

    async def test_a_level_rules_out_a_time(self, parts: Parts) -> None:
        send(parts, TIMER_DELAY_MS=60_000, DELAY=1)
        assert parts.store.max_offset(TIMER_TOPIC, 0) == 0
        parts.clock.advance(1)
        parts.delays.deliver_due()
        [message] = delivered(parts)
        assert "TIMER_DELAY_MS" not in message.properties

    async def test_a_batch_takes_no_time(self, parts: Parts) -> None:
        request = send_request(code=320, batch=True, properties={"UNIQ_KEY": "U", "TIMER_DELAY_MS": "5"})
        assert parts.peer().ask(request).code == ResponseCode.MESSAGE_ILLEGAL

    async def test_properties_leave_room_for_what_delivery_adds(self, parts: Parts) -> None:
        answer = send(parts, TIMER_DELAY_MS=1000, filler="f" * (MAX_PROPERTIES_BYTES - ADDED_LATER_BYTES - 200))
        assert answer.code == ResponseCode.SUCCESS
        answer = send(parts, TIMER_DELAY_MS=1000, filler="f" * (MAX_PROPERTIES_BYTES - ADDED_LATER_BYTES - 50))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        parts.timers.turn()
        parts.clock.advance(2)
        settle(parts)
        assert bodies(parts) == [b"x"]

    async def test_a_crowded_second_takes_no_more(self, make_parts: MakeParts) -> None:
        parts = make_parts(timers=TimerConfig(congested_count=1, log_segment_bytes=SMALL_LOG))
        delayed(parts, 5)
        delayed(parts, 5)
        answer = send(parts, TIMER_DELAY_MS=5000)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "flow control" in answer.remark
        delayed(parts, 6)

    async def test_what_is_no_timer_message_in_the_timer_queue_is_left_out(self, parts: Parts) -> None:
        """Apache's broker lets clients send there, so a folder may have such records."""
        real = {"REAL_TOPIC": "orders", "REAL_QID": "0"}
        for properties in ({}, {"TIMER_OUT_MS": "1"}, real, {**real, "TIMER_OUT_MS": "soon"}):
            raw = encode_properties(properties).encode()
            parts.store.append(StoreMessage(TIMER_TOPIC, 0, b"?", properties, raw, 0, 0, 1, STORE_HOST))
        astray = {"REAL_TOPIC": "../../etc", "REAL_QID": "0", "TIMER_OUT_MS": "1700000000000"}
        raw = encode_properties(astray).encode()
        parts.store.append(StoreMessage(TIMER_TOPIC, 0, b"?", astray, raw, 0, 0, 1, STORE_HOST))
        parts.dispatch()
        delayed(parts, 1)
        parts.clock.advance(2)
        settle(parts)
        assert bodies(parts) == [b"x"]
        assert not any(".." in topic for topic in parts.store.topics())

    async def test_precision_is_kept(self, make_parts: MakeParts) -> None:
        parts = make_parts(timers=TimerConfig(precision_ms=150, log_segment_bytes=SMALL_LOG))
        delayed(parts, 0.25)
        parts.clock.advance(0.299)
        parts.timers.turn()
        assert bodies(parts) == []
        parts.clock.advance(0.001)
        settle(parts)
        assert bodies(parts) == [b"x"]


class TestDelivering:
    async def test_within_a_second_order_is_kept_and_earlier_seconds_come_first(self, parts: Parts) -> None:
        for seconds, body in ((3, b"c1"), (1, b"a"), (3, b"c2"), (2, b"b")):
            delayed(parts, seconds, body)
        parts.clock.advance(10)
        settle(parts)
        assert bodies(parts) == [b"a", b"b", b"c1", b"c2"]

    async def test_ten_thousand_in_one_second_all_come_out_once_in_turns(self, make_parts: MakeParts) -> None:
        parts = make_parts(log_segment_bytes=16 << 20)
        peer, count = parts.peer(), 10_000
        for number in range(count):
            properties = {"UNIQ_KEY": f"U{number}", "TIMER_DELAY_SEC": "5"}
            peer.send(send_request(body=b"%d" % number, properties=properties))
        parts.dispatch()
        settle(parts)
        parts.clock.advance(6)
        assert parts.timers.turn() == 0
        parts.dispatch()
        assert parts.store.max_offset("orders", 0) == ENTRIES_A_TURN
        settle(parts)
        assert bodies(parts) == [b"%d" % number for number in range(count)]
        assert parts.timers.counts.of("orders") == 0

    async def test_a_delay_of_seven_days_rolls_and_comes_out_in_its_second(self, make_parts: MakeParts) -> None:
        parts = make_parts(timers=TimerConfig(max_delay_s=8 * DAY_S, log_segment_bytes=SMALL_LOG))
        delayed(parts, 7 * DAY_S)
        start_ms = parts.clock.now_ms()
        for _ in range(14):
            parts.clock.advance(DAY_S / 2 - 1)
            settle(parts)
            assert bodies(parts) == []
            parts.clock.advance(1)
            if parts.clock.now_ms() < start_ms + 7 * DAY_S * 1000:
                settle(parts)
                assert bodies(parts) == []
        settle(parts)
        [message] = delivered(parts)
        assert message.store_ms == start_ms + 7 * DAY_S * 1000
        assert message.properties["TIMER_ROLL_TIMES"] == "3"
        assert parts.store.max_offset(TIMER_TOPIC, 0) == 4
        assert parts.timers.counts.of("orders") == 0

    async def test_fifty_hours_go_half_a_window_first(self, parts: Parts) -> None:
        """As in Apache's own folder (tests/golden/timer)."""
        delayed(parts, 50 * 3600)
        parts.clock.advance(DAY_S)
        settle(parts)
        assert parts.store.max_offset(TIMER_TOPIC, 0) == 1
        parts.clock.advance(1)
        settle(parts)
        assert parts.store.max_offset(TIMER_TOPIC, 0) == 2

    async def test_a_store_that_refuses_stops_the_turn_and_nothing_is_lost(self, make_parts: MakeParts) -> None:
        parts = make_parts(log_segment_bytes=1024)
        for number in range(3):
            delayed(parts, 1, b"%d" % number)
        parts.clock.advance(2)
        parts.disk.fail("open", errno.ENOSPC, part="commitlog", forever=True)
        parts.disk.fail("reserve", errno.ENOSPC, part="commitlog", forever=True)
        while parts.timers.turn() != 1000:
            parts.dispatch()
        assert len(bodies(parts)) < 3
        parts.disk.heal()
        settle(parts)
        assert bodies(parts) == [b"0", b"1", b"2"]

    async def test_a_timer_log_that_cannot_grow_is_tried_again(self, parts: Parts) -> None:
        parts.disk.fail("open", errno.ENOSPC, part="timerlog")
        assert send(parts, TIMER_DELAY_MS=1000).code == ResponseCode.SUCCESS
        assert parts.timers.turn() == 1000
        parts.clock.advance(2)
        settle(parts)
        parts.clock.advance(2)
        settle(parts)
        assert bodies(parts) == [b"x"]

    async def test_the_task_wakes_for_a_new_message_and_sleeps_until_it_is_due(self, parts: Parts) -> None:
        running = asyncio.create_task(parts.timers.run())
        try:
            await asyncio.sleep(0)
            send(parts, TIMER_DELAY_MS=1000)
            await eventually(lambda: parts.timers.counts.of("orders") == 1)
            parts.clock.advance(1)
            await eventually(lambda: parts.timers.counts.of("orders") == 0)
            assert bodies(parts) == [b"x"]
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def test_old_timer_log_files_go_when_their_messages_have(self, make_parts: MakeParts) -> None:
        clock = ManualClock()
        parts = make_parts(
            timers=TimerConfig(log_segment_bytes=52 * 2 + 16),
            log_segment_bytes=2048,
            clock=clock,
            disk=GatedDisk(MemoryDisk(clock)),
        )
        for number in range(30):
            delayed(parts, 1, b"%d" % number)
        parts.clock.advance(2)
        settle(parts)
        save(parts)
        names = [entry.name for entry in parts.disk.list(ROOT / "timerlog")]
        assert len(names) == 15
        parts.clock.advance(100 * 3600)
        parts.store.delete_expired()
        parts.store.clean_up(wait=True)
        delayed(parts, 1)
        save(parts)
        assert len(parts.disk.list(ROOT / "timerlog")) < 15


class TestClocks:
    @pytest.mark.parametrize("hours", [1, 24, 24 * 6, 24 * 30])
    async def test_a_clock_set_forward_delivers_what_is_due_then(self, parts: Parts, hours: int) -> None:
        delayed(parts, 1800, b"a")
        delayed(parts, 2 * DAY_S - 1000, b"b")
        parts.clock.jump_wall(hours * 3600)
        settle(parts)
        assert bodies(parts) == [b"a", b"b"][: 1 + (hours > 24)]
        delayed(parts, 5, b"new")
        parts.clock.advance(4)
        settle(parts)
        assert b"new" not in bodies(parts)
        parts.clock.advance(2)
        settle(parts)
        assert bodies(parts)[-1] == b"new"

    @pytest.mark.parametrize("hours", [1, 24, 24 * 13])
    async def test_after_a_clock_is_set_back_nothing_is_early_and_timers_fire(self, parts: Parts, hours: int) -> None:
        delayed(parts, 5, b"before")
        parts.clock.jump_wall(-hours * 3600)
        settle(parts)
        delayed(parts, 10, b"after")
        parts.clock.advance(9)
        settle(parts)
        assert bodies(parts) == []
        parts.clock.advance(2)
        settle(parts)
        assert bodies(parts) == [b"after"]
        parts.clock.advance(hours * 3600)
        settle(parts)
        assert bodies(parts) == [b"after", b"before"]

    async def test_a_second_that_comes_twice_delivers_each_message_once(self, parts: Parts) -> None:
        delayed(parts, 5, b"first")
        parts.clock.advance(6)
        settle(parts)
        parts.clock.jump_wall(-6)
        delayed(parts, 5, b"second")
        parts.clock.advance(6)
        settle(parts)
        assert bodies(parts) == [b"first", b"second"]

    async def test_what_waits_after_the_clock_was_set_back_survives_a_restart(self, make_parts: MakeParts) -> None:
        before = make_parts()
        delayed(before, 1, b"old")
        before.clock.advance(3600)
        settle(before)
        save(before)
        before.clock.jump_wall(-1800)
        delayed(before, 60, b"new")
        save(before)
        parts = restarted(make_parts, before)
        parts.clock.advance(62)
        settle(parts)
        assert bodies(parts) == [b"old", b"new"]

    async def test_two_moments_that_share_a_slot_both_come_out(self, make_parts: MakeParts) -> None:
        parts = make_parts(timer_slots=100)
        delayed(parts, 30, b"near")
        delayed(parts, 130, b"far")
        parts.clock.advance(129)
        settle(parts)
        assert bodies(parts) == [b"near"]
        parts.clock.advance(3)
        settle(parts)
        settle(parts)
        assert bodies(parts) == [b"near", b"far"]


class TestRecalling:
    async def test_a_message_that_is_recalled_is_not_delivered(self, parts: Parts) -> None:
        handle = delayed(parts, 10, b"recalled", "U1")
        delayed(parts, 10, b"kept", "U2")
        answer = recall(parts, handle)
        assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {"msgId": "U1", "MSG_REGION": "DefaultRegion"})
        parts.clock.advance(12)
        settle(parts)
        assert bodies(parts) == [b"kept"]
        assert parts.timers.counts.of("orders") == 0

    async def test_the_recall_is_stored_as_apache_does(self, parts: Parts) -> None:
        handle = delayed(parts, 10)
        recall(parts, handle)
        stored = parts.messages(TIMER_TOPIC)[1]
        now_ms = parts.clock.now_ms()
        assert stored.body == b"0"
        assert stored.properties == {
            "TAGS": "_RECALL_TAG_",
            "TIMER_DEL_UNIQKEY": "U1",
            "UNIQ_KEY": "U1",
            "TIMER_DELIVER_MS": str(now_ms + 9001),
            "BORN_TIMESTAMP": str(now_ms),
            "PGROUP": "producers",
            "TIMER_OUT_MS": str(now_ms + 9000),
            "REAL_TOPIC": "orders",
            "REAL_QID": "0",
        }

    async def test_at_the_last_moment_it_still_counts_and_afterwards_it_is_refused(self, parts: Parts) -> None:
        handle = delayed(parts, 10, b"a", "U1")
        late = delayed(parts, 10, b"b", "U2")
        parts.clock.advance(9)
        assert recall(parts, handle).code == ResponseCode.SUCCESS
        parts.clock.advance(1)
        answer = recall(parts, late)
        assert (answer.code, answer.remark) == (ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        settle(parts)
        assert bodies(parts) == [b"b"]

    async def test_a_recall_counts_even_when_it_was_stored_but_not_taken_in(self, make_parts: MakeParts) -> None:
        before = make_parts()
        answer = send(before, TIMER_DELAY_MS=5000)
        assert recall(before, answer.ext["recallHandle"]).code == ResponseCode.SUCCESS
        parts = restarted(make_parts, before)
        parts.clock.advance(60)
        settle(parts)
        parts.clock.advance(2)
        settle(parts)
        assert bodies(parts) == []

    async def test_a_recall_behind_a_backlog_counts(self, parts: Parts) -> None:
        """Nothing is delivered while messages are waiting to be taken in."""
        handle = send(parts, b"recalled", "U0", TIMER_DELAY_MS=5000).ext["recallHandle"]
        for number in range(ENTRIES_A_TURN + 10):
            send(parts, b"later", f"L{number}", TIMER_DELAY_MS=50_000)
        assert recall(parts, handle).code == ResponseCode.SUCCESS
        parts.clock.advance(6)
        settle(parts)
        assert bodies(parts) == []

    async def test_topic_and_id_joined_recall_too(self, parts: Parts) -> None:
        """As some of RocketMQ's versions write it."""
        delayed(parts, 5, b"x", "U1")
        send(parts, b"0", "U9", TIMER_DELAY_MS=5000, TIMER_DEL_UNIQKEY="orders+U1")
        settle(parts)
        parts.clock.advance(7)
        settle(parts)
        assert bodies(parts) == []

    @pytest.mark.parametrize("named", ["U1", "orders+U1"])
    async def test_messages_of_another_topic_are_not_recalled(self, parts: Parts, named: str) -> None:
        """Whoever sends a recall may publish to its topic, and perhaps to no other."""
        delayed(parts, 5, b"x", "U1")
        properties = {"UNIQ_KEY": "U9", "TIMER_DELAY_MS": "5000", "TIMER_DEL_UNIQKEY": named}
        assert parts.peer().ask(send_request("other", properties=properties)).code == ResponseCode.SUCCESS
        settle(parts)
        parts.clock.advance(7)
        settle(parts)
        assert bodies(parts) == [b"x"]

    async def test_a_recall_far_ahead_rolls_with_its_message(self, parts: Parts) -> None:
        handle = delayed(parts, 70 * 3600)
        parts.clock.advance(3600)
        assert recall(parts, handle).code == ResponseCode.SUCCESS
        for _ in range(71):
            parts.clock.advance(3600)
            settle(parts)
        assert bodies(parts) == []
        assert parts.timers.counts.of("orders") == 0

    async def test_a_recall_of_nothing_does_no_harm(self, parts: Parts) -> None:
        handle = RecallHandle("orders", "broker-a", parts.clock.now_ms() + 5001, "nobody").encode()
        delayed(parts, 5)
        assert recall(parts, handle).code == ResponseCode.SUCCESS
        parts.clock.advance(10)
        settle(parts)
        assert bodies(parts) == [b"x"]
        assert parts.timers.counts.of("orders") == 0

    @pytest.mark.parametrize(
        ("handle", "code", "remark"),
        [
            ("", 604, "recall handle is invalid"),
            ("!!", 604, "recall handle is invalid"),
            ("djIgYSBiIDEgYw==", 604, "recall handle is invalid"),
            (RecallHandle("other", "broker-a", 1, "U").encode(), 604, "recall failed, topic not match"),
            (RecallHandle("orders", "b", 1, "U").encode(), 604, "recall failed, broker service not available"),
            (RecallHandle("orders", "broker-a", 1, "U").encode(), 604, "recall failed, timestamp invalid"),
            (RecallHandle("orders", "broker-a", 1 << 60, "U").encode(), 604, "recall failed, timestamp invalid"),
        ],
    )
    async def test_bad_handles_are_refused(self, parts: Parts, handle: str, code: int, remark: str) -> None:
        parts.put_topic("orders")
        answer = recall(parts, handle)
        assert (answer.code, answer.remark, answer.ext) == (code, remark, {"MSG_REGION": "DefaultRegion"})

    async def test_an_unknown_topic_is_refused(self, parts: Parts) -> None:
        answer = recall(parts, "x", topic="nowhere")
        assert (answer.code, answer.remark) == (17, "recall failed, the topic[nowhere] not exist")

    async def test_recalling_has_to_be_allowed(self, make_parts: MakeParts) -> None:
        parts = make_parts(recall_enabled=False)
        handle = delayed(parts, 10)
        answer = recall(parts, handle)
        assert (answer.code, answer.remark) == (16, "recall failed, operation is forbidden")


class TestRestarts:
    async def test_a_restart_neither_forgets_nor_repeats(self, make_parts: MakeParts) -> None:
        before = make_parts()
        delayed(before, 1, b"early")
        delayed(before, 100, b"pending")
        before.clock.advance(2)
        settle(before)
        assert save(before)
        assert not save(before)
        parts = restarted(make_parts, before)
        settle(parts)
        assert bodies(parts) == [b"early"]
        assert parts.timers.counts.of("orders") == 1
        parts.clock.advance(99)
        settle(parts)
        assert bodies(parts) == [b"early", b"pending"]

    async def test_a_broker_that_was_down_for_a_month_delivers_all_it_owes(self, make_parts: MakeParts) -> None:
        before = make_parts()
        for number in range(5):
            delayed(before, 1000 * (5 - number), b"%d" % number)
        save(before)
        parts = restarted(make_parts, before)
        parts.clock.advance(30 * DAY_S)
        settle(parts)
        assert bodies(parts) == [b"4", b"3", b"2", b"1", b"0"]

    async def test_a_message_that_became_readable_late_survives_a_kill(self, make_parts: MakeParts) -> None:
        """Its second is over and saved as done when it is taken in, and that is not saved any more."""
        before = make_parts()
        delayed(before, 1, b"a")
        before.peer().ask(send_request(body=b"late", properties={"UNIQ_KEY": "U2", "TIMER_DELAY_MS": "2000"}))
        before.clock.advance(10)
        before.timers.turn()
        before.store.flush_now()
        before.timers.write(before.timers.take_changes())  # type: ignore[arg-type]
        before.timers._fill_wheel()  # and killed before it could be delivered
        parts = restarted(make_parts, before)
        parts.clock.advance(2)
        settle(parts)
        assert bodies(parts) == [b"a", b"late"]

    async def test_what_is_due_while_delivery_is_stopped_comes_after_a_restart(self, make_parts: MakeParts) -> None:
        before = make_parts(timers=TimerConfig(stop_delivering=True, log_segment_bytes=SMALL_LOG))
        delayed(before, 1, b"held")
        before.clock.advance(100)
        settle(before)
        assert save(before)
        before.close()
        parts = make_parts(disk=before.disk, clock=before.clock)
        settle(parts)
        assert bodies(parts) == [b"held"]

    async def test_nothing_is_called_delivered_before_the_log_is_on_disk(self, parts: Parts) -> None:
        delayed(parts, 1)
        parts.clock.advance(2)
        settle(parts)
        assert parts.timers.take_changes() is None
        parts.store.flush_now()
        assert parts.timers.take_changes() is not None

    @pytest.mark.parametrize("seed", [None, *range(12)])
    async def test_a_power_cut_before_delivery_loses_nothing_and_is_not_early(
        self, make_parts: MakeParts, seed: int | None
    ) -> None:
        memory = MemoryDisk()
        before = make_parts(disk=GatedDisk(memory), timer_slots=FEW_SLOTS)
        sent = [b"%d" % number for number in range(40)]
        for number, body in enumerate(sent):
            delayed(before, 10 + number % 7, body, f"U{number}")
            if number == 20:
                save(before)
        before.store.flush_now()
        parts = after_power_cut(make_parts, before, memory, seed)
        parts.clock.advance(9)
        settle(parts)
        assert bodies(parts) == []
        parts.clock.advance(10)
        settle(parts)
        assert sorted(bodies(parts)) == sorted(sent)

    @pytest.mark.parametrize("seed", [None, *range(12)])
    async def test_a_power_cut_after_delivery_repeats_at_most_what_was_not_saved(
        self, make_parts: MakeParts, seed: int | None
    ) -> None:
        memory = MemoryDisk()
        before = make_parts(disk=GatedDisk(memory), timer_slots=FEW_SLOTS)
        for number in range(30):
            delayed(before, 1 + number % 3, b"%d" % number, f"U{number}")
        before.clock.advance(1)
        settle(before)
        assert len(bodies(before)) == 10
        save(before)
        before.clock.advance(1)
        settle(before)
        unsaved = set(bodies(before)[10:])
        before.store.flush_now()
        parts = after_power_cut(make_parts, before, memory, seed)
        parts.clock.advance(60)
        settle(parts)
        found = bodies(parts)
        assert set(found) == {b"%d" % number for number in range(30)}
        assert {body for body in found if found.count(body) > 1} <= unsaved

    @pytest.mark.parametrize("part", ["timerlog", "timerwheel", "timercheck", "timermetrics"])
    async def test_a_crash_at_any_step_of_a_save_loses_nothing(self, make_parts: MakeParts, part: str) -> None:
        memory = MemoryDisk()
        before = make_parts(disk=GatedDisk(memory), timer_slots=FEW_SLOTS)
        for number in range(10):
            delayed(before, 5 + number, b"%d" % number, f"U{number}")
        save(before)
        before.clock.advance(9)
        settle(before)
        delayed(before, 20, b"late", "U99")
        before.disk.fail("write" if part == "timermetrics" else "sync", part=part)
        with pytest.raises(StoreError, match=part):
            save(before)
        assert not save(before)
        parts = after_power_cut(make_parts, before, memory)
        parts.clock.advance(60)
        settle(parts)
        found = bodies(parts)
        assert set(found) == {*(b"%d" % number for number in range(10)), b"late"}
        assert found.count(b"late") == 1

    @pytest.mark.parametrize("lost", [("timerwheel",), ("timerlog",), ("timerlog", "timerwheel"), ("timercheck",)])
    async def test_lost_files_are_made_anew(self, make_parts: MakeParts, lost: tuple[str, ...]) -> None:
        before = make_parts()
        delayed(before, 1, b"done")
        delayed(before, 50, b"a", "U2")
        delayed(before, 60, b"b", "U3")
        before.clock.advance(3)
        settle(before)
        save(before)
        before.close()
        for name in lost:
            before.disk.remove_tree(ROOT / name)
            before.disk.remove(ROOT / name)
            before.disk.remove(ROOT / "config" / name)
        parts = make_parts(disk=before.disk, clock=before.clock, timers=before.setup.timers)
        parts.clock.advance(100)
        settle(parts)
        parts.clock.advance(2)
        settle(parts)
        found = bodies(parts)
        assert sorted(set(found)) == [b"a", b"b", b"done"]
        if lost != ("timercheck",):
            assert len(found) == 3

    async def test_another_precision_is_refused(self, make_parts: MakeParts) -> None:
        before = make_parts()
        delayed(before, 50)
        save(before)
        before.close()
        config = TimerConfig(precision_ms=100, log_segment_bytes=SMALL_LOG)
        with pytest.raises(StoreError, match="timerPrecisionMs"):
            make_parts(disk=before.disk, clock=before.clock, timers=config)


class TestAsking:
    async def test_progress_and_counts(self, parts: Parts) -> None:
        delayed(parts, 50)
        save(parts)
        answer = parts.peer().ask(Command(RequestCode.GET_TIMER_CHECK_POINT))
        now_ms = parts.clock.now_ms()
        assert answer.body == TimerMark(now_ms, 52, 1, 1, 0, now_ms, 1).encode()
        counts = msgspec.json.decode(parts.peer().ask(Command(RequestCode.GET_TIMER_METRICS)).body)
        assert counts == {
            "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": now_ms},
            "timingCount": {"orders": {"count": 1, "timeStamp": now_ms}},
        }

    async def test_no_timer_no_file(self, parts: Parts) -> None:
        parts.peer().ask(send_request())
        settle(parts)
        assert not save(parts)
        assert not any(entry.name.startswith("timer") for entry in parts.disk.list(ROOT))

    async def test_metrics_tell_how_soon_messages_are_due(self, parts: Parts) -> None:
        for number, seconds in enumerate((4, 5, 6, 60, 61, 3 * 3600, 86_400, 86_401, 2 * 86_400)):
            delayed(parts, seconds, unique_id=f"U{number}")
        page = parse((await BrokerMetrics(parts, None).exporter()._scrape(False)).decode())
        family = page["rocketmq_timer_message_snapshot"]
        found = {int(sample.labels["timer_bound_s"]): sample.value for sample in family.samples}
        assert found == {5: 2, 60: 2, 300: 1, 900: 0, 3600: 0, 14_400: 1, 28_800: 0, 86_400: 1}
        assert page["rocketmq_timing_messages"].value(topic="orders") == 9
