"""What a broker acknowledged is still there after it was stopped, started, and killed.

The first tests restart a broker inside the test's process; the others run `rocketline up` as a child and end it with
SIGKILL in the middle of traffic.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.broker import Broker, BrokerConfig
from rocketline.cli.servers.child import ChildCluster
from rocketline.errors import StoreInUse, TransportError
from rocketline.message import MessageView
from rocketline.protocol.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    decode_body,
    encode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import PullMessageHeader, SendMessageHeader
from rocketline.protocol.headers.read import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.records import decode_messages
from rocketline.testing import LocalCluster
from rocketline.transport import RemotingClient

QUEUES = 4
CHILD_FILES = (
    "--set", "mappedFileSizeCommitLog=1048576", "--set", "mappedFileSizeConsumeQueue=20000",
    "--set", "flushConsumerOffsetInterval=50",
)  # fmt: skip


class Session:
    """Calls of one broker, and a note of everything it acknowledged."""

    def __init__(self) -> None:
        self.address = ""
        self.acknowledged: dict[tuple[str, int, int], bytes] = {}
        """Bodies by topic, queue and queue offset."""
        self._client = RemotingClient()

    async def ask(self, command: Command) -> Command:
        answer = await self._client.call(self.address, command, PATIENCE_S)
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND), answer
        return answer

    async def send(self, topic: str, body: bytes, queue_id: int = 0, **properties: str) -> None:
        text = encode_properties({"UNIQ_KEY": f"U-{body.decode()}", **properties})
        header = SendMessageHeader("producers", topic, "TBW102", QUEUES, queue_id, 0, 1_600_000_000_000, 5, text)
        answer = await self.ask(Command(RequestCode.SEND_MESSAGE_V2, header.encode(), body))
        assert answer.ext is not None
        self.acknowledged[topic, queue_id, int(answer.ext["queueOffset"])] = body

    async def pull(self, topic: str, queue_id: int, offset: int, sys_flag: int = SUBSCRIPTION) -> list[MessageView]:
        header = PullMessageHeader(
            "readers", topic, queue_id, offset, 32, sys_flag, offset, 15_000, 0, "*"  # type: ignore[arg-type]
        )  # fmt: skip
        answer = await self.ask(Command(RequestCode.PULL_MESSAGE, header.encode()))
        return decode_messages(answer.body)

    async def commit(self, topic: str, queue_id: int, offset: int) -> None:
        await self.pull(topic, queue_id, offset, SUBSCRIPTION | COMMIT_OFFSET)

    async def committed(self, topic: str, queue_id: int) -> int:
        ext = {"consumerGroup": "readers", "topic": topic, "queueId": str(queue_id)}
        answer = await self.ask(Command(RequestCode.QUERY_CONSUMER_OFFSET, ext))
        assert answer.ext is not None
        return int(answer.ext["offset"])

    async def end_of(self, topic: str, queue_id: int = 0) -> int:
        answer = await self.ask(Command(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)}))
        assert answer.ext is not None
        return int(answer.ext["offset"])

    async def read_all(self, topic: str) -> list[MessageView]:
        """Every message of a topic; their offsets must follow each other without a hole."""
        messages: list[MessageView] = []
        for queue_id in range(QUEUES):
            offset = 0
            while found := await self.pull(topic, queue_id, offset):
                assert [message.queue_offset for message in found] == list(range(offset, offset + len(found)))
                messages += found
                offset += len(found)
        return messages

    async def check_acknowledged(self, topic: str) -> None:
        """Everything acknowledged is where the answer said, with equal bytes."""
        stored = {(topic, item.queue_id, item.queue_offset): item.body for item in await self.read_all(topic)}
        expected = {key: body for key, body in self.acknowledged.items() if key[0] == topic}
        assert {key: stored.get(key) for key in expected} == expected

    async def topics(self) -> dict[str, TopicConfig]:
        answer = await self.ask(Command(RequestCode.GET_ALL_TOPIC_CONFIG))
        return decode_body(TopicConfigSerializeWrapper, answer.body).topic_config_table

    async def groups(self) -> dict[str, SubscriptionGroupConfig]:
        answer = await self.ask(Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        return decode_body(SubscriptionGroupWrapper, answer.body).subscription_group_table

    async def close(self) -> None:
        await self._client.close()


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    session = Session()
    yield session
    await session.close()


def create_topic(name: str) -> Command:
    ext = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": "3",
        "writeQueueNums": "2",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "attributes": "+message.type=FIFO",
    }
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)


# Inside the process


async def test_a_clean_restart_changes_nothing(session: Session) -> None:
    async with LocalCluster() as cluster:
        session.address = cluster.brokers[0].address
        for number in range(300):
            await session.send("orders", b"%d" % number, number % QUEUES, TAGS=f"t{number % 3}", KEYS=f"k{number}")
        await session.ask(create_topic("by-hand"))
        config = SubscriptionGroupConfig("by-hand", retry_max_times=3, consume_broadcast_enable=False)
        await session.ask(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, encode_body(config)))
        for queue_id in range(QUEUES):
            await session.commit("orders", queue_id, queue_id * 10)
        before = (await session.read_all("orders"), await session.topics(), await session.groups())
        assert len(before[0]) == 300
        for _ in range(2):
            await cluster.restart_broker("broker-a")
            assert cluster.brokers[0].address == session.address
            assert (await session.read_all("orders"), await session.topics(), await session.groups()) == before
            assert [await session.committed("orders", queue_id) for queue_id in range(QUEUES)] == [0, 10, 20, 30]
        await session.send("orders", b"300")
        assert session.acknowledged["orders", 0, 75] == b"300"
        await session.check_acknowledged("orders")


async def test_a_delayed_message_outlives_a_restart_and_comes_once(session: Session) -> None:
    async with LocalCluster(config={"messageDelayLevel": "1s 2h"}) as cluster:
        session.address = cluster.brokers[0].address
        await session.send("orders", b"first")
        for body, level in ((b"soon", "1"), (b"much later", "2")):
            await session.send("orders", body, DELAY=level)
        await cluster.restart_broker("broker-a")
        [message] = await session.pull("orders", 0, 1, SUBSCRIPTION | SUSPEND)
        assert (message.body, message.properties["REAL_TOPIC"]) == (b"soon", "orders")
        await cluster.restart_broker("broker-a")
        assert [item.body for item in await session.read_all("orders")] == [b"first", b"soon"]
        [pending] = await session.pull("SCHEDULE_TOPIC_XXXX", 1, 0)
        assert pending.body == b"much later"


async def test_what_is_acknowledged_while_brokers_come_and_go_is_there(session: Session) -> None:
    """Producers keep sending through three restarts: an answer is a promise, silence is none."""
    async with LocalCluster() as cluster:
        session.address = cluster.brokers[0].address
        stop = asyncio.Event()
        producers = [asyncio.create_task(_keep_sending(session, number, stop)) for number in range(4)]
        for _ in range(3):
            await _until_acknowledged(session, len(session.acknowledged) + 100)
            await cluster.restart_broker("broker-a")
        # New ones, so that the connection is back: reading does not wait for it.
        await _until_acknowledged(session, len(session.acknowledged) + 100)
        stop.set()
        await asyncio.gather(*producers)
        await session.check_acknowledged("orders")
        bodies = [message.body for message in await session.read_all("orders")]
        assert len(bodies) == len(set(bodies))


async def _keep_sending(session: Session, producer: int, stop: asyncio.Event) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        try:
            await session.send("orders", b"%d-%d" % (producer, number), producer)
        except TransportError:
            await asyncio.sleep(0.01)  # down at the moment


async def _until_acknowledged(session: Session, count: int) -> None:
    await _until(lambda: len(session.acknowledged) >= count)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


# A process of its own, killed


@asynccontextmanager
async def child(session: Session, data: Path, *arguments: str) -> AsyncIterator[ChildCluster]:
    """`rocketline up` on a folder; whatever happens it is gone at the end."""
    cluster = ChildCluster(["--data", str(data), *CHILD_FILES, *arguments])
    await asyncio.to_thread(cluster.start)
    session.address = cluster.brokers["broker-a"]
    try:
        yield cluster
    finally:
        await asyncio.to_thread(cluster.kill)


@pytest.mark.parametrize("flush", ["async", "sync"])
async def test_kill_9_in_the_middle_of_traffic_loses_nothing_acknowledged(
    session: Session, tmp_path: Path, flush: str
) -> None:
    for round_number in (1, 2, 3):
        async with child(session, tmp_path, "--flush", flush) as cluster:
            if session.acknowledged:
                await session.check_acknowledged("orders")
            producers = [
                asyncio.create_task(_send_until_killed(session, round_number, queue)) for queue in range(QUEUES)
            ]
            await _until_acknowledged(session, round_number * 150)
            await asyncio.to_thread(cluster.kill)
            await asyncio.gather(*producers)
        assert (tmp_path / "abort").exists()
    async with child(session, tmp_path) as cluster:
        await session.check_acknowledged("orders")
        assert await asyncio.to_thread(cluster.stop) == 0
    assert not (tmp_path / "abort").exists()


async def _send_until_killed(session: Session, round_number: int, queue_id: int) -> None:
    number = 0
    while True:
        number += 1
        try:
            await session.send("orders", b"%d-%d-%d" % (round_number, queue_id, number), queue_id)
        except TransportError:
            return


async def test_tables_survive_kill_9(session: Session, tmp_path: Path) -> None:
    """Topics and groups count from their answer on; offsets from their next save on, and are never ahead of the queue."""
    async with child(session, tmp_path) as cluster:
        for number in range(20):
            await session.send("orders", b"%d" % number)
        await session.ask(create_topic("by-hand"))
        config = SubscriptionGroupConfig("by-hand", retry_max_times=3)
        await session.ask(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, encode_body(config)))
        await session.commit("orders", 0, 7)
        saved = tmp_path / "config" / "consumerOffset.json"
        await _until(lambda: saved.exists() and b'"orders@readers"' in saved.read_bytes())
        before = await session.topics(), await session.groups()
        await asyncio.to_thread(cluster.kill)
    async with child(session, tmp_path):
        assert (await session.topics(), await session.groups()) == before
        assert await session.committed("orders", 0) == 7
        await session.check_acknowledged("orders")
        await session.send("orders", b"20")
        assert session.acknowledged["orders", 0, 20] == b"20"


@pytest.mark.parametrize("flush", ["async", "sync"])
async def test_kill_9_while_timers_are_delivered_loses_none_and_delivers_none_early(
    session: Session, tmp_path: Path, flush: str
) -> None:
    """What was delivered since the last save comes again: at most once for each kill."""
    sent: set[bytes] = set()
    kills = 2
    for round_number in range(kills):
        async with child(session, tmp_path, "--flush", flush) as cluster:
            for number in range(150):
                body = b"%d-%d" % (round_number, number)
                await session.send("orders", body, TIMER_DELAY_MS=str(1000 + number % 2 * 1000))
                sent.add(body)
            stored = await session.end_of("orders")
            await _until_async(lambda: session.end_of("orders"), stored + 30)
            await asyncio.to_thread(cluster.kill)
    async with child(session, tmp_path):
        await _until_async(lambda: _distinct(session), len(sent))
        messages = await session.read_all("orders")
    assert {message.body for message in messages} == sent
    assert all(message.store_ms >= int(message.properties["TIMER_OUT_MS"]) + 1000 for message in messages)
    assert max(Counter(message.body for message in messages).values()) <= 1 + kills


async def _distinct(session: Session) -> int:
    return len({message.body for message in await session.read_all("orders")})


async def _until_async(value: Callable[[], Awaitable[int]], least: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await value() < least:
            await asyncio.sleep(0.02)


async def test_a_folder_in_use_by_another_process_is_refused_by_name_and_free_after_its_death(
    session: Session, tmp_path: Path
) -> None:
    config = BrokerConfig(port=0, store_root=str(tmp_path))
    async with child(session, tmp_path) as cluster:
        await session.send("orders", b"mine")
        with pytest.raises(StoreInUse, match=f"{tmp_path}.*{cluster.pid}"):
            await Broker(config).start()
        await session.check_acknowledged("orders")
    async with child(session, tmp_path):
        await session.check_acknowledged("orders")
