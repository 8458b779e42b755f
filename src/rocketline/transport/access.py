"""How a client connects: the account that signs its requests, and TLS. Connections are shared only for equal access."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from rocketline.errors import ConfigError
from rocketline.protocol.command import Command
from rocketline.protocol.signing import Credentials
from rocketline.transport.tls import Tls

TlsOption = bool | Tls | ssl.SSLContext
Sign = Callable[[Command], None]


@dataclass(frozen=True)
class Access:
    """Credentials and TLS of a client; can be pickled unless `tls` is an SSLContext."""

    credentials: Credentials | None = None
    tls: Tls | ssl.SSLContext | None = None

    @staticmethod
    def of(credentials: Credentials | None, tls: TlsOption) -> Access:
        """The access from a user's options; `tls=True` is TLS with all checks."""
        if not isinstance(credentials, Credentials | None):
            raise ConfigError(
                f"credentials: Credentials(access_key, secret_key) expected, not {type(credentials).__name__}"
            )
        if isinstance(tls, bool) or tls is None:
            return Access(credentials, Tls() if tls else None)
        if not isinstance(tls, Tls | ssl.SSLContext):
            raise ConfigError(f"tls: True, a Tls or an ssl.SSLContext expected, not {type(tls).__name__}")
        return Access(credentials, tls)

    @property
    def sign(self) -> Sign | None:
        return None if self.credentials is None else self.credentials.sign

    def context(self) -> ssl.SSLContext | None:
        """The TLS context, None without TLS; ConfigError when a file cannot be used."""
        return self.tls.context() if isinstance(self.tls, Tls) else self.tls


OPEN = Access()
"""No signatures and no encryption."""
