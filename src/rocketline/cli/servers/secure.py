"""`rocketline up --secure`: an administrator with a random password and certificates, in files of the data folder.

    admin.json      the account, for clients (`CredentialsFile`)
    certs/          the authority (`ca.pem`) and the servers' certificate
    contexts.json   name server, account and authority, for commands (ROCKETLINE_CONFIG names it)

Account and authority are kept: the next start with the same folder has the same. Only the owner can read secrets.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rocketline.cli.contexts import CONFIG_VARIABLE, Context, Contexts, save_contexts
from rocketline.errors import ConfigError
from rocketline.files import OWNER_ONLY, replace_file
from rocketline.protocol.signing import Credentials
from rocketline.transport.credentials import CredentialsFile

ADMIN = "admin"
ACCOUNT_FILE = "admin.json"
CONTEXT_FILE = "contexts.json"
CERTIFICATES = "certs"
CERTIFICATE_DAYS = 365
CONTEXT = "local"
SECRET_BYTES = 24

_CLIENT = """\
import asyncio
from rocketline import ClientOptions, CredentialsFile, Message, Producer, Tls

async def main():
    options = ClientOptions(credentials=CredentialsFile({account!r}), tls=Tls(ca_file={ca_file!r}))
    async with Producer({namesrv!r}, group="first", options=options) as producer:
        print(await producer.send(Message("first", b"hello")))

asyncio.run(main())"""


@dataclass(frozen=True)
class Secured:
    """The account and the certificates of a data folder."""

    folder: Path
    account: Credentials
    tls_settings: dict[str, str] = field(compare=False)

    @property
    def settings(self) -> dict[str, str]:
        """Settings that make servers take only TLS, ask for accounts, and let this one in."""
        user = {"username": self.account.access_key, "password": self.account.secret_key}
        first = msgspec.json.encode(user).decode()
        return {**self.tls_settings, "authenticationEnabled": "true", "initAuthenticationUser": first}

    def introduction(self, namesrv: str) -> str:
        """How commands and clients get in; writes the file for commands."""
        account, contexts = self.folder / ACCOUNT_FILE, self.folder / CONTEXT_FILE
        ca_file = str(self.folder / CERTIFICATES / "ca.pem")
        context = Context(namesrv, credentials_file=str(account), tls=True, ca_file=ca_file)
        save_contexts(contexts, Contexts(CONTEXT, {CONTEXT: context}))
        client = _CLIENT.format(account=str(account), ca_file=ca_file, namesrv=namesrv)
        return f"# For commands: export {CONFIG_VARIABLE}={contexts}\n# A client, as the administrator:\n{client}"


def secured(folder: Path, hosts: Iterable[str] = ()) -> Secured:
    """The account of a data folder, made the first time, and certificates for this machine and `hosts`.

    ConfigError when a file cannot be read or written.
    """
    from rocketline.transport.certificates import CertificateFolder

    path = folder / ACCOUNT_FILE
    if not path.exists():
        account = {"accessKey": ADMIN, "secretKey": secrets.token_urlsafe(SECRET_BYTES), "replayProtection": True}
        try:
            replace_file(path, msgspec.json.encode(account) + b"\n", mode=OWNER_ONLY)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
    settings = CertificateFolder(folder / CERTIFICATES).make_server(hosts, CERTIFICATE_DAYS)
    return Secured(folder, CredentialsFile(path)(), settings)
