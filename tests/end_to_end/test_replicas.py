"""A master and replicas of rocketline: copied logs and tables, answers that wait, reads, changes of role."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random

import pytest
from tests.support.etcd import free_ports
from tests.support.patience import PATIENCE_S
from tests.support.replica_group import (
    NAME,
    caught_up,
    consume,
    group_config,
    name_server,
    send_all,
    stored_log,
    until,
)
from tests.support.tls import CA_FILE, TLS_DATA

from rocketline.admin import Admin
from rocketline.admin.roles import change_master
from rocketline.auth.model import User, UserStatus, UserType
from rocketline.auth.posture import is_near
from rocketline.broker.broker import Broker
from rocketline.broker.delays.delay_levels import SCHEDULE_TOPIC
from rocketline.broker.handlers.admin import replication
from rocketline.broker.handlers.for_master import PASSED_ON
from rocketline.broker.metrics.replication import replication_families
from rocketline.broker.replication import ha_port, source
from rocketline.broker.replication.roles import Role
from rocketline.client import (
    ConsumeFrom,
    Producer,
    PushConsumer,
    SendStatus,
    Transaction,
    TransactionalProducer,
)
from rocketline.client.remote_broker import RemoteBroker
from rocketline.clock import SYSTEM_CLOCK
from rocketline.coordination.memory import MemoryGroup
from rocketline.errors import ConfigError, RequestNotSupported, RocketlineError
from rocketline.message import ConsumerOffset, Message, MessageQueue, MessageView
from rocketline.nameserver.config import NameServerConfig
from rocketline.nameserver.server import NameServer
from rocketline.protocol.bodies import HaStatus, decode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    NotifyRoleChangedHeader,
    PullMessageHeader,
    QueryConsumerOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from rocketline.settings import load
from rocketline.transport import RemotingClient, accepting
from rocketline.transport.server_config import TlsConfig

BODIES = [b"%d " % number * 40 for number in range(60)]


@pytest.fixture
async def names() -> AsyncIterator[str]:
    async with name_server() as address:
        yield address


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    async with RemotingClient() as found:
        yield found


async def ask(client: RemotingClient, address: str, code: RequestCode, ext: dict[str, str] | None = None) -> Command:
    return await client.call(address, Command(code, ext or {}), PATIENCE_S)


async def ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """What comes until the other side closes."""
    found = b""
    with suppress(ConnectionError):
        found = await reader.read()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return found


def listens(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", port)) == 0


def pull_of(topic: str, offset: int) -> dict[str, str]:
    header = PullMessageHeader(
        consumer_group="cg", topic=topic, queue_id=0, queue_offset=offset, max_msg_nums=10, sys_flag=4,
        commit_offset=0, suspend_ms=0, sub_version=0, subscription="*",
    )  # fmt: skip
    return header.encode()


async def test_a_replica_has_log_and_tables_and_only_copies(tmp_path: Path, names: str, client: RemotingClient) -> None:
    async with Broker(group_config(tmp_path, names, 0)) as master:
        await send_all(names, "orders", BODIES[:30])  # before there is a replica
        async with (
            Broker(group_config(tmp_path, names, 1)) as replica,
            Broker(group_config(tmp_path, names, 2, slaveReadEnable="true")) as read,
        ):
            await send_all(names, "orders", BODIES[30:])
            assert sorted(await consume(names, "orders", len(BODIES))) == sorted(BODIES)
            await caught_up(master, replica, read)
            assert stored_log(replica) == stored_log(read) == stored_log(master)
            await until(lambda: replica.parts.topics.get("orders") and "cg" in replica.parts.groups.table)
            await until(lambda: read.parts.topics.get("orders") and "cg" in read.parts.groups.table)
            # What a plain replica refuses.
            for code in (RequestCode.SEND_MESSAGE, RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE):
                answer = await ask(client, replica.address, code, pull_of("orders", 0))
                assert answer.code == ResponseCode.SYSTEM_BUSY
                assert (answer.remark or "").startswith("[REJECTREQUEST]")
            assert (await ask(client, replica.address, RequestCode.UPDATE_AND_CREATE_TOPIC)).code == 1
            assert (await ask(client, replica.address, RequestCode.END_TRANSACTION)).code == 11
            # One that may be read does not move consumers, and sends them to the master.
            answer = await ask(client, read.address, RequestCode.PULL_MESSAGE, pull_of("orders", 0))
            assert answer.code == ResponseCode.SUCCESS
            assert (answer.ext or {})["suggestWhichBrokerId"] == "0"
            answer = await ask(client, read.address, RequestCode.PULL_MESSAGE, pull_of("orders", 5_000))
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert (answer.ext or {})["nextBeginOffset"] == "5000"
            # How it goes, for operators.
            status = decode_body(HaStatus, (await ask(client, master.address, RequestCode.GET_BROKER_HA_STATUS)).body)
            assert (status.master, status.in_sync_slave_nums, len(status.ha_connection_info)) == (True, 2, 2)
            status = decode_body(HaStatus, (await ask(client, replica.address, RequestCode.GET_BROKER_HA_STATUS)).body)
            assert not status.master
            assert status.ha_client_runtime_info.activated


async def test_a_replica_passes_on_what_its_master_decides(tmp_path: Path, names: str, client: RemotingClient) -> None:
    """Clients of Java go to a former master for half a minute: what they commit there must count."""
    queue = MessageQueue("orders", NAME, 0)
    async with Broker(group_config(tmp_path, names, 0)) as master:
        await send_all(names, "orders", BODIES)
        await consume(names, "orders", len(BODIES))
        async with Broker(group_config(tmp_path, names, 1, slaveReadEnable="true")) as replica:
            await caught_up(master, replica)
            await until(lambda: replica.parts.roles.has_master and "cg" in replica.parts.groups.table)
            commit = UpdateConsumerOffsetHeader("cg", "orders", 0, ConsumerOffset(3), NAME)
            told = await ask(client, replica.address, RequestCode.UPDATE_CONSUMER_OFFSET, commit.encode())
            assert told.code == ResponseCode.SUCCESS
            assert master.parts.offsets.get("cg", "orders", 0) == replica.parts.offsets.get("cg", "orders", 0) == 3
            query = QueryConsumerOffsetHeader("cg", "orders", 0, broker_name=NAME)
            told = await ask(client, replica.address, RequestCode.QUERY_CONSUMER_OFFSET, query.encode())
            assert (told.ext or {})["offset"] == "3"
            pull = pull_of("orders", 5) | {"sysFlag": "5", "commitOffset": "5"}
            told = await ask(client, replica.address, RequestCode.PULL_MESSAGE, pull)
            assert (told.ext or {})["rocketlineReplica"] == "true"
            await until(lambda: master.parts.offsets.get("cg", "orders", 0) == 5, "the commit of a pull")
            # A queue is locked for one only, wherever they ask.
            first, second = (RemoteBroker(client, broker.address, NAME) for broker in (replica, master))
            assert await first.lock("cg", "one", [queue], PATIENCE_S) == {queue}
            assert await second.lock("cg", "another", [queue], PATIENCE_S) == set()
            # What was passed on already is not passed on again.
            passed_on = commit.encode() | {PASSED_ON: "true"}
            told = await ask(client, replica.address, RequestCode.UPDATE_CONSUMER_OFFSET, passed_on)
            assert told.code == ResponseCode.SERVICE_NOT_AVAILABLE
            await master.close()
            await until(lambda: not replica.parts.roles.has_master)
            commit = UpdateConsumerOffsetHeader("cg", "orders", 0, ConsumerOffset(7), NAME)
            told = await ask(client, replica.address, RequestCode.UPDATE_CONSUMER_OFFSET, commit.encode())
            assert told.code == ResponseCode.SUCCESS and replica.parts.offsets.get("cg", "orders", 0) == 7


async def test_answers_wait_for_replicas(tmp_path: Path, names: str) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "200"}
    async with Broker(group_config(tmp_path, names, 0, **settings)) as master:
        [alone] = await send_all(names, "orders", [b"alone"])
        assert alone.status is SendStatus.FLUSH_SLAVE_TIMEOUT
        assert not master.parts.durability._waiting  # what timed out costs nothing any more
    settings["slaveTimeout"] = str(int(PATIENCE_S * 1000))
    async with (
        Broker(group_config(tmp_path, names, 0, **settings)) as master,
        Broker(group_config(tmp_path, names, 1, flushDiskType="SYNC_FLUSH")) as replica,
    ):
        receipts = await send_all(names, "orders", BODIES)
        assert {receipt.status for receipt in receipts} == {SendStatus.OK}
        assert replica.parts.store.flushed_offset >= master.parts.store.log_next_offset
        assert stored_log(replica) == stored_log(master)


async def test_consumers_go_on_without_the_master(tmp_path: Path, names: str) -> None:
    async with Broker(group_config(tmp_path, names, 1, slaveReadEnable="true")) as replica:
        async with Broker(group_config(tmp_path, names, 0)) as master:
            await send_all(names, "orders", BODIES)
            await caught_up(master, replica)
            await until(lambda: replica.parts.topics.get("orders"))
        # A name server tells no route of a topic without a master, unless a replica acts as one.
        async with RemotingClient() as client:
            answer = await ask(client, replica.address, RequestCode.PULL_MESSAGE, pull_of("orders", 0))
            assert answer.code == ResponseCode.SUCCESS


async def test_a_replica_acts_as_master_for_readers(tmp_path: Path) -> None:
    settings = {"enableSlaveActingMaster": "true", "slaveReadEnable": "true"}
    async with (
        name_server(acting_masters=True) as names,
        Broker(group_config(tmp_path, names, 1, **settings)) as replica,
    ):
        async with Broker(group_config(tmp_path, names, 0, **settings)) as master:
            await send_all(names, "orders", BODIES)
            await caught_up(master, replica)
            await until(lambda: replica.parts.topics.get("orders"))
            await replica.parts.registration.register_all()
        assert sorted(await consume(names, "orders", len(BODIES))) == sorted(BODIES)
        async with Broker(group_config(tmp_path, names, 0, **settings)) as master:
            # It takes back what was consumed while it was away.
            committed = master.parts.offsets.of("cg", "orders")
            assert committed == replica.parts.offsets.of("cg", "orders") and sum(committed.values()) == len(BODIES)


async def test_the_ha_port_takes_tls_where_it_is_enforced(tmp_path: Path) -> None:
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(TLS_DATA / "server.pem"),
        "tls.server.keyPath": str(TLS_DATA / "server.key"),
        "tls.client.trustCertPath": str(CA_FILE),
    }
    async with NameServer(NameServerConfig(port=0, tls=load(TlsConfig, settings)[0])) as secured:
        address = f"127.0.0.1:{secured.port}"
        async with (
            Broker(group_config(tmp_path, address, 0, **settings)) as master,
            Broker(group_config(tmp_path, address, 1, **settings)) as replica,
        ):
            await until(lambda: replica.parts.roles.has_master, "a connection through TLS")
            host, port = master.parts.environment.ha_address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(bytes(8))
            assert not (await ended(reader, writer)).startswith(bytes(8))
            assert master.parts.roles.source is not None
            assert len([found for found in master.parts.roles.source.connections if found.is_ours]) == 1


async def test_unfinished_handshakes_keep_no_replica_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "MAX_HANDSHAKES", 10)
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(TLS_DATA / "server.pem"),
        "tls.server.keyPath": str(TLS_DATA / "server.key"),
        "tls.client.trustCertPath": str(CA_FILE),
    }
    async with NameServer(NameServerConfig(port=0, tls=load(TlsConfig, settings)[0])) as secured:
        address = f"127.0.0.1:{secured.port}"
        async with Broker(group_config(tmp_path, address, 0, **settings)) as master:
            host, port = master.parts.environment.ha_address.split(":")
            unfinished = [await asyncio.open_connection(host, int(port)) for _ in range(100)]
            for _, writer in unfinished[::2]:
                writer.write(b"\x16\x03\x01\x02\x00\x01")  # the others say nothing at all
            async with Broker(group_config(tmp_path, address, 1, **settings)) as replica:
                await until(lambda: replica.parts.roles.has_master, "a connection through TLS")
                for reader, writer in unfinished[:90]:
                    assert await ended(reader, writer) == b""
            for _, writer in unfinished[90:]:
                writer.transport.abort()


@pytest.mark.parametrize(
    ("mode", "strangers", "has_tls"),
    [("permissive", "auto", False), ("enforcing", "serve", False), ("enforcing", "auto", True)],
)
async def test_a_group_with_elections_follows_with_and_without_tls(
    tmp_path: Path, mode: str, strangers: str, has_tls: bool
) -> None:
    """Brokers that reach others by TLS, whatever the HA port of their master takes."""
    settings = {
        "tls.server.mode": mode,
        "tls.enable": "true",
        "tls.server.certPath": str(TLS_DATA / "server.pem"),
        "tls.server.keyPath": str(TLS_DATA / "server.key"),
        "tls.client.trustCertPath": str(CA_FILE),
    }
    group = MemoryGroup(SYSTEM_CLOCK)
    coordinated = {"rocketline.haStrangers": strangers, "rocketline.coordination": "etcd://memory:2379"}

    def member(number: int, address: str) -> Broker:
        root = tmp_path / str(number)
        config = group_config(root, address, 0, **settings, **coordinated)
        return Broker(config, coordinators=lambda _: group.coordinator(f"member-{number}"))

    async with NameServer(NameServerConfig(port=0, tls=load(TlsConfig, settings)[0])) as secured:
        address = f"127.0.0.1:{secured.port}"
        async with member(1, address) as first, member(2, address) as second:
            await until(lambda: first.parts.roles.has_master or second.parts.roles.has_master, "a follower")
            agreed = group.agreed
            assert agreed is not None
            await until(lambda: group.agreed and len(group.agreed.record.in_sync) == 2, "both in sync")
            assert {found.ha_tls for found in agreed.record.members.values()} == {has_tls}


async def test_the_port_of_apaches_slaves_takes_tls_where_it_is_enforced(tmp_path: Path, names: str) -> None:
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(TLS_DATA / "server.pem"),
        "tls.server.keyPath": str(TLS_DATA / "server.key"),
        "rocketline.haStrangers": "serve",
        "rocketline.apacheSlavePort": str(free_ports(1)[0]),
    }
    plain = Command(RequestCode.GET_ALL_CONSUMER_OFFSET)
    async with Broker(group_config(tmp_path, names, 0, **settings)) as master, RemotingClient() as client:
        host, port = master.parts.environment.ha_address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(bytes(8))
        assert len(await reader.readexactly(12)) == 12
        own_port = int(settings["rocketline.apacheSlavePort"])
        await until(lambda: listens(own_port), "the port of Apache's slaves")
        answer = await client.call(f"127.0.0.1:{own_port}", plain, PATIENCE_S)
        assert (answer.code, (answer.remark or "").split(":")[0]) == (16, "TLS required")
        writer.close()


async def test_what_failed_is_copied_like_all_else(tmp_path: Path, names: str) -> None:
    async with (
        Broker(group_config(tmp_path, names, 0)) as master,
        Broker(group_config(tmp_path, names, 1)) as replica,
        PushConsumer(names, group="failing", from_where=ConsumeFrom.FIRST) as consumer,
    ):
        consumer.subscribe("orders", failing)
        running = asyncio.create_task(consumer.run())
        await send_all(names, "orders", [b"one"])
        retry = "%RETRY%failing"
        await until(lambda: SCHEDULE_TOPIC in replica.parts.store.topics(), "the message on its way back")
        running.cancel()
        await asyncio.wait([running])
        await caught_up(master, replica)
        assert stored_log(master) == stored_log(replica)
        await until(lambda: replica.parts.topics.get(retry), "the retry topic")


async def failing(message: MessageView) -> None:
    raise ValueError("not today")


async def test_a_log_that_diverges_is_refused_and_says_so(tmp_path: Path, names: str) -> None:
    async with Broker(group_config(tmp_path, names, 0, storePathRootDir=str(tmp_path / "other"))):
        await send_all(names, "orders", [b"other"] * 5)
    (tmp_path / "other").rename(tmp_path / "member-1")
    async with Broker(group_config(tmp_path, names, 0)) as master:
        await send_all(names, "orders", BODIES)
        async with Broker(group_config(tmp_path, names, 1)) as replica:
            await until(lambda: replica.parts.roles.follower and replica.parts.roles.follower.diverged)
            assert replica.parts.roles.follower is not None
            assert "is another one on the master" in replica.parts.roles.follower.problem
            before = stored_log(replica)
            await send_all(names, "orders", BODIES)
            assert stored_log(replica) == before != stored_log(master)


async def test_strangers_at_the_ha_port_never_count(tmp_path: Path, names: str) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "300"}
    async with Broker(group_config(tmp_path, names, 0, **settings)) as master:
        host, port = master.parts.environment.ha_address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write((0).to_bytes(8, "big"))  # served, as Apache's slaves are
        assert len(await reader.readexactly(12)) == 12
        [receipt] = await send_all(names, "orders", [b"one"])
        writer.write(master.parts.store.log_next_offset.to_bytes(8, "big"))
        [receipt] = await send_all(names, "orders", [b"two"])
        assert receipt.status is SendStatus.FLUSH_SLAVE_TIMEOUT
        writer.write((1 << 50).to_bytes(8, "big"))  # more than there is
        await ended(reader, writer)
        for garbage in (b"\xff" * 48, b"GET / HTTP/1.1\r\n\r\n" * 9, b"\x80" + bytes(7), b"\xffRLHELO\x01" + bytes(40)):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(garbage)
            await ended(reader, writer)
        assert master.parts.roles.source is not None
        assert master.parts.roles.source.refused == 5


async def test_hostile_peers_at_the_ha_port_change_nothing(tmp_path: Path, names: str) -> None:
    """Forged greetings, handshakes and reports, whole, cut and with changed bytes: always the same ones."""
    chance = Random(7)
    async with (
        Broker(group_config(tmp_path, names, 0)) as master,
        Broker(group_config(tmp_path, names, 1)) as replica,
    ):
        await until(lambda: replica.parts.roles.has_master)
        host, port = master.parts.environment.ha_address.split(":")
        await send_all(names, "orders", BODIES[:20])
        for _ in range(60):
            _, writer = await asyncio.open_connection(host, int(port))
            hello = b"\xffRLHELO\x01" + chance.randbytes(4 + 32)
            sent = bytearray(chance.choice([hello, bytes(8), chance.randbytes(100), hello + bytes(8)]))
            for _ in range(chance.randrange(4)):
                sent[chance.randrange(len(sent))] = chance.randrange(256)
            writer.write(sent[: chance.randrange(1, len(sent) + 1)])
            if chance.random() < 0.5:
                writer.write_eof()
            writer.close()
        await send_all(names, "orders", BODIES[20:])
        await caught_up(master, replica)
        assert stored_log(replica) == stored_log(master)
        source_now = master.parts.roles.source
        assert source_now is not None
        await until(lambda: [found.is_ours for found in source_now.connections] == [True], "only the replica is left")


async def test_strangers_keep_no_replica_out(tmp_path: Path, names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_UNPROVED", 5)
    monkeypatch.setattr(source, "MAX_CONNECTIONS", 3)
    settings = {"rocketline.haStrangers": "serve"}
    async with Broker(group_config(tmp_path, names, 0, **settings)) as master, AsyncExitStack() as undo:
        host, port = master.parts.environment.ha_address.split(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
        served = [await asyncio.open_connection(host, int(port)) for _ in range(4)]
        for reader, writer in served:
            writer.write(bytes(8))
        for reader, _ in served[:3]:
            await reader.readexactly(12)
        assert await ended(*served[3]) == b""  # strangers that are served have a limit of their own
        for number in (1, 2, 3):
            replica = await undo.enter_async_context(Broker(group_config(tmp_path, names, number, **settings)))
            await until(lambda replica=replica: replica.parts.roles.has_master, f"replica {number}")
        for reader, writer in silent[:15]:
            assert await ended(reader, writer) == b""
        for _, writer in silent[15:] + served[:3]:
            writer.close()


@pytest.mark.parametrize(
    ("settings", "is_served"),
    [
        ({"rocketline.insecure": "true"}, False),
        ({"rocketline.insecure": "true", "rocketline.adminFrom": "198.51.100.0/24"}, True),
        ({"rocketline.insecure": "true", "rocketline.haTrusted": "198.51.100.9"}, True),
        ({"rocketline.insecure": "true", "rocketline.haStrangers": "serve"}, True),
    ],
)
async def test_an_open_broker_gives_its_log_to_those_who_may_give_it_orders(
    tmp_path: Path, names: str, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], is_served: bool
) -> None:
    monkeypatch.setattr(ha_port, "is_near", lambda _, networks: is_near("198.51.100.9", networks))
    async with Broker(group_config(tmp_path, names, 0, bindAddress="0.0.0.0", **settings)) as master:
        port = master.parts.environment.ha_address.rpartition(":")[2]
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(bytes(8))
        if is_served:
            assert len(await reader.readexactly(12)) == 12
            writer.close()
        else:
            assert await ended(reader, writer) == b""


async def test_with_accounts_only_replicas_with_one_follow_and_accounts_are_copied(
    tmp_path: Path, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = {"username": "root", "password": "secret-1234", "userType": "Super"}
    settings = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps(user),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": "root", "secretKey": "secret-1234"}),
    }
    async with Broker(group_config(tmp_path, names, 0, **settings)) as master:
        host, port = master.parts.environment.ha_address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(bytes(8))
        assert await ended(reader, writer) == b""  # Apache's slaves are refused
        async with Broker(group_config(tmp_path, names, 1, **settings)) as replica:
            await until(lambda: replica.parts.roles.has_master)
            assert master.parts.accounts is not None
            assert replica.parts.accounts is not None
            saving = master.parts.accounts.create_user(User("alice", "wonder-land", UserType.NORMAL, UserStatus.ENABLE))
            if saving is not None:
                await saving
            await until(lambda: replica.parts.accounts and replica.parts.accounts.user("alice"), "the new account")
            # Between two machines without TLS all but accounts is copied, and the reason is told.
            monkeypatch.setattr(replication, "is_private", lambda channel: False)
            saving = master.parts.accounts.create_user(User("bob", "builder-1", UserType.NORMAL, UserStatus.ENABLE))
            if saving is not None:
                await saving
            copier = replica.parts.copier
            await until(lambda: "accounts are copied only by TLS" in copier.account_problem, "the reason")
            await copier.copy_now()  # all else
            assert replica.parts.accounts.user("bob") is None
        bad = settings | {"innerClientAuthenticationCredentials": json.dumps({"accessKey": "root", "secretKey": "no"})}
        async with Broker(group_config(tmp_path, names, 2, **bad)) as stranger:
            await until(lambda: stranger.parts.roles.follower and stranger.parts.roles.follower.problem)
            assert not stranger.parts.roles.has_master


async def test_verbs_of_elections_name_the_one_of_fixed_roles(tmp_path: Path, names: str) -> None:
    async with Broker(group_config(tmp_path, names, 0)) as master, Admin(names) as admin:
        group = (await admin.named_broker_at(master.address)).elections
        for asked in (group.master(), group.sync_state([]), group.elect_master(0, None)):
            with pytest.raises(RequestNotSupported, match=r"fixed roles.*changeMaster"):
                await asked


async def test_an_operator_moves_mastership(tmp_path: Path, names: str) -> None:
    async with (
        Broker(group_config(tmp_path, names, 0)) as first,
        Broker(group_config(tmp_path, names, 1)) as second,
        Producer(names, group="lasting") as lasting,
    ):
        await send_all(names, "orders", BODIES)
        async with Producer(names, group="pg") as producer:
            await producer.send(Message("later", b"later", delay_level=1))
        await until(lambda: second.parts.topics.get("later"))
        await caught_up(first, second)
        await lasting.send(Message("orders", b"before"))
        await caught_up(first, second)
        async with Admin(names) as admin:
            with pytest.raises(RocketlineError, match="is the master of broker-a already"):
                await change_master(admin, first.address)
            assert await change_master(admin, second.address) == (NAME, [first.address, second.address])
        assert (first.parts.roles.role, second.parts.roles.role) == (Role.REPLICA, Role.MASTER)
        await until(lambda: first.parts.roles.has_master, "the former master follows")
        # It hears of the change by the answer of the former master.
        assert (await lasting.send(Message("orders", b"after"))).status is SendStatus.OK
        receipts = await send_all(names, "orders", [b"after"] * 8)
        assert {receipt.queue.broker_name for receipt in receipts} == {NAME}
        for receipt in receipts:
            assert receipt.queue_offset < second.parts.store.max_offset("orders", receipt.queue.queue_id)
        # What waited for its time is delivered by the new master.
        assert b"later" in await consume(names, "later", 1)
        await caught_up(second, first)
        assert stored_log(first) == stored_log(second)


async def test_a_changed_role_outlives_a_restart_until_the_settings_change(tmp_path: Path, names: str) -> None:
    settings = [group_config(tmp_path, names, number) for number in (0, 1)]
    async with Broker(settings[0]) as first, Broker(settings[1]) as second:
        await until(lambda: first.parts.roles.acks.replicas)
        async with Admin(names) as admin:
            await change_master(admin, second.address)
        await until(lambda: first.parts.roles.has_master)
    # As `up` starts a broker again that was killed: with the settings that it had.
    async with Broker(settings[1]) as second, Broker(settings[0]) as first:
        assert (first.parts.roles.role, second.parts.roles.role) == (Role.REPLICA, Role.MASTER)
        assert (first.parts.roles.registered_id, second.parts.roles.registered_id) == (1, 0)
        await until(lambda: first.parts.roles.has_master)
        receipts = await send_all(names, "orders", BODIES[:3])
        assert all(receipt.status is SendStatus.OK for receipt in receipts)
        async with Admin(names) as admin:
            await change_master(admin, first.address)
        await until(lambda: second.parts.roles.has_master)
    async with Broker(settings[0]) as first, Broker(settings[1]) as second:
        assert (first.parts.roles.role, second.parts.roles.role) == (Role.MASTER, Role.REPLICA)
    # Whoever writes another role into the settings wants that one.
    async with Broker(group_config(tmp_path, names, 0, brokerRole="SLAVE", brokerId="2")) as changed:
        assert (changed.parts.roles.role, changed.parts.roles.registered_id) == (Role.REPLICA, 2)


async def test_a_replica_is_named_by_its_own_address(tmp_path: Path, names: str, client: RemotingClient) -> None:
    async with Broker(group_config(tmp_path, names, 0)) as master, Broker(group_config(tmp_path, names, 1)) as replica:
        await until(lambda: master.parts.roles.acks.replicas)
        status = decode_body(HaStatus, (await ask(client, master.address, RequestCode.GET_BROKER_HA_STATUS)).body)
        assert [found.addr for found in status.ha_connection_info] == [replica.address]
        families = {family.name: family async for family in replication_families(master.parts)}
        [labels] = families["rocketline_replica_behind_bytes"].samples
        assert dict(labels) == {"replica": replica.address}


@pytest.mark.parametrize("chosen", [None, MessageQueue("orders", NAME, 1)], ids=["any queue", "one queue"])
async def test_sends_wait_while_the_group_has_no_master(
    tmp_path: Path, names: str, client: RemotingClient, chosen: MessageQueue | None
) -> None:
    async with (
        Broker(group_config(tmp_path, names, 1)) as replica,
        Producer(names, group="lasting", timeout=PATIENCE_S) as producer,
        TransactionalProducer(names, group="paying", check=unknown, timeout=PATIENCE_S) as paying,
    ):
        async with Broker(group_config(tmp_path, names, 0)) as master:
            for sender in (producer, paying):
                await sender.send(Message("orders", b"before"))
            await caught_up(master, replica)
            await until(lambda: replica.parts.topics.get("orders"))
            await replica.parts.registration.register_all()
        sends = [asyncio.create_task(producer.send(Message("orders", b"during"), queue=chosen)) for _ in range(5)]
        batch = asyncio.create_task(producer.send_batch([Message("orders", b"during")] * 3, queue=chosen))
        half = asyncio.create_task(paying.send_in_transaction(Message("orders", b"during"), committed, queue=chosen))
        routes = producer._open_session.routes
        await until(lambda: routes.no_master("orders"), "a route without a master")
        assert not any(task.done() for task in (*sends, batch, half))
        header = NotifyRoleChangedHeader(master_address=replica.address, master_broker_id=1)
        answer = await ask(client, replica.address, RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header.encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        receipts = [*await asyncio.gather(*sends), *await batch, (await half).receipt]
        assert {receipt.status for receipt in receipts} == {SendStatus.OK}
        assert sorted(await consume(names, "orders", 2 + 5 + 3 + 1)) == [b"before"] * 2 + [b"during"] * 9


async def committed(message: Message) -> Transaction:
    return Transaction.COMMIT


def unknown(message: MessageView) -> Transaction:
    return Transaction.UNKNOWN


async def test_a_master_steps_down_for_the_named_replica_only(
    tmp_path: Path, names: str, client: RemotingClient
) -> None:
    """A complete replica beside it is no reason to leave for one that is not there."""
    async with Broker(group_config(tmp_path, names, 0)) as master, Broker(group_config(tmp_path, names, 1)) as replica:
        await send_all(names, "orders", BODIES)
        await caught_up(master, replica)
        ext = NotifyRoleChangedHeader(master_address="127.0.0.1:1", master_broker_id=2).encode()
        answer = await ask(client, master.address, RequestCode.NOTIFY_BROKER_ROLE_CHANGED, ext)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "stays the master" in (answer.remark or "")
        assert master.parts.roles.role is Role.MASTER


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "", "../../x:99999"])
async def test_a_master_without_a_complete_replica_stays_the_master(
    tmp_path: Path, names: str, client: RemotingClient, address: str
) -> None:
    async with Broker(group_config(tmp_path, names, 0)) as master:
        await send_all(names, "orders", BODIES[:5])
        ext = NotifyRoleChangedHeader(master_address=address, master_broker_id=1).encode()
        answer = await ask(client, master.address, RequestCode.NOTIFY_BROKER_ROLE_CHANGED, ext)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert address in (answer.remark or "") or "no connected replica" in (answer.remark or "")
        assert master.parts.roles.role is Role.MASTER
        await send_all(names, "orders", BODIES[5:])


async def test_a_master_that_stops_leaves_everything_behind(tmp_path: Path, names: str) -> None:
    async with Broker(group_config(tmp_path, names, 1)) as replica:
        async with Broker(group_config(tmp_path, names, 0)) as master:
            await until(lambda: replica.parts.roles.has_master)
            await send_all(names, "orders", BODIES)
            wanted = master.parts.store.log_next_offset
        assert replica.parts.store.log_next_offset >= wanted


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"brokerId": "1", "brokerRole": "ASYNC_MASTER"}, "brokerRole=SLAVE"),
        ({"brokerId": "0", "brokerRole": "SLAVE"}, "brokerId"),
        ({"brokerId": "1", "brokerRole": "SLAVE", "namesrvAddr": ""}, "namesrvAddr"),
        ({"brokerId": "1", "brokerRole": "SLAVE", "transientStorePoolEnable": "true"}, "transientStorePoolEnable"),
        ({"enableControllerMode": "true"}, "rocketline.coordination"),
        ({"enableDLegerCommitLog": "true"}, "rocketline.coordination"),
    ],
)
async def test_roles_that_contradict_themselves_do_not_start(
    tmp_path: Path, settings: dict[str, str], word: str
) -> None:
    with pytest.raises(ConfigError, match=word):
        Broker(group_config(tmp_path, "127.0.0.1:9876", 0, **settings))


async def test_a_taken_ha_port_is_told(tmp_path: Path, names: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(ConfigError, match="haListenPort"):
            await Broker(group_config(tmp_path, names, 0, haListenPort=port)).start()
