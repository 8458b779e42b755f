"""Every setting is gone by: servers run through what there are settings for, and no setting is left that nobody read.

Who adds a setting has the scenarios here reach the code that goes by it. A key that is only accepted, because Apache's
files have it, is no setting but an entry of `IGNORED`, with the reason.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
from tests.support.grpc_wire import GrpcWire
from tests.support.patience import PATIENCE_S
from tests.support.replica_group import caught_up, group_config, name_server, send_all
from tests.support.scraping import scrape
from tests.support.setting_reads import PACKAGE, Setting, all_settings, noted_reads, sections
from tests.support.tls import CA_FILE, TLS_DATA
from tests.unit.broker.parts import heartbeat, pull_request, send_request
from tests.unit.broker.popper import pop_request
from tests.unit.nameserver.brokers import body, header
from tests.unit.nameserver.conftest import Visitor
from tests.unit.proxy import test_front_calls as calls
from tests.unit.proxy.conftest import create_topics

import rocketline
from rocketline.admin import Admin
from rocketline.broker import Broker, BrokerConfig
from rocketline.client.timing import ClientTiming
from rocketline.nameserver import NameServer, NameServerConfig
from rocketline.protocol.bodies import QueryAssignmentRequestBody, encode_body
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers.read import SUBSCRIPTION, SUSPEND
from rocketline.proxy.config import ProxyConfig
from rocketline.proxy.proto import ClientType, pb
from rocketline.proxy.server import Proxy
from rocketline.settings import load, setting
from rocketline.testing import LocalCluster
from rocketline.testing.sim import SimWorld, run_world
from rocketline.transport import RemotingClient

WALKED = (BrokerConfig, NameServerConfig, ProxyConfig, ClientTiming)
NEVER_MS = "1000000000"
COLLECTOR = {
    "metricGrpcExporterIntervalInMills": NEVER_MS,
    "metricsExporterType": "OTLP_GRPC",
    "metricsGrpcExporterTarget": "http://127.0.0.1:9",
}


SECURED = {
    "rocketline.tls.identity": "san",
    "tls.client.certPath": str(TLS_DATA / "client.pem"),
    "tls.client.keyPassword": "rocketline",
    "tls.client.keyPath": str(TLS_DATA / "client.key"),
    "tls.client.trustCertPath": str(CA_FILE),
    "tls.enable": "true",
    "tls.server.certPath": str(TLS_DATA / "server.pem"),
    "tls.server.keyPath": str(TLS_DATA / "server.key"),
    "tls.server.mode": "permissive",
    "tls.server.need.client.auth": "optional",
    "tls.server.trustCertPath": str(CA_FILE),
}


def test_every_class_with_settings_is_walked() -> None:
    known = {section for kind in WALKED for section in sections(kind)}
    bases = {base for section in known for base in section.__mro__}
    assert {kind for kind in classes_with_settings() if kind not in bases} == set()


def classes_with_settings() -> Iterator[type[Any]]:
    for module in walk_packages(rocketline.__path__, "rocketline."):
        source = Path(PACKAGE, *module.name.split(".")[1:]).with_suffix(".py")
        if source.is_file() and re.search(r"import .*\bsetting\b", source.read_text("utf-8")):
            for value in vars(import_module(module.name)).values():
                if is_dataclass(value) and isinstance(value, type) and any("key" in f.metadata for f in fields(value)):
                    yield value


# A broker

BUSY = {
    "defaultMessageRequestMode": "POP",
    "enablePopBufferMerge": "true",
    "enablePopMessageThreshold": "true",
    "enableRetryTopicV2": "true",
    "flushDiskType": "ASYNC_FLUSH",
    "longPollingEnable": "false",
    "metricLoggingExporterIntervalInMills": "150000",
    "metricsExporterType": "LOG",
    "traceTopicEnable": "true",
    "transientStorePoolEnable": "true",
}
"""Without these, others have nothing to say."""


def with_accounts(folder: Path) -> dict[str, str]:
    """Settings of a server that asks for accounts, with some of RocketMQ 4."""
    (folder / "plain_acl.yml").write_text("accounts:\n- accessKey: RocketMQ\n  secretKey: '12345678'\n  admin: true\n")
    return {
        "authenticationEnabled": "true",
        "migrateAuthFromV1Enabled": "true",
        "rocketline.auth.v1Folder": str(folder),
        "rocketline.authPath": str(folder / "accounts"),
    }


def test_those_of_a_broker(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
    accounts = with_accounts(tmp_path)
    with noted_reads(BrokerConfig) as seen:
        run_world(partial(brokers_at_work, accounts=accounts))
        with LocalCluster(grpc=True, config={**FRONT, "rocketline.grpcAdvertised": "127.0.0.1:8081"}) as cluster:
            create_topics(cluster)
            asyncio.run(front_at_work(f"127.0.0.1:{cluster._running._front.port}", cluster.namesrv, seen))
        asyncio.run(replicas_at_work(tmp_path))
        asyncio.run(members_ask_etcd(tmp_path))
    assert all_settings(BrokerConfig) - seen == set()


async def brokers_at_work(world: SimWorld, accounts: dict[str, str]) -> None:
    await world.start_name_server("n1")
    await world.start_broker("read-only", {"brokerPermission": "4"})
    await world.start_broker("reporting", COLLECTOR)
    await world.start_broker("secured", SECURED)
    await world.start_broker("guarded", accounts)
    await world.start_broker("busy", BUSY)
    await world.inside(world.new_process("client"), keep_busy(world.broker_address("busy")))


async def replicas_at_work(folder: Path) -> None:
    """A master with a replica, and a stranger at its HA port."""
    settings = {
        "brokerRole": "SYNC_MASTER",
        "enableSlaveActingMaster": "true",
        "haFlowControlEnable": "true",
        "rocketline.haTrusted": "127.0.0.1",
    }
    async with (
        name_server() as names,
        Broker(group_config(folder, names, 0, **settings)) as master,
        Broker(group_config(folder, names, 1)) as replica,
    ):
        await send_all(names, "orders", [b"one"])
        await caught_up(master, replica)
        host, _, port = master.parts.environment.ha_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(bytes(8))
        await reader.readexactly(12)
        writer.close()
        await writer.wait_closed()
        async with RemotingClient() as client:
            await client.call(master.address, Command(RequestCode.GET_BROKER_HA_STATUS), PATIENCE_S)
        await scrape(master.metrics_address) if master.metrics_address else None


async def members_ask_etcd(folder: Path) -> None:
    """A member of a group with elections that does not reach etcd."""
    settings = {
        "rocketline.coordination": "etcds://127.0.0.1:1",
        "rocketline.coordinationUser": "root",
        "rocketline.coordinationPassword": "secret",
        "rocketline.coordinationCa": str(CA_FILE),
        "rocketline.coordinationCertificate": str(TLS_DATA / "server.pem"),
        "rocketline.coordinationKey": str(TLS_DATA / "server.key"),
    }
    async with name_server() as names:
        config = group_config(folder / "members", names, 0, **settings)
        async with Broker(config) as broker:
            assert not broker.parts.store.is_writable
            await broker.parts.roles.become_master(1)


async def keep_busy(address: str) -> None:
    """Messages of every kind, two members of a group, pulls, pops, and time for what a broker does by itself."""
    assignment = QueryAssignmentRequestBody("orders", "readers", "client-1", "AVG")
    async with RemotingClient() as one, RemotingClient() as other:
        await one.call(address, heartbeat("client-1", producers=("payers",)), PATIENCE_S)
        await other.call(address, heartbeat("client-2"), PATIENCE_S)
        for command in (
            send_request(),
            send_request(properties={"UNIQ_KEY": "A", "DELAY": "1"}),
            send_request(properties={"UNIQ_KEY": "B", "TIMER_DELAY_SEC": "200000"}),
            send_request(properties={"UNIQ_KEY": "C", "TRAN_MSG": "true", "PGROUP": "payers"}, sys_flag=4),
            pull_request(queue_id=3, sys_flag=SUBSCRIPTION | SUSPEND),
            Command(RequestCode.QUERY_ASSIGNMENT, {}, encode_body(assignment)),
        ):
            await one.call(address, command, PATIENCE_S)
        for _ in range(5):
            await one.call(address, send_request(), PATIENCE_S)
            await asyncio.sleep(2)
            await one.call(address, pop_request(group="poppers", init_mode=1, invisible_ms=10_000), PATIENCE_S)
        await asyncio.sleep(200)
        for _ in range(5):  # what nobody acknowledged comes again
            await one.call(address, pop_request(group="poppers", init_mode=1), PATIENCE_S)


# The front for gRPC clients, beside a broker and in a process of its own

FRONT = {"renewAheadTimeMillis": "3600000", "renewSchedulePeriodMillis": "10"}
"""Every message that a push consumer holds is about to become visible."""
WHEN_RENEWED = "GrpcConfig", "renew_max_ms"


async def front_at_work(address: str, namesrv: str, seen: set[Setting]) -> None:
    """Messages of every kind; a consumer that holds one for long, and is asked how it is."""
    async with GrpcWire(address) as wire, GrpcWire(address) as asked, Admin(namesrv) as admin:
        await calls.publish(asked, "TNORMAL")
        plain = calls.message("TNORMAL", message_group="g")
        plain.user_properties["colour"] = "red"
        delayed = calls.message("TDELAY", kind="DELAY")
        delayed.system_properties.delivery_timestamp.GetCurrentTime()
        half = calls.message("TTRANSACTION", kind="TRANSACTION")
        half.system_properties.orphaned_transaction_recovery_duration.seconds = 60
        for message in (plain, calls.message("TNORMAL"), delayed, half):
            await calls.send(wire, message)
        stream, _ = await calls.subscribe(wire, "readers", "TNORMAL", kind=ClientType.PUSH_CONSUMER)
        await calls.receive(wire, "TNORMAL", "readers", auto_renew=True)
        await wire.call("ReceiveMessage", calls.receive_request("TNORMAL", "others"))
        change = pb.ChangeInvisibleDurationRequest(receipt_handle="none")
        change.group.name, change.topic.name = "readers", "TNORMAL"
        await wire.call("ChangeInvisibleDuration", change)
        broker = (await admin.brokers())[0]
        asking = asyncio.create_task(broker.running_info("readers", "wire-1", stacks=True))
        await calls.commands(wire, stream, 2)
        async with asyncio.timeout(PATIENCE_S):
            while WHEN_RENEWED not in seen:
                await asyncio.sleep(0.01)
        asking.cancel()


def test_those_of_a_proxy(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
    accounts = with_accounts(tmp_path)
    ignored = {
        (section.__name__, item.name)
        for section in sections(ProxyConfig)
        for item in fields(section)
        if item.metadata.get("key") in ProxyConfig.IGNORED
    }
    with LocalCluster() as cluster, noted_reads(ProxyConfig) as seen:
        create_topics(cluster)
        asyncio.run(proxies_at_work(cluster.namesrv, accounts, seen))
    assert all_settings(ProxyConfig) - seen == ignored


async def proxies_at_work(namesrv: str, accounts: dict[str, str], seen: set[Setting]) -> None:
    page = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
    for settings in (FRONT | page, COLLECTOR, {"metricsExporterType": "LOG"}, SECURED, accounts, OPEN):
        values = {"namesrvAddr": namesrv, "grpcServerPort": "0", **settings}
        async with Proxy(load(ProxyConfig, values)[0]) as proxy:
            if settings == FRONT | page:
                await front_at_work(proxy.address, namesrv, seen)
                await scrape(proxy.metrics_address)


OPEN = {"bindAddress": "0.0.0.0", "rocketline.insecure": "true"}


# A name server


async def test_those_of_a_name_server(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
    with noted_reads(NameServerConfig) as seen:
        await name_server_at_work(NameServerConfig, kvConfigPath=str(tmp_path / "kv.json"), needWaitForService="true")
        await name_server_at_work(NameServerConfig, **COLLECTOR)
        await name_server_at_work(NameServerConfig, metricsExporterType="LOG", **SECURED)
        for settings in ({"bindAddress": "0.0.0.0", "rocketline.insecure": "true"}, with_accounts(tmp_path)):
            async with NameServer(load(NameServerConfig, {"listenPort": "0", **settings})[0]):
                pass
    assert all_settings(NameServerConfig) - seen == set()


async def name_server_at_work(kind: type[NameServerConfig], **settings: str) -> None:
    """A pair of brokers comes and goes, somebody asks for everything."""
    metrics = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
    config, _ = load(kind, {"listenPort": "0", **metrics, **settings})
    async with NameServer(config) as server:
        visitor = Visitor(server)
        await visitor.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "broker-a:4"})
        await visitor.register(header(acting=True), body())
        await visitor.register(header(address="10.0.0.2:10911", broker_id=1, acting=True), body())
        for code in (105, 106, 206, 224):
            await visitor.ask(code, {"topic": "orders", "cluster": "C"})
        server.scan()
        server.routes.unregister("C", "10.0.0.1:10911", "broker-a")
        if server.metrics_address:
            await scrape(server.metrics_address)
        await visitor.leave()


# A client


def test_those_of_a_client() -> None:
    """All of its names are used for nothing else, so the source shows who reads them."""
    sources = [path.read_text("utf-8") for path in Path(PACKAGE, "client").rglob("*.py")]
    unread = {item.name for item in fields(ClientTiming)}
    unread -= {name for source in sources for name in re.findall(r"timing\.(\w+)", source)}
    assert unread == set()


# The walk itself


@dataclass(frozen=True)
class WithOneMore(NameServerConfig):
    colour: str = setting("red", "colour", "Nobody looks at it.")

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.colour


async def test_a_setting_that_nobody_goes_by_is_found() -> None:
    """Although it is checked, shown and copied as all are."""
    with noted_reads(WithOneMore) as seen:
        await name_server_at_work(WithOneMore, colour="blue")
    assert ("WithOneMore", "colour") not in seen
    assert ("WithOneMore", "scan_interval_ms") in seen
