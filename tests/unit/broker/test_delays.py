"""Delay levels on a virtual clock: when messages come out, in which order, what a restart keeps, what a clock may do."""

from __future__ import annotations

import asyncio
import errno

import pytest
from tests.unit.broker.parts import LEVELS_MS, STORE_HOST, MakeParts, Parts, eventually, send_request

from rocketline.broker.delays.delay_levels import DELIVERIES_A_TURN
from rocketline.errors import StoreError
from rocketline.message import MessageView
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.hashing import tag_hash
from rocketline.protocol.properties import encode_properties
from rocketline.store.message_store import StoreMessage

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def send_delayed(parts: Parts, level: int, body: bytes = b"x", **changes: object) -> None:
    properties = {"UNIQ_KEY": "U1", "TAGS": "t", "DELAY": str(level)}
    answer = parts.peer().ask(send_request(body=body, properties=properties, **changes))  # type: ignore[arg-type]
    assert answer.code == ResponseCode.SUCCESS
    parts.dispatch()


def delivered(parts: Parts, topic: str = "orders", queue_id: int = 0) -> list[MessageView]:
    return parts.messages(topic, queue_id)


def bodies(parts: Parts) -> list[bytes]:
    return [message.body for message in delivered(parts)]


@pytest.mark.parametrize("level", range(1, 19))
async def test_a_message_comes_out_when_its_level_is_over_and_not_before(parts: Parts, level: int) -> None:
    delay_ms = LEVELS_MS[level - 1]
    send_delayed(parts, level)
    assert parts.delays.deliver_due() == delay_ms
    parts.clock.advance(delay_ms / 1000 - 0.001)
    assert parts.delays.deliver_due() == 1
    assert bodies(parts) == []
    parts.clock.advance(0.001)
    assert parts.delays.deliver_due() is None
    assert bodies(parts) == [b"x"]
    assert parts.delays.deliver_due() is None
    assert len(bodies(parts)) == 1


async def test_the_delivered_copy_is_the_message_that_was_sent(parts: Parts) -> None:
    parts.put_topic("orders", queue_count=8)
    send_delayed(parts, 1, b"body", queue_id=6, flag=5, reconsume_times=2)
    sent_ms = parts.clock.now_ms()
    parts.clock.advance(1)
    parts.delays.deliver_due()
    [message] = delivered(parts, "orders", 6)
    assert (message.topic, message.queue_id, message.queue_offset) == ("orders", 6, 0)
    assert (message.flag, message.reconsume_times) == (5, 2)
    assert message.born_ms == 1_600_000_000_123
    assert message.born_host == "192.0.2.5:40001"
    assert message.store_ms == sent_ms + 1000
    assert message.properties == {
        "UNIQ_KEY": "U1",
        "TAGS": "t",
        "DELAY": "1",
        "REAL_TOPIC": "orders",
        "REAL_QID": "6",
        "WAIT": "false",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }


async def test_a_delivered_message_is_found_by_its_tag_again(parts: Parts) -> None:
    """In the schedule queue the deliver time stands where its tag hash belongs."""
    send_delayed(parts, 1)
    unit = parts.store.unit_at(SCHEDULE, 0, 0)
    assert unit is not None
    assert unit.tags_code == parts.clock.now_ms() + 1000
    parts.clock.advance(1)
    parts.delays.deliver_due()
    parts.dispatch()
    unit = parts.store.unit_at("orders", 0, 0)
    assert unit is not None
    assert unit.tags_code == tag_hash("t")


async def test_a_delivered_message_is_not_delayed_again(parts: Parts) -> None:
    send_delayed(parts, 1)
    parts.clock.advance(1)
    parts.delays.deliver_due()
    parts.dispatch()
    assert parts.store.max_offset(SCHEDULE, 0) == 1


async def test_within_a_level_order_is_kept_and_shorter_levels_overtake(parts: Parts) -> None:
    send_delayed(parts, 2, b"slow 1")
    send_delayed(parts, 1, b"fast")
    send_delayed(parts, 2, b"slow 2")
    assert parts.delays.deliver_due() == 1000
    parts.clock.advance(1)
    assert parts.delays.deliver_due() == 4000
    parts.clock.advance(4)
    parts.delays.deliver_due()
    assert bodies(parts) == [b"fast", b"slow 1", b"slow 2"]


async def test_many_due_messages_are_delivered_in_turns(make_parts: MakeParts) -> None:
    parts = make_parts()
    for number in range(DELIVERIES_A_TURN + 5):
        send_delayed(parts, 1, b"%d" % number)
    parts.clock.advance(1)
    assert parts.delays.deliver_due() == 0
    parts.dispatch()
    assert parts.store.max_offset("orders", 0) == DELIVERIES_A_TURN
    assert parts.delays.deliver_due() is None
    parts.dispatch()
    assert parts.store.max_offset("orders", 0) == DELIVERIES_A_TURN + 5


async def test_a_restart_neither_forgets_nor_repeats(make_parts: MakeParts) -> None:
    before = make_parts()
    for number in range(3):
        send_delayed(before, 1, b"early %d" % number)
    before.clock.advance(1)
    before.delays.deliver_due()
    send_delayed(before, 1, b"pending")
    before.store.flush_now()
    data = before.delays.take_changes()
    assert data is not None
    before.delays.write(data)
    before.close()
    parts = make_parts(disk=before.disk, clock=before.clock)
    assert len(bodies(parts)) == 3
    assert parts.delays.deliver_due() == 1000
    parts.clock.advance(3600)
    parts.delays.deliver_due()
    assert bodies(parts) == [b"early 0", b"early 1", b"early 2", b"pending"]


async def test_a_crash_before_the_save_repeats_and_never_loses(make_parts: MakeParts) -> None:
    before = make_parts()
    send_delayed(before, 1, b"a")
    before.clock.advance(1)
    before.delays.deliver_due()
    before.close()
    parts = make_parts(disk=before.disk, clock=before.clock)
    parts.delays.deliver_due()
    assert bodies(parts) == [b"a", b"a"]


async def test_an_offset_past_the_schedule_queue_is_capped(make_parts: MakeParts) -> None:
    """What a power failure can leave: the offset file is younger than the log."""
    before = make_parts()
    send_delayed(before, 1, b"a")
    before.delays._next = {1: 50, 2: 7}
    before.delays._changed = True
    before.store.flush_now()
    data = before.delays.take_changes()
    assert data is not None
    before.delays.write(data)
    before.close()
    parts = make_parts(disk=before.disk, clock=before.clock)
    send_delayed(parts, 1, b"b")
    send_delayed(parts, 2, b"c")
    parts.clock.advance(10)
    parts.delays.deliver_due()
    assert bodies(parts) == [b"b", b"c"]


async def test_what_was_stored_before_a_clock_is_set_back_waits_one_delay_more_and_not_for_years(parts: Parts) -> None:
    send_delayed(parts, 3, b"a")
    parts.clock.advance(9)
    parts.clock.jump_wall(-86_400)
    assert parts.delays.deliver_due() == 10_000
    parts.clock.advance(9)
    assert parts.delays.deliver_due() == 1000
    assert bodies(parts) == []
    parts.clock.advance(1)
    assert parts.delays.deliver_due() is None
    assert bodies(parts) == [b"a"]


@pytest.mark.parametrize("back_s", [2, 3600, 86_400])
async def test_what_is_sent_after_a_clock_was_set_back_waits_for_its_delay(parts: Parts, back_s: int) -> None:
    """The log's times do not go back: those of its deliver times are of no use until the clock is where it was."""
    send_delayed(parts, 1, b"before")
    parts.clock.advance(1)
    parts.delays.deliver_due()
    parts.clock.jump_wall(-back_s)
    for number in range(3):
        send_delayed(parts, 3, b"after %d" % number)
        parts.clock.advance(4)
        parts.delays.deliver_due()
    assert bodies(parts) == [b"before", b"after 0"]
    assert parts.delays.deliver_due() == 2000
    parts.clock.advance(2)
    assert parts.delays.deliver_due() == 4000
    parts.clock.advance(back_s + 10)
    assert parts.delays.deliver_due() is None
    assert bodies(parts) == [b"before", b"after 0", b"after 1", b"after 2"]
    send_delayed(parts, 3, b"later")
    assert parts.delays.deliver_due() == 10_000
    assert not parts.delays._set_back.is_noted


async def test_a_restart_after_a_clock_was_set_back_delivers_nothing_early(make_parts: MakeParts) -> None:
    before = make_parts()
    send_delayed(before, 3, b"a")
    before.clock.jump_wall(-3600)
    send_delayed(before, 3, b"b")
    before.close()
    parts = make_parts(disk=before.disk, clock=before.clock)
    parts.clock.advance(9)
    assert parts.delays.deliver_due() == 10_000, "how long they waited is forgotten"
    parts.clock.advance(10)
    assert parts.delays.deliver_due() is None
    assert bodies(parts) == [b"a", b"b"]


async def test_a_clock_set_back_a_little_only_makes_it_wait(parts: Parts) -> None:
    send_delayed(parts, 3, b"a")
    parts.clock.advance(9)
    parts.clock.jump_wall(-5)
    assert parts.delays.deliver_due() == 6000
    assert bodies(parts) == []


async def test_only_changes_are_saved_and_failed_saves_are_made_up_for(parts: Parts) -> None:
    assert parts.delays.take_changes() is None
    send_delayed(parts, 1)
    parts.delays.deliver_due()
    assert parts.delays.take_changes() is None
    parts.clock.advance(1)
    parts.delays.deliver_due()
    parts.store.flush_now()
    data = parts.delays.take_changes()
    assert data is not None
    parts.disk.fail("write", errno.EIO)
    with pytest.raises(StoreError):
        parts.delays.write(data)
    data = parts.delays.take_changes()
    assert data is not None
    assert b'"1":1' in data
    parts.delays.write(data)
    assert parts.delays.take_changes() is None


async def test_a_store_that_refuses_is_tried_again(parts: Parts) -> None:
    send_delayed(parts, 1, b"a")
    parts.clock.advance(1)
    parts.store._refusal = "no"
    assert parts.delays.deliver_due() == 1000
    parts.store._refusal = ""
    assert parts.delays.deliver_due() is None
    assert bodies(parts) == [b"a"]


@pytest.mark.parametrize(
    "properties",
    [{}, {"REAL_TOPIC": "orders"}, {"REAL_TOPIC": "orders", "REAL_QID": "x"}, {"REAL_QID": "0"}],
)
async def test_a_record_that_names_no_target_does_not_stop_its_level(parts: Parts, properties: dict[str, str]) -> None:
    broken = StoreMessage(
        SCHEDULE, 0, b"broken", properties, encode_properties(properties).encode(), 0, 0, 0, STORE_HOST
    )
    parts.store.append(broken)
    send_delayed(parts, 1, b"good")
    parts.clock.advance(1)
    assert parts.delays.deliver_due() is None
    assert bodies(parts) == [b"good"]


async def test_levels_are_as_configured(make_parts: MakeParts) -> None:
    parts = make_parts(delay_levels="1s 2s")
    send_delayed(parts, 2, b"b")
    send_delayed(parts, 9, b"c")
    send_delayed(parts, 1, b"a")
    assert parts.delays.deliver_due() == 1000
    parts.clock.advance(2)
    parts.delays.deliver_due()
    assert bodies(parts) == [b"a", b"b", b"c"]


async def test_the_task_sleeps_until_something_arrives_or_is_due(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketline.broker.delays.delay_levels.LOOK_AGAIN_MS", 1)
    runner = asyncio.create_task(parts.delays.run())
    try:
        await asyncio.sleep(0)
        parts.clock.advance(0)
        send_delayed(parts, 1, b"a")
        await asyncio.sleep(0)
        parts.clock.advance(1)
        await eventually(lambda: parts.appends == 2)
        assert bodies(parts) == [b"a"]
        send_delayed(parts, 1, b"b")
        parts.clock.advance(1)
        await eventually(lambda: parts.appends == 4)
        assert bodies(parts) == [b"a", b"b"]
    finally:
        runner.cancel()
        with pytest.raises(asyncio.CancelledError):
            await runner


@pytest.mark.parametrize("level", [5, 18])
async def test_a_clock_set_forward_is_noticed_while_the_task_sleeps(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    """The sleep is measured by a clock that does not jump: without a bound it would last for the old delay."""
    monkeypatch.setattr("rocketline.broker.delays.delay_levels.LOOK_AGAIN_MS", 5)
    send_delayed(parts, level, b"due")
    runner = asyncio.create_task(parts.delays.run())
    try:
        await asyncio.sleep(0)
        assert bodies(parts) == []
        parts.clock.jump_wall(LEVELS_MS[level - 1] / 1000)
        await eventually(lambda: parts.appends == 2)
        assert bodies(parts) == [b"due"]
    finally:
        runner.cancel()
        with pytest.raises(asyncio.CancelledError):
            await runner


async def test_a_message_whose_properties_leave_no_room_for_the_detour_is_refused(parts: Parts) -> None:
    added = len("MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02")
    room = 32767 - added - len("UNIQ_KEY\x01U\x02DELAY\x011\x02x\x01\x02")
    answer = parts.peer().ask(send_request(properties={"UNIQ_KEY": "U", "DELAY": "1", "x": "v" * room}))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert parts.store.log_next_offset == 0


async def test_a_delivery_is_not_written_down_before_the_message_is_on_disk(parts: Parts) -> None:
    """Or a power failure could lose the copy and keep the word that there is one."""
    send_delayed(parts, 1, b"a")
    parts.clock.advance(1)
    parts.delays.deliver_due()
    assert parts.store.flushed_offset < parts.store.log_next_offset
    assert parts.delays.take_changes() is None
    parts.store.flush_now()
    send_delayed(parts, 1, b"b")
    parts.clock.advance(1)
    parts.delays.deliver_due()
    data = parts.delays.take_changes()
    assert data is not None
    assert b'"1":1' in data, "the second delivery is not on disk yet"
    assert parts.delays.take_changes() is None
    parts.store.flush_now()
    data = parts.delays.take_changes()
    assert data is not None
    assert b'"1":2' in data
