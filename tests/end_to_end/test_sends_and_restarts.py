"""A broker is killed and started again on its port while producers of every kind go on: none of their sends fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from tests.support.patience import PATIENCE_S

from rocketline.cli.servers.child import ChildCluster
from rocketline.client import Producer, SendReceipt, blocking
from rocketline.client.bulk.reader import BulkReader
from rocketline.message import Message


class Sending:
    """What the producers did so far."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.counts: dict[str, int] = {}
        self.ids: set[str] = set()

    def note(self, kind: str, receipts: list[SendReceipt]) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.ids.update(receipt.message_id for receipt in receipts)

    async def go_on(self) -> None:
        """Every kind of producer has sent some more."""
        before = dict(self.counts)
        async with asyncio.timeout(PATIENCE_S):
            while len(self.counts) < 5 or any(self.counts[kind] < before.get(kind, 0) + 20 for kind in self.counts):
                await asyncio.sleep(0.005)


def in_thread(sending: Sending, kind: str, send: Callable[[], list[SendReceipt]]) -> None:
    while not sending.stop.is_set():
        sending.note(kind, send())


async def on_loop(sending: Sending, producer: Producer, count: int) -> None:
    while not sending.stop.is_set():
        if count == 1:
            sending.note("one by one", [await producer.send(Message("T", b"x"))])
        else:
            sending.note("batches", await producer.send_batch([Message("T", b"x")] * count))
            sending.note("at once", await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(count))))


async def test_no_send_fails_while_a_broker_is_killed_and_comes_back(tmp_path: Path) -> None:
    arguments = ["--data", str(tmp_path)]
    cluster, sending = ChildCluster(arguments), Sending()
    await asyncio.to_thread(cluster.start)
    namesrv, (address,) = cluster.namesrv, cluster.brokers.values()
    ports = int(namesrv.rpartition(":")[2]), int(address.rpartition(":")[2])
    try:
        with blocking.Producer(namesrv, group="blocking", timeout=PATIENCE_S) as plain:
            async with Producer(namesrv, group="async", timeout=PATIENCE_S) as producer:
                work = [
                    asyncio.create_task(on_loop(sending, producer, 1)),
                    asyncio.create_task(on_loop(sending, producer, 10)),
                    asyncio.create_task(
                        asyncio.to_thread(in_thread, sending, "threads", lambda: [plain.send(Message("T", b"x"))])
                    ),
                    asyncio.create_task(
                        asyncio.to_thread(
                            in_thread,
                            sending,
                            "batches of threads",
                            lambda: plain.send_batch([Message("T", b"x")] * 10),
                        )
                    ),
                ]
                try:
                    for _ in range(2):
                        await sending.go_on()
                        await asyncio.to_thread(cluster.kill)
                        cluster = ChildCluster(arguments, ports=ports)
                        await asyncio.to_thread(cluster.start)
                    await sending.go_on()
                finally:
                    sending.stop.set()
                    await asyncio.gather(*work)
        assert await asyncio.to_thread(stored_ids, namesrv) >= sending.ids
    finally:
        await asyncio.to_thread(cluster.kill)


def stored_ids(namesrv: str) -> set[str]:
    found: set[str] = set()
    with BulkReader(namesrv, group="reading") as reader:
        for queue in reader.queues("T"):
            for reply in reader.read(queue, *reader.bounds(queue)):
                found.update(message.message_id for message in reply.messages())
    return found
