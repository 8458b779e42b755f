"""A cluster that asks for accounts, from the outside: what clients of each account can do, and what nobody can."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.patience import PATIENCE_S

from rocketline.auth.config import AuthConfig
from rocketline.auth.opening import reset_admin
from rocketline.broker import Broker
from rocketline.broker.config import BrokerConfig
from rocketline.cli.servers.cluster import Cluster
from rocketline.client import (
    ClientOptions,
    ConsumeFrom,
    Producer,
    PullConsumer,
    PushConsumer,
    Transaction,
    TransactionalProducer,
)
from rocketline.errors import ConfigError, RocketlineError
from rocketline.message import Message, MessageView
from rocketline.nameserver import NameServer, NameServerConfig
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.connection import Connection, frame_bytes
from rocketline.protocol.signing import Credentials
from rocketline.settings import load
from rocketline.testing import LocalCluster
from rocketline.transport import Channel, RemotingClient, Router
from rocketline.transport.access import Access

ROOT = Credentials("root", "rootsecret")
SHOP = Credentials("shop", "shopsecret")


class Caller:
    """Sends single requests to the broker of a cluster, as an account."""

    def __init__(self, cluster: Cluster, client: RemotingClient) -> None:
        self.cluster = cluster
        self._client = client

    async def __call__(
        self, code: int, fields: dict[str, str] | None = None, body: bytes = b"", account: Credentials | None = ROOT
    ) -> Command:
        request = Command(code, dict(fields or {}), body)
        if account is not None:
            account.sign(request)
        return await self.send(request)

    async def send(self, request: Command, address: str = "") -> Command:
        return await self._client.call(address or self.cluster.brokers[0].address, request, PATIENCE_S)

    async def ask_name_server(self, code: int, fields: dict[str, str], account: Credentials | None) -> Command:
        request = Command(code, fields)
        if account is not None:
            account.sign(request)
        return await self.send(request, self.cluster.namesrv)

    async def make_user(self, account: Credentials, kind: str = "Normal") -> None:
        info = {"username": account.access_key, "password": account.secret_key, "userType": kind}
        answer = await self(3001, {"username": account.access_key}, msgspec.json.encode(info))
        assert answer.code == 0, answer.remark
        await self.name_server_knows(account)

    async def name_server_knows(self, account: Credentials) -> None:
        """Wait until the name server, which reads the files of the broker, has read an account."""
        async with asyncio.timeout(PATIENCE_S):
            while (await self.ask_name_server(106, {}, account)).code != 0:
                await asyncio.sleep(0.05)

    async def is_let_in(self, account: Credentials) -> None:
        """Wait until the broker takes the password of a super user. Each try has a connection of its own: ten
        refusals end one."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                async with RemotingClient() as client:
                    if (await Caller(self.cluster, client)(26, account=account)).code == 0:
                        return
                await asyncio.sleep(0.2)

    async def allow(self, account: Credentials, **rights: str) -> None:
        """Rights as `Topic_orders="Pub,Sub"`."""
        entries = [
            {"resource": name.replace("_", ":", 1), "actions": actions.split(","), "decision": "Allow"}
            for name, actions in rights.items()
        ]
        body = {"subject": f"User:{account.access_key}", "policies": [{"policyType": "Custom", "entries": entries}]}
        answer = await self(3006, {"subject": f"User:{account.access_key}"}, msgspec.json.encode(body))
        assert answer.code == 0, answer.remark

    async def make_topic(self, name: str) -> None:
        fields = {
            "topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
            "topicFilterType": "SINGLE_TAG",
        }  # fmt: skip
        assert (await self(17, fields)).code == 0


QUICK = {"transactionTimeOut": 200, "transactionCheckInterval": 100, "transactionOpBatchInterval": 50}


@pytest.fixture
async def call() -> AsyncIterator[Caller]:
    async with LocalCluster(users={"root": "rootsecret"}, config=QUICK) as cluster, RemotingClient() as client:
        caller = Caller(cluster, client)
        await caller.make_topic("orders")
        await caller.make_topic("other")
        await caller.make_user(SHOP)
        yield caller


def options(account: Credentials | None) -> ClientOptions:
    return ClientOptions(credentials=account)


def send_fields(topic: str) -> dict[str, str]:
    return {
        "a": "p", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": "", "j": "0",
        "k": "false", "m": "false",
    }  # fmt: skip


def pull_fields(topic: str, group: str, **changes: str) -> dict[str, str]:
    return {
        "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*",
    } | changes  # fmt: skip


async def test_rights_to_publish(call: Caller) -> None:
    await call.allow(SHOP, Topic_orders="Pub")
    for code, fields, wanted in (
        (310, send_fields("orders"), 0),
        (310, send_fields("other"), 16),
        (11, pull_fields("orders", "g"), 16),
        (310, send_fields("brand-new"), 16),
        (310, send_fields("RMQ_SYS_TRACE_TOPIC"), 0),
    ):
        answer = await call(code, fields, b"body", SHOP)
        assert (answer.code, code, fields) == (wanted, code, fields), answer.remark
    # Pub alone creates no topic.
    await call.allow(SHOP, **{"Topic_brand-*": "Pub"})
    refused = await call(310, send_fields("brand-new"), b"body", SHOP)
    assert (refused.code, refused.remark) == (
        16, "User:shop has no permission to access Topic:brand-new from 127.0.0.1, no matched policies.",
    )  # fmt: skip
    await call.allow(SHOP, **{"Topic_brand-*": "Pub,Create"})
    assert (await call(310, send_fields("brand-new"), b"body", SHOP)).code == 0


async def test_a_producer_and_a_consumer_need_no_more_than_their_topic_and_group(call: Caller) -> None:
    """A message fails once: handing back and the retry topic need nothing more."""
    await call.allow(SHOP, Topic_orders="Pub,Sub", Group_billing="Sub")
    seen: list[int] = []
    done = asyncio.Event()

    async def handle(message: MessageView) -> None:
        seen.append(message.reconsume_times)
        if len(seen) == 1:
            raise RuntimeError("not yet")
        done.set()

    namesrv = call.cluster.namesrv
    async with (
        Producer(namesrv, group="p", options=options(SHOP)) as producer,
        PushConsumer(namesrv, group="billing", from_where=ConsumeFrom.FIRST, options=options(SHOP)) as consumer,
    ):
        consumer.subscribe("orders", "*", handle)
        await producer.send(Message("orders", b"one"))
        running = asyncio.create_task(consumer.run())
        async with asyncio.timeout(PATIENCE_S):
            await done.wait()
        running.cancel()
    assert seen == [0, 1]


async def test_clients_are_told_what_is_wrong(call: Caller) -> None:
    for account, reason in (
        (None, "username cannot be null"),
        (Credentials("shop", "wrong"), "check signature failed"),
        (Credentials("nobody", "x"), "User:nobody is not found"),
        (SHOP, "User:shop has no permission to access Topic:orders"),
    ):
        with pytest.raises(RocketlineError, match=reason):
            async with Producer(call.cluster.namesrv, group="p", options=options(account), retries=0) as producer:
                await producer.send(Message("orders", b"x"))


async def test_a_transaction_that_is_asked_about_commits_with_pub_on_its_topic(call: Caller) -> None:
    await call.allow(SHOP, Topic_orders="Pub,Sub", Group_readers="Sub")
    namesrv = call.cluster.namesrv

    def unknown(message: Message) -> Transaction:
        return Transaction.UNKNOWN

    def committed(message: MessageView) -> Transaction:
        return Transaction.COMMIT

    async with (
        TransactionalProducer(namesrv, group="tx", check=committed, options=options(SHOP)) as producer,
        PullConsumer(namesrv, group="readers", from_where=ConsumeFrom.FIRST, options=options(SHOP)) as reader,
    ):
        await producer.send_in_transaction(Message("orders", b"paid"), unknown)
        reader.assign(await reader.queues("orders"))
        bodies: list[bytes] = []
        async with asyncio.timeout(PATIENCE_S):
            while not bodies:
                bodies += [message.body for message in await reader.poll(timeout=0.1)]
    assert bodies == [b"paid"]


async def test_messages_are_found_by_id_only_with_a_right_on_their_own_topic(call: Caller) -> None:
    """Neither by asking for them, nor by having them put where one may read."""
    await call.allow(SHOP, Topic_orders="Pub,Sub,Get", Group_mine="Sub")
    sent = await call(310, send_fields("other"), b"secret")
    assert sent.ext is not None
    offset = str(int(sent.ext["msgId"][-16:], 16))
    for code, fields in (
        (33, {"offset": offset}),
        (33, {"offset": offset, "topic": "orders"}),
        (36, {"offset": offset, "group": "mine", "delayLevel": "1", "originTopic": "orders"}),
    ):
        answer = await call(code, fields, account=SHOP)
        assert (answer.code, answer.body) == (16, b"")
        assert "Topic:other" in (answer.remark or "")
    assert (await call(33, {"offset": offset})).code == 0


async def test_a_group_reads_its_own_retry_topic_only(call: Caller) -> None:
    await call.allow(SHOP, Group_mine="Sub", Group_other="Get")
    for topic, wanted in (("%RETRY%mine", 0), ("%RETRY%other", 16), ("%DLQ%mine", 16)):
        assert (await call(310, send_fields(topic), b"x", SHOP)).code == wanted
    assert (await call(310, send_fields("%RETRY%other"), b"x")).code == 0
    for topic, wanted in (("%RETRY%mine", {0, 19}), ("%RETRY%other", {16})):
        answer = await call(11, pull_fields(topic, "mine"), account=SHOP)
        assert answer.code in wanted, answer.remark


async def test_a_heartbeat_is_taken_as_a_whole_or_not_at_all(call: Caller) -> None:
    topics = b'[{"topic":"orders"},{"topic":"other"}]'
    beat = b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":%s}]}' % topics
    for rights, missing in (
        ({}, "Group:g"),
        ({"Group_g": "Sub"}, "Topic:orders"),
        ({"Topic_orders": "Sub"}, "Topic:other"),
    ):
        if rights:
            await call.allow(SHOP, **rights)
        answer = await call(34, {}, beat, SHOP)
        assert answer.code == 16
        assert f"access {missing} from" in (answer.remark or "")
        assert call.cluster.brokers[0].parts.consumers.get("g") is None
    await call.allow(SHOP, Topic_other="Sub")
    assert (await call(34, {}, beat, SHOP)).code == 0


async def test_rights_on_the_cluster_make_no_super_user(call: Caller) -> None:
    await call.allow(SHOP, Cluster_DefaultCluster="All")
    for code, name, body, wanted in (
        (3001, "bob", b'{"password":"bobsecret","userType":"Normal"}', 0),
        (3001, "eve", b'{"password":"evesecret","userType":"Super"}', 1),
        (3002, "shop", b'{"userType":"Super"}', 1),
        (3002, "root", b'{"password":"mine"}', 16),
        (3003, "root", b"", 16),
    ):
        answer = await call(code, {"username": name}, body, SHOP)
        assert (answer.code, code, name) == (wanted, code, name), answer.remark
    shown = await call(3004, {"username": "root"}, account=SHOP)
    assert (shown.code, b"rootsecret" in shown.body) == (0, False)
    # Nor does it make a replica, which would get a ticket for the log and all passwords.
    asked = {"rocketlineMember": "7", "rocketlineAccounts": "true"}
    assert (await call(906, asked, account=SHOP)).code == 16
    copied = await call(906, asked)
    assert (copied.code, b"rootsecret" in copied.body) == (0, True)


async def test_an_account_without_rights_can_do_nothing(call: Caller) -> None:
    change = b"authenticationEnabled=false\nautoCreateTopicEnable=false\n"
    topics = b'{"topicConfigList":[{"topicName":"orders","perm":0,"readQueueNums":1,"writeQueueNums":1}]}'
    for code, fields, body in (
        (361, pull_fields("orders", "g"), b""), (26, {}, b""), (25, {}, change), (18, {}, topics), (3005, {}, b""),
        (28, {}, b""), (21, {}, b""), (906, {"rocketlineMember": "7", "rocketlineAccounts": "true"}, b""),
    ):  # fmt: skip
        answer = await call(code, fields, body, SHOP)
        assert (answer.code, answer.body, code) == (16, b"", code)
    # Nobody changes who is asked for accounts.
    assert (await call(25, {}, b"authenticationEnabled=false")).code == 16


async def test_no_answer_has_a_secret(call: Caller) -> None:
    answers = [await call(26), await call(3004, {"username": "root"}), await call(3005)]
    answers.append(await call.ask_name_server(319, {}, ROOT))
    for answer in answers:
        assert answer.code == 0
        assert answer.body
        text = answer.body.decode().lower()
        assert "secret" not in text
        assert "authentication" not in text
    folder = call.cluster.data / "config"
    modes = {
        path.name: path.stat().st_mode & 0o777 for path in folder.iterdir() if path.name in ("users.json", "acls.json")
    }
    assert set(modes.values()) == {0o600}
    assert ROOT.secret_key not in repr(call.cluster.brokers[0].config)


async def test_rights_that_are_taken_away_end_a_held_pull(call: Caller) -> None:
    await call.allow(SHOP, Topic_orders="Sub", Group_g="Sub")
    fields = pull_fields("orders", "g", sysFlag="6", suspendTimeoutMillis=str(int(PATIENCE_S * 1000)))
    held = asyncio.ensure_future(call(11, fields, account=SHOP))
    broker = call.cluster.brokers[0]
    async with asyncio.timeout(PATIENCE_S):
        while not len(broker.parts.waiters):
            await asyncio.sleep(0.01)
    assert (await call(3008, {"subject": "User:shop"})).code == 0
    assert (await call(310, send_fields("orders"), b"private")).code == 0
    answer = await held
    assert (answer.code, answer.body) == (16, b"")


async def test_a_replayed_request_is_refused(call: Caller) -> None:
    request = Command(202, {"topic": "orders"})
    replace(ROOT, replay_protection=True).sign(request)
    assert (await call.send(request)).code == 0
    stolen = Command(RequestCode.DELETE_TOPIC_IN_BROKER, request.ext)
    assert (await call.send(stolen)).code == 16
    assert (await call(202, {"topic": "orders"})).code == 0


async def test_a_refused_one_way_request_changes_nothing_and_keeps_the_connection(call: Caller) -> None:
    address = call.cluster.brokers[0].address
    async with RemotingClient() as client:
        await client.send_oneway(address, Command(310, send_fields("orders"), b"x"), PATIENCE_S)
        request = Command(30, {"topic": "orders", "queueId": "0"})
        ROOT.sign(request)
        answer = await client.call(address, request, PATIENCE_S)
    assert answer.ext == {"offset": "0"}


async def test_large_headers_are_for_those_who_have_signed(call: Caller) -> None:
    host, port = call.cluster.brokers[0].address.split(":")

    async def exchange(*requests: Command) -> list[int]:
        """The codes of the answers, on one connection; it ends early where the broker closes it."""
        reader, writer = await asyncio.open_connection(host, int(port))
        connection, codes = Connection(), list[int]()
        with suppress(ConnectionError):
            for request in requests:
                writer.write(frame_bytes(request))
                while data := await reader.read(1 << 16):
                    if answers := [answer.code for answer in connection.receive(data)]:
                        codes += answers
                        break
        writer.close()
        return codes

    large = Command(RequestCode.GET_BROKER_RUNTIME_INFO, {"filler": "x" * 70_000})
    small = Command(RequestCode.GET_BROKER_RUNTIME_INFO, {})
    ROOT.sign(large)
    ROOT.sign(small)
    assert await exchange(large) == []
    assert await exchange(Command(RequestCode.GET_BROKER_RUNTIME_INFO), large) == [16]
    assert await exchange(small, large) == [0, 0]


async def test_the_name_server_asks_too(call: Caller) -> None:
    for code, fields, account, wanted in (
        (105, {"topic": "orders"}, None, 16),
        (105, {"topic": "orders"}, SHOP, 0),
        (106, {}, SHOP, 0),
        (205, {"brokerName": "broker-a"}, SHOP, 16),
        (319, {}, SHOP, 16),
        (205, {"brokerName": "broker-a"}, ROOT, 0),
    ):
        answer = await call.ask_name_server(code, dict(fields), account)
        assert (answer.code, code) == (wanted, code), answer.remark


async def test_a_request_passed_on_to_a_client_has_no_signature(call: Caller) -> None:
    """A client could use it: it is an administrator's."""
    asked: list[Command] = []

    def answer(channel: Channel, request: Command) -> Command:
        asked.append(request)
        return request.reply(0)

    async with RemotingClient(Router({307: answer}), access=Access(ROOT)) as client:
        beat = Command(34, {}, b'{"clientID":"c1","consumerDataSet":[{"groupName":"g"}]}')
        assert (await client.call(call.cluster.brokers[0].address, beat, PATIENCE_S)).code == 0
        assert (await call(307, {"consumerGroup": "g", "clientId": "c1"})).code == 0
    assert asked[0].ext == {"consumerGroup": "g", "clientId": "c1"}


async def test_rights_of_an_address_count_for_the_client_behind_a_balancer(tmp_path: Path) -> None:
    user = '{"username":"root","password":"rootsecret"}'
    settings = {"authenticationEnabled": "true", "initAuthenticationUser": user}
    async with (
        Broker(broker_config(tmp_path, **settings, **{"rocketline.proxyProtocolFrom": "127.0.0.1"})) as broker,
    ):

        async def ask(ip: str, account: Credentials, code: int, fields: dict[str, str], body: bytes = b"") -> Command:
            request = Command(code, fields, body)
            account.sign(request)
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(f"PROXY TCP4 {ip} 127.0.0.1 5000 10911\r\n".encode() + frame_bytes(request))
            connection = Connection()
            while not (answers := list(connection.receive(await reader.read(1 << 16)))):
                pass
            writer.close()
            return answers[0]

        user_info = b'{"username":"shop","password":"shopsecret"}'
        assert (await ask("10.0.0.1", ROOT, 3001, {"username": "shop"}, user_info)).code == 0
        entry = {
            "resource": "Topic:orders",
            "actions": ["Pub", "Create"],
            "sourceIps": ["10.9.8.7"],
            "decision": "Allow",
        }
        acl = {"subject": "User:shop", "policies": [{"policyType": "Custom", "entries": [entry]}]}
        assert (await ask("10.0.0.1", ROOT, 3006, {"subject": "User:shop"}, msgspec.json.encode(acl))).code == 0
        assert (await ask("10.9.8.7", SHOP, 310, send_fields("orders"), b"x")).code == 0
        refused = await ask("10.9.8.6", SHOP, 310, send_fields("orders"), b"x")
        assert (refused.code, "from 10.9.8.6" in (refused.remark or "")) == (16, True)


# Starting


def broker_config(folder: Path, **values: str) -> BrokerConfig:
    return load(BrokerConfig, {"storePathRootDir": str(folder), "listenPort": "0", **values})[0]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"authorizationEnabled": "true"}, "without authenticationEnabled"),
        ({"aclEnable": "true"}, "migrateAuthFromV1Enabled"),
        ({"authenticationEnabled": "true", "authenticationProvider": "com.example.Mine"}, "com.example.Mine"),
        ({"authenticationEnabled": "true", "initAuthenticationUser": "root:secret"}, "initAuthenticationUser is not"),
        ({"authenticationEnabled": "true", "migrateAuthFromV1Enabled": "true"}, "v1Folder"),
        ({"bindAddress": "0.0.0.0"}, "^bindAddress=0.0.0.0 .*--insecure"),
        ({"rocketline.haBindAddress": "0.0.0.0"}, "^rocketline.haBindAddress=0.0.0.0 .*--insecure"),
        ({"rocketline.adminFrom": "home"}, "adminFrom"),
        ({"authenticationEnabled": "true"}, "there is no account"),
    ],
)
async def test_a_broker_that_would_be_open_or_closed_to_all_does_not_start(
    tmp_path: Path, values: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        async with Broker(broker_config(tmp_path, **values)):
            pass
    assert "secret" not in str(caught.value)


ROOT_SETTINGS = {
    "authenticationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"rootsecret"}',
}


async def test_the_messages_of_a_broker_with_accounts_are_for_its_owner(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new, wide = tmp_path / "new", tmp_path / "wide"
    wide.mkdir(mode=0o755)
    async with Broker(broker_config(new, **ROOT_SETTINGS)):
        assert new.stat().st_mode & 0o777 == 0o700
    assert caplog.text.count("other users of this machine") == 0
    async with Broker(broker_config(wide, **ROOT_SETTINGS)):
        pass
    assert f"may read the messages in {wide}, whatever their accounts: chmod 700 {wide}" in caplog.text


async def test_accounts_where_others_can_listen_are_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for host, warned in (("127.0.0.1", 0), ("0.0.0.0", 1)):
        async with Broker(broker_config(tmp_path / host, bindAddress=host, **ROOT_SETTINGS)):
            pass
        assert caplog.text.count("lets other machines in without TLS: whoever listens on the way reads") == warned
    async with NameServer(load(NameServerConfig, {"bindAddress": "0.0.0.0", "listenPort": "0", **ROOT_SETTINGS})[0]):
        assert caplog.text.count("lets other machines in without TLS") == 2


async def test_the_password_a_broker_signs_with_is_replaced_in_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketline.transport.credentials.LOOK_EVERY_S", 0)
    file = tmp_path / "inner.json"
    file.write_text('{"accessKey":"inner","secretKey":"first"}')
    settings = {"authenticationEnabled": "true", "rocketline.innerCredentialsFile": str(file)}
    names = {**settings, "listenPort": "0", "rocketline.authPath": str(tmp_path / "names")}
    async with NameServer(load(NameServerConfig, names)[0]) as server, RemotingClient() as client:
        known = {"namesrvAddr": server.address, "registerNameServerPeriod": "50"}
        async with Broker(broker_config(tmp_path / "store", **settings, **known)):
            change = Command(3002, {"username": "inner"}, b'{"password":"second"}')
            Credentials("inner", "first").sign(change)
            assert (await client.call(server.address, change, PATIENCE_S)).code == 0
            file.write_text('{"accessKey":"inner","secretKey":"second"}')
            await registered_since(server)
    with pytest.raises(ConfigError, match=r"and rocketline\.innerCredentialsFile name an account: leave one out"):
        AuthConfig(inner_account='{"accessKey":"a","secretKey":"b"}', inner_account_file=str(file))


async def registered_since(server: NameServer) -> None:
    """Wait until a broker registers again."""
    before = [broker.last_seen for broker in server.routes._live.values()]
    async with asyncio.timeout(PATIENCE_S):
        while before == [broker.last_seen for broker in server.routes._live.values()]:
            await asyncio.sleep(0.01)


async def test_rocketmqs_own_class_names_mean_nothing_new(tmp_path: Path) -> None:
    package = "org.apache.rocketmq.auth.authentication"
    values = {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{package}.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{package}.provider.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": '{"username":"root","password":"rootsecret"}',
        "authenticationWhitelist": "28",
    }
    async with Broker(broker_config(tmp_path, **values)) as broker, RemotingClient() as client:
        assert (await client.call(broker.address, Command(26, {}), PATIENCE_S)).code == 16


async def test_accounts_of_rocketmq_4_are_taken_over(tmp_path: Path) -> None:
    old = tmp_path / "conf"
    old.mkdir()
    (old / "plain_acl.yml").write_text("accounts:\n- accessKey: RocketMQ\n  secretKey: '12345678'\n  admin: true\n")
    values = {
        "authenticationEnabled": "true", "migrateAuthFromV1Enabled": "true", "rocketline.auth.v1Folder": str(old),
    }  # fmt: skip
    async with Broker(broker_config(tmp_path / "store", **values)) as broker, RemotingClient() as client:
        request = Command(26, {})
        Credentials("RocketMQ", "12345678").sign(request)
        assert (await client.call(broker.address, request, PATIENCE_S)).code == 0


async def test_a_way_back_in_from_the_machine(tmp_path: Path) -> None:
    values = {
        "authenticationEnabled": "true", "initAuthenticationUser": '{"username":"root","password":"forgotten"}',
    }  # fmt: skip
    config = broker_config(tmp_path, **values)
    with pytest.raises(ConfigError, match=r"no users\.json"):
        reset_admin(tmp_path, "root", "rootsecret")
    async with Broker(config):
        pass
    reset_admin(tmp_path / "config", "root", "rootsecret")
    async with Broker(config) as broker, RemotingClient() as client:
        request = Command(26, {})
        ROOT.sign(request)
        assert (await client.call(broker.address, request, PATIENCE_S)).code == 0


@pytest.mark.parametrize("keeps", ["rocketline.authPath", "kvConfigPath", ""])
async def test_accounts_of_a_name_server_of_its_own_are_kept_or_not_taken(tmp_path: Path, keeps: str) -> None:
    user = '{"username":"root","password":"rootsecret"}'
    values = {"listenPort": "0", "authenticationEnabled": "true", "initAuthenticationUser": user}
    if keeps:
        values[keeps] = str(tmp_path / "kv.json" if keeps == "kvConfigPath" else tmp_path)
    config = load(NameServerConfig, values)[0]

    async def ask(server: NameServer, account: Credentials, code: int, body: bytes = b"", **fields: str) -> Command:
        request = Command(code, fields, body)
        account.sign(request)
        async with RemotingClient() as client:
            return await client.call(server.address, request, PATIENCE_S)

    async with NameServer(config) as server:
        made = await ask(server, ROOT, 3001, b'{"username":"shop","password":"shopsecret"}', username="shop")
        assert (await ask(server, ROOT, 3005)).code == 0
    async with NameServer(config) as server:
        known = await ask(server, SHOP, 206)
    if keeps:
        assert (made.code, known.code) == (0, 0)
        assert (tmp_path / "users.json").stat().st_mode & 0o777 == 0o600
    else:
        assert (made.code, known.code) == (16, 16)
        assert "it would forget the change: set rocketline.authPath or kvConfigPath" in (made.remark or "")


async def test_files_that_another_program_changes_under_load_fail_no_send(call: Caller) -> None:
    """Accounts come and passwords change while another account sends; then its rights go, and that counts too."""
    await call.allow(SHOP, Topic_orders="Pub")
    folder = Path(call.cluster.brokers[0].config.auth_folder)
    sent = 0

    async def send_on(changed: asyncio.Event) -> None:
        nonlocal sent
        while not changed.is_set():
            answer = await call(310, send_fields("orders"), b"body", SHOP)
            assert answer.code == 0, answer.remark
            sent += 1

    changed = asyncio.Event()
    async with asyncio.TaskGroup() as load:
        for _ in range(4):
            load.create_task(send_on(changed))
        for password in ("rescuesecret1", "rescuesecret2", "rescuesecret3"):
            before = sent
            await asyncio.to_thread(reset_admin, folder, "rescue", password)
            await call.is_let_in(Credentials("rescue", password))
            assert sent > before
        changed.set()
    (folder / "acls.json").write_bytes(b"{}")
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await call(310, send_fields("orders"), b"body", SHOP)).code == 0:
            await asyncio.sleep(0.05)
    assert answer.code == 16


# Without accounts, and open to other machines


@pytest.mark.parametrize("server", ["broker", "name server"])
async def test_an_open_server_takes_changes_from_its_own_machine_only(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: Any
    if server == "broker":
        config = broker_config(tmp_path, **{"bindAddress": "0.0.0.0", "rocketline.insecure": "true"})
        running = Broker(config)
        question, changes = Command(28, {}), [Command(25, {}, b"traceOn=true")]
        changes += [Command(906, {"rocketlineMember": "7"}), Command(908, {"masterFlushOffset": "0"})]
    else:
        auth = AuthConfig(insecure=True, admin_from="192.0.2.0/24")
        running = NameServer(NameServerConfig(host="0.0.0.0", port=0, auth=auth))
        question, changes = Command(106, {}), [Command(318, {}, b"enableTopicList=true")]
    async with running, RemotingClient() as client:
        address = f"127.0.0.1:{running.port}"
        for change in changes:
            assert (await client.call(address, change, PATIENCE_S)).code == 0
        guard = running._router.guard if server == "broker" else running._server._router.guard
        monkeypatch.setattr(guard, "_is_trusted", _as_from("198.51.100.9", guard._is_trusted))
        for change in changes:
            refused = await client.call(address, change, PATIENCE_S)
            assert (refused.code, "rocketline.adminFrom" in (refused.remark or "")) == (16, True)
        assert (await client.call(address, question, PATIENCE_S)).code == 0


def _as_from(ip: str, is_trusted: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda _: is_trusted(ip)
