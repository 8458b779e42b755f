"""What push consumers hold: renewed while they live, given to others when they do not.

The fronts renew after seconds here (`conftest.py`), not after a minute.
"""

from __future__ import annotations

from tests.grpc_front.cases import OURS, case, case_on
from tests.support.grpc_client import consumer_settings, defs, handle_of, message
from tests.support.grpc_front import Front

Code = defs.Code
PUSH = {"invisible_s": None, "auto_renew": True}


@case
async def c35_what_a_living_client_holds_is_renewed(front: Front) -> None:
    await holds_on(front, await front.topic(), await front.group(), {})


@case
async def c35_what_a_living_client_holds_in_order_is_renewed(front: Front) -> None:
    await holds_on(front, await front.topic("FIFO"), await front.group(orderly=True), {"message_group": "customer"})


async def holds_on(front: Front, topic: str, group: str, fields: dict[str, str]) -> None:
    async with (
        front.consumer(group, topic, kind="PUSH_CONSUMER") as busy,
        front.consumer(group, topic, kind="PUSH_CONSUMER") as idle,
    ):
        await busy.send_all([message(topic, **fields)])
        (held,) = await busy.receive_until(group, topic, 1, **PUSH)
        for _ in range(5):  # 25 s, twice the time that a message is hidden
            await busy.heartbeat(group, "PUSH_CONSUMER")
            assert (await idle.receive(group, topic, **PUSH)).bodies == []
        assert (await busy.ack(group, topic, held)).status.code == Code.OK
        assert (await idle.receive(group, topic, **PUSH)).bodies == []


@case
async def c36_what_a_client_held_when_it_left_comes_to_another(front: Front) -> None:
    topic, group = await front.topic(), await front.group()
    async with front.consumer(group, topic, kind="PUSH_CONSUMER") as other:
        async with front.consumer(group, topic, kind="PUSH_CONSUMER") as leaving:
            await leaving.send_all([message(topic)])
            (held,) = await leaving.receive_until(group, topic, 1, **PUSH)
            assert (await leaving.terminate(group)).status.code == Code.OK
        (again,) = await other.receive_until(group, topic, 1, **PUSH)
        assert handle_of(again)[0] == handle_of(held)[0]
        assert again.system_properties.delivery_attempt == 2


@case_on(*OURS)
async def c36_what_a_client_held_when_it_died_comes_to_another(front: Front) -> None:
    """Apache's proxy believes for minutes that it lives."""
    topic, group = await front.topic(), await front.group()
    async with front.consumer(group, topic, kind="PUSH_CONSUMER") as other:
        dying = front.client()
        await dying.introduce(consumer_settings(group, topic, kind="PUSH_CONSUMER"))
        await dying.send_all([message(topic)])
        (held,) = await dying.receive_until(group, topic, 1, **PUSH)
        await dying.kill()
        (again,) = await other.receive_until(group, topic, 1, **PUSH)
        assert handle_of(again)[0] == handle_of(held)[0]
        assert again.system_properties.delivery_attempt == 2
