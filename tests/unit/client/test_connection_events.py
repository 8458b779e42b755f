"""Connections that are made and lost are told, in order, without delaying anything."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest
from tests.unit.client.fakes import QUICK_OPTIONS, FakeCluster, until

from rocketline.client import ConnectionEvent, Producer
from rocketline.client.connection_events import MAX_WAITING, ConnectionEvents
from rocketline.errors import ConfigError
from rocketline.message import Message


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_restart_of_the_broker_is_told(cluster: FakeCluster, is_async: bool) -> None:
    cluster.add_topic("T")
    told: list[ConnectionEvent] = []

    def watch(event: ConnectionEvent) -> None:
        told.append(event)
        raise RuntimeError("what it raises is logged only")

    async def watch_on_loop(event: ConnectionEvent) -> None:
        watch(event)

    options = replace(QUICK_OPTIONS, on_connection=watch_on_loop if is_async else watch)
    address = cluster.broker.address
    async with Producer(cluster.namesrv, group="g", options=options) as producer:
        await producer.send(Message("T", b"x"))
        await cluster.broker.restart()
        await until(lambda: any(not event.is_connected for event in told))
        await producer.send(Message("T", b"x"))
    lost = ConnectionEvent(address, False, "the other side closed it")
    closed = ConnectionEvent(address, False, "closed by this client")
    connected = ConnectionEvent(address, True)
    assert [event for event in told if event.address == address] == [connected, lost, connected, closed]
    assert ConnectionEvent(cluster.namesrv, True) in told


async def test_a_callback_that_hangs_delays_nothing_and_too_many_events_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    go_on, told = threading.Event(), []

    def watch(event: ConnectionEvent) -> None:
        told.append(event.address)
        go_on.wait()

    events = ConnectionEvents(watch)
    events.note("first", None)
    await until(lambda: told == ["first"])
    for number in range(MAX_WAITING + 3):
        events.note(str(number), None)
    go_on.set()
    await until(lambda: told[-1] == str(MAX_WAITING + 2))
    assert told[1] == "3" and len(told) == 1 + MAX_WAITING
    assert "the oldest is left out" in caplog.text
    await events.close()


async def test_clients_that_share_connections_share_the_callback(cluster: FakeCluster) -> None:
    options = replace(QUICK_OPTIONS, instance_name="one", on_connection=print)
    async with Producer(cluster.namesrv, group="g", options=options):
        other = Producer(cluster.namesrv, group="h", options=replace(options, on_connection=asyncio.sleep))
        with pytest.raises(ConfigError, match=r"is in use with on_connection .*its own instance_name"):
            await other.__aenter__()
