"""Requests that leave together, seen by the writes a transport gets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.transport.peers import request

from rocketline.errors import ConnectionLost
from rocketline.protocol.command import Command
from rocketline.protocol.connection import Connection, frame_bytes
from rocketline.transport import Channel, Limits, Router
from rocketline.transport.channel import FEW_CALLS, JOINED_BUFFERS


class Writes(asyncio.Transport):
    """Keeps the requests of every write."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[list[Command]] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.written.append(list(Connection().receive(bytes(data))))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    @property
    def all(self) -> list[Command]:
        return [request for requests in self.written for request in requests]

    @property
    def counts(self) -> list[int]:
        return [len(requests) for requests in self.written]


@pytest.fixture
async def channel() -> Channel:
    return Channel(Router(), Limits())


@pytest.fixture
def writes(channel: Channel) -> Writes:
    made = Writes()
    channel.connection_made(made)
    return made


def answers(requests: Iterable[Command]) -> bytes:
    return b"".join(frame_bytes(each.reply(0)) for each in requests)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_one_after_another_each_is_written_at_once(channel: Channel, writes: Writes) -> None:
    for number in range(5):
        call = asyncio.ensure_future(channel.call(request(number), PATIENCE_S))
        await turns(1)
        assert writes.counts == [1] * (number + 1), "in the very turn it was made"
        channel.data_received(answers(writes.written[-1]))
        assert (await call).code == 0


async def test_callers_whose_answers_came_together_send_together(channel: Channel, writes: Writes) -> None:
    async def two_calls(number: int) -> None:
        await channel.call(request(number), PATIENCE_S)
        await channel.call(request(100 + number), PATIENCE_S)

    callers = [asyncio.ensure_future(two_calls(number)) for number in range(FEW_CALLS)]
    await turns(1)
    assert writes.counts == [1] * FEW_CALLS
    channel.data_received(answers(writes.all))
    await turns(1)
    assert [each.code for each in writes.written[-1]] == [100 + number for number in range(FEW_CALLS)]
    channel.data_received(answers(writes.written[-1]))
    await asyncio.gather(*callers)


async def test_many_of_one_turn_leave_together_in_order_and_not_too_many_at_once(
    channel: Channel, writes: Writes
) -> None:
    count = FEW_CALLS + 2 * JOINED_BUFFERS + 3
    callers = [asyncio.ensure_future(channel.call(request(number), PATIENCE_S)) for number in range(count)]
    await turns(3)
    assert writes.counts == [*[1] * FEW_CALLS, JOINED_BUFFERS, JOINED_BUFFERS, 3]
    assert [each.code for each in writes.all] == list(range(count))
    channel.data_received(answers(writes.all))
    await asyncio.gather(*callers)


async def test_a_large_one_does_not_wait(channel: Channel, writes: Writes) -> None:
    callers = [asyncio.ensure_future(channel.call(request(1), PATIENCE_S)) for _ in range(FEW_CALLS + 2)]
    callers.append(asyncio.ensure_future(channel.call(request(2, body=bytes(100_000)), PATIENCE_S)))
    await turns(1)
    assert [each.code for each in writes.written[-1]] == [1, 1, 2]
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)


async def test_closing_writes_what_waits_and_a_lost_connection_forgets_it(channel: Channel, writes: Writes) -> None:
    callers = [asyncio.ensure_future(channel.call(request(1), PATIENCE_S)) for _ in range(FEW_CALLS + 2)]
    asyncio.get_running_loop().call_soon(channel.close)
    await turns(1)
    assert sum(writes.counts) == FEW_CALLS + 2
    channel.connection_lost(None)
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert {type(result) for result in results} == {ConnectionLost}
    assert sum(writes.counts) == FEW_CALLS + 2
