"""The transactional producer against a scripted broker: what it sends, and what it makes of the user's functions."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.unit.client.fakes import QUICK, QUICK_OPTIONS, SILENCE, FakeBroker, FakeCluster, own_tasks, until

from rocketline.client import ClientOptions, SendStatus, Transaction, TransactionalProducer
from rocketline.client.producer import transactional
from rocketline.errors import ConfigError, InvalidMessage, ProducerClosed
from rocketline.message import Message, MessageView
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import ONEWAY, Command
from rocketline.protocol.headers import CheckTransactionStateHeader, EndTransactionHeader, SendMessageHeader
from rocketline.protocol.message_ids import encode_host, parse_offset_id
from rocketline.protocol.properties import decode_properties, encode_properties
from rocketline.protocol.records import RecordHead, encode_record, topic_part

SEND, END = RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"

MakeProducer = Callable[..., TransactionalProducer]


def commits(message: Any, *args: Any) -> Transaction:
    return Transaction.COMMIT


@pytest.fixture
async def broker(cluster: FakeCluster) -> FakeBroker:
    cluster.add_topic("T")
    cluster.broker.on[END] = lambda request: request.reply(ResponseCode.SUCCESS)
    return cluster.broker


@pytest.fixture
async def producer(cluster: FakeCluster, broker: FakeBroker) -> AsyncIterator[TransactionalProducer]:
    async with TransactionalProducer(cluster.namesrv, group="payers", check=commits, options=QUICK_OPTIONS) as made:
        yield made


def ends(broker: FakeBroker) -> list[EndTransactionHeader]:
    return [EndTransactionHeader.decode(request) for request in broker.requests_of(END)]


def question(unique: str = "U1", group: str = "payers", topic: str = "T") -> Command:
    """What a broker asks."""
    magic, topic_bytes = topic_part(topic)
    host = encode_host("127.0.0.1", 10911)
    properties = {"UNIQ_KEY": unique, "PGROUP": group, "__transactionId__": unique, "REAL_TOPIC": topic}
    record = encode_record(
        RecordHead(magic, topic_bytes, 2, 57, 9000, 0, 0, 1000, host, 2000, host, 0, 0),
        b"body",
        encode_properties(properties).encode(),
    )
    header = CheckTransactionStateHeader(57, 9000, HALF_TOPIC, unique, unique, "0" * 32, "broker-a")  # type: ignore[arg-type]
    return Command(RequestCode.CHECK_TRANSACTION_STATE, header.encode(), record)


async def ask(broker: FakeBroker, command: Command) -> None:
    """A question comes over the connection of the only client, which has greeted."""
    await until(lambda: bool(broker.heartbeats), "the heartbeat")
    (channel,) = broker.channels
    channel.send_oneway(command)


async def test_what_goes_over_the_wire(producer: TransactionalProducer, broker: FakeBroker) -> None:
    seen: list[tuple[Message, tuple[Any, ...]]] = []

    async def execute(message: Message, *args: Any) -> Transaction:
        seen.append((message, args))
        return Transaction.COMMIT

    done = await producer.send_in_transaction(Message("T", b"pay", tag="a", keys=["k"]), execute, 1, "two")
    (send,) = broker.requests_of(SEND)
    header = SendMessageHeader.decode(send)
    properties = decode_properties(header.properties)
    assert header.sys_flag == 0x4
    assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "payers")
    (end,) = ends(broker)
    assert end == EndTransactionHeader(
        "payers",
        done.receipt.queue_offset,
        parse_offset_id(done.receipt.offset_id)[1],
        8,
        properties["UNIQ_KEY"],
        topic="T",
        transaction_id=done.receipt.transaction_id,
        broker_name="broker-a",
    )
    assert not broker.requests_of(END)[0].flag & ONEWAY
    ((message, args),) = seen
    assert args == (1, "two")
    assert message.transaction_id == properties["UNIQ_KEY"] == done.receipt.message_id
    assert (message.body, message.tag) == (b"pay", "a")
    assert (done.outcome, done.is_settled) == (Transaction.COMMIT, True)


@pytest.mark.parametrize(("outcome", "settled", "oneway"), [("ROLLBACK", True, 0), ("UNKNOWN", False, ONEWAY)])
async def test_other_outcomes(
    producer: TransactionalProducer, broker: FakeBroker, outcome: str, settled: bool, oneway: int
) -> None:
    done = await producer.send_in_transaction(Message("T", b"pay"), lambda message: Transaction[outcome])
    request = await broker.request(END)
    assert EndTransactionHeader.decode(request).commit_or_rollback == Transaction[outcome]
    assert request.flag & ONEWAY == oneway
    assert (done.outcome, done.is_settled) == (Transaction[outcome], settled)


async def test_a_plain_function_runs_in_a_thread(producer: TransactionalProducer) -> None:
    threads: list[threading.Thread] = []

    def execute(message: Message) -> Transaction:
        threads.append(threading.current_thread())
        return Transaction.COMMIT

    await producer.send_in_transaction(Message("T", b"pay"), execute)
    assert threads[0] is not threading.current_thread()


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("error", [RuntimeError("no money"), StopIteration("odd")])
async def test_an_exception_is_unknown_and_logged(
    producer: TransactionalProducer,
    broker: FakeBroker,
    caplog: pytest.LogCaptureFixture,
    is_async: bool,
    error: Exception,
) -> None:
    def fails(message: Message) -> Transaction:
        raise error

    async def fails_too(message: Message) -> Transaction:
        raise error

    done = await producer.send_in_transaction(Message("T", b"pay"), fails_too if is_async else fails)
    assert done.outcome is Transaction.UNKNOWN
    assert any(record.exc_info and "unknown" in record.getMessage() for record in caplog.records)
    request = await broker.request(END)
    assert EndTransactionHeader.decode(request).commit_or_rollback == 0


@pytest.mark.parametrize("result", [None, True, 8, "COMMIT"])
async def test_what_is_no_outcome_is_unknown(
    producer: TransactionalProducer, caplog: pytest.LogCaptureFixture, result: object
) -> None:
    done = await producer.send_in_transaction(Message("T", b"pay"), lambda message: result)  # type: ignore[arg-type, return-value]
    assert done.outcome is Transaction.UNKNOWN
    assert "not a Transaction" in caplog.text


async def test_a_message_that_is_not_safe_is_rolled_back_without_a_transaction(
    producer: TransactionalProducer, broker: FakeBroker
) -> None:
    ran: list[Message] = []

    def execute(message: Message) -> Transaction:
        ran.append(message)
        return Transaction.COMMIT

    def not_flushed(request: Command) -> Command:
        return broker.stored(request, SendMessageHeader.decode(request), [0], 0, code=ResponseCode.FLUSH_DISK_TIMEOUT)

    broker.on[SEND] = not_flushed
    done = await producer.send_in_transaction(Message("T", b"pay"), execute)
    assert (done.receipt.status, done.outcome, ran) == (SendStatus.FLUSH_DISK_TIMEOUT, Transaction.ROLLBACK, [])
    assert [end.commit_or_rollback for end in ends(broker)] == [12]


@pytest.mark.parametrize("reply", [ResponseCode.SYSTEM_ERROR, ResponseCode.ILLEGAL_OPERATION, SILENCE])
async def test_a_word_that_gets_lost_is_left_to_the_brokers_question(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture, reply: Any
) -> None:
    broker.script(END, reply)
    async with TransactionalProducer(
        cluster.namesrv, group="payers", check=commits, timeout=2.0, options=QUICK_OPTIONS
    ) as producer:
        done = await producer.send_in_transaction(Message("T", b"pay"), commits)
    assert (done.outcome, done.is_settled) == (Transaction.COMMIT, False)
    assert "the broker will ask" in caplog.text


async def test_an_offset_id_that_is_nonsense_is_left_to_it_too(
    producer: TransactionalProducer, broker: FakeBroker
) -> None:
    def nonsense(request: Command) -> Command:
        return request.reply(0, {"msgId": "nonsense", "queueId": "0", "queueOffset": "0"})

    broker.on[SEND] = nonsense
    done = await producer.send_in_transaction(Message("T", b"pay"), commits)
    assert not done.is_settled


async def test_own_time_before_questions(producer: TransactionalProducer, broker: FakeBroker) -> None:
    await producer.send_in_transaction(Message("T", b"pay"), commits, check_after=90.5)
    header = SendMessageHeader.decode(broker.requests_of(SEND)[0])
    assert decode_properties(header.properties)["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "91"


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), 1e20])
async def test_own_time_must_be_a_time(producer: TransactionalProducer, broker: FakeBroker, seconds: float) -> None:
    with pytest.raises(InvalidMessage, match="check_after"):
        await producer.send_in_transaction(Message("T", b"pay"), commits, check_after=seconds)
    assert broker.requests_of(SEND) == []


async def test_bad_input_is_refused_before_anything_is_sent(
    producer: TransactionalProducer, broker: FakeBroker
) -> None:
    with pytest.raises(InvalidMessage, match="delay"):
        await producer.send_in_transaction(Message("T", b"pay", delay_level=3), commits)
    with pytest.raises(InvalidMessage, match="function"):
        await producer.send_in_transaction(Message("T", b"pay"), "commit")  # type: ignore[arg-type]
    assert broker.requests_of(SEND) == []


@pytest.mark.parametrize("check", [None, "commit"])
async def test_without_a_check_function_there_is_no_transactional_producer(check: Any) -> None:
    with pytest.raises(ConfigError, match="check="):
        TransactionalProducer("127.0.0.1:9876", group="payers", check=check)


async def test_a_closed_producer_says_so(cluster: FakeCluster, broker: FakeBroker) -> None:
    producer = TransactionalProducer(cluster.namesrv, group="payers", check=commits, options=QUICK_OPTIONS)
    with pytest.raises(ProducerClosed):
        await producer.send_in_transaction(Message("T", b"pay"), commits)
    async with producer:
        pass
    with pytest.raises(ProducerClosed):
        await producer.send_in_transaction(Message("T", b"pay"), commits)


async def test_ordinary_messages_go_as_ever(producer: TransactionalProducer, broker: FakeBroker) -> None:
    await producer.send(Message("T", b"plain"))
    header = SendMessageHeader.decode(broker.requests_of(SEND)[0])
    assert (header.sys_flag, "TRAN_MSG" in header.properties) == (0, False)


async def test_a_question_is_answered_over_its_connection(cluster: FakeCluster, broker: FakeBroker) -> None:
    asked: list[MessageView] = []

    async def check(message: MessageView) -> Transaction:
        asked.append(message)
        return Transaction.COMMIT

    async with TransactionalProducer(cluster.namesrv, group="payers", check=check, options=QUICK_OPTIONS) as producer:
        await producer.queues("T")
        await ask(broker, question())
        request = await broker.request(END)
    assert EndTransactionHeader.decode(request) == EndTransactionHeader(
        "payers", 57, 9000, 8, "U1", from_transaction_check=True, topic=HALF_TOPIC, transaction_id="U1",
        broker_name="broker-a",
    )  # fmt: skip
    assert request.flag & ONEWAY
    (message,) = asked
    assert (message.topic, message.body, message.transaction_id, message.broker_name) == (
        "T",
        b"body",
        "U1",
        "broker-a",
    )


async def test_a_check_that_fails_is_unknown(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    def check(message: MessageView) -> Transaction:
        raise RuntimeError("the database is away")

    async with TransactionalProducer(cluster.namesrv, group="payers", check=check, options=QUICK_OPTIONS) as producer:
        await producer.queues("T")
        await ask(broker, question())
        request = await broker.request(END)
    assert EndTransactionHeader.decode(request).commit_or_rollback == 0
    assert "the database is away" in caplog.text


async def test_questions_about_other_groups_and_nonsense_are_logged_and_nothing_else(
    producer: TransactionalProducer, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await producer.queues("T")
    await ask(broker, question(group="strangers"))
    broken = question()
    broken.body = b"\0" * 200
    await ask(broker, broken)
    await ask(broker, question("U2"))
    request = await broker.request(END)
    assert EndTransactionHeader.decode(request).msg_id == "U2"
    assert "'strangers'" in caplog.text
    assert "cannot be read" in caplog.text


async def test_topics_of_a_namespace_are_seen_without_it(cluster: FakeCluster, broker: FakeBroker) -> None:
    cluster.add_topic("NS%T")
    asked: list[str] = []

    def check(message: MessageView) -> Transaction:
        asked.append(message.topic)
        return Transaction.COMMIT

    async with TransactionalProducer(
        cluster.namesrv, group="payers", check=check, options=ClientOptions(timing=QUICK, namespace="NS")
    ) as producer:
        await producer.send_in_transaction(Message("T", b"pay"), commits)
        header = SendMessageHeader.decode(broker.requests_of(SEND)[0])
        assert decode_properties(header.properties)["PGROUP"] == "NS%payers"
        assert (ends(broker)[0].producer_group, ends(broker)[0].topic) == ("NS%payers", "NS%T")
        await ask(broker, question(group="NS%payers", topic="NS%T"))
        await broker.request(END, 2)
    assert asked == ["T"]


async def test_waiting_questions_are_bounded(
    cluster: FakeCluster, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transactional, "MAX_CHECKS", 3)
    go = asyncio.Event()

    async def check(message: MessageView) -> Transaction:
        await go.wait()
        return Transaction.COMMIT

    caplog.set_level(logging.WARNING)
    async with TransactionalProducer(cluster.namesrv, group="payers", check=check, options=QUICK_OPTIONS) as producer:
        await producer.queues("T")
        for number in range(5):
            await ask(broker, question(f"U{number}"))
        await until(lambda: caplog.text.count("left to a later one") == 2, "two warnings")
        go.set()
        await broker.request(END, 3)
    assert len(ends(broker)) == 3


async def test_closing_ends_running_checks(cluster: FakeCluster, broker: FakeBroker) -> None:
    entered = asyncio.Event()

    async def check(message: MessageView) -> Transaction:
        entered.set()
        await asyncio.Event().wait()
        return Transaction.COMMIT

    async with TransactionalProducer(cluster.namesrv, group="payers", check=check, options=QUICK_OPTIONS) as producer:
        await producer.queues("T")
        await ask(broker, question())
        await entered.wait()
    assert not [task for task in own_tasks() if "check of transaction" in task.get_name()]
    assert ends(broker) == []
