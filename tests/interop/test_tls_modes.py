"""TLS of Apache's name server and of ours: who gets in, in each mode, with each certificate, and when the files change.

What is asked differs in nothing but the server. Where ours is stricter, the difference is in the table."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.apache import QUICK_START, SERVER_VERSION, ApacheCluster, server_coordinates
from tests.support.java import require_java
from tests.support.patience import PATIENCE_S

from rocketline.errors import ConfigError, RocketlineError
from rocketline.nameserver import NameServer, NameServerConfig
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.settings import load
from rocketline.transport import RemotingClient
from rocketline.transport.access import Access
from rocketline.transport.certificates import LOCAL_NAMES, Authority

AUTH, CHECKS = "tls.server.need.client.auth", "tls.server.authClient"


@dataclass(frozen=True)
class Case:
    """How a server is started, and who is served by Apache's; `ours` where it differs. Words are of `ask`."""

    settings: Mapping[str, str]
    served: frozenset[str]
    ours: frozenset[str] | None = field(default=None)


def case(served: str, ours: str | None = None, **settings: str) -> Case:
    return Case(settings, frozenset(served.split()), None if ours is None else frozenset(ours.split()))


WITHOUT, TRUSTED, FOREIGN = "1.2 1.3", "trusted-1.2 trusted-1.3", "foreign-1.2 foreign-1.3"
ALL = f"{WITHOUT} {TRUSTED} {FOREIGN}"


def asks(wanted: str, checks: str) -> dict[str, str]:
    return {"tls.server.mode": "enforcing", AUTH: wanted, CHECKS: checks}


CASES = {
    "disabled": case("plain", **{"tls.server.mode": "disabled"}),
    "permissive": case(f"plain {ALL}", **{"tls.server.mode": "permissive"}),
    "enforcing": case(ALL, **{"tls.server.mode": "enforcing"}),
    "none, checked": case(ALL, **asks("none", "true")),
    "optional": case(ALL, **asks("optional", "false")),
    "optional, checked": case(f"{WITHOUT} {TRUSTED}", **asks("optional", "true")),
    "require": case(f"{TRUSTED} {FOREIGN}", TRUSTED, **asks("require", "false")),
    "require, checked": case(TRUSTED, **asks("require", "true")),
}
"""Apache's server with `require` alone wants a certificate and checks none; ours checks it."""


class Files:
    """Certificates of a server, and of clients of two authorities, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.make("trusted", 1)
        self.authority.pair.save(folder / "ca.pem", folder / "ca.key")
        self.authority.client("trusted", 1).save(folder / "trusted.pem", folder / "trusted.key")
        Authority.make("foreign", 1).client("foreign", 1).save(folder / "foreign.pem", folder / "foreign.key")
        self.renew("server")

    def renew(self, name: str) -> bytes:
        """A new certificate for a server; in DER."""
        pair = self.authority.server(LOCAL_NAMES, 1)
        pair.save(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        return ssl.PEM_cert_to_DER_cert((self.folder / f"{name}.pem").read_text())

    def settings(self, name: str = "server") -> dict[str, str]:
        return {
            "tls.server.certPath": str(self.folder / f"{name}.pem"),
            "tls.server.keyPath": str(self.folder / f"{name}.key"),
            "tls.server.trustCertPath": str(self.folder / "ca.pem"),
        }

    def contexts(self) -> dict[str, ssl.SSLContext | None]:
        """The ways to connect, by name."""
        found: dict[str, ssl.SSLContext | None] = {"plain": None, "1.1": self.context(ssl.TLSVersion.TLSv1_1)}
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            number = version.name.removeprefix("TLSv").replace("_", ".")
            found[number] = self.context(version)
            for client in ("trusted", "foreign"):
                context = found[f"{client}-{number}"] = self.context(version)
                context.load_cert_chain(self.folder / f"{client}.pem", self.folder / f"{client}.key")
        return found

    def context(self, version: ssl.TLSVersion) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        if version is ssl.TLSVersion.TLSv1_1:
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # 1.1 is meant to be refused
            context.minimum_version = context.maximum_version = version
        return context


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls-modes"))


@pytest.fixture(scope="module")
def apache(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Addresses of Apache's name servers, one for each case; they start at the same time."""
    require_java(*server_coordinates(SERVER_VERSION))
    files.renew("rotating")
    wanted = {name: {**files.settings(), **case.settings} for name, case in CASES.items()}
    wanted["rotating"] = {**files.settings("rotating"), "tls.server.mode": "enforcing"}
    wanted["misspelt"] = {**files.settings(), "tls.server.mode": "Enforced"}

    def started(name: str) -> ApacheCluster:
        settings = {"tls.test.mode.enable": "false", **wanted[name]}
        options = (*QUICK_START, *(f"-D{key}={value}" for key, value in settings.items()))
        return ApacheCluster(folder / name.replace(", ", "-"), broker=False, jvm_options=options).start()

    folder, clusters = tmp_path_factory.mktemp("apache"), []
    for name in wanted:
        (folder / name.replace(", ", "-")).mkdir()
    try:
        with ThreadPoolExecutor(4) as pool:
            for starting in [pool.submit(started, name) for name in wanted]:
                clusters.append(starting.result())
        yield {name: cluster.namesrv for name, cluster in zip(wanted, clusters)}
    finally:
        for cluster in clusters:
            cluster.kill()


@asynccontextmanager
async def ours(settings: Mapping[str, str]) -> AsyncIterator[str]:
    async with NameServer(load(NameServerConfig, {"listenPort": "0", **settings})[0]) as server:
        yield server.address


async def ask(address: str, context: ssl.SSLContext | None) -> bool:
    """Whether somebody who connects like this is served."""
    async with RemotingClient(access=Access(tls=context)) as client:
        try:
            return (await client.call(address, Command(RequestCode.GET_BROKER_CLUSTER_INFO), PATIENCE_S)).code == 0
        except RocketlineError:
            return False


@pytest.mark.parametrize("name", CASES)
async def test_who_is_served(apache: dict[str, str], files: Files, name: str) -> None:
    case, contexts = CASES[name], files.contexts()
    assert {way for way, context in contexts.items() if await ask(apache[name], context)} == case.served
    async with ours({**files.settings(), **case.settings}) as address:
        assert {way for way, context in contexts.items() if await ask(address, context)} == (case.ours or case.served)


async def test_a_misspelt_mode(apache: dict[str, str], files: Files) -> None:
    """Apache's server takes everything; ours does not start."""
    contexts = files.contexts()
    assert await ask(apache["misspelt"], None)
    assert await ask(apache["misspelt"], contexts["1.3"])
    with pytest.raises(ConfigError, match=r"tls\.server\.mode"):
        async with ours({**files.settings(), "tls.server.mode": "Enforced"}):
            pass


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16" + b"rubbish " * 8], ids=["http", "rubbish"])
@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_what_is_neither_a_frame_nor_tls_is_closed_at_once(
    apache: dict[str, str], files: Files, mode: str, data: bytes
) -> None:
    async with ours({**files.settings(), "tls.server.mode": mode}) as own:
        for address in (apache[mode], own):
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(data)
            async with asyncio.timeout(PATIENCE_S):
                try:
                    while await reader.read(1 << 16):
                        pass
                except ConnectionError:
                    pass
            writer.transport.abort()


async def test_changed_files(apache: dict[str, str], files: Files) -> None:
    """New connections see new files; files of no use change nothing; who is connected stays so."""
    context = files.context(ssl.TLSVersion.TLSv1_3)
    settings = {**files.settings("rotating"), "tls.server.mode": "enforcing", "rocketline.tls.reloadSeconds": "0.05"}
    async with ours(settings) as own, RemotingClient(access=Access(tls=context)) as old:
        addresses = apache["rotating"], own
        for address in addresses:
            assert (await old.call(address, Command(RequestCode.GET_BROKER_CLUSTER_INFO), PATIENCE_S)).code == 0
        connections = [old.connected(address) for address in addresses]
        first = await asyncio.to_thread(files.renew, "rotating")
        for address in addresses:
            await until_shown(address, context, first, {first, *[await shown(address, context)]})
        for kind in ("pem", "key"):
            (files.folder / f"rotating.{kind}").write_text("rubbish")
        assert [await shown(address, context) for address in addresses] == [first, first]
        second = await asyncio.to_thread(files.renew, "rotating")
        for address in addresses:
            await until_shown(address, context, second, {first, second})
            assert (await old.call(address, Command(RequestCode.GET_BROKER_CLUSTER_INFO), PATIENCE_S)).code == 0
        assert [old.connected(address) for address in addresses] == connections


async def shown(address: str, context: ssl.SSLContext) -> bytes:
    """The certificate that a server shows, in DER."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(PATIENCE_S):
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return certificate


async def until_shown(address: str, context: ssl.SSLContext, wanted: bytes, known: set[bytes]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (found := await shown(address, context)) != wanted:
            assert found in known
            await asyncio.sleep(0.02)
