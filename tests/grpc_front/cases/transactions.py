"""Transactions: ended by the client, or when the server asks."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.grpc_front.cases import OURS, case, case_on
from tests.support.grpc_client import GrpcClient, defs, message, producer_settings
from tests.support.grpc_front import Front

Code = defs.Code
HALF = {"message_type": defs.MessageType.TRANSACTION}


async def send_half(client: GrpcClient, topic: str, body: bytes, **fields: Any) -> Any:
    (entry,) = await client.send_all([message(topic, body, **HALF, **fields)])
    assert entry.transaction_id == entry.message_id
    return entry


@case
async def c20_a_transaction_is_visible_when_it_is_committed(front: Front) -> None:
    topic, group = await front.topic("TRANSACTION"), await front.group()
    outcomes = {b"committed": "COMMIT", b"rolled back": "ROLLBACK", b"asked about": "COMMIT"}
    asked: dict[bytes, Any] = {}
    async with front.client() as producer, front.consumer(group, topic) as consumer:
        await producer.introduce(producer_settings(topic))

        async def answer_checks() -> None:
            while (command := await producer.stream.read()) is not None:
                check = command.recover_orphaned_transaction_command
                assert command.WhichOneof("command") == "recover_orphaned_transaction_command", command
                asked[check.message.body] = check
                system = check.message.system_properties
                assert system.message_type == defs.MessageType.TRANSACTION
                assert check.transaction_id == system.message_id
                outcome = outcomes[check.message.body]
                await producer.end_transaction(
                    topic, system.message_id, check.transaction_id, outcome, "SOURCE_SERVER_CHECK"
                )

        answering = asyncio.create_task(answer_checks())
        for body, outcome in outcomes.items():
            entry = await send_half(producer, topic, body)
            if body != b"asked about":
                ended = await producer.end_transaction(topic, entry.message_id, entry.transaction_id, outcome)
                assert ended.status.code == Code.OK
        got: list[Any] = []
        while b"asked about" not in [item.body for item in got]:
            got += await consumer.receive_until(group, topic, 1)
        bodies = sorted(item.body for item in got)
        if front.has_our_broker:
            assert bodies == [b"asked about", b"committed"]
        else:  # it commits once more what its check asked about after all
            assert set(bodies) <= {b"asked about", b"committed"}
        assert {item.system_properties.message_type for item in got} == {defs.MessageType.TRANSACTION}
        assert asked[b"asked about"].message.topic.name == topic
        if front.has_our_broker:
            assert (await consumer.receive(group, topic)).bodies == []
        answering.cancel()


@case
async def c21_ends_that_fit_no_transaction_are_refused(front: Front) -> None:
    topic, group = await front.topic("TRANSACTION"), await front.group()
    async with front.client() as producer, front.consumer(group, topic) as consumer:
        await producer.introduce(producer_settings(topic))
        blank = await producer.end_transaction(topic, "m", " ", "COMMIT")
        assert blank.status.code == Code.INVALID_TRANSACTION_ID
        unknown = await producer.end_transaction(topic, "0" * 34, "0" * 34, "COMMIT")
        assert unknown.status.code != Code.OK
        entry = await send_half(producer, topic, b"once")
        first = await producer.end_transaction(topic, entry.message_id, entry.transaction_id, "COMMIT")
        assert first.status.code == Code.OK
        await producer.end_transaction(topic, entry.message_id, entry.transaction_id, "COMMIT")
        await producer.end_transaction(topic, entry.message_id, entry.transaction_id, "ROLLBACK")
        got = await consumer.receive_until(group, topic, 1)
        got += (await consumer.receive(group, topic)).messages
        assert {item.body for item in got} == {b"once"}
        # Apache's broker commits again when its check crossed the commit.
        assert len(got) == 1 or not front.has_our_broker


@case
async def c21_a_time_to_recover_has_a_limit(front: Front) -> None:
    topic = await front.topic("TRANSACTION")
    async with front.client() as producer:
        too_long = message(topic, **HALF)
        too_long.system_properties.orphaned_transaction_recovery_duration.FromSeconds(3601)
        assert (await producer.send(too_long)).status.code == Code.BAD_REQUEST


@case_on(*OURS)
async def c21_a_commit_counts_when_the_sender_had_no_clock(front: Front) -> None:
    """Apache's broker loses such a commit: the time since the message was born is more than the time to recover."""
    topic, group = await front.topic("TRANSACTION"), await front.group()
    async with front.client() as producer, front.consumer(group, topic) as consumer:
        sent = message(topic, b"born at no time", **HALF)
        sent.system_properties.ClearField("born_timestamp")
        sent.system_properties.orphaned_transaction_recovery_duration.FromSeconds(60)
        (entry,) = await producer.send_all([sent])
        ended = await producer.end_transaction(topic, entry.message_id, entry.transaction_id, "COMMIT")
        assert ended.status.code == Code.OK
        (got,) = await consumer.receive_until(group, topic, 1)
    assert got.body == b"born at no time"
