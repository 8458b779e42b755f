"""Messages that fail: delivered again, in order where that is wanted, and dead letters in the end."""

from __future__ import annotations

from tests.grpc_front.cases import OURS, case, case_on
from tests.support.grpc_client import defs, handle_of, message
from tests.support.grpc_front import Front

Code = defs.Code
PUSH = {"invisible_s": None, "auto_renew": True}


@case
async def c31_what_always_fails_becomes_a_dead_letter(front: Front) -> None:
    topic, group, reader = await front.topic(), await front.group(retry_max_times=1), await front.group()
    async with front.consumer(group, topic, kind="PUSH_CONSUMER") as client:
        (entry,) = await client.send_all([message(topic, b"poison", keys=["k"], tag="t", properties={"a": "b"})])
        for attempt in (1, 2):
            (got,) = await client.receive_until(group, topic, 1, **PUSH)
            assert got.system_properties.delivery_attempt == attempt
            assert (await client.change(group, topic, got, 1)).status.code == Code.OK
        dead = f"%DLQ%{group}"
        received = await client.receive(group, topic, poll_s=20, **PUSH)  # whoever asks next moves it
        assert (received.code, received.bodies) == (Code.MESSAGE_NOT_FOUND, [])
    async with front.consumer(reader, dead) as client:
        (letter,) = await client.receive_until(reader, dead, 1)
    assert (letter.topic.name, letter.body) == (dead, b"poison")
    now = letter.system_properties
    assert (now.message_id, now.tag, list(now.keys)) == (entry.message_id, "t", ["k"])
    assert letter.user_properties["a"] == "b"


@case
async def c32_messages_behind_one_that_fails_wait(front: Front) -> None:
    topic, group = await front.topic("FIFO", queues=1), await front.group(orderly=True)
    async with front.consumer(group, topic, kind="PUSH_CONSUMER") as client:
        await client.send_all(message(topic, b"%d" % number, message_group="g") for number in range(3))
        order: list[bytes] = []
        for fails in (True, True, False, False, False):
            (got,) = await client.receive_until(group, topic, 1, batch=1, **PUSH)
            order.append(got.body)
            if fails:
                assert (await client.change(group, topic, got, 1)).status.code == Code.OK
            else:
                assert (await client.ack(group, topic, got)).status.code == Code.OK
    assert order == [b"0", b"0", b"0", b"1", b"2"]


@case
async def c33_an_attempt_that_is_repeated_gets_the_same_batch(front: Front) -> None:
    topic, group = await front.topic("FIFO", queues=1), await front.group(orderly=True)
    async with front.consumer(group, topic, kind="PUSH_CONSUMER") as client:
        await client.send_all(message(topic, b"%d" % number, message_group="g") for number in range(3))
        await front.listed(topic, 3)
        first = await client.receive_until(group, topic, 2, batch=2, attempt_id="one", **PUSH)
        again = await client.receive_until(group, topic, 2, batch=2, attempt_id="one", **PUSH)
        assert [item.body for item in first] == [item.body for item in again] == [b"0", b"1"]
        assert {item.system_properties.delivery_attempt for item in again} == {1}
        for other in ("other", None):
            received = await client.receive(group, topic, batch=2, attempt_id=other, **PUSH)
            assert (received.code, received.bodies) == (Code.MESSAGE_NOT_FOUND, [])
        assert (await client.ack(group, topic, *again)).status.code == Code.OK
        (last,) = await client.receive_until(group, topic, 1, batch=2, attempt_id="other", **PUSH)
        assert last.body == b"2"


@case
async def c34_a_message_can_be_sent_to_the_dead_letters(front: Front) -> None:
    topic, group, reader = await front.topic(), await front.group(), await front.group()
    dead = f"%DLQ%{group}"
    async with front.consumer(group, topic) as client:
        sent = message(topic, b"dead", tag="t", keys=["k"])
        await client.send_all([message(topic, b"first"), sent])
        got = {item.body: item for item in await client.receive_until(group, topic, 2)}
        assert (await client.dead_letter(group, topic, got[b"dead"])).status.code == Code.OK
        await client.ack(group, topic, got[b"first"])
    async with front.consumer(reader, dead) as client:
        (letter,) = await client.receive_until(reader, dead, 1)
    assert letter.body == b"dead"
    assert letter.system_properties.message_id == sent.system_properties.message_id
    assert (letter.system_properties.tag, list(letter.system_properties.keys)) == ("t", ["k"])


@case_on(*OURS)
async def c34_after_a_change_of_time_the_right_message_becomes_the_dead_letter(front: Front) -> None:
    """Apache's proxy reads another part of such a handle as the place in the log, where a stranger lies."""
    topic, group, reader = await front.topic(), await front.group(), await front.group()
    dead = f"%DLQ%{group}"
    async with front.consumer(group, topic) as client:
        await client.send_all([message(topic, b"dead")])
        (got,) = await client.receive_until(group, topic, 1)
        changed = await client.change(group, topic, got, 30)
        pair = (handle_of(got)[0], changed.receipt_handle)
        assert (await client.dead_letter(group, topic, pair)).status.code == Code.OK
    async with front.consumer(reader, dead) as client:
        (letter,) = await client.receive_until(reader, dead, 1)
    assert (letter.body, handle_of(letter)[0]) == (b"dead", handle_of(got)[0])
