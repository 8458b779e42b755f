"""TLS of a server: contexts made from its settings, made anew when files change, and the names in client certificates."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from rocketline.errors import ConfigError
from rocketline.from_files import FromFiles
from rocketline.metrics.families import Family, counter, gauge
from rocketline.system.sockets import is_loopback
from rocketline.transport.access import Access
from rocketline.transport.certificate_dates import not_after
from rocketline.transport.credentials import CredentialsOption
from rocketline.transport.server_config import ClientAuth, TlsConfig, TlsIdentity, TlsMode, words
from rocketline.transport.tls import Tls, file_problem, key_password

log = logging.getLogger(__name__)

TLS13_SUITES = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
_JAVA_SUITE = re.compile(r"TLS_(?:(\w+)_)?WITH_(\w+)")


class ServerTls:
    """The TLS of one server. Raises ConfigError when its settings or files cannot be used."""

    def __init__(self, config: TlsConfig, mode: TlsMode, alpn: tuple[str, ...] = ()) -> None:
        """`alpn` are the protocols that clients may choose from."""
        self.mode = mode
        self._alpn = alpn
        self.handshake_failures = 0
        self._config = config
        self._identity = TlsIdentity(config.identity)
        self._made_up = not config.cert_path
        self._files = FromFiles(
            (config.cert_path, config.key_path, config.key_password_file, config.trust_path), self._load
        )
        if config.test_mode and self._made_up:
            log.warning(
                "tls.test.mode.enable: this server shows a certificate that was made up now and that no client can check; "
                "for real use set tls.server.certPath and tls.server.keyPath"
            )

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._files.made[0]

    @property
    def expires(self) -> datetime | None:
        """When the certificate ends."""
        return self._files.made[1]

    @property
    def reload_failures(self) -> int:
        return self._files.failures

    @staticmethod
    def made_up(mode: TlsMode, alpn: tuple[str, ...] = ()) -> ServerTls:
        """TLS with a certificate that is made now, for clients that check none. Needs the extra `certs`."""
        return ServerTls(TlsConfig(), mode, alpn)

    @staticmethod
    def of(config: TlsConfig, host: str, alpn: tuple[str, ...] = ()) -> ServerTls | None:
        """The TLS of a server that listens on `host`; None when it is off."""
        config = config.with_file()
        mode = config.mode_for(is_loopback=is_loopback(host))
        if mode is TlsMode.DISABLED:
            return None
        if not config.cert_path and not config.test_mode:
            raise ConfigError(
                f"tls.server.mode={mode} needs a certificate: set tls.server.certPath and tls.server.keyPath "
                "(--tls-cert, --tls-key); `rocketline certs` makes some for development"
            )
        if config.identity != TlsIdentity.NONE and not config.checks_clients:
            raise ConfigError(
                f"rocketline.tls.identity={config.identity}: no client is asked for a certificate "
                f"(tls.server.need.client.auth={config.need_client_auth}); set that to optional or require"
            )
        return ServerTls(config, mode, alpn)

    def _load(self) -> tuple[ssl.SSLContext, datetime | None]:
        if self._made_up:
            context, ends = _made_up_context(self._config)
        else:
            context, ends = server_context(self._config), not_after(Path(self._config.cert_path).read_text("latin-1"))
        if self._alpn:
            context.set_alpn_protocols(list(self._alpn))
        return context, ends

    def identity_of(self, certificate: Any) -> str:
        """The account that a verified certificate stands for, as `getpeercert` shows it; "" when it is none."""
        if not certificate or self._identity is TlsIdentity.NONE:
            return ""
        if self._identity is TlsIdentity.SAN:
            for _, name in certificate.get("subjectAltName", ()):
                return str(name)
        names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
        return str(names[0]) if names else ""

    def for_page(self) -> ssl.SSLContext:
        """A context for servers that cannot change theirs: it hands every connection over to the one in use."""
        context, _ = self._load()

        def use_current(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            connection.context = self.context

        context.sni_callback = use_current
        return context

    async def watch(self) -> None:
        """Use changed files, for as long as this runs."""
        if not self._config.reload_s or self._made_up:
            return
        while True:
            await asyncio.sleep(self._config.reload_s)
            await asyncio.to_thread(self.reload)

    def reload(self) -> None:
        """Use the files if they changed since the last look; on failure the context stays as it is."""
        if self._files.look():
            log.warning("changed TLS files are used for new connections; the certificate ends at %s", self.expires)

    def families(self) -> Iterator[Family]:
        failures = counter("rocketline_tls_reload_failures_total", "Changes of TLS files that could not be used.")
        failures.add(self.reload_failures)
        yield failures
        handshakes = counter("rocketline_tls_handshake_failures_total", "TLS handshakes that failed.")
        handshakes.add(self.handshake_failures)
        yield handshakes
        if self.expires is not None:
            left = gauge("rocketline_tls_certificate_expiry_seconds", "Seconds until the server's certificate ends.")
            left.add(self.expires.timestamp() - time.time())
            yield left


def own_access(config: TlsConfig, tls: ServerTls | None, credentials: CredentialsOption = None) -> Access:
    """How a server connects to others, and as which account: by TLS if `tls.enable` says so, or if it takes nothing else."""
    config = config.with_file()
    if not config.enable and (tls is None or tls.mode is not TlsMode.ENFORCING):
        return Access(credentials)
    has_own = bool(config.client_cert_path)
    certificate = config.client_cert_path or config.cert_path or None
    key = (config.client_key_path if has_own else config.key_path) or None
    password = (config.client_key_password if has_own else config.key_password) or None
    password_file = (None if has_own else config.key_password_file) or None
    verify = config.client_auth_server or bool(config.client_trust_path)
    if not verify:
        log.warning(
            "certificates of other servers are not checked: set tls.client.trustCertPath to the authority that signed them"
        )
    return Access(
        credentials,
        Tls(
            ca_file=config.client_trust_path or None,
            certificate=certificate,
            key=key if certificate else None,
            key_password=password if certificate else None,
            key_password_file=password_file if certificate else None,
            verify=verify,
        ),
    )


def server_context(config: TlsConfig) -> ssl.SSLContext:
    """A context for connections of clients; ConfigError names the key of a file that cannot be used."""
    context, password = _bare_context(config), key_password(config.key_password, config.key_password_file)
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(config.cert_path, config.key_path or None, password)
    except (OSError, ValueError) as error:
        files = f"tls.server.certPath={config.cert_path}"
        files += f" with tls.server.keyPath={config.key_path}" if config.key_path else ""
        raise ConfigError(f"{files} cannot be used: {file_problem(error)}") from error
    return context


def _bare_context(config: TlsConfig) -> ssl.SSLContext:
    """A context without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    spoken = words(config.protocols)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if spoken == ["TLSv1.3"] else ssl.TLSVersion.TLSv1_2
    if spoken == ["TLSv1.2"]:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    _use_ciphers(context, config.ciphers)
    if config.checks_clients:
        _check_clients(context, config)
    return context


def _use_ciphers(context: ssl.SSLContext, given: str) -> None:
    for name in words(given):
        if name not in TLS13_SUITES:
            try:
                context.set_ciphers(openssl_name(name))
            except ssl.SSLError as error:
                raise ConfigError(f"tls.ciphers: {name!r} is not a cipher suite of this system's OpenSSL") from error
    if chosen := [openssl_name(name) for name in words(given) if name not in TLS13_SUITES]:
        context.set_ciphers(":".join(chosen))


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a cipher suite that Java knows by another one.

    >>> openssl_name("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"), openssl_name("TLS_RSA_WITH_AES_256_CBC_SHA")
    ('ECDHE-RSA-AES128-GCM-SHA256', 'AES256-SHA')
    >>> openssl_name("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"), openssl_name("AES128-SHA")
    ('ECDHE-ECDSA-CHACHA20-POLY1305', 'AES128-SHA')
    """
    found = _JAVA_SUITE.fullmatch(suite)
    if found is None:
        return suite
    exchange, cipher = found[1] or "RSA", found[2]
    cipher = re.sub(r"AES_(\d+)", r"AES\1", cipher).replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305")
    return "-".join(([] if exchange == "RSA" else exchange.split("_")) + cipher.split("_"))


def _check_clients(context: ssl.SSLContext, config: TlsConfig) -> None:
    if not config.trust_path:
        raise ConfigError(
            f"tls.server.need.client.auth={config.need_client_auth}: certificates of clients are checked against "
            "tls.server.trustCertPath (--tls-ca), which is not set"
        )
    is_required = ClientAuth(config.need_client_auth) is ClientAuth.REQUIRE
    context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    try:
        context.load_verify_locations(config.trust_path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"tls.server.trustCertPath={config.trust_path} cannot be used: {file_problem(error)}"
        ) from error


def _made_up_context(config: TlsConfig) -> tuple[ssl.SSLContext, datetime | None]:
    from rocketline.transport.certificates import self_signed

    context = _bare_context(config)
    made = self_signed()
    made.load_into(context)
    return context, made.ends
