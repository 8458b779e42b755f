"""Planned hand-overs under load: no send of ours fails, nothing is lost, and a group goes on where it was."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.replication.group import ReplicatedGroup
from tests.support.etcd import need_etcd
from tests.support.patience import PATIENCE_S

from rocketline.admin import Admin
from rocketline.client import ConsumeFrom, Producer, PushConsumer, Transaction, TransactionalProducer, blocking
from rocketline.client.bulk.writer import BulkWriter
from rocketline.message import Message, MessageView

TOPIC = "orders"
SETTINGS = {"slaveReadEnable": "true"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="members have loopback addresses of their own")

Send = Callable[[list[bytes]], Coroutine[Any, Any, None]]


class Load:
    """Sends of every kind, one after the other each, until it ends; what was acknowledged."""

    def __init__(self, names: str) -> None:
        self.names = names
        self.acked: list[bytes] = []
        self.failures: list[BaseException] = []
        self._numbers = count()
        self._ends = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with Producer(self.names, group="plain", timeout=PATIENCE_S) as plain, self._transactional() as settling:

            async def singly(bodies: list[bytes]) -> None:
                for body in bodies:
                    await plain.send(Message(TOPIC, body))

            async def as_batch(bodies: list[bytes]) -> None:
                await plain.send_batch([Message(TOPIC, body) for body in bodies])

            async def in_transaction(bodies: list[bytes]) -> None:
                for body in bodies:
                    done = await settling.send_in_transaction(Message(TOPIC, body), lambda _: Transaction.COMMIT)
                    assert done.is_settled

            with (
                blocking.Producer(self.names, group="blocking", timeout=PATIENCE_S) as direct,
                BulkWriter(self.names, group="bulk", timeout=PATIENCE_S) as writer,
            ):

                async def in_thread(bodies: list[bytes]) -> None:
                    for body in bodies:
                        await asyncio.to_thread(direct.send, Message(TOPIC, body))

                async def in_bulk(bodies: list[bytes]) -> None:
                    for body in bodies:
                        writer.send(Message(TOPIC, body))
                    await asyncio.to_thread(writer.flush)

                kinds = (singly, singly, as_batch, in_transaction, in_thread, in_bulk)
                tasks = [asyncio.create_task(self._go_on(send)) for send in kinds]
                try:
                    yield
                finally:
                    self._ends = True
                    await asyncio.gather(*tasks)

    def _transactional(self) -> TransactionalProducer:
        return TransactionalProducer(
            self.names, group="settling", timeout=PATIENCE_S, check=lambda _: Transaction.UNKNOWN
        )

    async def _go_on(self, send: Send) -> None:
        while not self._ends:
            bodies = [b"%d" % next(self._numbers) for _ in range(3)]
            try:
                await send(bodies)
            except Exception as error:
                self.failures.append(error)
            else:
                self.acked += bodies
            await asyncio.sleep(0.02)

    async def moves(self) -> None:
        """Wait for acknowledgements that are new."""
        wanted = len(self.acked) + 60
        async with asyncio.timeout(PATIENCE_S):
            while len(self.acked) < wanted and not self.failures:
                await asyncio.sleep(0.01)


def group_in(folder: Path) -> ReplicatedGroup:
    """Two members that clients reach without a proxy: where nobody listens, connections are refused."""
    group = ReplicatedGroup(folder, settings=SETTINGS)
    for peer in group.peers:
        peer.known_host = peer.own_host
    return group


async def hand_over(group: ReplicatedGroup) -> None:
    before = await group.all_in_sync()
    async with Admin(group.name_server_address) as admin:
        master = await admin.named_broker_at(before.members[before.master].address)
        await master.elections.elect_master(0, None)
    await group.until(lambda record: record.master != before.master, "another master")


async def restart_master(group: ReplicatedGroup) -> None:
    record = await group.all_in_sync()
    master = group.peer_of(record.master, record)
    await master.stop()
    await master.start()


@asynccontextmanager
async def consuming(names: str, found: list[bytes]) -> AsyncIterator[None]:
    async def take(message: MessageView) -> None:
        found.append(bytes(message.body))

    async with PushConsumer(names, group="readers", from_where=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe(TOPIC, take)
        running = asyncio.create_task(consumer.run())
        yield
        running.cancel()
        await asyncio.wait([running])


async def until(done: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not done():
            await asyncio.sleep(0.01)


async def test_no_send_fails_when_the_master_hands_over_or_stops(tmp_path: Path) -> None:
    need_etcd()
    async with group_in(tmp_path) as group:
        names = group.name_server_address
        await group.all_in_sync()
        async with Producer(names, group="first", timeout=PATIENCE_S) as producer:
            await producer.send(Message(TOPIC, b"first"))
        load, found = Load(names), list[bytes]()
        async with consuming(names, found):
            async with load.running():
                for change in (hand_over, hand_over, restart_master, restart_master, hand_over):
                    await load.moves()
                    await change(group)
                await load.moves()
            assert not load.failures, load.failures
            await until(lambda: set(load.acked) <= set(found))


async def test_a_group_goes_on_where_it_was_after_a_hand_over(tmp_path: Path) -> None:
    need_etcd()
    async with group_in(tmp_path) as group:
        names = group.name_server_address
        await group.all_in_sync()
        async with Producer(names, group="first", timeout=PATIENCE_S) as producer:
            await producer.send(Message(TOPIC, b"first"))
        load = Load(names)
        first, again = list[bytes](), list[bytes]()
        async with load.running():
            async with consuming(names, first):
                await load.moves()
                await hand_over(group)
                await load.moves()
            await load.moves()
        async with consuming(names, again):
            await until(lambda: set(load.acked) <= set(first) | set(again))
        assert not load.failures, load.failures
        twice = set(first) & set(again)
        # Next to nothing: what a handler had when the consumer closed. Once it was what was consumed in seconds.
        assert len(twice) < 32, f"{len(twice)} of {len(first)} came again"
