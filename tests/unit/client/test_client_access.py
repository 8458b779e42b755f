"""Credentials and TLS of every kind of client, and what a refusal reads like."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S
from tests.support.tls import CA_FILE, is_signed_by, server_context, tls_front
from tests.unit.client.fakes import QUICK, FakeCluster, until
from tests.unit.client.test_transactional import ask, commits, question

from rocketline.admin import Admin
from rocketline.client import (
    ClientOptions,
    ConsumeFrom,
    Credentials,
    CredentialsFile,
    PopConsumer,
    Producer,
    PullConsumer,
    PushConsumer,
    Tls,
    TransactionalProducer,
    blocking,
)
from rocketline.client.bulk.channel import BulkChannel
from rocketline.client.bulk.reader import BulkReader
from rocketline.client.bulk.writer import BulkWriter
from rocketline.client.middleware import Proceed
from rocketline.clock import SYSTEM_CLOCK
from rocketline.errors import (
    BrokerError,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    NoPermission,
    RemoteProtocolError,
    RouteNotFound,
    TlsFailed,
)
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.protocol.bodies import BrokerData, ClusterInfo, encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.testing import LocalCluster
from rocketline.transport.access import Access

ACCOUNT = Credentials("shop", "secret-12345678")
TRUSTING = Tls(ca_file=CA_FILE)
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
SEND = RequestCode.SEND_MESSAGE_V2
QUEUE = MessageQueue("T", "broker-a", 0)
OLD_REMARK = "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=shop, org.apache..."


@pytest.fixture
async def secured(cluster: FakeCluster) -> AsyncIterator[str]:
    """The name server of a cluster that takes only TLS."""
    async with tls_front(cluster.namesrv) as name_server, tls_front(cluster.broker.address) as broker:
        cluster.add_topic("T", 1)
        cluster.name_server.routes["T"].broker_datas[0].broker_addrs[0] = broker
        yield name_server


def requests(cluster: FakeCluster) -> list[Command]:
    return cluster.name_server.requests + cluster.broker.requests


async def test_every_request_of_producers_and_consumers_is_signed(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    got = asyncio.Event()

    async def handle(message: MessageView) -> None:
        got.set()

    async def tagged(address: str, request: Command, proceed: Proceed) -> Command | None:
        request.ext = {**(request.ext or {}), "hop": address}
        return await proceed(request)

    options = ClientOptions(timing=QUICK, credentials=ACCOUNT, middleware=tagged)
    async with (
        Producer(cluster.namesrv, group="p", options=options) as producer,
        PushConsumer(cluster.namesrv, group="c", from_where=ConsumeFrom.FIRST, options=options) as consumer,
    ):
        await producer.send(Message("T", b"x"))
        await producer.send_oneway(Message("T", b"y"))
        consumer.subscribe("T", "*", handle)
        await consumer.start()
        await got.wait()
        await cluster.broker.request(SEND, 2)
    seen = {request.code for request in requests(cluster)}
    assert {ROUTE, SEND, RequestCode.HEART_BEAT, RequestCode.PULL_MESSAGE, RequestCode.UPDATE_CONSUMER_OFFSET,
            RequestCode.UNREGISTER_CLIENT} <= seen  # fmt: skip
    unsigned = [request for request in requests(cluster) if not is_signed_by(request, "shop", "secret-12345678")]
    assert not unsigned
    assert all("hop" in (request.ext or {}) for request in requests(cluster))


async def test_the_answer_about_a_transaction_is_a_request_and_signed(cluster: FakeCluster) -> None:
    cluster.add_topic("T")
    options = ClientOptions(timing=QUICK, credentials=ACCOUNT)
    async with TransactionalProducer(cluster.namesrv, group="payers", check=commits, options=options) as producer:
        await producer.send(Message("T", b"x"))
        await ask(cluster.broker, question())
        answer = await cluster.broker.request(RequestCode.END_TRANSACTION)
    assert answer.is_oneway
    assert is_signed_by(answer, "shop", "secret-12345678")


async def test_clients_with_other_credentials_or_tls_never_share_a_session(cluster: FakeCluster) -> None:
    plain = ClientOptions(instance_name="shared", timing=QUICK)
    signed = replace(plain, credentials=ACCOUNT)
    other_secret = replace(plain, credentials=Credentials("shop", "other-secret"))
    async with Producer(cluster.namesrv, group="p", options=signed):
        for other in (
            PullConsumer(cluster.namesrv, group="c", options=plain),
            Producer(cluster.namesrv, group="q", options=other_secret),
            PopConsumer(cluster.namesrv, group="d", options=replace(signed, tls=Tls(verify=False))),
        ):
            if isinstance(other, PullConsumer):
                other.client_id = other.client_id.removesuffix("@STREAM")
            with pytest.raises(ConfigError, match="in use with other credentials or another TLS") as caught:
                await other.__aenter__()
            assert "secret" not in str(caught.value)
        equal = replace(plain, credentials=Credentials("shop", "secret-12345678"))
        async with Producer(cluster.namesrv, group="r", options=equal):
            pass


async def test_a_file_that_is_not_there_is_told_when_the_client_is_opened(cluster: FakeCluster) -> None:
    with pytest.raises(ConfigError, match=r"/nowhere/ca\.pem cannot be used"):
        await Producer(
            cluster.namesrv, group="p", options=ClientOptions(tls=Tls(ca_file="/nowhere/ca.pem"))
        ).__aenter__()


def test_our_own_servers_take_signed_requests_of_all_clients() -> None:
    account = Credentials("shop", "secret-12345678", "token")
    options = ClientOptions(credentials=account)
    with LocalCluster() as real:
        with blocking.Producer(real.namesrv, group="p", options=options) as producer:
            producer.send(Message("T", b"0"))
        with BulkWriter(real.namesrv, group="w", credentials=account) as writer:
            writer.send(Message("T", b"1"))
            writer.flush()
        with BulkReader(real.namesrv, group="r", credentials=account) as reader:
            queues = reader.queues("T")
            found = [reply for queue in queues for reply in reader.read(queue, *reader.bounds(queue))]
        with blocking.PopConsumer(real.namesrv, group="c", from_where=ConsumeFrom.FIRST, options=options) as consumer:
            consumer.subscribe("T")
            popped: list[bytes] = []
            while len(popped) < 2:
                for message in consumer.receive(2, wait=1.0):
                    consumer.ack(message)
                    popped.append(message.body)

        async def look() -> list[str]:
            async with Admin(real.namesrv, credentials=account) as admin:
                return list((await admin.cluster_info()).broker_addr_table)

        brokers = asyncio.run(look())
    assert sorted(message.body for reply in found for message in reply.messages()) == [b"0", b"1"]
    assert sorted(popped) == [b"0", b"1"]
    assert len(brokers) == 1


async def test_all_clients_work_through_tls(cluster: FakeCluster, secured: str) -> None:
    async with Producer(
        secured, group="p", options=ClientOptions(timing=QUICK, tls=TRUSTING, credentials=ACCOUNT)
    ) as producer:
        await producer.send(Message("T", b"0"))
    async with PullConsumer(secured, group="c", options=ClientOptions(timing=QUICK, tls=TRUSTING)) as consumer:
        consumer.assign([QUEUE])
        await consumer.seek(QUEUE, 0)
        assert [message.body for message in await consumer.poll(1, PATIENCE_S)] == [b"0"]

    def in_a_thread() -> list[bytes]:
        with BulkWriter(secured, group="w", tls=TRUSTING, credentials=ACCOUNT, timeout=PATIENCE_S) as writer:
            writer.send(Message("T", b"1"))
            writer.send(Message("T", bytes(100_000)))
            writer.flush()
        with BulkReader(secured, group="r", tls=TRUSTING, credentials=ACCOUNT, timeout=PATIENCE_S) as reader:
            return [message.body for reply in reader.read(QUEUE, 0, 3) for message in reply.messages()]

    assert await asyncio.to_thread(in_a_thread) == [b"0", b"1", bytes(100_000)]
    sent = cluster.broker.requests_of(SEND, RequestCode.SEND_BATCH_MESSAGE)
    assert all(is_signed_by(request, "shop", "secret-12345678") for request in sent)


async def test_untrusted_servers_are_not_tried_again_and_do_not_read_as_a_missing_topic(
    cluster: FakeCluster, secured: str
) -> None:
    async with Producer(secured, group="p", options=ClientOptions(timing=QUICK, tls=True)) as producer:
        with pytest.raises(RouteNotFound, match=r"certificate is not trusted.*ca_file.*before TLS works"):
            await producer.send(Message("T", b"x"))
    broker = cluster.name_server.routes["T"].broker_datas[0].broker_addrs[0]

    def in_a_thread() -> None:
        with BulkWriter(cluster.namesrv, group="w", tls=TRUSTING, timeout=PATIENCE_S) as writer:
            writer.queues("T")

    with pytest.raises(RouteNotFound, match=f"{cluster.namesrv} said: .*does not take TLS"):
        await asyncio.to_thread(in_a_thread)
    assert broker != cluster.broker.address


async def blocking_call(address: str, tls: Tls | None) -> None:
    channel = BulkChannel(address, contexts=Access(tls=tls).contexts())
    try:
        await asyncio.to_thread(channel.call, Command(ROUTE, {"topic": "T"}), SYSTEM_CLOCK.monotonic() + PATIENCE_S)
    finally:
        channel.close()


@asynccontextmanager
async def closing_at_once() -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def test_what_fails_on_a_blocking_connection_names_address_and_fix(cluster: FakeCluster, secured: str) -> None:
    await blocking_call(secured, TRUSTING)
    with pytest.raises(TlsFailed, match=f"{secured}: its certificate is not trusted: .*ca_file"):
        await blocking_call(secured, Tls())
    async with tls_front(cluster.namesrv, server_context("elsewhere")) as elsewhere:
        with pytest.raises(TlsFailed, match=f"{elsewhere}: its certificate is for another host: .*check_host=False"):
            await blocking_call(elsewhere, TRUSTING)
    with pytest.raises(ConnectFailed, match=f"{cluster.namesrv}: it closed the connection during the TLS handshake"):
        await blocking_call(cluster.namesrv, TRUSTING)
    with pytest.raises((RemoteProtocolError, ConnectionLost), match=rf"{secured}.*connect with tls=True"):
        await blocking_call(secured, None)
    async with closing_at_once() as address:
        with pytest.raises(ConnectionLost, match=rf"{address} failed: .*if it takes only TLS"):
            await blocking_call(address, None)
    async with tls_front(cluster.namesrv, server_context(asks_clients=True)) as asking:
        with pytest.raises(ConnectionLost, match=rf"{asking} failed: .*does it want a certificate"):
            await blocking_call(asking, TRUSTING)


async def test_a_blocking_connection_does_not_wait_for_ever_for_a_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        channel = BulkChannel(address, contexts=TRUSTING.context)
        with pytest.raises(ConnectFailed, match=f"{address}: no TLS connection in time"):
            await asyncio.to_thread(channel.call, Command(ROUTE), SYSTEM_CLOCK.monotonic() + 0.05)


Reply = Callable[[Command], Command]


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.SYSTEM_ERROR, OLD_REMARK),
        (ResponseCode.NO_PERMISSION, "User:shop is not found."),
        (ResponseCode.NO_PERMISSION, "check signature failed."),
        (ResponseCode.NO_PERMISSION, "shop has no permission to access Topic:T from 127.0.0.1, no matched policies."),
    ],
)
async def test_a_refused_account_reads_as_what_it_is(cluster: FakeCluster, code: int, remark: str) -> None:
    cluster.add_topic("T", 1)
    refuse: Reply = lambda request: request.reply(code, remark=remark)  # noqa: E731
    said = rf"answer {int(code)} from {cluster.broker.address}: {remark[:20]}.*check the credentials of this client"
    cluster.broker.on |= dict.fromkeys((SEND, RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET), refuse)
    async with Producer(
        cluster.namesrv, group="p", options=ClientOptions(timing=QUICK, credentials=ACCOUNT)
    ) as producer:
        with pytest.raises(NoPermission, match=said) as caught:
            await producer.send(Message("T", b"x"))
    assert str(caught.value).count("check the credentials of this client") == 1
    assert "no route" not in str(caught.value) and "secret-12345678" not in str(caught.value)

    def write() -> None:
        with BulkWriter(cluster.namesrv, group="w", credentials=ACCOUNT, timeout=PATIENCE_S) as writer:
            writer.send(Message("T", b"x"))
            writer.flush()

    def read() -> None:
        with BulkReader(cluster.namesrv, group="r", credentials=ACCOUNT, timeout=PATIENCE_S) as reader:
            reader.bounds(QUEUE)

    for work in (write, read):
        with pytest.raises(NoPermission, match=said):
            await asyncio.to_thread(work)
    cluster.name_server.on[ROUTE] = refuse
    async with Producer(
        cluster.namesrv, group="q", options=ClientOptions(timing=QUICK, credentials=ACCOUNT)
    ) as producer:
        with pytest.raises(NoPermission, match=rf"where topic 'U' is: answer {int(code)} .*check the credentials"):
            await producer.send(Message("U", b"x"))
    with pytest.raises(NoPermission, match=f"answer {int(code)} from {cluster.namesrv}"):
        await asyncio.to_thread(write)


def test_a_topic_that_may_not_be_written_is_not_blamed_on_the_account() -> None:
    error = BrokerError.of(16, "the topic[T] sending message is forbidden", "a:1")
    assert isinstance(error, NoPermission) and not error.concerns_account
    assert str(error) == "answer 16 from a:1: the topic[T] sending message is forbidden"
    assert not isinstance(BrokerError.of(1, "service not available now"), NoPermission)


def refuse_heartbeats(cluster: FakeCluster) -> None:
    cluster.broker.on[RequestCode.HEART_BEAT] = lambda request: request.reply(16, remark="check signature failed.")


async def test_a_producer_whose_account_is_refused_does_not_start(cluster: FakeCluster) -> None:
    """Name servers of Apache take everybody, so a broker is asked too."""
    info = ClusterInfo({"broker-a": BrokerData("c", "broker-a", {0: cluster.broker.address})}, {"c": ["broker-a"]})
    cluster.name_server.on[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda request: request.reply(
        0, body=encode_body(info)
    )
    options = ClientOptions(timing=QUICK, credentials=ACCOUNT)
    async with Producer(cluster.namesrv, group="p", options=options):
        pass
    refuse_heartbeats(cluster)
    with pytest.raises(NoPermission, match=f"answer 16 from {cluster.broker.address}: check signature failed"):
        await Producer(cluster.namesrv, group="p", options=options).__aenter__()
    cluster.name_server.on[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda request: request.reply(16, remark="no.")
    with pytest.raises(NoPermission, match=f"answer 16 from {cluster.namesrv}: no"):
        await Producer(cluster.namesrv, group="p", options=options).__aenter__()
    assert not cluster.broker.requests_of(SEND)


async def test_a_consumer_whose_heartbeat_is_refused_does_not_wait_in_silence(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    options = ClientOptions(timing=replace(QUICK, heartbeat_s=0.02), credentials=ACCOUNT)
    told = f"answer 16 from {cluster.broker.address}: check signature failed"

    async def handle(message: MessageView) -> None:
        pass

    async with PushConsumer(cluster.namesrv, group="running", options=options) as running:
        running.subscribe("T", handle)
        await running.start()
        assert not running.problems
        refuse_heartbeats(cluster)
        await until(lambda: any(told in problem for problem in running.problems), "the refusal among the problems")
    async with (
        PushConsumer(cluster.namesrv, group="push", options=options) as push,
        PullConsumer(cluster.namesrv, group="pull", options=options) as pull,
        PopConsumer(cluster.namesrv, group="pop", options=options) as pop,
    ):
        push.subscribe("T", handle)
        for begin in (push.start, lambda: pull.subscribe("T"), lambda: pop.subscribe("T")):
            with pytest.raises(NoPermission, match=told):
                await begin()


async def test_an_account_in_a_file_may_change_while_a_client_runs(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketline.transport.credentials.LOOK_EVERY_S", 0.0)
    cluster.add_topic("T", 1)
    path = tmp_path / "account"
    path.write_text('{"accessKey": "shop", "secretKey": "first"}')
    options = ClientOptions(timing=QUICK, credentials=CredentialsFile(path))
    async with Producer(cluster.namesrv, group="p", options=options) as producer:
        for secret, text in [
            ("first", None), ("second", "accessKey: shop\nsecretKey: second\n"), ("second", "cut o"),
        ]:  # fmt: skip
            if text is not None:
                path.write_text(text)
            await producer.send(Message("T", b"x"))
            assert is_signed_by(cluster.broker.requests_of(SEND)[-1], "shop", secret)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "No such file"),
        ("hidden-secret", "line 1 is not like"),
        ("accessKey: shop", "accessKey and secretKey are needed"),
        ('{"accessKey": "shop", "secretKey": "hidden-secret"', "is not JSON"),
        ('{"accessKey": "shop", "secretKey": 7}', "secret_key must be a string"),
        ("hidden: secret", "only accessKey, secretKey"),
        ("accessKey: shop\nsecretKey: x\nreplayProtection: maybe", "replayProtection is neither true nor false"),
    ],
)
def test_a_file_without_an_account_is_told_when_a_client_is_opened(
    tmp_path: Path, text: str | None, problem: str
) -> None:
    path = tmp_path / "account"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=problem) as caught:
        Admin("127.0.0.1:9876", credentials=CredentialsFile(path))
    assert str(path) in str(caught.value) and "hidden" not in str(caught.value)


async def test_a_function_gives_the_account_of_every_request(cluster: FakeCluster) -> None:
    cluster.add_topic("T", 1)
    accounts = [Credentials("shop", "one"), Credentials("shop", "two", replay_protection=True)]
    options = ClientOptions(timing=QUICK, credentials=lambda: accounts[0])
    async with Producer(cluster.namesrv, group="p", options=options) as producer:
        await producer.send(Message("T", b"x"))
        accounts.reverse()
        await producer.send(Message("T", b"x"))
    first, second = cluster.broker.requests_of(SEND)
    assert is_signed_by(first, "shop", "one") and is_signed_by(second, "shop", "two")
    assert first.ext is not None and second.ext is not None
    assert "_rl_code" not in first.ext and second.ext["_rl_code"] == str(int(SEND))
    assert "_rl_code:3,_rl_time:13," in second.ext["_rl_fields"]
    assert abs(int(second.ext["_rl_time"]) - SYSTEM_CLOCK.now_ms()) < PATIENCE_S * 1000
    with pytest.raises(ConfigError, match="must return Credentials, not str"):
        Admin("127.0.0.1:9876", credentials=lambda: "shop")  # type: ignore[arg-type, return-value]


async def test_credentials_are_in_no_log(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    cluster.add_topic("T", 1)
    refuse_heartbeats(cluster)
    async with Producer(
        cluster.namesrv, group="p", options=ClientOptions(timing=QUICK, credentials=ACCOUNT)
    ) as producer:
        await producer.send(Message("T", b"x"))
        await until(lambda: "check signature failed" in caplog.text, "the refused heartbeat")
    assert "check the credentials" in caplog.text
    assert "secret-12345678" not in caplog.text
