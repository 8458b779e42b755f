"""Popping in order: a queue gives its next batch when the one before is acknowledged, and the same one when it is visible
again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.parts import ROOT, MakeParts, Parts
from tests.unit.broker.popper import (
    Popper,
    batch_entry,
    bodies,
    change_request,
    notification_request,
    numbers,
    pop_request,
    popped,
    put,
    revive_records,
    save,
    stop,
)

from rocketline.broker.pop.ordered import FORGET_AFTER_MS, OrderInfoTable
from rocketline.protocol.bodies import BatchAckMessageRequestBody, decode_file, encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command

ORDERED: dict[str, Any] = {"order": True, "queue_id": 0}


def offset(parts: Parts, queue_id: int = 0) -> int | None:
    return parts.offsets.get("readers", "orders", queue_id)


async def test_a_queue_gives_nothing_until_its_batch_is_acknowledged(parts: Parts) -> None:
    put(parts, *numbers(6))
    popper = Popper(parts)
    batch = popper.pop(3, **ORDERED)
    assert bodies(batch) == numbers(3)
    assert [one.handle.revive_queue_id for one in batch] == [999] * 3
    assert offset(parts) == 0, "it waits in front of the batch"
    answer = parts.peer().ask(pop_request(**ORDERED))
    assert (answer.code, answer.ext and answer.ext["restNum"]) == (ResponseCode.POLLING_TIMEOUT, "0")
    assert answer.ext is not None
    assert (answer.ext["orderCountInfo"], answer.ext["reviveQid"]) == ("", "999")
    popper.ack(batch[0])
    popper.ack(batch[2])
    assert (popper.pop(3, **ORDERED), offset(parts)) == ([], 1)
    popper.ack(batch[1])
    assert offset(parts) == 3
    assert bodies(popper.pop(3, **ORDERED)) == numbers(3, 3)
    assert revive_records(parts) == []


async def test_what_is_not_acknowledged_in_time_is_given_again_and_counted(parts: Parts) -> None:
    put(parts, *numbers(6))
    popper = Popper(parts)
    first = parts.peer().ask(pop_request(count=3, invisible_ms=3000, **ORDERED))
    assert first.ext is not None
    assert first.ext["orderCountInfo"] == "0 0 0"
    popper.ack(popped(first)[0])
    parts.pass_time(4)
    again = parts.peer().ask(pop_request(count=3, invisible_ms=3000, **ORDERED))
    assert [one.body for one in popped(again)] == [b"1", b"2", b"3"]
    assert again.ext is not None
    assert again.ext["orderCountInfo"] == "0 qo0%1 1;0 qo0%2 1;0 0 0", "one of them is new"
    parts.pass_time(4)
    third = parts.peer().ask(pop_request(count=2, invisible_ms=3000, **ORDERED))
    assert third.ext is not None
    assert third.ext["orderCountInfo"] == "0 qo0%1 2;0 qo0%2 2;0 0 2"
    assert parts.topics.get("%RETRY%readers_orders") is None


async def test_an_attempt_that_is_repeated_gets_its_batch_again(parts: Parts) -> None:
    put(parts, *numbers(4))
    popper = Popper(parts)
    assert bodies(popper.pop(2, attempt_id="a", **ORDERED)) == numbers(2)
    assert popper.pop(2, attempt_id="b", **ORDERED) == []
    again = popper.pop(2, attempt_id="a", **ORDERED)
    assert bodies(again) == numbers(2)
    popper.ack_all(again)
    assert bodies(popper.pop(2, attempt_id="b", **ORDERED)) == numbers(2, 2)


async def test_queues_do_not_block_each_other(parts: Parts) -> None:
    put(parts, *numbers(4), queue_count=2)
    put(parts, *numbers(4, 10), queue_id=1)
    popper = Popper(parts)
    first = popper.pop(4, order=True)
    second = popper.pop(4, order=True)
    assert {one.message.queue_id for one in first} ^ {one.message.queue_id for one in second} == {0, 1}
    assert popper.pop(order=True) == []


async def test_a_handle_of_an_earlier_batch_counts_no_more(parts: Parts) -> None:
    put(parts, *numbers(2))
    popper = Popper(parts)
    old = popper.pop(2, invisible_ms=2000, **ORDERED)
    parts.pass_time(3)
    new = popper.pop(2, invisible_ms=2000, **ORDERED)
    assert popper.ack(old[0]).code == ResponseCode.SUCCESS
    assert offset(parts) == 0
    popper.ack_all(new)
    assert offset(parts) == 2


async def test_a_batch_ack_serves_ordered_messages_too(parts: Parts) -> None:
    put(parts, *numbers(3))
    batch = Popper(parts).pop(3, **ORDERED)
    body = encode_body(BatchAckMessageRequestBody("broker-a", [batch_entry(batch)]))
    assert parts.peer().ask(Command(RequestCode.BATCH_ACK_MESSAGE, {}, body)).code == ResponseCode.SUCCESS
    assert offset(parts) == 3


async def test_the_invisible_time_of_one_message_holds_the_queue(parts: Parts) -> None:
    put(parts, *numbers(3))
    popper = Popper(parts)
    batch = popper.pop(2, invisible_ms=2000, **ORDERED)
    answer = parts.peer().ask(change_request(batch[0], 10_000))
    assert answer.ext == {
        "popTime": str(batch[0].handle.pop_ms), "invisibleTime": "10000", "reviveQid": "999",
    }  # fmt: skip
    popper.ack(batch[1])
    parts.pass_time(8)
    assert popper.pop(**ORDERED) == []
    parts.pass_time(3)
    assert bodies(popper.pop(**ORDERED)) == numbers(3)


async def test_giving_a_message_back_wakes_who_waits(parts: Parts) -> None:
    put(parts, *numbers(1))
    popper, peer = Popper(parts), parts.peer()
    [one] = popper.pop(**ORDERED)
    peer.send(pop_request(poll_ms=15_000, **ORDERED))
    popper.change(one, 0)
    assert [again.body for again in popped(await peer.next())] == [b"0"]


async def test_the_last_ack_wakes_who_waits(parts: Parts) -> None:
    put(parts, *numbers(3))
    popper, peer = Popper(parts), parts.peer()
    first, second = popper.pop(2, **ORDERED)
    peer.send(pop_request(poll_ms=15_000, **ORDERED))
    assert parts.peer().ask(notification_request(order=True)).ext == {"hasMsg": "false", "pollingFull": "false"}
    popper.ack(second)
    assert peer.received() == []
    popper.ack(first)
    assert [one.body for one in popped(await peer.next())] == [b"2"]


async def test_the_end_of_the_invisible_time_wakes_who_waits(parts: Parts) -> None:
    put(parts, b"0")
    popper, peer = Popper(parts), parts.peer()
    popper.pop(invisible_ms=50, **ORDERED)
    peer.send(pop_request(poll_ms=15_000, **ORDERED))
    parts.clock.advance(0.06)  # the loop's own time goes by itself
    assert [one.body for one in popped(await peer.next())] == [b"0"]


async def test_an_ack_of_what_was_passed_changes_nothing(parts: Parts) -> None:
    put(parts, *numbers(2))
    popper = Popper(parts)
    batch = popper.pop(2, **ORDERED)
    popper.ack_all(batch)
    assert popper.ack(batch[0]).code == ResponseCode.SUCCESS
    assert offset(parts) == 2
    answer = parts.peer().ask(change_request(batch[0], 1000))
    assert answer.ext == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}


async def test_filters_leave_gaps_in_a_batch(parts: Parts) -> None:
    for number in range(6):
        put(parts, b"%d" % number, TAGS="even" if number % 2 == 0 else "odd")
    popper = Popper(parts)
    batch = popper.pop(2, exp_type="TAG", exp="odd", **ORDERED)
    assert bodies(batch) == [b"1", b"3"]
    popper.ack_all(batch)
    assert bodies(popper.pop(exp_type="TAG", exp="odd", **ORDERED)) == [b"5"]


async def test_what_is_held_outlives_a_restart(make_parts: MakeParts) -> None:
    before = make_parts()
    put(before, *numbers(4))
    batch = Popper(before).pop(3, attempt_id="a", **ORDERED)
    Popper(before).ack(batch[0])
    Popper(before).change(batch[1], 90_000)
    stop(before)
    parts = make_parts(disk=before.disk, clock=before.clock)
    popper = Popper(parts)
    assert popper.pop(**ORDERED) == []
    popper.ack_all(batch[1:])
    assert bodies(popper.pop(**ORDERED)) == [b"3"]


async def test_the_file_is_apaches(parts: Parts) -> None:
    put(parts, *numbers(3))
    popper = Popper(parts)
    batch = popper.pop(2, invisible_ms=600_000, **ORDERED)
    popper.ack(batch[0])
    save(parts)
    data = parts.disk.read(ROOT / "config" / "consumerOrderInfo.json")
    assert data is not None
    info = decode_file(OrderInfoTable, data).table["orders@readers"][0]
    assert (info.acked, info.places, info.invisible_ms) == (1, [0, 1], 600_000)
    for key in (b'"cm":1', b'"i":600000', b'"popTime":', b'"l":', b'"orderedConsumptionLevel":"QUEUE"'):
        assert key in data


@pytest.mark.parametrize("how", ["time", "topic", "group"])
async def test_what_nobody_needs_any_more_is_dropped(parts: Parts, how: str) -> None:
    put(parts, *numbers(3))
    Popper(parts).pop(2, **ORDERED)
    if how == "time":
        parts.clock.advance(FORGET_AFTER_MS / 1000 + 1)
    elif how == "topic":
        parts.topics.remove("orders")
    else:
        parts.groups.remove("readers")
    parts.pops.clean()
    assert parts.pops.ordered.get("orders", "readers", 0) is None


async def test_a_reset_frees_the_queue(parts: Parts) -> None:
    put(parts, *numbers(4))
    popper = Popper(parts)
    popper.pop(2, **ORDERED)
    parts.offsets.reset("readers", "orders", 0, 3)
    assert bodies(popper.pop(**ORDERED)) == [b"3"]
