"""An operator at a terminal: looks at offsets, moves groups about, and reads what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.sim.ledger import GroupLedger, OrderJudge, Sends
from tests.sim.members import TOPIC

from rocketline.broker.config import BrokerConfig
from rocketline.client.remote_broker import RemoteBroker
from rocketline.errors import BrokerError, QueryNotFound, RocketlineError, TopicNotExist, TransportError
from rocketline.message import MessageQueue, MessageView
from rocketline.protocol.bodies import ResetOffsetBody, decode_body, parse_queue_key
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    CloneGroupOffsetHeader,
    CreateTopicHeader,
    DeleteGroupHeader,
    Header,
    ResetOffsetHeader,
)
from rocketline.protocol.message_ids import encode_host
from rocketline.protocol.names import retry_topic
from rocketline.protocol.records import decode_messages
from rocketline.settings import load
from rocketline.store.message_store import MessageStore
from rocketline.testing.sim import ProcessDied, SimWorld
from rocketline.testing.sim.worker import LoopWorker
from rocketline.testing.sim.world import SMALL_AND_SAFE, STORE_ROOT
from rocketline.transport import RemotingClient


@dataclass
class Operator:
    world: SimWorld
    sends: Sends
    queue_count: int
    host: str = "operator"

    async def ask(self, broker: str, code: int, header: Header) -> Command:
        """One command, over a connection of its own."""

        async def call() -> Command:
            async with RemotingClient() as client:
                return await client.call(self.world.broker_address(broker), Command(code, header.encode()), 3.0)

        answer = await self.world.inside(self.world.new_process(self.host), call())
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.of(answer.code, answer.remark, broker, f"request {code}")
        return answer

    async def create_topic(self, broker: str) -> None:
        count = self.queue_count
        header = CreateTopicHeader(TOPIC, "TBW102", count, count, 6, "SINGLE_TAG", 0, False)
        await self.ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def reset(self, broker: str, ledger: GroupLedger, judge: OrderJudge | None, timestamp_ms: int) -> None:
        """Move a group, on one broker, to a time, or to the end (-1)."""
        header = ResetOffsetHeader(TOPIC, ledger.name, timestamp_ms, True)
        try:
            answer = await self.ask(broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            table = decode_body(ResetOffsetBody, answer.body).offset_table
            offsets = {parse_queue_key(key): offset for key, offset in table.items()}
        except TransportError:
            # Done or not: nobody knows how far.
            offsets = dict.fromkeys(self.queues(broker), 1 << 62)
        except RocketlineError:
            return
        for queue, offset in offsets.items():
            below = self.sends.below(queue, offset)
            ledger.excuse(below)
            if judge is not None:
                last = max((self.sends.acked[name].offset for name in below), default=-1)
                judge.passed(queue, min(offset, last + 1) if offset == 1 << 62 else offset)

    async def delete_group(self, broker: str, group: str) -> None:
        await self.ask(broker, RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroupHeader(group, True))

    async def clone(self, broker: str, source: str, ledger: GroupLedger) -> None:
        """Give a group without members the offsets of another."""
        header = CloneGroupOffsetHeader(source, ledger.name, TOPIC, True)
        await self.ask(broker, RequestCode.CLONE_GROUP_OFFSET, header)
        for queue, offset, _ in await self.progress(broker, ledger.name, [TOPIC]):
            ledger.excuse(self.sends.below(queue, offset))

    def queues(self, broker: str) -> list[MessageQueue]:
        return [MessageQueue(TOPIC, broker, queue_id) for queue_id in range(self.queue_count)]

    async def progress(self, broker: str, group: str, topics: list[str]) -> list[tuple[MessageQueue, int, int]]:
        """(queue, offset of a group, end of the queue), where the group has an offset."""

        async def look() -> list[tuple[MessageQueue, int, int]]:
            found = []
            async with RemotingClient() as client:
                remote = RemoteBroker(client, self.world.broker_address(broker), broker)
                for topic in topics:
                    for queue_id in range(self.queue_count if topic == TOPIC else 1):
                        queue = MessageQueue(topic, broker, queue_id)
                        try:
                            offset = await remote.consumer_offset(group, queue)
                            found.append((queue, int(offset), int(await remote.max_offset(queue))))
                        except (QueryNotFound, TopicNotExist):
                            continue
            return found

        return await self.world.inside(self.world.new_process(self.host), look())

    async def offsets_past_the_end(self, broker: str, groups: list[str]) -> list[str]:
        """I6; empty when the broker is not there to be asked."""
        found = []
        for group in groups:
            try:
                progress = await self.progress(broker, group, [TOPIC, retry_topic(group)])
            except (TransportError, ProcessDied):
                return []
            found += [
                f"I6: {group} is at {offset} of {queue}, which ends at {end}"
                for queue, offset, end in progress
                if offset > end
            ]
        return found


def stored(world: SimWorld, broker: str, topic: str) -> Iterator[tuple[int, list[MessageView]]]:
    """(queue id, everything in it) of a topic, read from the disk of a broker that was stopped."""
    config, _ = load(BrokerConfig, dict(SMALL_AND_SAFE))
    chance = Random(0)
    store = MessageStore(
        Path(STORE_ROOT),
        config.store,
        encode_host("127.0.0.1", 0),
        disk=world.disks[broker],
        clock=world.clock,
        workers=lambda rounds: LoopWorker(rounds, chance),
    )
    store.open()
    try:
        for queue_id in store.queue_ids(topic):
            messages: list[MessageView] = []
            offset, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            while offset < end:
                found = store.read(topic, queue_id, offset, 32)
                messages += decode_messages(b"".join(found.chunks))
                offset = found.next_queue_offset
            yield queue_id, messages
    finally:
        store.close()
