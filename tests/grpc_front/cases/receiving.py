"""ReceiveMessage, AckMessage and ChangeInvisibleDuration of simple consumers."""

from __future__ import annotations

import asyncio

from tests.grpc_front.cases import case
from tests.support.grpc_client import Received, defs, handle_of, message
from tests.support.grpc_front import Front
from tests.support.patience import PATIENCE_S

from rocketline.admin.progress import progress_of

Code = defs.Code
SHORTEST_S = 10.0
"""The shortest invisible time that a receive may ask for."""


async def outlast(seconds: float) -> None:
    """Until a time given by the server's clock is over: the one wait that no event ends."""
    await asyncio.sleep(seconds + 0.2)


@case
async def c22_an_empty_topic_is_waited_for(front: Front) -> None:
    topic, group = await front.topic(), await front.group()
    async with front.consumer(group, topic) as client:
        for asked_s in (5, 1):  # below 5 s counts as 5 s
            received = await client.receive(group, topic, poll_s=asked_s)
            assert received.code == Code.MESSAGE_NOT_FOUND
            assert received.kinds == ["status", "delivery_timestamp"]
            assert received.waited_s >= 4.5


@case
async def c23_a_message_ends_the_wait(front: Front) -> None:
    topic, empty, group = await front.topic(), await front.topic(), await front.group()
    async with front.consumer(group, topic, empty) as client:
        others_wait = asyncio.create_task(client.receive(group, empty, poll_s=20))
        waiting = asyncio.create_task(client.receive(group, topic, poll_s=20))
        await asyncio.sleep(1)  # or else the message may be there before the wait begins, which is the easier case
        await client.send_all([message(topic)])
        received = await waiting
        assert not others_wait.done()  # it began earlier, and takes its time
        others_wait.cancel()
        await asyncio.wait([others_wait])
    assert received.code == Code.OK
    assert received.kinds == ["status", "message", "delivery_timestamp"]


@case
async def c24_times_of_a_receive_have_limits(front: Front) -> None:
    topic, group = await front.topic(), await front.group()
    async with front.consumer(group, topic) as client:
        for invisible_s in (9, 13 * 3600, None):
            received = await client.receive(group, topic, invisible_s=invisible_s)
            assert received.code == Code.ILLEGAL_INVISIBLE_TIME, invisible_s
            assert received.kinds == ["status", "delivery_timestamp"]
        assert (await client.receive(group, topic, deadline_s=4)).code == Code.ILLEGAL_POLLING_TIME
    async with front.consumer(group, topic, headers={"x-mq-client-version": "5.0.2"}) as old:
        assert (await old.receive(group, topic, deadline_s=4)).code == Code.BAD_REQUEST


@case
async def c24_names_of_a_receive_have_rules(front: Front) -> None:
    topic, group = await front.topic(), await front.group()
    async with front.consumer(group, topic) as client:
        assert (await client.receive(group, "bad*topic")).code == Code.ILLEGAL_TOPIC
        assert (await client.receive("bad*group", topic)).code == Code.ILLEGAL_CONSUMER_GROUP
        assert (await client.receive("CID_RMQ_SYS_x", topic)).code == Code.ILLEGAL_CONSUMER_GROUP
        assert (await client.receive(group, topic, expression="||")).code == Code.ILLEGAL_FILTER_EXPRESSION
        unknown = (await client.receive(group, "nobody_made_this_topic")).code
        assert unknown == (Code.TOPIC_NOT_FOUND if front.is_ours else Code.INTERNAL_SERVER_ERROR)
    async with front.client() as stranger:  # ours knows from the group what settings would say
        unknown = (await stranger.receive(group, topic)).code
        assert unknown == (Code.MESSAGE_NOT_FOUND if front.is_ours else Code.INTERNAL_SERVER_ERROR)


@case
async def c25_what_is_not_acknowledged_comes_again(front: Front) -> None:
    topic, group = await front.topic(), await front.group()
    async with front.consumer(group, topic) as client:
        await client.send_all([message(topic)])
        (first,) = await client.receive_until(group, topic, 1, invisible_s=SHORTEST_S)
        (second,) = await client.receive_until(group, topic, 1)
    assert handle_of(first)[0] == handle_of(second)[0]
    assert handle_of(first)[1] != handle_of(second)[1]
    assert second.body == first.body
    assert second.topic.name == topic
    assert (first.system_properties.delivery_attempt, second.system_properties.delivery_attempt) == (1, 2)


@case
async def c26_acknowledging_twice_is_fine_and_too_late_is_not(front: Front) -> None:
    topic, group = await front.topic(), await front.group()
    async with front.consumer(group, topic) as client:
        await client.send_all([message(topic), message(topic)])
        one, other = await client.receive_until(group, topic, 2, invisible_s=SHORTEST_S)
        assert (await client.ack(group, topic, one)).status.code == Code.OK
        assert (await client.ack(group, topic, one)).status.code == Code.OK
        await outlast(SHORTEST_S)
        late = await client.ack(group, topic, other)
        assert late.status.code == Code.INVALID_RECEIPT_HANDLE
        assert [entry.status.code for entry in late.entries] == [Code.INVALID_RECEIPT_HANDLE]
        assert (await client.change(group, topic, other, 20)).status.code == Code.INVALID_RECEIPT_HANDLE
        (again,) = await client.receive_until(group, topic, 1)
        assert handle_of(again)[0] == handle_of(other)[0]


@case
async def c27_entries_of_one_acknowledgement_are_answered_one_by_one(front: Front) -> None:
    topic, group = await front.topic(), await front.group()
    async with front.consumer(group, topic) as client:
        await client.send_all([message(topic)])
        (late,) = await client.receive_until(group, topic, 1, invisible_s=SHORTEST_S)
        await outlast(SHORTEST_S)
        await client.send_all([message(topic)])
        found: list = []
        while handle_of(late)[0] in {handle_of(item)[0] for item in found} or not found:
            found = await client.receive_until(group, topic, 1)
        answer = await client.ack(group, topic, found[0], late)
    assert answer.status.code == Code.MULTIPLE_RESULTS
    assert {entry.message_id: entry.status.code for entry in answer.entries} == {
        handle_of(found[0])[0]: Code.OK,
        handle_of(late)[0]: Code.INVALID_RECEIPT_HANDLE,
    }


@case
async def c28_a_changed_time_counts_from_now(front: Front) -> None:
    topic, group = await front.topic(), await front.group()
    async with front.consumer(group, topic) as client:
        await client.send_all([message(topic)])
        (got,) = await client.receive_until(group, topic, 1, invisible_s=SHORTEST_S)
        changed = await client.change(group, topic, got, 60)
        assert changed.status.code == Code.OK
        assert changed.receipt_handle not in ("", handle_of(got)[1])
        for _ in range(3):  # 15 s, longer than the first time
            assert (await client.receive(group, topic)).bodies == []
        acked = await client.ack(group, topic, (handle_of(got)[0], changed.receipt_handle))
        assert acked.status.code == Code.OK
        assert (await client.change(group, topic, got, 13 * 3600)).status.code == Code.ILLEGAL_INVISIBLE_TIME


@case
async def c28_a_short_time_gives_a_message_back(front: Front) -> None:
    topic, group = await front.topic(), await front.group()
    async with front.consumer(group, topic) as client:
        await client.send_all([message(topic)])
        (got,) = await client.receive_until(group, topic, 1, invisible_s=3600)
        assert (await client.change(group, topic, got, 1)).status.code == Code.OK
        (again,) = await client.receive_until(group, topic, 1)
    assert again.system_properties.delivery_attempt == 2


@case
async def c28_handles_nobody_gave_out_are_refused(front: Front) -> None:
    """Apache's proxy answers some with an internal error."""
    topic, group = await front.topic(), await front.group()
    garbage = ["garbage", "0 1 2", "0 0 0 0 0 broker-a 0 0 0", "x " * 9, "9" * 5000, "0 1 2 3 4 5 6 7 8 9 10 11 12"]
    async with front.consumer(group, topic) as client:
        for handle in garbage:
            pair = ("0" * 34, handle)
            answers = [
                await client.ack(group, topic, pair),
                await client.change(group, topic, pair, 20),
                await client.dead_letter(group, topic, pair),
            ]
            if front.is_ours:
                codes = [answer.status.code for answer in answers]
                assert codes == [Code.INVALID_RECEIPT_HANDLE] * 3, (handle[:60], codes)
        await client.send_all([message(topic)])
        assert len(await client.receive_until(group, topic, 1)) == 1


@case
async def c29_filters_select(front: Front) -> None:
    topic, group = await front.topic(), await front.group()
    sent = [message(topic, tag.encode(), tag=tag, properties={"amount": str(ord(tag) - 96)}) for tag in "abcde"]
    async with front.consumer(group, topic) as client:
        bad = await client.receive(group, topic, expression="amount >", sql=True)
        assert bad.code not in (Code.OK, Code.MESSAGE_NOT_FOUND)
        await client.send_all(sent)
        by_tag = await client.receive_until(group, topic, 2, expression="a || b")
        assert sorted(item.body for item in by_tag) == [b"a", b"b"]
        other = await front.group()
    async with front.consumer(other, topic) as client:
        by_sql = await client.receive_until(other, topic, 2, expression="amount BETWEEN 3 AND 4", sql=True)
        assert sorted(item.body for item in by_sql) == [b"c", b"d"]
        assert (await client.receive(other, topic, expression="amount > 4", sql=True)).bodies in ([], [b"e"])


@case
async def c30_a_thousand_messages_come_once_each(front: Front) -> None:
    topic, group = await front.topic(queues=8), await front.group()
    bodies = [b"%d" % number for number in range(1000)]
    async with front.client() as producer:
        for start in range(0, 1000, 50):
            sends = (producer.send(message(topic, body)) for body in bodies[start : start + 50])
            assert {answer.status.code for answer in await asyncio.gather(*sends)} == {Code.OK}
    seen: list[bytes] = []
    async with front.consumer(group, topic, kind="PUSH_CONSUMER") as client:

        async def consume() -> None:
            while len(seen) < len(bodies):
                received: Received = await client.receive(group, topic, invisible_s=None, auto_renew=True)
                seen.extend(received.bodies)
                if received.messages:
                    answer = await client.ack(group, topic, *received.messages)
                    assert answer.status.code == Code.OK

        await asyncio.gather(*(consume() for _ in range(4)))
        assert sorted(seen, key=int) == bodies
        async with asyncio.timeout(PATIENCE_S):
            while (await progress_of(front.admin, group, topic)).lag:
                await asyncio.sleep(0.2)
        assert (await client.receive(group, topic, invisible_s=None, auto_renew=True)).bodies == []
