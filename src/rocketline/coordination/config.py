"""Where the record of a group is kept: `etcd://HOST:PORT,HOST:PORT`, and how it is reached."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from rocketline.coordination.http_json import Endpoint
from rocketline.errors import ConfigError
from rocketline.from_files import FromFiles
from rocketline.settings import setting

LEAST_LEASE_MS = 2_000
"""etcd gives no shorter lease."""
DEFAULT_PORT = 2379


@dataclass(frozen=True)
class CoordinationConfig:
    url: str = setting(
        "",
        "rocketline.coordination",
        "`etcd://HOST:PORT,HOST:PORT`, or `etcds://` with TLS: brokers of one name elect their master there; empty: no "
        "elections.",
    )
    user: str = setting("", "rocketline.coordinationUser", "User name for etcd; empty: none is asked for.")
    password: str = setting("", "rocketline.coordinationPassword", "Password of that user.", is_secret=True)
    ca_file: str = setting("", "rocketline.coordinationCa", "PEM file of authorities that etcd's certificate may have.")
    certificate: str = setting("", "rocketline.coordinationCertificate", "PEM file of a certificate to show to etcd.")
    key: str = setting("", "rocketline.coordinationKey", "PEM file of its private key; empty: the same file.")
    lease_ms: int = setting(
        3_000, "rocketline.leaseMs", "A master that etcd has not heard of for this long is replaced."
    )

    def __post_init__(self) -> None:
        if self.lease_ms < LEAST_LEASE_MS or self.lease_ms % 1000:
            raise ConfigError(
                f"rocketline.leaseMs={self.lease_ms} must be whole seconds, at least {LEAST_LEASE_MS}, as with etcd"
            )
        if self.url:
            self._hosts()

    def endpoints(self) -> list[Endpoint]:
        """ConfigError for a certificate that cannot be used."""
        scheme, hosts = self._hosts()
        if scheme != "etcds":
            return [Endpoint(host, port) for host, port in hosts]
        context = FromFiles((self.ca_file, self.certificate, self.key), self._tls)
        return [Endpoint(host, port, context.current) for host, port in hosts]

    def _hosts(self) -> tuple[str, list[tuple[str, int]]]:
        scheme, found, rest = self.url.partition("://")
        if not found or scheme not in ("etcd", "etcds"):
            raise ConfigError(f"rocketline.coordination={self.url!r} does not begin with etcd:// or etcds://")
        if "@" in rest:
            raise ConfigError(
                "rocketline.coordination: a user is set as rocketline.coordinationUser, not in the address"
            )
        return scheme, [self._host(item.strip()) for item in rest.rstrip("/").split(",")]

    def _host(self, item: str) -> tuple[str, int]:
        try:
            parts = urlsplit(f"//{item}")
            host, port = unquote(parts.hostname or ""), parts.port or DEFAULT_PORT
            if host and not parts.path:
                return host, port
        except ValueError:
            pass
        raise ConfigError(f"rocketline.coordination={self.url!r}: {item!r} is not HOST:PORT")

    def _tls(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key or None)
            return context
        except OSError as error:
            files = [name for name in (self.ca_file, self.certificate, self.key) if name]
            raise ConfigError(f"certificates for etcd cannot be used ({', '.join(files)}): {error}") from error
