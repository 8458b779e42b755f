"""Requests that lay unread for too long are refused with code 2; those that come after them are served."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.broker.parts import Parts, pull_request, send_request

from rocketline.broker import Broker, BrokerConfig
from rocketline.broker.handlers.busy import unless_busy
from rocketline.broker.loop_delay import LoopDelay
from rocketline.clock import ManualClock
from rocketline.errors import ConfigError, RequestRejected
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.connection import Connection, encode_frame
from rocketline.store.config import StoreConfig
from rocketline.testing.disks import MemoryDisk
from rocketline.transport import RemotingClient

SMALL = StoreConfig(log_segment_bytes=1 << 20, queue_segment_bytes=2000, index_slots=100, index_entries=500)


async def running(loop_delay: LoopDelay) -> asyncio.Task[None]:
    task = asyncio.create_task(loop_delay.run())
    await asyncio.sleep(0)
    return task


async def test_a_loop_that_comes_round_refuses_nobody() -> None:
    clock = ManualClock()
    loop_delay = LoopDelay(200, clock)
    assert loop_delay.over_limit_ms() == 0, "nothing is known before it runs"
    task = await running(loop_delay)
    clock.advance(0.24)
    assert loop_delay.over_limit_ms() == 0, "a pulse may be due for a while"
    clock.advance(0.06)
    assert loop_delay.over_limit_ms() == 260, "0.3 s since the last pulse, of which 0.04 s are as they should be"
    task.cancel()
    await asyncio.wait([task])
    assert loop_delay.over_limit_ms() == 0, "nobody pulses any more"


async def test_late_requests_are_refused_by_name(parts: Parts) -> None:
    clock = ManualClock()
    loop_delay = LoopDelay(200, clock)
    task = await running(loop_delay)
    send = unless_busy(parts.store, parts.router._handlers[RequestCode.SEND_MESSAGE_V2], loop_delay)
    parts.put_topic("orders")
    channel = parts.peer().channel
    send(channel, send_request())
    clock.advance(1.0)
    with pytest.raises(RequestRejected, match=r"\[TIMEOUT_CLEAN_QUEUE\].*960ms") as refused:
        send(channel, send_request())
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    task.cancel()
    await asyncio.wait([task])
    assert parts.appends == 1


@pytest.mark.parametrize("fails_fast", [True, False])
async def test_what_queued_up_behind_a_stalled_loop_is_refused_quickly(tmp_path: Path, fails_fast: bool) -> None:
    config = BrokerConfig(
        port=0, store_root=str(tmp_path / "data"), fails_fast=fails_fast, send_wait_ms=50, store=SMALL
    )
    async with Broker(config, disk=MemoryDisk()) as broker, RemotingClient() as client:
        with socket.create_connection(("127.0.0.1", broker.port)) as sock:
            sock.setblocking(False)
            await stored(client, broker.address)
            sock.send(frame(pull_request("BenchmarkTest")))
            await answers(sock, 1)  # the broker has taken the connection: what follows is read in one go
            sock.send(b"".join(frame(send_request("BenchmarkTest", opaque=number)) for number in range(2, 5)))
            pull = pull_request("BenchmarkTest")
            pull.opaque = 5
            sock.send(frame(pull))
            time.sleep(0.2)  # nobody else can do anything meanwhile: that is the point
            late = await answers(sock, 4)
        codes = {answer.opaque: answer.code for answer in late}
        refused = ResponseCode.SYSTEM_BUSY if fails_fast else ResponseCode.SUCCESS
        assert [codes[number] for number in (2, 3, 4)] == [refused] * 3
        assert codes[5] != ResponseCode.SYSTEM_BUSY, "only what would be stored is refused"
        await stored(client, broker.address)


async def stored(client: RemotingClient, address: str) -> None:
    """Send until it is taken: a machine that has other things to do may be late by itself."""
    async with asyncio.timeout(PATIENCE_S):
        while (await client.call(address, send_request("BenchmarkTest"), PATIENCE_S)).code != ResponseCode.SUCCESS:
            await asyncio.sleep(0.01)


def frame(command: Command) -> bytes:
    return b"".join(encode_frame(command))


async def answers(sock: socket.socket, count: int) -> list[Command]:
    connection, found = Connection(), list[Command]()
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            data = await asyncio.get_running_loop().sock_recv(sock, 65536)
            assert data, "the broker closed the connection"
            found += connection.receive(data)
    return found


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="waitTimeMillsInSendQueue=0"):
        BrokerConfig(send_wait_ms=0)
