"""How a client connects: the account that signs its requests, and TLS. Connections are shared only for equal access."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from rocketline.errors import ConfigError
from rocketline.from_files import FromFiles
from rocketline.protocol.command import Command
from rocketline.protocol.signing import Credentials
from rocketline.transport.credentials import CredentialsOption
from rocketline.transport.tls import Tls

TlsOption = bool | Tls | ssl.SSLContext
Sign = Callable[[Command], None]
Contexts = Callable[[], ssl.SSLContext]


@dataclass(frozen=True)
class Access:
    """Credentials and TLS of a client; can be pickled unless `tls` is an SSLContext or `credentials` a local function."""

    credentials: CredentialsOption = None
    tls: Tls | ssl.SSLContext | None = None

    @staticmethod
    def of(credentials: CredentialsOption, tls: TlsOption) -> Access:
        """The access from a user's options; `tls=True` is TLS with all checks."""
        if not (isinstance(credentials, Credentials | None) or callable(credentials)):
            raise ConfigError(
                f"credentials: Credentials(access_key, secret_key), a CredentialsFile or a function that returns "
                f"Credentials expected, not {type(credentials).__name__}"
            )
        if isinstance(tls, bool) or tls is None:
            return Access(credentials, Tls() if tls else None)
        if not isinstance(tls, Tls | ssl.SSLContext):
            raise ConfigError(f"tls: True, a Tls or an ssl.SSLContext expected, not {type(tls).__name__}")
        return Access(credentials, tls)

    @property
    def sign(self) -> Sign | None:
        """Signs a request; None without an account. The account is asked for once here, so that a mistake is told early."""
        given = self.credentials
        if given is None or isinstance(given, Credentials):
            return None if given is None else given.sign
        _called(given)
        return lambda command: _called(given).sign(command)

    def contexts(self) -> Contexts | None:
        """Gives the TLS context for the next connection, made anew when its files changed; None without TLS. ConfigError
        when a file cannot be used now."""
        given = self.tls
        if isinstance(given, Tls):
            return FromFiles(given.files, given.context).current
        return None if given is None else lambda: given


def _called(function: Callable[[], Credentials]) -> Credentials:
    found = function()
    if not isinstance(found, Credentials):
        raise ConfigError(f"credentials: the function must return Credentials, not {type(found).__name__}")
    return found


OPEN = Access()
"""No signatures and no encryption."""
