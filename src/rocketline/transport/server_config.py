"""Settings of a server's connections: TLS under Apache's keys, and who may connect how often.

Apache's servers take these keys as properties of the JVM or from `tls.config.file`; ours take them from the settings file,
the environment and flags too. Without certificates there is no TLS.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from rocketline.errors import ConfigError
from rocketline.settings import parse_properties, setting, with_values
from rocketline.system.networks import Networks, networks_of

NOT_IN_FILE = frozenset({"tls.server.mode", "tls.enable", "tls.config.file"})
"""Keys that a `tls.config.file` cannot set, as with Apache."""
PROTOCOLS = ("TLSv1.2", "TLSv1.3")


class TlsMode(StrEnum):
    """Which connections a server takes: only plain ones, both kinds, only encrypted ones."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(StrEnum):
    """Whether clients are asked for a certificate, and refused without one."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


class TlsIdentity(StrEnum):
    """Which name of a verified client certificate is an account."""

    NONE = "none"
    SAN = "san"
    CN = "cn"


@dataclass(frozen=True)
class TlsConfig:
    """TLS of a server, and of the connections it opens to other servers. All files are PEM."""

    mode: str = setting(
        "",
        "tls.server.mode",
        "disabled, permissive (plain and TLS on one port) or enforcing. Empty: without certificates disabled; with them "
        "permissive on loopback and enforcing elsewhere.",
    )
    test_mode: bool = setting(
        False,
        "tls.test.mode.enable",
        "Use a certificate made at the start, which no client can check; unlike Apache only when told so.",
    )
    cert_path: str = setting("", "tls.server.certPath", "The server's certificate, with intermediate authorities.")
    key_path: str = setting("", "tls.server.keyPath", "Its private key; empty: in the file of the certificate.")
    key_password: str = setting("", "tls.server.keyPassword", "Password of that key.", is_secret=True)
    key_password_file: str = setting(
        "", "rocketline.tls.keyPasswordFile", "A file with that password, one line; read again when it changes."
    )
    trust_path: str = setting("", "tls.server.trustCertPath", "Authorities that sign certificates of clients.")
    need_client_auth: str = setting(
        "none", "tls.server.need.client.auth", "Certificates of clients: none, optional or require."
    )
    auth_client: bool = setting(
        False,
        "tls.server.authClient",
        "Check certificates of clients. require always checks; optional without this does not ask for any.",
    )
    identity: str = setting(
        "none",
        "rocketline.tls.identity",
        "Name of a checked client certificate that counts as the account: none, san (else cn) or cn.",
    )
    enable: bool = setting(
        False, "tls.enable", "Connect to other servers by TLS; always so when tls.server.mode is enforcing."
    )
    client_cert_path: str = setting(
        "", "tls.client.certPath", "Certificate shown to other servers; empty: that of this server."
    )
    client_key_path: str = setting("", "tls.client.keyPath", "Its private key.")
    client_key_password: str = setting("", "tls.client.keyPassword", "Password of that key.", is_secret=True)
    client_trust_path: str = setting(
        "", "tls.client.trustCertPath", "Authorities of other servers; their certificates are checked if this is set."
    )
    client_auth_server: bool = setting(
        False, "tls.client.authServer", "Check certificates of other servers, by default with the system's authorities."
    )
    protocols: str = setting("", "tls.protocols", "TLSv1.2, TLSv1.3 or both, separated by commas; empty: both.")
    ciphers: str = setting(
        "",
        "tls.ciphers",
        "Cipher suites for TLS 1.2, names of Java or OpenSSL, separated by commas; 1.3 keeps its own.",
    )
    config_file: str = setting(
        "", "tls.config.file", "A properties file with these keys, which wins; mode and tls.enable cannot be in it."
    )
    reload_s: float = setting(
        5.0, "rocketline.tls.reloadSeconds", "Pause between two looks for changed certificate files; 0: none."
    )

    def __post_init__(self) -> None:
        if self.mode:
            _word("tls.server.mode", self.mode, TlsMode)
        _word("tls.server.need.client.auth", self.need_client_auth, ClientAuth)
        _word("rocketline.tls.identity", self.identity, TlsIdentity)
        if self.reload_s < 0:
            raise ConfigError(f"rocketline.tls.reloadSeconds={self.reload_s:g} must not be negative")
        unknown = [item for item in words(self.protocols) if item not in PROTOCOLS]
        if unknown:
            raise ConfigError(f"tls.protocols: {unknown[0]!r} is not spoken here; {' and '.join(PROTOCOLS)} are")

    def with_file(self) -> TlsConfig:
        """These settings with those of `tls.config.file`."""
        if not self.config_file:
            return self
        try:
            values = parse_properties(Path(self.config_file).read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"tls.config.file={self.config_file} cannot be read: {reason}; correct the path, or leave the key out"
            ) from error
        kept = {key: value for key, value in values.items() if key not in NOT_IN_FILE}
        return replace(with_values(self, kept, self.config_file), config_file="")

    def mode_for(self, *, is_loopback: bool) -> TlsMode:
        """The mode of a server that listens on loopback only, or elsewhere too."""
        if self.mode:
            return TlsMode(self.mode)
        if not self.cert_path and not self.test_mode:
            return TlsMode.DISABLED
        return TlsMode.PERMISSIVE if is_loopback else TlsMode.ENFORCING

    @property
    def checks_clients(self) -> bool:
        """Whether clients are asked for a certificate, which is then checked."""
        wanted = ClientAuth(self.need_client_auth)
        asks = wanted is ClientAuth.OPTIONAL and (self.auth_client or self.identity != TlsIdentity.NONE)
        return wanted is ClientAuth.REQUIRE or asks


@dataclass(frozen=True)
class ConnectionsConfig:
    """Who may connect."""

    per_address: int = setting(
        2_000,
        "rocketline.maxConnectionsPerAddress",
        "Connections of one address served at once, except those of this machine; 0: no limit.",
    )
    proxy_from: str = setting(
        "",
        "rocketline.proxyProtocolFrom",
        "Networks of load balancers, as 10.0.0.0/24,10.1.2.3: their connections begin with a PROXY header that names the "
        "client. Nobody else's may.",
    )

    def __post_init__(self) -> None:
        if self.per_address < 0:
            raise ConfigError(f"rocketline.maxConnectionsPerAddress={self.per_address} must not be negative")
        _ = self.proxy_networks

    @property
    def proxy_networks(self) -> Networks:
        """The networks of `rocketline.proxyProtocolFrom`.

        >>> ConnectionsConfig(proxy_from="10.0.0.0/24, ::1").proxy_networks
        (IPv4Network('10.0.0.0/24'), IPv6Network('::1/128'))
        """
        try:
            return networks_of(self.proxy_from)
        except ValueError as error:
            raise ConfigError(f"rocketline.proxyProtocolFrom={self.proxy_from!r}: {error}") from error


def words(text: str) -> list[str]:
    """The items of a comma-separated list."""
    return [item for part in text.split(",") if (item := part.strip())]


def _word(key: str, given: str, kind: type[StrEnum]) -> None:
    if given not in list(kind):
        raise ConfigError(f"{key}={given!r} is none of {', '.join(kind)}")
