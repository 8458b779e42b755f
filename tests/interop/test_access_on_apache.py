"""Our clients on an Apache broker that lets only accounts in, in plain and through TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.account_verbs import Verbs, try_all
from tests.support.apache import QUICK_START, SERVER_VERSION, ApacheCluster, server_coordinates
from tests.support.java import require_java
from tests.support.patience import PATIENCE_S
from tests.support.tls import CA_FILE, TLS_DATA

from rocketline.admin import Admin
from rocketline.admin.accounts import one_entry
from rocketline.admin.messages import FOREVER_MS
from rocketline.admin.proof import prove_account
from rocketline.client import (
    ClientOptions,
    ConsumeFrom,
    Credentials,
    PopConsumer,
    Producer,
    PushConsumer,
    Tls,
    blocking,
)
from rocketline.client.bulk.reader import BulkReader
from rocketline.client.bulk.writer import BulkWriter
from rocketline.errors import NoPermission, RouteNotFound
from rocketline.message import Message, MessageView
from rocketline.protocol.bodies import UserInfo
from rocketline.spark.live.options import LiveOptions

KEY, SECRET = "rocketline", "12345678"
ACCOUNT = Credentials(KEY, SECRET)
PROVIDERS = "org.apache.rocketmq.auth.authentication.provider"
AUTHORIZATION = "org.apache.rocketmq.auth.authorization.provider"

CONNECTIONS = {
    "plain": {},
    "TLS": {"tls": Tls(ca_file=CA_FILE)},
    "TLS, trusting anybody": {"tls": Tls(verify=False)},
}
REFUSED = {
    "wrong secret": (Credentials(KEY, "87654321"), "check signature failed"),
    "unknown account": (Credentials("nobody", SECRET), "User:nobody is not found"),
    "no account": (None, "username cannot be null"),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    require_java(*server_coordinates(SERVER_VERSION))
    cluster = ApacheCluster(
        tmp_path_factory.mktemp("guarded"),
        broker_conf={
            "authenticationEnabled": "true",
            "authenticationProvider": f"{PROVIDERS}.DefaultAuthenticationProvider",
            "authenticationMetadataProvider": f"{PROVIDERS}.LocalAuthenticationMetadataProvider",
            "initAuthenticationUser": f'{{"username":"{KEY}","password":"{SECRET}"}}',
            "authorizationEnabled": "true",
            "authorizationProvider": f"{AUTHORIZATION}.DefaultAuthorizationProvider",
            "authorizationMetadataProvider": f"{AUTHORIZATION}.LocalAuthorizationMetadataProvider",
        },
        jvm_options=(
            *QUICK_START,
            "-Dtls.test.mode.enable=false",
            f"-Dtls.server.certPath={TLS_DATA / 'server.pem'}",
            f"-Dtls.server.keyPath={TLS_DATA / 'server.key'}",
        ),
        account=(KEY, SECRET),
    ).start()
    yield cluster
    cluster.kill()


@pytest.fixture(scope="module")
def stored(guarded: ApacheCluster) -> str:
    """A topic with a message in it."""
    with blocking.Producer(guarded.namesrv, group="first", options=ClientOptions(credentials=ACCOUNT)) as producer:
        producer.send(Message("Guarded", b"stored"))
    return "Guarded"


async def test_a_login_proves_an_account(guarded: ApacheCluster) -> None:
    """As the console asks: a name that is a word of refusals is no account, and one without rights is known."""
    async with Admin(guarded.namesrv, credentials=ACCOUNT) as root:
        for broker in await root.brokers():
            await broker.accounts.create_user(UserInfo(username="plain", password=SECRET))
    async with Admin(guarded.namesrv) as admin:
        first = await prove_account(admin, KEY, SECRET)
        assert (first.is_known, first.is_super, first.open_at) == (True, True, "")
        plain = await prove_account(admin, "plain", SECRET)
        assert (plain.is_known, plain.is_super) == (True, False)
        for name in ("permission", "plain", "x has no permission to access "):
            assert not (await prove_account(admin, name, "wrongsecret")).is_known


@pytest.mark.parametrize("connection", CONNECTIONS)
async def test_the_right_account_produces_and_consumes(
    guarded: ApacheCluster, name: Callable[[str], str], connection: str
) -> None:
    options = ClientOptions(credentials=ACCOUNT, **CONNECTIONS[connection])
    topic, got = name("topic"), asyncio.Queue[bytes]()

    async def handle(message: MessageView) -> None:
        got.put_nowait(message.body)

    async with Producer(guarded.namesrv, group=name("producers"), timeout=PATIENCE_S, options=options) as producer:
        sent = await producer.send(Message(topic, b"sent"))
        await producer.send_batch([Message(topic, b"together 1"), Message(topic, "zusammen 2 ü".encode())])
        await producer.send_oneway(Message(topic, b"one way"))
        group = name("consumers")
        async with PushConsumer(
            guarded.namesrv, group=group, from_where=ConsumeFrom.FIRST, options=options
        ) as consumer:
            consumer.subscribe(topic, "*", handle)
            await consumer.start()
            async with asyncio.timeout(PATIENCE_S):
                received = {await got.get() for _ in range(4)}
        async with Admin(guarded.namesrv, credentials=ACCOUNT, **CONNECTIONS[connection]) as admin:
            table = (await admin.cluster_info()).broker_addr_table
            (broker,) = await admin.brokers()
            async with asyncio.timeout(PATIENCE_S):
                while not (found := await broker.find(topic, sent.message_id, 32, 0, FOREVER_MS, unique=True)):
                    await asyncio.sleep(0.05)  # until it is in the index
    assert received == {b"sent", b"together 1", "zusammen 2 ü".encode(), b"one way"}
    assert [message.body for message in found] == [b"sent"]
    assert table["broker-a"].broker_addrs == {0: guarded.broker}


async def test_the_right_account_pops(guarded: ApacheCluster, name: Callable[[str], str], stored: str) -> None:
    async with PopConsumer(
        guarded.namesrv, group=name("popping"), from_where=ConsumeFrom.FIRST, options=ClientOptions(credentials=ACCOUNT)
    ) as consumer:
        await consumer.subscribe(stored)
        async with asyncio.timeout(PATIENCE_S):
            while not (messages := await consumer.receive(1, wait=5.0)):
                pass
        await consumer.ack(messages[0])
    assert messages[0].body == b"stored"


@pytest.mark.parametrize("tls", [{}, {"rocketmq.tls": "true", "rocketmq.tls.caFile": str(CA_FILE)}])
def test_the_readers_of_spark_get_in(guarded: ApacheCluster, stored: str, tls: dict[str, str]) -> None:
    account = {"rocketmq.accessKey": KEY, "rocketmq.secretKey": SECRET}
    options = LiveOptions.parse({"namesrv": guarded.namesrv, "subscribe": stored, **account, **tls})
    with options.endpoint.reader() as reader:
        bodies = [
            message.body
            for queue in reader.queues(stored)
            for reply in reader.read(queue, *reader.bounds(queue))
            for message in reply.messages()
        ]
    assert b"stored" in bodies


@pytest.mark.parametrize("who", REFUSED)
async def test_whoever_is_not_let_in_is_told_why(guarded: ApacheCluster, stored: str, who: str) -> None:
    credentials, remark = REFUSED[who]
    said = rf"answer 16 from {guarded.broker}: {remark}.*check the credentials of this client"

    def write() -> None:
        with BulkWriter(guarded.namesrv, group="w", credentials=credentials) as writer:
            writer.send(Message(stored, b"x"))
            writer.flush()

    def read() -> None:
        with BulkReader(guarded.namesrv, group="r", credentials=credentials) as reader:
            reader.bounds(reader.queues(stored)[0])

    with pytest.raises(NoPermission, match=said) as caught:
        async with Producer(guarded.namesrv, group="p", options=ClientOptions(credentials=credentials)) as producer:
            assert credentials is None, "a wrong account is told at the start"
            await producer.send(Message(stored, b"x"))
    assert "no route" not in str(caught.value) and "87654321" not in str(caught.value)
    for work in (write, read):
        with pytest.raises(NoPermission, match=said):
            await asyncio.to_thread(work)


def test_the_verbs_about_accounts(
    guarded: ApacheCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    verbs = Verbs(guarded.namesrv, guarded.broker, KEY, tmp_path / "secret", capsys.readouterr)
    try_all(verbs, tmp_path, monkeypatch)
    verbs.run("createUser", "-b", guarded.broker, "-u", "copied", "-p", "known")
    verbs.run("copyUser", "-f", guarded.broker, "-t", guarded.broker, "-u", "copied")
    assert verbs.users("copied") == [("copied", "Normal", "enable")]


async def test_a_consumer_without_rights_says_so_at_the_start(guarded: ApacheCluster, stored: str) -> None:
    async with Admin(guarded.namesrv, credentials=ACCOUNT) as admin:
        (broker,) = await admin.brokers()
        await broker.accounts.create_user(UserInfo("reader-secret", username="reader"))
        await broker.accounts.put_acl(one_entry("User:reader", [f"Topic:{stored}"], ["Sub"], "Allow"))
        # Apache ignores the two fields of replay protection, which are signed like all others.
        options = ClientOptions(credentials=Credentials("reader", "reader-secret", replay_protection=True))
        with pytest.raises(
            NoPermission, match=f"answer 16 from {guarded.broker}: User:reader has no permission .*Group:g"
        ):
            await _read_one(guarded.namesrv, stored, options)
        await broker.accounts.put_acl(one_entry("User:reader", ["Group:g"], ["Sub"], "Allow"))
    assert await _read_one(guarded.namesrv, stored, options) == b"stored"


async def _read_one(namesrv: str, topic: str, options: ClientOptions) -> bytes:
    async with (
        asyncio.timeout(PATIENCE_S),
        PushConsumer(namesrv, group="g", from_where=ConsumeFrom.FIRST, options=options) as consumer,
    ):
        async for message in consumer.messages(topic):
            return message.body
    raise AssertionError("unreachable")


async def test_a_certificate_that_is_not_trusted(guarded: ApacheCluster, stored: str) -> None:
    async with Producer(guarded.namesrv, group="p", options=ClientOptions(credentials=ACCOUNT, tls=True)) as producer:
        with pytest.raises(RouteNotFound, match=rf"{guarded.namesrv}: its certificate is not trusted: .*ca_file="):
            await producer.send(Message(stored, b"x"))
