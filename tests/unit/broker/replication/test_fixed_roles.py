"""A master and replicas of fixed roles, in virtual time: how fast they are sent the log, who counts, and who may lead."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from rocketline.broker.replication import source as source_module
from rocketline.broker.replication.source import ReplicationSource
from rocketline.client import Producer
from rocketline.message import Message
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import NotifyRoleChangedHeader
from rocketline.protocol.replication_frames import Dialect, encode_hello, encode_report
from rocketline.testing.sim import SimWorld, run_world
from rocketline.transport import RemotingClient

HA_PORT = 10912
PER_SECOND = 20_000


async def start_master(world: SimWorld, **settings: str) -> ReplicationSource:
    await world.start_name_server("n1")
    broker = await world.start_broker("m", settings)
    source = broker.parts.roles.source
    assert source is not None
    return source


async def send(world: SimWorld, *bodies: bytes) -> None:
    async def work() -> None:
        async with Producer(world.namesrv, group="pg") as producer:
            for body in bodies:
                await producer.send(Message("orders", body))

    await world.inside(world.new_process("producer"), work())


def log_end(world: SimWorld, host: str) -> int:
    return world.brokers[host].parts.store.log_next_offset


class Peer(asyncio.Protocol):
    """Whoever connects to the HA port and says something."""

    def __init__(self, said: bytes) -> None:
        self.said = said
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self.said)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True


async def connect(world: SimWorld, host: str, said: bytes) -> Peer:
    async def work() -> Peer:
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(lambda: Peer(said), world.address_of("m"), HA_PORT))[1]

    peer = await world.inside(world.new_process(host), work())
    await asyncio.sleep(0.5)
    return peer


def test_a_replica_is_sent_no_more_than_allowed_each_second() -> None:
    async def scenario(world: SimWorld) -> None:
        await start_master(world, haFlowControlEnable="true", maxHaTransferByteInSecond=str(PER_SECOND))
        await send(world, *[bytes(1000)] * 100)
        await world.start_broker("r", {"brokerName": "m", "brokerId": "1", "brokerRole": "SLAVE"})
        while not log_end(world, "r"):
            await asyncio.sleep(0.01)
        for second in range(1, 5):
            await asyncio.sleep(1)
            # Some more or less: of one tenth of a second, and what the network holds.
            assert abs(log_end(world, "r") - second * PER_SECOND) <= PER_SECOND * 0.3
        await asyncio.sleep(3)
        assert log_end(world, "r") == log_end(world, "m") > 5 * PER_SECOND

    run_world(scenario, 1)


def test_a_newer_connection_of_a_replica_takes_the_place_of_the_older() -> None:
    async def scenario(world: SimWorld) -> None:
        source = await start_master(world)

        def hello(member: int) -> bytes:
            return encode_hello(member, source.parts.tickets.give(member))

        older = await connect(world, "r1", hello(1))
        other = await connect(world, "r2", hello(2))
        newer = await connect(world, "r3", hello(1))
        assert (older.is_closed, other.is_closed, newer.is_closed) == (True, False, False)
        assert sorted(str(connection.key) for connection in source.connections) == ["1", "2"]
        assert set(source.parts.acks.replicas) == {1, 2}

    run_world(scenario, 2)


def test_who_does_not_say_in_time_who_it_is_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "HELLO_S", 10.0)

    async def scenario(world: SimWorld) -> None:
        source = await start_master(world)
        silent, dripping = await connect(world, "s", b""), await connect(world, "d", b"\xffRL")
        replica = await connect(world, "r", encode_hello(1, source.parts.tickets.give(1)))
        await asyncio.sleep(8)
        assert not (silent.is_closed or dripping.is_closed)
        await asyncio.sleep(4)
        assert (silent.is_closed, dripping.is_closed, replica.is_closed, source.refused) == (True, True, False, 2)
        await asyncio.sleep(10)
        assert (replica.is_closed, source.refused) == (True, 2), "it does not say that it is still here"

    run_world(scenario, 3)


def test_a_stranger_that_lacks_messages_cannot_take_over() -> None:
    async def scenario(world: SimWorld) -> None:
        source = await start_master(world, **{"rocketline.haStrangers": "serve"})
        await send(world, b"one", b"two")
        await connect(world, "s", encode_report(Dialect.CLASSIC, 0))
        assert [connection.next_offset for connection in source.connections] == [log_end(world, "m")]
        assert (await hand_over(world)).code == ResponseCode.SYSTEM_ERROR
        assert world.brokers["m"].parts.roles.is_master

    async def hand_over(world: SimWorld) -> Command:
        async def work() -> Command:
            async with RemotingClient() as client:
                header = NotifyRoleChangedHeader(master_address="127.0.0.1:1")
                command = Command(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header.encode())
                return await client.call(world.broker_address("m"), command, 60.0)

        return await world.inside(world.new_process("operator"), work())

    run_world(scenario, 3)
