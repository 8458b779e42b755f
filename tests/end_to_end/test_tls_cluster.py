"""A cluster that takes only TLS: servers and clients among themselves, certificates that change under load, metrics."""

from __future__ import annotations

import asyncio
import re
import ssl
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.grpc_wire import GrpcWire
from tests.support.patience import PATIENCE_S
from tests.support.scraping import fetch

from rocketline.auth.config import AuthConfig
from rocketline.broker import Broker
from rocketline.broker.grpc_config import GrpcConfig
from rocketline.cli.servers.plan import plan_cluster
from rocketline.client import ClientOptions, ConsumeFrom, Producer, PushConsumer, Tls, blocking
from rocketline.client.bulk.reader import BulkReader
from rocketline.errors import NoPermission, RocketlineError
from rocketline.message import Message, MessageView
from rocketline.metrics.config import ExporterType, MetricsConfig
from rocketline.nameserver import NameServer
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.proxy.config import ProxyConfig
from rocketline.proxy.proto import pb
from rocketline.proxy.server import Proxy
from rocketline.testing import LocalCluster
from rocketline.testing.local_cluster import SMALL_FILES
from rocketline.transport import RemotingClient
from rocketline.transport.access import Access
from rocketline.transport.certificates import LOCAL_NAMES, Authority, CertificateFolder
from rocketline.transport.server_config import TlsConfig

ROTATIONS = 6
PRODUCERS = 3


async def test_messages_come_and_go_through_tls_only() -> None:
    local = LocalCluster(tls=True, brokers=2)
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(message: MessageView) -> None:
        got.put_nowait(message.body)

    async with local as cluster:
        options = ClientOptions(tls=local.tls)
        async with Producer(cluster.namesrv, group="p", options=options) as producer:
            for number in range(16):
                await producer.send(Message("orders", b"%d" % number))
        async with PushConsumer(cluster.namesrv, group="c", from_where=ConsumeFrom.FIRST, options=options) as consumer:
            consumer.subscribe("orders", "*", handle)
            await consumer.start()
            async with asyncio.timeout(PATIENCE_S):
                assert {await got.get() for _ in range(16)} == {b"%d" % number for number in range(16)}
        assert await asyncio.to_thread(read_all, cluster.namesrv, local.tls) == 16
        async with Producer(cluster.namesrv, group="plain") as plain:
            with pytest.raises(NoPermission, match="TLS required"):
                await plain.send(Message("orders", b"x"))


def read_all(namesrv: str, tls: Tls | None) -> int:
    with BulkReader(namesrv, group="r", tls=tls or False) as reader:
        return sum(
            len(list(reply.messages()))
            for queue in reader.queues("orders")
            for reply in reader.read(queue, *reader.bounds(queue))
        )


def test_a_blocking_client() -> None:
    with LocalCluster(tls=True) as cluster:
        options = ClientOptions(tls=cluster.tls or False)
        with blocking.Producer(cluster.namesrv, group="p", options=options) as producer:
            assert producer.send(Message("orders", b"x")).message_id


async def test_certificates_change_under_load_and_no_send_fails() -> None:
    local = LocalCluster(tls=True, config={"rocketline.tls.reloadSeconds": "0.05"})
    async with local as cluster:
        folder = cluster.data / "tls"
        authority = Authority.load(folder / "ca.pem", folder / "ca.key")
        options = ClientOptions(tls=local.tls)
        done = asyncio.Event()
        sent = [0] * PRODUCERS

        async def keep_sending(number: int) -> None:
            """One long connection and many short ones."""
            async with Producer(cluster.namesrv, group=f"steady-{number}", options=options) as steady:
                while not done.is_set():
                    await steady.send(Message("orders", b"steady"))
                    async with Producer(cluster.namesrv, group=f"new-{number}", options=options) as new:
                        await new.send(Message("orders", b"new"))
                    sent[number] += 2

        async with asyncio.TaskGroup() as group:
            for number in range(PRODUCERS):
                group.create_task(keep_sending(number))
            try:
                for _ in range(ROTATIONS):
                    before = sum(sent)
                    await asyncio.to_thread(rotate, authority, folder)
                    await until_shown(cluster.brokers[0].port, folder)
                    async with asyncio.timeout(PATIENCE_S):
                        while sum(sent) < before + 2 * PRODUCERS:
                            await asyncio.sleep(0.01)
            finally:
                done.set()
        stored = await asyncio.to_thread(read_all, cluster.namesrv, local.tls)
    assert stored == sum(sent)


async def test_a_certificate_that_ends_under_load_fails_no_send_of_who_is_connected() -> None:
    """New connections are told what is wrong, until the certificate is replaced."""
    local = LocalCluster(tls=True, config={"rocketline.tls.reloadSeconds": "0.05"})
    async with local as cluster:
        folder = cluster.data / "tls"
        authority = Authority.load(folder / "ca.pem", folder / "ca.key")
        options = ClientOptions(tls=local.tls)
        done, sent = asyncio.Event(), 0
        async with Producer(cluster.namesrv, group="steady", options=options) as steady:
            await steady.send(Message("orders", b"first"))

            async def keep_sending() -> None:
                nonlocal sent
                while not done.is_set():
                    await steady.send(Message("orders", b"steady"))
                    sent += 1

            async with asyncio.TaskGroup() as group:
                group.create_task(keep_sending())
                try:
                    await asyncio.to_thread(rotate, authority, folder, 0)  # it ends as it begins
                    await until_shown(cluster.brokers[0].port, folder, checks=False)
                    with pytest.raises(RocketlineError, match="expired"):
                        await ask_anew(cluster.brokers[0].address, local.tls)
                    before = sent
                    async with asyncio.timeout(PATIENCE_S):
                        while sent < before + 100:
                            await asyncio.sleep(0.01)
                    await asyncio.to_thread(rotate, authority, folder, 1)
                    await until_shown(cluster.brokers[0].port, folder, checks=False)
                    await ask_anew(cluster.brokers[0].address, local.tls)
                finally:
                    done.set()
        assert await asyncio.to_thread(read_all, cluster.namesrv, local.tls) == 1 + sent


async def test_a_new_authority_and_new_certificates_need_no_restart_of_who_connects(tmp_path: Path) -> None:
    """A broker and a client see a name server again that came back with other ones, and both asks for theirs."""
    certificates = CertificateFolder(tmp_path / "tls")
    settings = certificates.make_server((), 1) | {
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(certificates.ca_file),
        "rocketline.tls.reloadSeconds": "0.05",
        "registerNameServerPeriod": "50",
    }
    plan = plan_cluster(tmp_path, settings | SMALL_FILES, count=1)
    mine = certificates.save("mine", certificates.authority().client("mine", 1))
    options = ClientOptions(tls=Tls(ca_file=certificates.ca_file, certificate=mine, key=mine.with_suffix(".key")))
    async with AsyncExitStack() as running:
        names = await running.enter_async_context(NameServer(plan.name_server))
        known = replace(plan.brokers[0].registration, namesrv=names.address)
        await running.enter_async_context(Broker(replace(plan.brokers[0], registration=known)))
        producer = await running.enter_async_context(Producer(names.address, group="long", options=options))
        await producer.send(Message("before", b"x"))
        await asyncio.to_thread(replace_all, certificates)
        await names.close()
        await running.enter_async_context(NameServer(replace(plan.name_server, port=names.port)))
        # Nobody has a route of this topic: the broker must register, and the client must ask the name server.
        await sent_at_last(producer, "after")


def replace_all(certificates: CertificateFolder) -> None:
    certificates.ca_file.unlink()
    certificates.ca_key.unlink()
    certificates.save("mine", certificates.authority().client("mine", 1))
    certificates.make_server((), 1)


async def sent_at_last(producer: Producer, topic: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await producer.send(Message(topic, b"x"))
                return
            except RocketlineError:
                await asyncio.sleep(0.01)


async def ask_anew(address: str, tls: Tls | None) -> None:
    """Ask a broker something on a new connection."""
    async with RemotingClient(access=Access(tls=tls)) as client:
        await client.call(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), PATIENCE_S)


def rotate(authority: Authority, folder: Path, days: int = 1) -> None:
    authority.server(LOCAL_NAMES, days).save(folder / "server.pem", folder / "server.key")


async def until_shown(port: int, folder: Path, *, checks: bool = True) -> None:
    """Wait until new connections get the certificate of the file."""
    wanted = ssl.PEM_cert_to_DER_cert((folder / "server.pem").read_text())
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    if not checks:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with asyncio.timeout(PATIENCE_S):
        while True:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.transport.abort()
            if shown == wanted:
                return
            await asyncio.sleep(0.01)


async def test_a_proxy_shows_changed_certificates_at_both_ports_and_counts_whom_it_refuses() -> None:
    local = LocalCluster(tls=True)
    async with local as cluster:
        folder = cluster.data / "tls"
        files = {"cert_path": str(folder / "server.pem"), "key_path": str(folder / "server.key")}
        own = TlsConfig(mode="enforcing", client_trust_path=str(folder / "ca.pem"), reload_s=0.05, **files)
        auth = AuthConfig(enabled=True, init_user='{"username":"root","password":"rootsecret"}')
        page = MetricsConfig(exporter=ExporterType.PROM, port=0)
        config = ProxyConfig(namesrv=cluster.namesrv, grpc=GrpcConfig(port=0), auth=auth, metrics=page, tls=own)
        async with Proxy(config) as proxy:
            authority = Authority.load(folder / "ca.pem", folder / "ca.key")
            for _ in range(2):
                await asyncio.to_thread(rotate, authority, folder)
                for address in (proxy.address, proxy.metrics_address):
                    await until_shown(int(address.rpartition(":")[2]), folder)
            async with GrpcWire(proxy.address, tls=True) as wire:
                await wire.call("QueryRoute", pb.QueryRouteRequest())
            shown = await page_of(proxy.metrics_address, folder)
    assert re.search(r'^rocketline_requests_refused_total\{.*reason="no_account".*\} 1$', shown, re.M)
    assert "rocketline_tls_certificate_expiry_seconds{" in shown


async def page_of(address: str, folder: Path) -> str:
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        page = (await reader.read()).decode()
    writer.transport.abort()
    return page


async def test_where_plain_and_tls_are_taken_the_page_is_served_by_both() -> None:
    permissive = {"tls.server.mode": "permissive", "metricsExporterType": "PROM", "metricsPromExporterPort": 0}
    async with LocalCluster(tls=True, config=permissive) as cluster:
        address = cluster.brokers[0].metrics_address
        by_tls, plain = await page_of(address, cluster.data / "tls"), await fetch(address)
        host, _, port = address.rpartition(":")
        _, silent = await asyncio.open_connection(host, int(port))
    assert by_tls.startswith("HTTP/1.1 200")
    assert (plain.status, "rocketline_tls_certificate_expiry_seconds{" in plain.text) == (200, True)
    silent.transport.abort()


async def test_metrics_are_served_through_tls_and_tell_about_it() -> None:
    local = LocalCluster(tls=True, config={"metricsExporterType": "PROM", "metricsPromExporterPort": 0})
    async with local as cluster:
        page = await page_of(cluster.brokers[0].metrics_address, cluster.data / "tls")
    assert page.startswith("HTTP/1.1 200")
    assert "rocketline_tls_reload_failures_total{" in page
    assert "rocketline_tls_certificate_expiry_seconds{" in page
