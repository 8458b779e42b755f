"""Brokers with copies of one log, in this process: a name server, a master, replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.patience import PATIENCE_S

from rocketline.broker.broker import Broker
from rocketline.broker.config import BrokerConfig
from rocketline.client import ConsumeFrom, Producer, PushConsumer, SendReceipt
from rocketline.message import Message, MessageView
from rocketline.nameserver.config import NameServerConfig
from rocketline.nameserver.server import NameServer
from rocketline.settings import load

NAME = "broker-a"
FILE_BYTES = 16 << 20


def group_config(root: Path, names: str, broker_id: int, **settings: str) -> BrokerConfig:
    """Settings of one member; the file sizes are those of `ApacheCluster`."""
    values = {
        "brokerName": NAME,
        "brokerId": str(broker_id),
        "brokerRole": "SLAVE" if broker_id else "ASYNC_MASTER",
        "listenPort": "0",
        "haListenPort": "0",
        "storePathRootDir": str(root / f"member-{broker_id}"),
        "namesrvAddr": names,
        "metricsPromExporterPort": "0",
        "mappedFileSizeCommitLog": str(FILE_BYTES),
        "mappedFileSizeConsumeQueue": str(20 * 10_000),
        "mappedFileSizeTimerLog": str(52 * 20_000),
        "maxHashSlotNum": "20000",
        "maxIndexNum": "80000",
        "rocketline.copyTablesMs": "100",
        "diskMaxUsedSpaceRatio": "95",
    }
    return load(BrokerConfig, values | settings)[0]


@asynccontextmanager
async def name_server(acting_masters: bool = False) -> AsyncIterator[str]:
    async with NameServer(NameServerConfig(port=0, support_acting_master=acting_masters)) as names:
        yield f"127.0.0.1:{names.port}"


async def until(done: Callable[[], object], what: str = "") -> None:
    """Wait until a condition holds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while not done():
        if loop.time() > deadline:
            raise AssertionError(f"not within {PATIENCE_S:g} s: {what or done}")
        await asyncio.sleep(0.01)


async def caught_up(master: Broker, *replicas: Broker) -> None:
    """Wait until replicas have, and list, what the master has."""
    end = master.parts.store.log_next_offset
    for replica in replicas:
        store = replica.parts.store
        await until(lambda: store.dispatched_offset >= end, f"the log of {replica.address} up to {end}")


async def send_all(names: str, topic: str, bodies: list[bytes]) -> list[SendReceipt]:
    async with Producer(names, group="pg") as producer:
        return [await producer.send(Message(topic, body)) for body in bodies]


def log_bytes(root: Path) -> bytes:
    """All files of a log, one behind the other."""
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def stored_log(broker: Broker) -> bytes:
    """The log of a broker up to its end."""
    store = broker.parts.store
    found, start = b"", store.log_min_offset
    while piece := store.copies.slice(start, store.log_next_offset):
        found += piece
        start += len(piece)
    return found


async def consume(names: str, topic: str, count: int, group: str = "cg") -> list[bytes]:
    """The bodies of the first messages that a push consumer gets."""
    found: list[bytes] = []
    done = asyncio.Event()

    async def take(message: MessageView) -> None:
        found.append(bytes(message.body))
        if len(found) >= count:
            done.set()

    async with PushConsumer(names, group=group, from_where=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe(topic, take)
        running = asyncio.create_task(consumer.run())
        async with asyncio.timeout(PATIENCE_S):
            await done.wait()
        running.cancel()
        await asyncio.wait([running])
    return found
