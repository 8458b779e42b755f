"""Certificates for development: an authority, servers and clients. Needs the extra `certs`.

Keys are elliptic (P-256) and in PKCS#8, which OpenSSL and Java read.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

from rocketline.errors import ConfigError
from rocketline.files import replace_file

try:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise ConfigError(
        "making certificates needs the package cryptography, which the extra `certs` brings: "
        "pip install 'rocketline[certs]'"
    ) from error

AUTHORITY_DAYS = 3650
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
SECRET = 0o600
PUBLIC = 0o644
CLOCKS_DIFFER = timedelta(hours=1)
"""A certificate is valid from that long before it was made: clocks of machines differ."""


@dataclass(frozen=True)
class KeyPair:
    """A certificate with its private key."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey

    @property
    def ends(self) -> datetime:
        return self.certificate.not_valid_after_utc

    def save(self, certificate: Path, key: Path) -> None:
        """Write both; only the owner can read the key."""
        secret = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        replace_file(key, secret, mode=SECRET)
        replace_file(certificate, self.certificate.public_bytes(Encoding.PEM), mode=PUBLIC)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Use them in a context, which takes only files."""
        with TemporaryDirectory(prefix="rocketline-tls-") as folder:
            paths = Path(folder, "certificate"), Path(folder, "key")
            self.save(*paths)
            context.load_cert_chain(*paths, password="")


class Authority:
    """Signs certificates of servers and clients."""

    def __init__(self, pair: KeyPair) -> None:
        self.pair = pair

    @staticmethod
    def make(name: str, days: int) -> Authority:
        return Authority(_signed(name, days, None, is_authority=True))

    @staticmethod
    def load(certificate: Path, key: Path) -> Authority:
        """The authority of two files; ConfigError when they cannot be used."""
        try:
            pair = (
                x509.load_pem_x509_certificate(certificate.read_bytes()),
                load_pem_private_key(key.read_bytes(), None),
            )
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"the authority in {certificate} and {key} cannot be used: {error}; name another folder, or remove both "
                "files to have a new one made"
            ) from error
        if not isinstance(pair[1], EllipticCurvePrivateKey) or pair[0].public_key() != pair[1].public_key():
            raise ConfigError(f"{key} is not the key of the authority in {certificate}: name another folder")
        return Authority(KeyPair(pair[0], pair[1]))

    def server(self, hosts: tuple[str, ...], days: int) -> KeyPair:
        """A certificate for these names and addresses; it also serves to connect to other servers."""
        return _signed(hosts[0], days, self.pair, hosts=hosts, for_servers=True)

    def client(self, name: str, days: int) -> KeyPair:
        """A certificate whose name, CN and SAN alike, can be an account."""
        return _signed(name, days, self.pair, hosts=(name,))


@dataclass(frozen=True)
class CertificateFolder:
    """The files of an authority, which is made once and kept, and of what it signed."""

    folder: Path

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def ca_key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def has_authority(self) -> bool:
        return self.ca_file.exists() or self.ca_key.exists()

    def authority(self) -> Authority:
        """The authority of the folder, made if there is none."""
        if self.has_authority:
            return Authority.load(self.ca_file, self.ca_key)
        authority = Authority.make("rocketline development", AUTHORITY_DAYS)
        self.folder.mkdir(parents=True, exist_ok=True)
        authority.pair.save(self.ca_file, self.ca_key)
        return authority

    def save(self, name: str, pair: KeyPair) -> Path:
        """Write a certificate and its key; returns the file of the certificate."""
        certificate = self.folder / f"{name}.pem"
        pair.save(certificate, self.folder / f"{name}.key")
        return certificate

    def make_server(self, hosts: Iterable[str], days: int) -> dict[str, str]:
        """A new certificate for servers of this machine, and of `hosts`; the settings with which they take only TLS."""
        names = tuple(dict.fromkeys((*LOCAL_NAMES, *hosts)))
        certificate = self.save("server", self.authority().server(names, days))
        return {
            "tls.server.mode": "enforcing",
            "tls.server.certPath": str(certificate),
            "tls.server.keyPath": str(certificate.with_suffix(".key")),
            "tls.client.trustCertPath": str(self.ca_file),
        }


def self_signed() -> KeyPair:
    """A certificate of this machine for a day, signed by nobody else."""
    return _signed("localhost", 1, None, hosts=LOCAL_NAMES, for_servers=True)


def _signed(
    name: str,
    days: int,
    authority: KeyPair | None,
    *,
    hosts: tuple[str, ...] = (),
    is_authority: bool = False,
    for_servers: bool = False,
) -> KeyPair:
    key = generate_private_key(SECP256R1())
    signer = authority.key if authority else key
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.certificate.subject if authority else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + timedelta(days=days))
    )
    extensions: list[x509.ExtensionType] = [
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
    ]
    critical: list[x509.ExtensionType] = [
        x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None)
    ]
    if is_authority:
        critical.append(_SIGNS_CERTIFICATES)
    else:
        uses = [ExtendedKeyUsageOID.SERVER_AUTH] * for_servers + [ExtendedKeyUsageOID.CLIENT_AUTH]
        extensions.append(x509.ExtendedKeyUsage(uses))
        extensions.append(x509.SubjectAlternativeName([_general_name(host) for host in hosts]))
    for extension in extensions + critical:
        builder = builder.add_extension(extension, critical=extension in critical)
    return KeyPair(builder.sign(signer, SHA256()), key)


_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise ConfigError(f"{host!r} cannot be in a certificate: names of ASCII letters are expected") from error
