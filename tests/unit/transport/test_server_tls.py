"""TLS of servers: settings, certificates of clients and the accounts they name, files that change."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import PATIENCE_S
from tests.support.tls import CA_FILE, CLIENT_CERTIFICATE, TLS_DATA
from tests.unit.transport.peers import ECHO, Scripted, eventually, serving

from rocketline.broker import BrokerConfig
from rocketline.errors import ConfigError, TransportError
from rocketline.protocol.command import Command
from rocketline.settings import as_properties, load
from rocketline.transport import RemotingClient, RemotingServer
from rocketline.transport.access import Access
from rocketline.transport.certificates import LOCAL_NAMES, Authority
from rocketline.transport.server_config import TlsConfig, TlsMode
from rocketline.transport.server_tls import ServerTls, own_access, server_context
from rocketline.transport.tls import Tls

CERTIFIED = TlsConfig(cert_path=str(TLS_DATA / "server.pem"), key_path=str(TLS_DATA / "server.key"))
LOOPBACK, EVERYWHERE = "127.0.0.1", "0.0.0.0"


async def call(server: RemotingServer, context: Any) -> Command:
    async with RemotingClient(access=Access(tls=context)) as client:
        return await client.call(f"127.0.0.1:{server.port}", Command(ECHO), PATIENCE_S)


# Settings


@pytest.mark.parametrize(
    ("config", "host", "mode"),
    [
        (TlsConfig(), LOOPBACK, None),
        (TlsConfig(), EVERYWHERE, None),
        (CERTIFIED, LOOPBACK, TlsMode.PERMISSIVE),
        (CERTIFIED, EVERYWHERE, TlsMode.ENFORCING),
        (replace(CERTIFIED, mode="permissive"), EVERYWHERE, TlsMode.PERMISSIVE),
        (replace(CERTIFIED, mode="enforcing"), LOOPBACK, TlsMode.ENFORCING),
        (replace(CERTIFIED, mode="disabled"), EVERYWHERE, None),
        (TlsConfig(test_mode=True), LOOPBACK, TlsMode.PERMISSIVE),
    ],
)
def test_the_mode(config: TlsConfig, host: str, mode: TlsMode | None) -> None:
    tls = ServerTls.of(config, host)
    assert (tls and tls.mode) == mode


MISTAKES = [
    ({"tls.server.mode": "Enforced"}, "tls.server.mode='Enforced' is none of disabled, permissive, enforcing"),
    ({"tls.server.mode": "enforcing"}, "tls.server.mode=enforcing needs a certificate: .*--tls-cert.*rocketline certs"),
    ({"tls.server.need.client.auth": "yes"}, "tls.server.need.client.auth='yes' is none of none, optional, require"),
    ({"rocketline.tls.identity": "dn"}, "rocketline.tls.identity='dn' is none of none, san, cn"),
    ({"rocketline.tls.identity": "san"}, "rocketline.tls.identity=san: .*tls.server.need.client.auth=none"),
    ({"rocketline.tls.reloadSeconds": "-1"}, "rocketline.tls.reloadSeconds=-1 must not be negative"),
    ({"tls.protocols": "TLSv1.3,TLSv1.1"}, "tls.protocols: 'TLSv1.1' is not spoken here; TLSv1.2 and TLSv1.3 are"),
    ({"tls.ciphers": "TLS_NONSENSE"}, "tls.ciphers: 'TLS_NONSENSE' is not a cipher suite"),
    ({"tls.server.certPath": "/nowhere/me.pem"}, "tls.server.certPath=/nowhere/me.pem with .*No such file"),
    ({"tls.server.keyPath": str(TLS_DATA / "elsewhere.key")}, "tls.server.keyPath=.*elsewhere.key cannot be used"),
    (
        {"tls.server.certPath": str(TLS_DATA / "client.pem"), "tls.server.keyPath": str(TLS_DATA / "client.key"),
         "tls.server.keyPassword": "wrong-one"},
        "client.key cannot be used: .*password",
    ),
    ({"tls.server.need.client.auth": "require"}, "need.client.auth=require: .*tls.server.trustCertPath.*not set"),
    (
        {"tls.server.need.client.auth": "require", "tls.server.trustCertPath": "/nowhere/ca.pem"},
        "tls.server.trustCertPath=/nowhere/ca.pem cannot be used: No such file",
    ),
    ({"tls.config.file": "/nowhere/tls.properties"}, "tls.config.file=/nowhere/tls.properties cannot be read: No such"),
    ({"rocketline.proxyProtocolFrom": "10.0.0.1/8"}, "rocketline.proxyProtocolFrom='10.0.0.1/8'.*host bits"),
    ({"rocketline.maxConnectionsPerAddress": "-1"}, "rocketline.maxConnectionsPerAddress=-1 must not be negative"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "problem"), MISTAKES)
def test_mistakes_stop_the_start(values: dict[str, str], problem: str) -> None:
    files = {"tls.server.certPath": CERTIFIED.cert_path, "tls.server.keyPath": CERTIFIED.key_path}
    with pytest.raises(ConfigError, match=problem) as caught:
        config, unknown = load(BrokerConfig, values if "needs a certificate" in problem else {**files, **values})
        assert not unknown
        ServerTls.of(config.tls, LOOPBACK)
    assert "wrong-one" not in str(caught.value)


def test_the_file_of_tls_wins_except_for_the_mode(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(
        "tls.server.mode=disabled\ntls.enable=true\ntls.server.need.client.auth=require\n"
        f"tls.server.certPath={CERTIFIED.cert_path}\ntls.server.keyPath={CERTIFIED.key_path}\n"
    )
    given = TlsConfig(mode="enforcing", cert_path="/nowhere", trust_path=str(CA_FILE), config_file=str(file))
    read = given.with_file()
    assert read == replace(CERTIFIED, mode="enforcing", trust_path=str(CA_FILE), need_client_auth="require")
    tls = ServerTls.of(given, LOOPBACK)
    assert tls is not None
    assert tls.context.verify_mode is ssl.CERT_REQUIRED


def test_passwords_are_not_shown() -> None:
    config = TlsConfig(key_password="12345678", client_key_password="87654321")
    assert not {"12345678", "87654321"} & set(repr(config).replace("'", " ").split())
    shown = as_properties(BrokerConfig(tls=config))
    assert "12345678" not in shown
    assert "87654321" not in shown


def test_contexts_are_strict() -> None:
    context = server_context(CERTIFIED)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.num_tickets == 0
    chosen = server_context(
        replace(
            CERTIFIED, protocols="TLSv1.2", ciphers="TLS_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        )
    )
    assert chosen.maximum_version is ssl.TLSVersion.TLSv1_2
    names = {cipher["name"] for cipher in chosen.get_ciphers() if not cipher["name"].startswith("TLS_")}
    assert names == {"ECDHE-ECDSA-AES128-GCM-SHA256"}
    assert server_context(replace(CERTIFIED, protocols="TLSv1.3")).minimum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("config", "tls"),
    [
        (CERTIFIED, None),  # permissive
        (replace(CERTIFIED, mode="enforcing"), {"certificate": CERTIFIED.cert_path, "verify": False}),
        (TlsConfig(enable=True), {"certificate": None, "verify": False}),
        (TlsConfig(enable=True, client_auth_server=True), {"ca_file": None, "verify": True, "check_host": True}),
        (
            replace(CERTIFIED, enable=True, client_trust_path="ca", client_cert_path="c", client_key_path="k"),
            {"ca_file": "ca", "certificate": "c", "key": "k", "verify": True},
        ),
    ],
)
def test_connections_of_servers_to_each_other(config: TlsConfig, tls: dict[str, Any] | None) -> None:
    access = own_access(config, ServerTls.of(replace(config, client_cert_path=""), LOOPBACK))
    if tls is None:
        assert access == Access()
    else:
        assert isinstance(access.tls, Tls)
        assert {name: getattr(access.tls, name) for name in tls} == tls


async def test_the_password_of_a_key_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("rocketline\n")
    locked = TlsConfig(
        cert_path=str(TLS_DATA / "client.pem"), key_path=str(TLS_DATA / "client.key"), key_password_file=str(file)
    )
    tls = ServerTls.of(locked, LOOPBACK)
    assert tls is not None
    context = tls.context
    file.write_text("wrong")
    tls.reload()
    assert (tls.context is context, tls.reload_failures) == (True, 1)
    file.write_text("rocketline")
    tls.reload()
    assert tls.context is not context
    shown = own_access(replace(locked, enable=True), tls).contexts()
    assert shown is not None
    assert shown() is shown()
    with pytest.raises(ConfigError, match="is given, and in"):
        server_context(replace(locked, key_password="rocketline"))
    file.unlink()
    with pytest.raises(ConfigError, match=r"the password of the key in .*: No such file"):
        server_context(locked)


# Certificates of clients


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A client of the trusted authority and one of another."""
    folder = tmp_path_factory.mktemp("authorities")
    for name in ("trusted", "foreign"):
        authority = Authority.make(name, 1)
        authority.pair.save(folder / f"{name}-ca.pem", folder / f"{name}-ca.key")
        authority.client(f"{name}.example", 1).save(folder / f"{name}.pem", folder / f"{name}.key")
    return folder


@pytest.mark.parametrize(
    ("asks", "checks", "served"),
    [
        ("none", False, {"none", "trusted", "foreign"}),
        ("none", True, {"none", "trusted", "foreign"}),
        ("optional", False, {"none", "trusted", "foreign"}),
        ("optional", True, {"none", "trusted"}),
        ("require", False, {"trusted"}),  # Apache also serves the foreign one
        ("require", True, {"trusted"}),
    ],
)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_certificates_of_clients(
    authorities: Path, asks: str, checks: bool, served: set[str], version: ssl.TLSVersion
) -> None:
    config = replace(
        CERTIFIED, need_client_auth=asks, auth_client=checks, trust_path=str(authorities / "trusted-ca.pem")
    )
    found = set()
    async with serving(Scripted().router, tls=ServerTls.of(config, LOOPBACK)) as server:
        for name in ("none", "trusted", "foreign"):
            context = ssl.create_default_context(cafile=CA_FILE)
            context.minimum_version = context.maximum_version = version
            if name != "none":
                context.load_cert_chain(authorities / f"{name}.pem", authorities / f"{name}.key")
            try:
                await call(server, context)
            except TransportError:
                continue
            found.add(name)
        await eventually(lambda: not server.channels)
    assert found == served


@pytest.mark.parametrize(
    ("identity", "asks", "shows", "account"),
    [
        ("none", "require", True, ""),
        ("san", "require", True, "client.example"),
        ("cn", "require", True, "rocketline test client"),
        ("san", "optional", True, "client.example"),
        ("cn", "optional", False, ""),
    ],
)
async def test_the_account_of_a_certificate(identity: str, asks: str, shows: bool, account: str) -> None:
    scripted = Scripted()
    config = replace(CERTIFIED, identity=identity, need_client_auth=asks, trust_path=str(CA_FILE))
    async with serving(scripted.router, tls=ServerTls.of(config, LOOPBACK)) as server:
        await call(server, Tls(ca_file=CA_FILE, **(CLIENT_CERTIFICATE if shows else {})))
    assert [channel.identity for channel in scripted.channels] == [account]


def test_a_certificate_without_alternative_names_gives_its_common_name() -> None:
    tls = ServerTls(replace(CERTIFIED, identity="san"), TlsMode.PERMISSIVE)
    assert tls is not None
    assert tls.identity_of({"subject": ((("organizationName", "o"),), (("commonName", "alice"),))}) == "alice"
    assert tls.identity_of({"subject": ()}) == ""


# Made-up certificates


async def test_a_certificate_that_is_made_up_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    tls = ServerTls.of(TlsConfig(test_mode=True), LOOPBACK)
    assert "tls.test.mode.enable: this server shows a certificate that was made up" in caplog.text
    async with serving(Scripted().router, tls=tls) as server:
        assert (await call(server, Tls(verify=False))).code == 0
        with pytest.raises(TransportError, match="not trusted"):
            await call(server, Tls(ca_file=CA_FILE))


# Files that change


class Rotation:
    """A server's files, and what its clients see."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority.make("rotating", 10)
        self.folder = folder
        self.authority.pair.save(folder / "ca.pem", folder / "ca.key")
        self.renew()
        self.config = TlsConfig(
            cert_path=str(folder / "server.pem"), key_path=str(folder / "server.key"), trust_path=str(folder / "ca.pem")
        )

    def renew(self, days: int = 1) -> bytes:
        """Replace certificate and key; returns the certificate in DER."""
        pair = self.authority.server(LOCAL_NAMES, days)
        pair.save(self.folder / "server.pem", self.folder / "server.key")
        return self.current()

    def current(self) -> bytes:
        return ssl.PEM_cert_to_DER_cert((self.folder / "server.pem").read_text())

    async def seen(self, server: RemotingServer) -> bytes:
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        async with asyncio.timeout(PATIENCE_S):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
        return certificate


@pytest.fixture
def rotation(tmp_path: Path) -> Rotation:
    return Rotation(tmp_path)


def broken(rotation: Rotation, how: str) -> None:
    certificate, key = rotation.folder / "server.pem", rotation.folder / "server.key"
    if how == "rubbish":
        certificate.write_text("rubbish")
    elif how == "deleted":
        certificate.unlink()
        key.unlink()
    elif how == "another key":
        shutil.copy(TLS_DATA / "server.key", key)
    else:
        key.write_bytes(b"")


@pytest.mark.parametrize("how", ["rubbish", "deleted", "another key", "empty key"])
async def test_files_that_cannot_be_used_leave_the_old_ones_in_use(
    rotation: Rotation, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ServerTls.of(rotation.config, LOOPBACK)
    assert tls is not None
    async with serving(Scripted().router, tls=tls) as server:
        old = await rotation.seen(server)
        broken(rotation, how)
        for _ in range(3):
            tls.reload()
        assert await rotation.seen(server) == old
        assert tls.reload_failures == 1
        told = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert len(told) == 1
        assert "tls.server.certPath" in told[0].getMessage()
        new = rotation.renew()
        tls.reload()
        assert await rotation.seen(server) == new != old
        assert tls.reload_failures == 1


async def test_changed_files_are_for_new_connections_and_old_ones_live_on(rotation: Rotation) -> None:
    config = replace(rotation.config, reload_s=0.05)
    tls = ServerTls.of(config, LOOPBACK)
    assert tls is not None
    page = tls.for_page()
    access = Access(tls=Tls(ca_file=rotation.folder / "ca.pem"))
    async with serving(Scripted().router, tls=tls) as server, RemotingClient(access=access) as old:
        address = f"127.0.0.1:{server.port}"
        await old.call(address, Command(ECHO), PATIENCE_S)
        channel = old.connected(address)
        new = rotation.renew(days=5)
        async with asyncio.timeout(PATIENCE_S):
            while await rotation.seen(server) != new:
                await asyncio.sleep(0.01)
        assert (await old.call(address, Command(ECHO), PATIENCE_S)).code == 0
        assert old.connected(address) is channel
        listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=page)
        async with listening:
            shown = await asyncio.to_thread(
                ssl.get_server_certificate, listening.sockets[0].getsockname(), timeout=PATIENCE_S
            )
        assert ssl.PEM_cert_to_DER_cert(shown) == new
    assert tls.expires is not None
    assert abs(tls.expires - datetime.now(UTC) - timedelta(days=5)) < timedelta(hours=1)
    families = {family.name: sum(family.samples.values()) for family in tls.families()}
    assert families["rocketline_tls_reload_failures_total"] == tls.reload_failures
    assert 4 * 86_400 < families["rocketline_tls_certificate_expiry_seconds"] < 5 * 86_400


async def test_the_authorities_alone_may_change(rotation: Rotation) -> None:
    mine = {name: rotation.folder / f"mine.{kind}" for name, kind in (("certificate", "pem"), ("key", "key"))}
    other = Authority.make("other", 1)
    other.client("mine", 1).save(mine["certificate"], mine["key"])
    trust = rotation.folder / "clients.pem"
    trust.write_bytes((rotation.folder / "ca.pem").read_bytes())
    tls = ServerTls.of(replace(rotation.config, need_client_auth="require", trust_path=str(trust)), LOOPBACK)
    assert tls is not None
    async with serving(Scripted().router, tls=tls) as server:
        with pytest.raises(TransportError):
            await call(server, Tls(ca_file=rotation.folder / "ca.pem", **mine))
        other.pair.save(trust, rotation.folder / "clients.key")
        tls.reload()
        assert (await call(server, Tls(ca_file=rotation.folder / "ca.pem", **mine))).code == 0
