"""What becomes of popped messages: acknowledged, hidden for longer, delivered again, dead; and handles that are none."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.unit.broker.parts import BROKER, MakeParts, Parts, send_request
from tests.unit.broker.popper import (
    REVIVE_TOPIC,
    Popped,
    Popper,
    ack_request,
    batch_entry,
    bodies,
    change_request,
    numbers,
    pop_request,
    put,
    revive_records,
)

from rocketline.broker.config import PopConfig
from rocketline.broker.pop.revive_log import REVIVE_GROUP
from rocketline.protocol.bodies import BatchAckMessageRequestBody, SubscriptionGroupConfig, encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.properties import encode_properties
from rocketline.store.message_store import StoreMessage

RETRY = "%RETRY%readers_orders"
DEAD = "%DLQ%readers"
MERGING = PopConfig(merges_in_memory=True)


@pytest.fixture(params=["log", "memory"])
async def either(request: pytest.FixtureRequest, make_parts: MakeParts) -> Parts:
    """Check points in the revive log at once, or first in memory."""
    return make_parts(pop=PopConfig(merges_in_memory=request.param == "memory"))


# Acknowledged or not


async def test_what_is_acknowledged_does_not_come_again(either: Parts) -> None:
    put(either, *numbers(4))
    popper = Popper(either)
    popper.ack_all(popper.pop(invisible_ms=10_000))
    either.pass_time(30)
    assert popper.pop() == []
    assert either.topics.get(RETRY) is None


async def test_what_is_not_acknowledged_comes_again_after_the_invisible_time(either: Parts) -> None:
    put(either, *numbers(4))
    popper = Popper(either)
    taken = popper.pop(invisible_ms=10_000)
    popper.ack(taken[1])
    either.pass_time(9)
    assert popper.pop() == [], "it is hidden from the whole group"
    either.pass_time(5)
    again = popper.pop()
    assert sorted(bodies(again)) == [b"0", b"2", b"3"]
    popper.ack_all(again)
    either.pass_time(90)
    assert popper.pop() == []


async def test_attempts_are_counted_on_the_same_retry_topic(parts: Parts) -> None:
    put(parts, b"0", TAGS="t", KEYS="k", colour="red")
    popper = Popper(parts)
    first = popper.pop(invisible_ms=2000)[0]
    for attempt in range(1, 4):
        parts.pass_time(6)
        [one] = popper.pop(invisible_ms=2000)
        assert (one.message.reconsume_times, one.topic) == (attempt, RETRY)
    properties = one.message.properties
    assert {name: properties[name] for name in ("TAGS", "KEYS", "colour", "UNIQ_KEY")} == {
        "TAGS": "t", "KEYS": "k", "colour": "red", "UNIQ_KEY": "U-0",
    }  # fmt: skip
    assert (properties["1ST_POP_TIME"], properties["ORIGIN_GROUP"]) == (str(first.handle.pop_ms), "readers")
    assert one.message.born_ms == first.message.born_ms
    assert one.message.born_host == one.message.store_host == "10.9.8.7:10911"
    topic = parts.topics.get(RETRY)
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


async def test_enough_attempts_are_enough(parts: Parts) -> None:
    parts.groups.put(SubscriptionGroupConfig("readers", retry_max_times=2))
    put(parts, b"0", colour="red")
    popper = Popper(parts)
    for attempt in range(3):
        [one] = popper.pop(invisible_ms=2000)
        assert one.message.reconsume_times == attempt
        parts.pass_time(6)
    assert popper.pop() == []
    [dead] = parts.messages(DEAD)
    assert (dead.body, dead.reconsume_times, dead.properties["colour"]) == (b"0", 3, "red")
    assert (dead.properties["RETRY_TOPIC"], dead.message_id) == ("orders", "U-0")
    assert dead.properties["ORIGIN_MESSAGE_ID"]
    parts.pass_time(60)
    assert parts.store.max_offset(DEAD, 0) == 1


async def test_a_batch_is_acknowledged_at_once(either: Parts) -> None:
    put(either, *numbers(5))
    popper = Popper(either)
    taken = popper.pop(invisible_ms=10_000)
    assert popper.ack_batch(taken[:2] + taken[3:]).code == ResponseCode.SUCCESS
    either.pass_time(15)
    assert bodies(popper.pop()) == [b"2"]


async def test_redeliveries_are_acknowledged_by_batch_too(parts: Parts) -> None:
    put(parts, *numbers(2))
    popper = Popper(parts)
    popper.pop(invisible_ms=1000)
    parts.pass_time(6)
    again = popper.pop(invisible_ms=1000)
    assert popper.ack_batch(again).code == ResponseCode.SUCCESS
    parts.pass_time(10)
    assert popper.pop() == []


async def test_acks_count_for_the_group(parts: Parts) -> None:
    put(parts, *numbers(4))
    popper = Popper(parts)
    taken = popper.pop()
    popper.ack(taken[0])
    popper.ack_batch(taken[1:])
    assert parts.statistics._acks["orders@readers"].messages == 4
    assert parts.pops.in_flight.of_queue(("orders", "readers", 0)) == 0


async def test_messages_in_flight_are_counted_until_they_are_settled(parts: Parts) -> None:
    put(parts, *numbers(5))
    popper = Popper(parts)
    taken = popper.pop(4, invisible_ms=2000)
    assert parts.pops.in_flight.of_group("orders", "readers") == 4
    popper.ack(taken[0])
    popper.change(taken[1], 1000)
    assert parts.pops.in_flight.of_group("orders", "readers") == 3
    parts.pass_time(6)
    assert parts.pops.in_flight.of_group("orders", "readers") == 0


# Records of the revive log


async def test_records_are_apaches(parts: Parts) -> None:
    put(parts, *numbers(3))
    popper = Popper(parts)
    taken = popper.pop(invisible_ms=60_000)
    popper.ack(taken[2])
    popper.ack_batch(taken[:2])
    pop_ms = taken[0].handle.pop_ms
    checkpoint, ack, batch = revive_records(parts)
    assert json.loads(checkpoint.body) == {
        "bm": 0, "bn": BROKER, "c": "readers", "d": [0, 1, 2], "it": 60_000, "n": 3, "pt": pop_ms, "q": 0,
        "reviveTime": pop_ms + 60_000, "ro": 0, "so": 0, "t": "orders",
    }  # fmt: skip
    assert checkpoint.properties["TIMER_DELIVER_MS"] == str(pop_ms + 59_000)
    assert (checkpoint.tag, checkpoint.message_id) == ("ck", f"orders@0@0@readers@{pop_ms}@{BROKER}@ck")
    assert checkpoint.properties["REAL_QID"] == str(taken[0].handle.revive_queue_id)
    assert json.loads(ack.body) == {"ao": 2, "bn": BROKER, "c": "readers", "pt": pop_ms, "q": 0, "so": 0, "t": "orders"}
    assert ack.properties["TIMER_DELIVER_MS"] == str(pop_ms + 60_000)
    assert (ack.tag, ack.message_id) == ("ack", f"orders@0@2@readers@{pop_ms}@{BROKER}@ack")
    assert json.loads(batch.body)["aol"] == [0, 1]
    assert batch.tag == "bAck"


async def test_the_revive_offset_stands_before_what_is_not_settled(parts: Parts) -> None:
    put(parts, *numbers(20))
    popper = Popper(parts)
    for _ in range(8):
        popper.pop(1, invisible_ms=1000)
    later = popper.pop(1, invisible_ms=4000)
    assert later[0].handle.revive_queue_id == 0
    parts.pass_time(4)
    assert parts.offsets.get(REVIVE_GROUP, REVIVE_TOPIC, 0) == 0, "one of its two check points is settled"
    parts.pass_time(4)
    assert parts.offsets.get(REVIVE_GROUP, REVIVE_TOPIC, 0) == 1


@pytest.mark.parametrize(
    ("tag", "body"),
    [
        ("ck", b"no json"),
        ("ck", b'{"bm":0,"bn":"b","c":"","t":"orders"}'),
        ("ck", b'{"bm":0,"bn":"b","c":"g","t":"orders","n":1000}'),
        ("ck", b'{"bm":0,"bn":"b","c":"g","t":"orders","d":[-1],"n":1}'),
        ("ack", b"[]"),
        ("bAck", b"{}"),
        ("other", b"{}"),
    ],
)
async def test_a_record_that_is_none_is_passed_over(parts: Parts, tag: str, body: bytes) -> None:
    properties = {"TAGS": tag}
    raw = encode_properties(properties).encode()
    parts.store.append(StoreMessage(REVIVE_TOPIC, 0, body, properties, raw, 0, 0, 0, parts.store._log._store_host))
    put(parts, b"0")
    popper = Popper(parts)
    assert popper.pop(invisible_ms=1000)[0].handle.revive_queue_id == 0
    parts.pass_time(6)
    assert bodies(popper.pop()) == [b"0"]


async def test_a_store_that_takes_nothing_delays_redeliveries(parts: Parts) -> None:
    put(parts, *numbers(3))
    popper = Popper(parts)
    popper.pop(invisible_ms=1000)
    parts.pass_time(2)
    parts.store._refusal = "the disk is full"
    parts.pass_time(4)
    assert parts.topics.get(RETRY) is None or parts.store.max_offset(RETRY, 0) == 0
    parts.store._refusal = ""
    parts.pass_time(2)
    assert bodies(popper.pop()) == numbers(3)


async def test_an_acknowledgement_the_store_does_not_take_is_no_success(parts: Parts) -> None:
    put(parts, b"0")
    popper = Popper(parts)
    [one] = popper.pop(invisible_ms=2000)
    parts.store._refusal = "the disk is full"
    answer = popper.ack(one)
    assert (answer.code, "the disk is full" in (answer.remark or "")) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
    parts.store._refusal = ""
    assert popper.ack(one).code == ResponseCode.SUCCESS
    parts.pass_time(6)
    assert popper.pop() == []


# Acknowledgements of one read


def ack_at_once(popper: Popper, *taken: Popped) -> list[Command]:
    """Their answers, when all requests arrive in one read."""
    popper.peer.send(*map(ack_request, taken))
    popper.parts.dispatch()
    return popper.peer.received()


async def test_acknowledgements_of_one_read_are_one_record_for_each_check_point(parts: Parts) -> None:
    put(parts, *numbers(8))
    popper = Popper(parts)
    first, second = popper.pop(4, invisible_ms=3000), popper.pop(4, invisible_ms=3000)
    written = len(revive_records(parts))
    answers = ack_at_once(popper, *first[:3], second[0], second[0])
    assert [answer.code for answer in answers] == 5 * [ResponseCode.SUCCESS]
    assert len({answer.opaque for answer in answers}) == 5
    records = [(record.tag, json.loads(record.body)["aol"]) for record in revive_records(parts)[written:]]
    assert records == [("bAck", [0, 1, 2]), ("bAck", [4, 4])]
    parts.pass_time(7)
    assert sorted(bodies(popper.pop())) == [b"3", b"5", b"6", b"7"]


async def test_a_lone_acknowledgement_is_written_as_one(parts: Parts) -> None:
    put(parts, *numbers(2))
    popper = Popper(parts)
    one, _ = popper.pop()
    ack_at_once(popper, one)
    assert [record.tag for record in revive_records(parts)] == ["ck", "ack"]


async def test_in_memory_acknowledgements_of_one_read_settle_their_check_point(make_parts: MakeParts) -> None:
    parts = make_parts(pop=MERGING)
    put(parts, *numbers(3))
    popper = Popper(parts)
    answers = ack_at_once(popper, *popper.pop())
    assert [answer.code for answer in answers] == 3 * [ResponseCode.SUCCESS]
    assert not len(parts.pops.checkpoints)
    assert revive_records(parts) == []


async def test_what_the_store_does_not_take_is_no_success_for_any_of_one_read(parts: Parts) -> None:
    put(parts, *numbers(3))
    popper = Popper(parts)
    taken = popper.pop(invisible_ms=2000)
    parts.store._refusal = "the disk is full"
    answers = ack_at_once(popper, *taken)
    assert [answer.code for answer in answers] == 3 * [ResponseCode.SERVICE_NOT_AVAILABLE]
    assert all("the disk is full" in (answer.remark or "") for answer in answers)
    parts.store._refusal = ""
    assert [answer.code for answer in ack_at_once(popper, *taken)] == 3 * [ResponseCode.SUCCESS]
    parts.pass_time(6)
    assert popper.pop() == []


async def test_one_bad_handle_of_a_read_costs_the_others_nothing(parts: Parts) -> None:
    put(parts, *numbers(3))
    popper = Popper(parts)
    one, other, third = popper.pop(invisible_ms=2000)
    popper.peer.send(ack_request(one), ack_request(other, extra_info="nonsense"), ack_request(third))
    codes = {answer.opaque: answer.code for answer in popper.peer.received()}
    assert sorted(codes.values()) == [ResponseCode.SUCCESS, ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL]
    parts.pass_time(6)
    assert bodies(popper.pop()) == [other.body]


async def test_with_sync_flush_an_acknowledgement_waits_for_the_disk(make_parts: MakeParts) -> None:
    parts = make_parts(sync_flush=True)
    parts.put_topic("orders", 1)
    peer = parts.peer()
    peer.send(send_request("orders", b"0"))
    await peer.next()
    popper = Popper(parts)
    [one] = popper.pop()
    disk = parts.disk
    disk.gate.clear()  # type: ignore[attr-defined]
    popper.peer.send(ack_request(one))
    await asyncio.sleep(0)
    assert popper.peer.received() == []
    disk.gate.set()  # type: ignore[attr-defined]
    assert (await popper.peer.next()).code == ResponseCode.SUCCESS


async def test_with_sync_flush_those_of_one_read_wait_for_the_disk_together(make_parts: MakeParts) -> None:
    parts = make_parts(sync_flush=True)
    parts.put_topic("orders", 1)
    peer = parts.peer()
    for body in numbers(4):
        peer.send(send_request("orders", body))
        await peer.next()
    popper = Popper(parts)
    first, second = popper.pop(2), popper.pop(2)
    disk = parts.disk
    disk.gate.clear()  # type: ignore[attr-defined]
    popper.peer.send(*map(ack_request, (first[0], second[0], first[1], second[1])))
    await asyncio.sleep(0)
    assert popper.peer.received() == []
    disk.gate.set()  # type: ignore[attr-defined]
    assert [(await popper.peer.next()).code for _ in range(4)] == 4 * [ResponseCode.SUCCESS]


# Topics and groups that go


async def test_what_belongs_to_a_deleted_topic_or_group_is_dropped(parts: Parts) -> None:
    put(parts, b"0")
    put(parts, b"1", topic="kept")
    Popper(parts).pop(invisible_ms=1000)
    Popper(parts, "gone", "kept").pop(invisible_ms=1000)
    parts.peer().ask(Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}))
    parts.groups.remove("gone")
    parts.pass_time(6)
    assert parts.topics.get(RETRY) is None
    assert parts.topics.get("%RETRY%gone_kept") is None
    assert parts.pops.reviver.open_count == 0


async def test_redeliveries_go_with_their_topic(parts: Parts) -> None:
    put(parts, b"old")
    Popper(parts).pop(invisible_ms=1000)
    parts.pass_time(6)
    assert parts.store.max_offset(RETRY, 0) == 1
    parts.peer().ask(Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}))
    put(parts, b"new")
    assert bodies(Popper(parts).pop()) == [b"new"]
    assert parts.topics.get(RETRY) is None


async def test_messages_of_a_topic_that_began_anew_are_not_taken_for_the_old_ones(parts: Parts) -> None:
    put(parts, b"old")
    Popper(parts).pop(invisible_ms=2000)
    parts.peer().ask(Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}))
    parts.clock.advance(1)
    put(parts, b"new")
    parts.pass_time(6)
    assert parts.topics.get(RETRY) is None
    assert bodies(Popper(parts).pop()) == [b"new"]


async def test_a_clock_that_is_set_back_loses_no_redelivery(parts: Parts) -> None:
    put(parts, b"0")
    parts.clock.jump_wall(-0.5)
    popper = Popper(parts)
    popper.pop(invisible_ms=2000)
    parts.pass_time(8)
    assert bodies(popper.pop()) == [b"0"]


# Another invisible time


@pytest.mark.parametrize("mode", [PopConfig(), MERGING])
async def test_a_longer_invisible_time_counts_from_now(make_parts: MakeParts, mode: PopConfig) -> None:
    parts = make_parts(pop=mode)
    put(parts, *numbers(2))
    popper = Popper(parts)
    one, other = popper.pop(invisible_ms=10_000)
    popper.ack(other)
    parts.pass_time(5)
    longer = popper.change(one, 30_000)
    assert longer.handle.pop_ms == parts.clock.now_ms()
    assert (longer.handle.ck_start_offset, longer.handle.invisible_ms) == (0, 30_000)
    parts.pass_time(28)
    assert popper.pop() == []
    parts.pass_time(6)
    [again] = popper.pop()
    assert (again.body, again.message.reconsume_times) == (b"0", 1)


async def test_the_new_handle_acknowledges_and_the_old_one_does_not(either: Parts) -> None:
    put(either, *numbers(2))
    popper = Popper(either)
    first, second = popper.pop(invisible_ms=10_000)
    new_first, _ = popper.change(first, 20_000), popper.change(second, 20_000)
    popper.ack(new_first)
    popper.ack(second)
    either.pass_time(30)
    assert bodies(popper.pop()) == [b"1"]


async def test_a_change_in_the_very_millisecond_of_the_pop_is_a_check_point_of_its_own(parts: Parts) -> None:
    put(parts, b"0")
    popper = Popper(parts)
    [one] = popper.pop(invisible_ms=3000)
    changed = popper.change(one, 3000)
    assert changed.handle.pop_ms > one.handle.pop_ms
    parts.pass_time(8)
    assert bodies(popper.pop()) == [b"0"]


async def test_no_invisible_time_means_at_once(parts: Parts) -> None:
    put(parts, b"0")
    popper = Popper(parts)
    [one] = popper.pop(invisible_ms=60_000)
    popper.change(one, 0)
    parts.pass_time(3)
    [again] = popper.pop()
    assert (again.body, again.message.reconsume_times) == (b"0", 1)


@pytest.mark.parametrize("invisible_ms", [-1, 259_200_001, (1 << 63) - 1])
async def test_an_invisible_time_that_cannot_be_is_refused(parts: Parts, invisible_ms: int) -> None:
    put(parts, b"0")
    [one] = Popper(parts).pop()
    answer = parts.peer().ask(change_request(one, invisible_ms))
    assert (answer.code, str(invisible_ms) in (answer.remark or "")) == (ResponseCode.INVALID_PARAMETER, True)


# Bad handles


def forged(taken: Popped, part: int, value: str) -> str:
    parts = str(taken.handle).split(" ")
    parts[part] = value
    return " ".join(parts)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (3, "8"),
        (3, "77"),
        (5, "broker-b"),
        (6, "1"),
        (0, "x"),
        (1, "-5"),
        (4, "9"),
        (2, "99999999999999999999"),
        (0, "9999999999999999999"),
        (1, "9999999999999999999"),
        (1, "9223372036854775807"),
        (2, "9223372036854775807"),
        (2, "999999999999999"),
    ],
)
@pytest.mark.parametrize("request_of", [ack_request, lambda taken, **more: change_request(taken, 1000, **more)])
async def test_a_handle_that_cannot_be_ours_is_refused(parts: Parts, part: int, value: str, request_of: object) -> None:
    put(parts, b"0", queue_count=2)
    popper = Popper(parts)
    [one] = popper.pop(invisible_ms=2000)
    answer = popper.peer.ask(request_of(one, extra_info=forged(one, part, value)))  # type: ignore[operator]
    assert (answer.code, bool(answer.remark)) == (ResponseCode.MESSAGE_ILLEGAL, True)
    assert len(revive_records(parts)) == 1
    parts.pass_time(6)
    assert bodies(popper.pop()) == [b"0"]


@pytest.mark.parametrize("text", ["", "1 2 3", "no handle at all", "0 " * 500])
async def test_a_text_that_is_no_handle_is_refused(parts: Parts, text: str) -> None:
    put(parts, b"0")
    [one] = Popper(parts).pop()
    answer = parts.peer().ask(ack_request(one, extra_info=text))
    assert (answer.code, "receipt handle" in (answer.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)


async def test_a_handle_of_something_never_popped_changes_nothing(either: Parts) -> None:
    put(either, *numbers(3))
    popper = Popper(either)
    one, *_ = popper.pop(2, invisible_ms=10_000)
    for part, value in ((0, "1"), (1, str(one.handle.pop_ms + 7))):
        assert popper.ack(one, extra_info=forged(one, part, value)).code == ResponseCode.SUCCESS
    popper.ack(one, offset=2)  # an offset of the queue that is not in the check point
    either.pass_time(15)
    assert sorted(bodies(popper.pop())) == numbers(3)


@pytest.mark.parametrize("group", ["", "readers\x02TIMER_DEL_UNIQKEY\x01U-0", "../readers", "g" * 256])
async def test_a_group_that_cannot_be_is_refused(parts: Parts, group: str) -> None:
    """Its name becomes a part of what is written."""
    put(parts, b"0")
    popper = Popper(parts)
    [one] = popper.pop(invisible_ms=2000)
    for answer in (
        popper.peer.ask(ack_request(one, consumer_group=group)),
        popper.peer.ask(change_request(one, 1000, consumer_group=group)),
        popper.ack_batch([one], consumer_group=group),
    ):
        assert (answer.code, "group" in (answer.remark or "")) == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, True)
    assert len(revive_records(parts)) == 1


async def test_a_stale_handle_hides_nothing_and_doubles_nothing(either: Parts) -> None:
    put(either, b"0")
    popper = Popper(either)
    [one] = popper.pop(invisible_ms=5000)
    either.pass_time(8)
    answer = popper.peer.ask(change_request(one, 1000))
    assert (answer.code, "is not valid any more" in (answer.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)
    either.pass_time(8)
    assert bodies(popper.pop()) == [b"0"]
    assert popper.pop() == []


async def test_a_handle_counts_until_its_message_is_delivered_again(parts: Parts) -> None:
    put(parts, b"0")
    popper = Popper(parts)
    [one] = popper.pop(invisible_ms=3000)
    parts.pass_time(4)  # its time is over, but nobody has it yet
    popper.ack(popper.change(one, 20_000))
    parts.pass_time(25)
    assert popper.pop() == []


async def test_a_second_and_a_late_acknowledgement_change_nothing(either: Parts) -> None:
    put(either, *numbers(2))
    popper = Popper(either)
    one, other = popper.pop(invisible_ms=10_000)
    popper.ack(one)
    assert popper.ack(one).code == ResponseCode.SUCCESS
    either.pass_time(15)
    assert popper.ack(other).code == ResponseCode.SUCCESS, "too late"
    assert bodies(popper.pop()) == [b"1"]


async def test_other_groups_cannot_acknowledge_for_this_one(either: Parts) -> None:
    put(either, b"0")
    popper = Popper(either)
    [one] = popper.pop(invisible_ms=10_000)
    popper.ack(one, consumer_group="others")
    either.pass_time(15)
    assert bodies(popper.pop()) == [b"0"]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"offset": 2}, ResponseCode.NO_MESSAGE),
        ({"offset": -1}, ResponseCode.NO_MESSAGE),
        ({"queue_id": 5}, ResponseCode.MESSAGE_ILLEGAL),
        ({"queue_id": -1}, ResponseCode.MESSAGE_ILLEGAL),
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
    ],
)
async def test_what_is_not_stored_cannot_be_acknowledged(parts: Parts, changed: dict[str, object], code: int) -> None:
    put(parts, b"0")
    [one] = Popper(parts).pop()
    for answer in (
        parts.peer().ask(ack_request(one, **changed)),
        parts.peer().ask(change_request(one, 1000, **changed)),
    ):
        assert (answer.code, bool(answer.remark)) == (code, True)


async def test_an_ack_for_the_end_of_the_queue_is_answered_as_apache_does(parts: Parts) -> None:
    put(parts, b"0")
    [one] = Popper(parts).pop()
    assert parts.peer().ask(ack_request(one, offset=1)).code == ResponseCode.SUCCESS
    assert parts.peer().ask(change_request(one, 1000, offset=1)).code == ResponseCode.NO_MESSAGE


async def test_a_batch_without_acks_is_refused(parts: Parts) -> None:
    for body in (b"", b'{"brokerName":"broker-a"}', encode_body(BatchAckMessageRequestBody("broker-a", []))):
        assert parts.peer().ask(Command(RequestCode.BATCH_ACK_MESSAGE, {}, body)).code == ResponseCode.NO_MESSAGE


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"broker_name": "broker-b"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"revive_queue_id": 8}, ResponseCode.MESSAGE_ILLEGAL),
        ({"revive_queue_id": -1}, ResponseCode.MESSAGE_ILLEGAL),
        ({"retry": "7"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"pop_ms": -1}, ResponseCode.MESSAGE_ILLEGAL),
        ({"queue_id": 3}, ResponseCode.MESSAGE_ILLEGAL),
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"bits": "not base64!"}, ResponseCode.SYSTEM_ERROR),
        ({"bits": "A" * 20_000}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_a_batch_with_one_bad_entry_acknowledges_nothing(
    parts: Parts, changed: dict[str, object], code: int
) -> None:
    put(parts, *numbers(2))
    popper = Popper(parts)
    taken = popper.pop(invisible_ms=2000)
    broker_name = str(changed.pop("broker_name", "broker-a"))
    entries = [batch_entry(taken), batch_entry(taken, **changed)]
    body = encode_body(BatchAckMessageRequestBody(broker_name, entries))
    answer = parts.peer().ask(Command(RequestCode.BATCH_ACK_MESSAGE, {}, body))
    assert (answer.code, bool(answer.remark)) == (code, True)
    parts.pass_time(6)
    assert bodies(popper.pop()) == numbers(2)


async def test_offsets_of_a_batch_that_do_not_exist_are_left_out(parts: Parts) -> None:
    put(parts, *numbers(2))
    popper = Popper(parts)
    taken = popper.pop(invisible_ms=2000)
    assert popper.ack_batch(taken, bits="//8P").code == ResponseCode.SUCCESS  # twenty bits
    parts.pass_time(6)
    assert popper.pop() == []


# In memory


async def test_check_points_acknowledged_in_time_are_never_written(make_parts: MakeParts) -> None:
    parts = make_parts(pop=MERGING)
    put(parts, *numbers(6))
    popper = Popper(parts)
    first, second = popper.pop(3), popper.pop(3)
    assert parts.offsets.get("readers", "orders", 0) == 0
    popper.ack_all(second)
    assert parts.offsets.get("readers", "orders", 0) == 0, "in the order of the pops"
    popper.ack_all(first)
    assert parts.offsets.get("readers", "orders", 0) == 6
    assert (revive_records(parts), len(parts.pops.checkpoints)) == ([], 0)


async def test_a_check_point_is_written_after_ten_seconds_with_what_is_acknowledged(make_parts: MakeParts) -> None:
    parts = make_parts(pop=MERGING)
    put(parts, *numbers(3))
    popper = Popper(parts)
    taken = popper.pop()
    popper.ack(taken[1])
    parts.pass_time(9)
    assert revive_records(parts) == []
    parts.pass_time(1)
    [record] = revive_records(parts)
    assert (record.tag, json.loads(record.body)["bm"]) == ("ck", 0b010)
    assert parts.offsets.get("readers", "orders", 0) == 3
    popper.ack(taken[0])
    parts.pass_time(60)
    assert bodies(popper.pop()) == [b"2"]


async def test_a_check_point_is_written_three_seconds_before_its_end(make_parts: MakeParts) -> None:
    parts = make_parts(pop=MERGING)
    put(parts, b"0")
    Popper(parts).pop(invisible_ms=6000)
    parts.pass_time(2)
    assert revive_records(parts) == []
    parts.pass_time(1)
    assert len(revive_records(parts)) == 1


async def test_a_short_invisible_time_is_written_at_once(make_parts: MakeParts) -> None:
    parts = make_parts(pop=MERGING)
    put(parts, b"0")
    Popper(parts).pop(invisible_ms=4000)
    assert len(revive_records(parts)) == 1
    assert parts.offsets.get("readers", "orders", 0) == 1


async def test_memory_and_lines_are_bounded(make_parts: MakeParts) -> None:
    parts = make_parts(pop=PopConfig(merges_in_memory=True, max_buffered=2, max_line=100))
    put(parts, *numbers(4))
    popper = Popper(parts)
    taken = [popper.pop(1)[0] for _ in range(4)]
    assert (len(parts.pops.checkpoints), len(revive_records(parts))) == (2, 2)
    assert parts.offsets.get("readers", "orders", 0) == 0
    popper.ack_all(taken[:2])
    assert parts.offsets.get("readers", "orders", 0) == 4
    line = make_parts(pop=PopConfig(merges_in_memory=True, max_line=1))
    put(line, *numbers(2))
    popper = Popper(line)
    popper.pop(1)
    popper.pop(1)
    assert (len(line.pops.checkpoints), len(revive_records(line))) == (1, 1)


async def test_thirty_two_messages_fit_javas_signed_bits(make_parts: MakeParts) -> None:
    parts = make_parts(pop=MERGING)
    put(parts, *numbers(32))
    popper = Popper(parts)
    taken = popper.pop(invisible_ms=20_000)
    popper.ack_all(taken[1:])
    parts.pass_time(10)
    [record] = revive_records(parts)
    assert json.loads(record.body)["bm"] == -2
    parts.pass_time(20)
    assert bodies(popper.pop()) == [b"0"]


async def test_a_reset_leaves_what_was_popped_to_its_check_points(make_parts: MakeParts) -> None:
    parts = make_parts(pop=MERGING)
    put(parts, *numbers(4))
    popper = Popper(parts)
    popper.pop(2, invisible_ms=20_000)
    parts.offsets.reset("readers", "orders", 0, 3)
    assert bodies(popper.pop()) == [b"3"]
    assert parts.peer().ask(pop_request()).code == ResponseCode.POLLING_TIMEOUT
    parts.pass_time(25)
    assert bodies(popper.pop()) == numbers(2)


async def test_what_is_in_memory_goes_with_its_topic(make_parts: MakeParts) -> None:
    parts = make_parts(pop=MERGING)
    put(parts, b"0")
    Popper(parts).pop()
    parts.peer().ask(Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}))
    parts.pass_time(60)
    assert (revive_records(parts), len(parts.pops.checkpoints)) == ([], 0)
