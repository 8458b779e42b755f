"""`rocketline up --secure`: an administrator with a random password, in files of the data folder that only its owner reads.

    admin.json      the account, for clients (`CredentialsFile`)
    contexts.json   name server and account, for commands (ROCKETLINE_CONFIG names it)

Both are kept: the next start with the same folder has the same administrator.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
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
CONTEXT = "local"
SECRET_BYTES = 24

_CLIENT = """\
import asyncio
from rocketline import ClientOptions, CredentialsFile, Message, Producer

async def main():
    options = ClientOptions(credentials=CredentialsFile({account!r}))
    async with Producer({namesrv!r}, group="first", options=options) as producer:
        print(await producer.send(Message("first", b"hello")))

asyncio.run(main())"""


@dataclass(frozen=True)
class Secured:
    """The account of a data folder."""

    folder: Path
    account: Credentials

    @property
    def settings(self) -> dict[str, str]:
        """Settings that make servers ask for accounts, and let this one in."""
        user = {"username": self.account.access_key, "password": self.account.secret_key}
        return {"authenticationEnabled": "true", "initAuthenticationUser": msgspec.json.encode(user).decode()}

    def introduction(self, namesrv: str) -> str:
        """How commands and clients get in; writes the file for commands."""
        account, contexts = self.folder / ACCOUNT_FILE, self.folder / CONTEXT_FILE
        save_contexts(contexts, Contexts(CONTEXT, {CONTEXT: Context(namesrv, credentials_file=str(account))}))
        client = _CLIENT.format(account=str(account), namesrv=namesrv)
        return f"# For commands: export {CONFIG_VARIABLE}={contexts}\n# A client, as the administrator:\n{client}"


def secured(folder: Path) -> Secured:
    """The account of a data folder; made the first time. ConfigError when its file cannot be read or written."""
    path = folder / ACCOUNT_FILE
    if not path.exists():
        account = {"accessKey": ADMIN, "secretKey": secrets.token_urlsafe(SECRET_BYTES), "replayProtection": True}
        try:
            replace_file(path, msgspec.json.encode(account) + b"\n", mode=OWNER_ONLY)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
    return Secured(folder, CredentialsFile(path)())
