"""The same history on any cluster, and what differs there all the same: addresses, ids, a folder."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.patience import PATIENCE_S

from rocketline.admin import Admin, AdminBroker
from rocketline.admin.progress import progress_of
from rocketline.client import ClientOptions, ConsumeFrom, RetryLater, blocking
from rocketline.client.timing import ClientTiming
from rocketline.errors import RocketlineError
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.protocol.bodies import SubscriptionGroupConfig, TopicConfig

CLUSTER, BROKER = "DefaultCluster", "broker-a"
TOPIC, SENT, TRACES = "mqadmin_orders", "mqadmin_sent", "mqadmin_traces"
AWAY, ONLINE, COPY, DOOMED = "mqadmin_billing", "mqadmin_online", "mqadmin_copy", "mqadmin_doomed"
SHOP = "mqadmin_shop"
LEVEL = 15
"""Of a delay that no other test of these clusters uses: 20 minutes."""
BODIES = [b"hello", b"world", b"again"]
QUICK = ClientTiming(persist_s=0.1, heartbeat_s=1.0, trace_s=0.1)


@dataclass(frozen=True)
class Side:
    """A cluster with the history."""

    namesrv: str
    broker: str
    messages: list[MessageView]
    """As consumed; in the order of BODIES."""
    client: str
    """The id of the consumer that is online."""
    folder: Path
    """For what verbs write, and with topics.json and groups.json that they read."""

    def filled(self, words: str) -> list[str]:
        """The words of a verb with what differs from side to side in its places."""
        message = self.messages[0]
        return words.format(
            namesrv=self.namesrv,
            broker=self.broker,
            offset_id=message.offset_id,
            unique_id=message.message_id,
            client=self.client,
            folder=self.folder,
        ).split()


@contextmanager
def history(namesrv: str, folder: Path) -> Iterator[Side]:
    """Three messages in two queues, read by a group that is away and by one that is online; a producer is online too; a
    group has a dead letter, and a message waits for its delay."""
    broker = asyncio.run(_made(namesrv))
    _write_lists(folder)
    with blocking.Producer(namesrv, group=SHOP, options=ClientOptions(timing=QUICK, trace=TRACES)) as producer:
        for number, body in enumerate(BODIES):
            message = Message(TOPIC, body, tag=f"Tag{number}", keys=[f"k{number}"])
            producer.send(message, queue=MessageQueue(TOPIC, BROKER, number % 2))
        producer.send(Message(SENT, b"later", delay_level=LEVEL), queue=MessageQueue(SENT, BROKER, 0))
        with _reading(namesrv, AWAY):
            pass
        with _reading(namesrv, DOOMED, fails=True):
            pass
        with _reading(namesrv, ONLINE) as messages:
            yield Side(namesrv, broker, messages, asyncio.run(_settled(namesrv)), folder)


async def _made(namesrv: str) -> str:
    """Topics and groups; the address of the broker."""
    async with Admin(namesrv) as admin:
        (broker,) = await admin.brokers()
        for name in (TOPIC, SENT, TRACES):
            await broker.put_topic(TopicConfig(name, 2, 2))
        for name in (AWAY, ONLINE, COPY):
            await broker.put_group(SubscriptionGroupConfig(name, retry_max_times=3))
        await broker.put_group(SubscriptionGroupConfig(DOOMED, retry_max_times=0))
        return broker.address


def _write_lists(folder: Path) -> None:
    topics = [{"topicName": f"mqadmin_listed{number}", "readQueueNums": 1, "writeQueueNums": 1} for number in (1, 2)]
    (folder / "topics.json").write_text(json.dumps(topics))
    (folder / "groups.json").write_text(json.dumps([{"groupName": "mqadmin_listed", "retryMaxTimes": 2}]))


@contextmanager
def _reading(namesrv: str, group: str, *, fails: bool = False) -> Iterator[list[MessageView]]:
    """A consumer that has got all messages; they, in the order of BODIES."""
    seen: dict[bytes, MessageView] = {}
    complete = threading.Event()

    def handle(message: MessageView) -> RetryLater | None:
        seen[message.body] = message
        if len(seen) == len(BODIES):
            complete.set()
        return RetryLater() if fails and message.body == BODIES[0] else None

    with blocking.PushConsumer(
        namesrv,
        group=group,
        from_where=ConsumeFrom.FIRST,
        max_reconsume_times=0 if fails else -1,
        options=ClientOptions(timing=QUICK),
    ) as consumer:
        consumer.subscribe(TOPIC, "*", handle)
        consumer.start()
        assert complete.wait(PATIENCE_S)
        # Apache's broker handles pulls and commits in different threads: a pull that is late may put an old offset over
        # the last commit. So nobody leaves before the broker has the progress.
        asyncio.run(_has_read_all(namesrv, group))
        yield [seen[body] for body in BODIES]


async def _has_read_all(namesrv: str, group: str) -> None:
    async with asyncio.timeout(PATIENCE_S), Admin(namesrv) as admin:
        while not await _progress_is_whole(admin, group):
            await asyncio.sleep(0.05)


async def _progress_is_whole(admin: Admin, group: str) -> bool:
    try:
        read = await progress_of(admin, group, TOPIC)
    except RocketlineError:
        return False
    return (read.lag, sum(item.consumer_offset for item in read.queues.values())) == (0, len(BODIES))


async def _settled(namesrv: str) -> str:
    """Until the broker has the dead letter and traces, and knows the online group's producer; the consumer's id."""
    async with asyncio.timeout(PATIENCE_S), Admin(namesrv) as admin:
        (broker,) = await admin.brokers()
        while not await _is_settled(broker):
            await asyncio.sleep(0.05)
        (client,) = (await broker.consumers(ONLINE)).connection_set
        return client.client_id


async def _is_settled(broker: AdminBroker) -> bool:
    try:
        dead = await broker.topic_stats(f"%DLQ%{DOOMED}")
        traces = await broker.topic_stats(TRACES)
        await broker.producers(SHOP)
    except RocketlineError:
        return False
    letters = sum(item.max_offset for item in dead.offset_table.values())
    traced = sum(item.max_offset for item in traces.offset_table.values())
    return letters == 1 and traced > 0
