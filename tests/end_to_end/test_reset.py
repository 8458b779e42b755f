"""A whole cluster and a consumer of ours, moved by an operator while it waits for new messages."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.client import ClientOptions, ClientTiming, ConsumeFrom, Producer, PushConsumer
from rocketline.message import Message, MessageView
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.testing import LocalCluster
from rocketline.transport import RemotingClient

COUNT = 5


async def ask(address: str, code: int, **fields: str) -> Command:
    remoting = RemotingClient()
    try:
        return await remoting.call(address, Command(code, fields), PATIENCE_S)
    finally:
        await remoting.close()


async def reset(address: str) -> None:
    """To the beginning; tried again while the broker has not heard of the group's progress."""
    fields = {"topic": "orders", "group": "readers", "timestamp": "0", "isForce": "true"}
    async with asyncio.timeout(PATIENCE_S):
        while (await ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields)).code != ResponseCode.SUCCESS:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("server_side", [True, False], ids=["by_the_broker", "by_the_consumer"])
async def test_a_reset_group_reads_everything_again(server_side: bool) -> None:
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(message: MessageView) -> None:
        got.put_nowait(message.body)

    async def read_all() -> list[bytes]:
        async with asyncio.timeout(PATIENCE_S):
            return sorted([await got.get() for _ in range(COUNT)])

    async with LocalCluster(config={"useServerSideResetOffset": server_side}) as cluster:
        bodies = [b"%d" % number for number in range(COUNT)]
        async with Producer(cluster.namesrv, group="makers") as producer:
            for body in bodies:
                await producer.send(Message("orders", body))
        address = cluster.brokers[0].address
        async with PushConsumer(
            cluster.namesrv,
            group="readers",
            from_where=ConsumeFrom.FIRST,
            options=ClientOptions(timing=ClientTiming(persist_s=0.05)),
        ) as consumer:
            consumer.subscribe("orders", "*", handle)
            await consumer.start()
            assert await read_all() == bodies
            await reset(address)
            assert await read_all() == bodies
            fields = {"consumerGroup": "readers", "clientId": consumer.client_id}
            info = await ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, **fields)
            assert (info.code, b"PROP_CONSUME_TYPE" in info.body) == (ResponseCode.SUCCESS, True)
