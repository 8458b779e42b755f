"""TLS settings of a client, and explanations of TLS failures.

RocketMQ's servers accept TLS on the same port as plain connections. A server's certificate is checked unless `verify=False`:
without a configured certificate, Apache's servers make a new one at every start (`tls.test.mode.enable`), which no client
can trust.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from rocketline.errors import ConfigError

_PLAIN_HINT = "; if it takes only TLS (tls.server.mode=enforcing), connect with tls=True"
_SECURED_HINT = "; does it want a certificate, Tls(certificate=..., key=...)?"

_WRONG_NAME_CODES = frozenset({62, 64})
"""OpenSSL: the certificate names no such host, no such IP address."""
_CLIENT_CERTIFICATE_REASONS = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE", "UNKNOWN_CA")


@dataclass(frozen=True)
class Tls:
    """How servers are checked, and the client's own certificate. All files are PEM; can be pickled. Files that change are
    read again for the next connection.

    >>> Tls(ca_file="/etc/rocketmq/ca.pem")
    Tls(ca_file='/etc/rocketmq/ca.pem', certificate=None, key=None, key_password_file=None, check_host=True, verify=True)
    """

    ca_file: str | os.PathLike[str] | None = None
    """Trusted authorities, or a server's own certificate; None: the authorities of the system."""
    certificate: str | os.PathLike[str] | None = None
    """The client's certificate, with the intermediate authorities up to one that the server trusts."""
    key: str | os.PathLike[str] | None = None
    """The private key; None: it is in the file of the certificate."""
    key_password: str | None = field(default=None, repr=False)
    key_password_file: str | os.PathLike[str] | None = None
    """A file with that password instead, one line."""
    check_host: bool = True
    """Whether a server's certificate must name the host or IP address that was connected to. Brokers are found by the
    addresses they register, mostly IP addresses."""
    verify: bool = True
    """False: trust every server."""

    def __post_init__(self) -> None:
        for name in ("check_host", "verify"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"TLS: {name} must be True or False, not {getattr(self, name)!r}")
        if self.certificate is None and any(
            item is not None for item in (self.key, self.key_password, self.key_password_file)
        ):
            raise ConfigError("TLS: a key, or a password for it, needs the certificate that belongs to it")
        if not self.verify and self.ca_file is not None:
            raise ConfigError(
                f"TLS: with verify=False nothing is checked against ca_file {self.ca_file}: leave one out"
            )

    @property
    def files(self) -> tuple[str | os.PathLike[str] | None, ...]:
        """All that a context is made of."""
        return self.ca_file, self.certificate, self.key, self.key_password_file

    def context(self) -> ssl.SSLContext:
        """The context for connections; ConfigError when a file cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigError(f"TLS: ca_file {self.ca_file} cannot be used: {file_problem(error)}") from error
        context.check_hostname = self.check_host and self.verify
        if not self.verify:
            context.verify_mode = ssl.CERT_NONE
        if self.certificate is not None:
            # Without a password OpenSSL would ask for one on the terminal.
            password = key_password(self.key_password, self.key_password_file)
            try:
                context.load_cert_chain(self.certificate, self.key, password)
            except (OSError, ValueError) as error:
                files = f"{self.certificate}" + (f" with key {self.key}" if self.key is not None else "")
                raise ConfigError(f"TLS: certificate {files} cannot be used: {file_problem(error)}") from error
        return context


def key_password(given: str | None, file: str | os.PathLike[str] | None) -> str:
    """The password of a private key; "" when there is none. ConfigError when its file cannot be read."""
    if not file:
        return given or ""
    if given:
        raise ConfigError(f"TLS: the password of the key is given, and in {file}: leave one out")
    try:
        return Path(file).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"TLS: the password of the key in {file}: {file_reason(error)}") from error


def file_reason(error: OSError | UnicodeDecodeError) -> str:
    """Why a text file cannot be read; what is in it is not told."""
    return "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror or "cannot be read"


def file_problem(error: Exception) -> str:
    """Why a PEM file cannot be used."""
    if isinstance(error, ssl.SSLError) or not isinstance(error, OSError):
        return f"{error} (a PEM file is expected; is the key that of the certificate, and its password right?)"
    return os.strerror(error.errno) if error.errno else str(error)


def unheard_hint(*, has_tls: bool) -> str:
    """A possible reason why a server closed a connection without any answer on it."""
    return _SECURED_HINT if has_tls else _PLAIN_HINT


def tls_problem(error: BaseException) -> str | None:
    """Why a TLS connection failed, and what to do; None when TLS is not the reason."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _not_trusted(error)
    if isinstance(error, TimeoutError):
        return "no TLS connection in time: is it there, and does it take TLS (tls.server.mode)?"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionResetError | ConnectionAbortedError):
        return (
            "it closed the connection during the TLS handshake: it does not take TLS (tls.server.mode=disabled?) or wants "
            "a client certificate; connect without tls, or look into its log"
        )
    if not isinstance(error, ssl.SSLError):
        return None
    reason: str = getattr(error, "reason", None) or str(error)  # only OpenSSL gives a reason
    if any(part in reason for part in _CLIENT_CERTIFICATE_REASONS):
        return f"it refused us in the TLS handshake ({reason}){_SECURED_HINT}"
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"):
        return f"it does not speak TLS ({reason}): connect without tls, or switch it on there (tls.server.mode)"
    return f"TLS failed: {reason}"


def later_problem(error: BaseException | None) -> str | None:
    """The same for an established connection: a server may refuse our certificate, or its absence, only then."""
    closed = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
    return tls_problem(error) if isinstance(error, ssl.SSLError) and not closed else None


def _not_trusted(error: ssl.SSLCertVerificationError) -> str:
    said = error.verify_message or str(error)
    if error.verify_code in _WRONG_NAME_CODES:
        return (
            f"its certificate is for another host: {said}; connect by a name the certificate has, have one made with this "
            "address, or give up this check with Tls(check_host=False)"
        )
    return (
        f"its certificate is not trusted: {said}; name the authority that signed it with Tls(ca_file=...), or trust "
        "anybody with Tls(verify=False)"
    )
