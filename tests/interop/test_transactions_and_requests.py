"""Transactions and requests with Apache's Java clients and ours on both brokers: who sends, who answers, who asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import pytest
from tests.support.apache import QUICK_START, SERVER_VERSION, ApacheCluster, server_coordinates
from tests.support.java import require_java
from tests.support.java_client import JavaClient, JavaTransactionalProducer, Seen
from tests.support.java_driver import CLIENT_VERSIONS, JavaCallError
from tests.support.patience import PATIENCE_S
from tests.support.reading import eventually, read_topic

from rocketline.client import ConsumeFrom, Producer, PushConsumer, Transaction, TransactionalProducer
from rocketline.errors import NoReply
from rocketline.message import Message, MessageView
from rocketline.testing import LocalCluster

# A first run fetches jars. In one worker, so that one broker of Apache's is started for all tests, and not two.
pytestmark = pytest.mark.interop

# Checks count although nobody is there to be asked. However slow the other client is to start, some are left for it.
OFTEN = {"transactionTimeOut": "1000", "transactionCheckMax": "1000000"}
OURS = {**OFTEN, "transactionCheckInterval": "100", "transactionOpBatchInterval": "50"}
APACHES = {**OFTEN, "transactionCheckInterval": "300", "transactionOpBatchInterval": "100"}
SILENCE_S = 2.0
"""Many rounds of our broker's checks: who is not asked for so long will not be asked again."""
COMMIT, ROLLBACK, UNKNOWN = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"


class Cluster(Protocol):
    @property
    def namesrv(self) -> str: ...


Name = Callable[[str], str]
JavaClients = Callable[[str], JavaClient]


@pytest.fixture(scope="module", params=["rocketline", "apache"])
def quick(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Our broker, then Apache's, both asking about open transactions after a moment."""
    if request.param == "rocketline":
        with LocalCluster(config=OURS) as ours:
            yield ours
        return
    require_java(*server_coordinates(SERVER_VERSION))
    apache = ApacheCluster(tmp_path_factory.mktemp("apache"), jvm_options=QUICK_START, broker_conf=APACHES).start()
    yield apache
    apache.kill()  # a clean stop takes up to half a minute, and nobody looks at this store again


@pytest.fixture
def topic(java: JavaClient, quick: Cluster, name: Name) -> str:
    made = name("tx")
    java.create_topic(quick.namesrv, made)
    return made


class Kept:
    """Java's producers that stay after their tests, to be asked once more if a broker is mistaken: one wait for all."""

    def __init__(self) -> None:
        self._kept: list[tuple[JavaClient, JavaTransactionalProducer, str, list[bytes]]] = []

    def keep(self, java: JavaClient, producer: JavaTransactionalProducer, topic: str, wanted: list[bytes]) -> None:
        """`wanted` is what the topic holds, now and later."""
        self._kept.append((java, producer, topic, wanted))

    def asked_again(self) -> list[Seen]:
        """Questions of many rounds, or more of them: those since this was last called."""
        time.sleep(SILENCE_S)
        return [seen for _, producer, *_ in self._kept for seen in producer.checks(1, timeout_s=0.0)]

    def assert_unchanged(self, cluster: Cluster) -> None:
        for java, _, topic, wanted in self._kept:
            assert bodies(java, cluster, topic, len(wanted)) == wanted

    def stop(self) -> None:
        for _, producer, *_ in self._kept:
            producer.stop()


@pytest.fixture(scope="module")
def kept(quick: Cluster) -> Iterator[Kept]:
    producers = Kept()
    yield producers
    producers.stop()


def asks_once(cluster: Cluster) -> bool:
    """Apache's broker may ask about a transaction that was ended and not noted yet, and then store its message again."""
    return isinstance(cluster, LocalCluster)


def bodies(java: JavaClient, cluster: Cluster, topic: str, count: int) -> list[bytes]:
    """What a topic holds once at least `count` messages are there."""

    def found() -> list[bytes]:
        return sorted(seen.body for seen in read_topic(java, cluster.namesrv, topic))

    eventually(lambda: len(found()) >= count, True)
    return found()


def stored(java: JavaClient, cluster: Cluster, topic: str) -> Seen:
    """The first message of a topic, once it is there."""
    eventually(lambda: bool(read_topic(java, cluster.namesrv, topic)), True)
    return read_topic(java, cluster.namesrv, topic)[0]


def assert_committed(seen: Seen, group: str, unique: str, checks: str | None) -> None:
    """A committed record as both brokers write it."""
    assert seen.sys_flag & 0xC == 0x8
    assert seen.prepared_transaction_offset > 0 or seen.commit_log_offset > 0
    properties = seen.stored_properties
    assert (properties["TRAN_MSG"], properties["PGROUP"], properties["__transactionId__"]) == ("true", group, unique)
    assert properties.get("TRANSACTION_CHECK_TIMES") == checks
    assert not {"REAL_TOPIC", "REAL_QID"} & properties.keys()


def times_asked(properties: Mapping[str, str]) -> int:
    return int(properties["TRANSACTION_CHECK_TIMES"])


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
def test_java_commits_and_rolls_back(
    version: str, java_clients: JavaClients, quick: Cluster, kept: Kept, topic: str, name: Name
) -> None:
    java, group = java_clients(version), name("pg")
    producer = java.transactional_producer(quick.namesrv, group)
    kept.keep(java, producer, topic, [b"committed"])
    sent = producer.send(topic, b"committed", COMMIT, tags="t", keys=["k"])
    producer.send(topic, b"rolled back", ROLLBACK)
    seen = stored(java, quick, topic)
    assert (seen.body, seen.msg_id, seen.tags, seen.keys) == (b"committed", sent.msg_id, "t", "k")
    assert_committed(seen, group, sent.msg_id, None)
    assert bodies(java, quick, topic, 1) == [b"committed"]


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
@pytest.mark.parametrize(("check", "count"), [(COMMIT, 1), (ROLLBACK, 0)])
def test_java_is_asked_and_answers(
    version: str, check: str, count: int, java_clients: JavaClients, quick: Cluster, kept: Kept, topic: str, name: Name
) -> None:
    java, group = java_clients(version), name("pg")
    producer = java.transactional_producer(quick.namesrv, group, check=check)
    kept.keep(java, producer, topic, [b"open"] * count)
    sent = producer.send(topic, b"open", UNKNOWN)
    asked = producer.checks(1)[0]
    assert (asked.topic, asked.body, asked.properties["UNIQ_KEY"]) == (topic, b"open", sent.msg_id)
    times = times_asked(asked.properties)
    assert times > 0, "a busy machine may be asked before it listens, and again before it has answered"
    if count:
        seen = stored(java, quick, topic)
        assert times_asked(seen.stored_properties) >= times
        assert_committed(seen, group, sent.msg_id, seen.stored_properties["TRANSACTION_CHECK_TIMES"])
    assert set(bodies(java, quick, topic, count)) == ({b"open"} if count else set())


def test_java_is_asked_again_when_it_does_not_know(java: JavaClient, quick: Cluster, topic: str, name: Name) -> None:
    with java.transactional_producer(quick.namesrv, name("pg"), check=UNKNOWN) as producer:
        producer.send(topic, b"open", UNKNOWN)
        asked = producer.checks(3)
    first = times_asked(asked[0].properties)
    assert [times_asked(seen.properties) for seen in asked[:3]] == [first, first + 1, first + 2]


class Answers:
    """A check function that keeps what it was asked."""

    def __init__(self, outcome: Transaction) -> None:
        self.asked: list[MessageView] = []
        self._outcome = outcome
        self._grown = asyncio.Condition()

    async def __call__(self, message: MessageView) -> Transaction:
        async with self._grown:
            self.asked.append(message)
            self._grown.notify_all()
        return self._outcome

    async def wait(self, count: int) -> list[MessageView]:
        async with asyncio.timeout(PATIENCE_S), self._grown:
            await self._grown.wait_for(lambda: len(self.asked) >= count)
        return self.asked

    async def silence(self) -> None:
        """Wait until nobody asks any more. A slow machine may rightly be asked again before its answer is there."""
        before = -1
        async with asyncio.timeout(PATIENCE_S):
            while before != len(self.asked):
                before = len(self.asked)
                await asyncio.sleep(SILENCE_S)


async def test_ours_commits_and_rolls_back(java: JavaClient, quick: Cluster, topic: str, name: Name) -> None:
    group, answers = name("pg"), Answers(Transaction.COMMIT)
    async with TransactionalProducer(quick.namesrv, group=group, check=answers) as producer:
        done = await producer.send_in_transaction(
            Message(topic, b"committed", tag="t", keys=["k"]), lambda message: Transaction.COMMIT
        )
        gone = await producer.send_in_transaction(Message(topic, b"rolled back"), lambda message: Transaction.ROLLBACK)
    assert done.is_settled
    assert gone.is_settled
    seen = await asyncio.to_thread(stored, java, quick, topic)
    assert (seen.body, seen.msg_id, seen.tags, seen.keys) == (b"committed", done.receipt.message_id, "t", "k")
    assert_committed(seen, group, done.receipt.message_id, None)


@pytest.mark.parametrize("outcome", [Transaction.COMMIT, Transaction.ROLLBACK])
async def test_ours_is_asked_and_answers(
    outcome: Transaction, java: JavaClient, quick: Cluster, topic: str, name: Name
) -> None:
    group, answers = name("pg"), Answers(outcome)
    async with TransactionalProducer(quick.namesrv, group=group, check=answers) as producer:
        done = await producer.send_in_transaction(Message(topic, b"open"), lambda message: Transaction.UNKNOWN)
        assert (done.outcome, done.is_settled) == (Transaction.UNKNOWN, False)
        asked = (await answers.wait(1))[0]
        assert (asked.topic, asked.body, asked.transaction_id) == (topic, b"open", done.receipt.message_id)
        if outcome is Transaction.COMMIT:
            seen = await asyncio.to_thread(stored, java, quick, topic)
            assert times_asked(seen.stored_properties) > 0
            assert_committed(seen, group, done.receipt.message_id, seen.stored_properties["TRANSACTION_CHECK_TIMES"])
        if asks_once(quick):
            await answers.silence()
    wanted = 1 if outcome is Transaction.COMMIT else 0
    found = await asyncio.to_thread(bodies, java, quick, topic, wanted)
    assert found == [b"open"] * wanted or not asks_once(quick)


async def test_javas_half_message_is_ended_by_our_producer(
    java: JavaClient, quick: Cluster, topic: str, name: Name
) -> None:
    """Java's process is gone; ours, of the same group, is asked."""
    group, answers = name("pg"), Answers(Transaction.COMMIT)

    def send() -> str:
        with java.transactional_producer(quick.namesrv, group, check=UNKNOWN) as producer:
            return producer.send(topic, b"java's", UNKNOWN).msg_id

    unique = await asyncio.to_thread(send)
    async with TransactionalProducer(quick.namesrv, group=group, check=answers) as producer:
        await producer.queues(topic)
        asked = await answers.wait(1)
        assert (asked[0].body, asked[0].transaction_id) == (b"java's", unique)
        seen = await asyncio.to_thread(stored, java, quick, topic)
    assert (seen.body, seen.msg_id) == (b"java's", unique)


async def test_our_half_message_is_ended_by_javas_producer(
    java: JavaClient, quick: Cluster, topic: str, name: Name
) -> None:
    group, answers = name("pg"), Answers(Transaction.UNKNOWN)
    async with TransactionalProducer(quick.namesrv, group=group, check=answers) as producer:
        done = await producer.send_in_transaction(Message(topic, b"ours"), lambda message: Transaction.UNKNOWN)

    def answer() -> Seen:
        with java.transactional_producer(quick.namesrv, group, check=COMMIT, topic=topic) as javas:
            assert javas.checks(1)[0].properties["UNIQ_KEY"] == done.receipt.message_id
            return stored(java, quick, topic)

    seen = await asyncio.to_thread(answer)
    assert (seen.body, seen.msg_id) == (b"ours", done.receipt.message_id)


@asynccontextmanager
async def our_replier(cluster: Cluster, group: str, topic: str) -> AsyncIterator[None]:
    async with PushConsumer(cluster.namesrv, group=group, from_where=ConsumeFrom.FIRST) as consumer:

        async def handle(message: MessageView) -> None:
            await consumer.reply(message, b"re " + message.body, properties={"by": "ours"})

        consumer.subscribe(topic, "*", handle)
        await consumer.start()
        yield


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
async def test_java_asks_and_ours_replies(
    version: str, java_clients: JavaClients, quick: Cluster, topic: str, name: Name
) -> None:
    java = await asyncio.to_thread(java_clients, version)

    def ask() -> None:
        with java.producer(quick.namesrv, name("askers")) as producer:
            for number in range(5):
                body, properties = producer.request(topic, b"%d" % number)
                assert (body, properties["by"], properties["MSG_TYPE"]) == (b"re %d" % number, "ours", "reply")
            body, _ = producer.request(topic, b"long " * 2000)
            assert body == b"re " + b"long " * 2000

    async with our_replier(quick, name("repliers"), topic):
        await asyncio.to_thread(ask)


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
async def test_ours_asks_and_java_replies(
    version: str, java_clients: JavaClients, quick: Cluster, topic: str, name: Name
) -> None:
    java = await asyncio.to_thread(java_clients, version)
    replier = await asyncio.to_thread(java.replier, quick.namesrv, name("repliers"), topic)
    async with Producer(quick.namesrv, group=name("askers")) as producer:
        for number in range(5):
            reply = await producer.request(Message(topic, b"%d" % number), timeout=PATIENCE_S)
            assert reply.body == b"re %d" % number
        reply = await producer.request(Message(topic, b"long " * 2000), timeout=PATIENCE_S)
        assert reply.body == b"re " + b"long " * 2000
        assert producer.late_replies == 0
    await asyncio.to_thread(replier.stop)


async def test_nobody_replies(java: JavaClient, quick: Cluster, topic: str, name: Name) -> None:
    async with Producer(quick.namesrv, group=name("askers")) as producer:
        with pytest.raises(NoReply):
            await producer.request(Message(topic, b"anybody?"), timeout=3.0)

    def ask() -> None:
        with java.producer(quick.namesrv, name("askers")) as javas, pytest.raises(JavaCallError) as failure:
            javas.request(topic, b"anybody?", timeout_s=3.0)
        assert failure.value.class_name == "RequestTimeoutException"

    await asyncio.to_thread(ask)


def test_nobody_was_asked_again_about_what_had_ended(quick: Cluster, kept: Kept) -> None:
    """The last test: by now there were many rounds of checks."""
    if asks_once(quick):
        # A slow JVM may rightly have been asked twice before it answered.
        assert eventually(kept.asked_again, []) == []
        kept.assert_unchanged(quick)
