"""The accounts of a server at its start: read, completed by those that its settings name, and never none at all."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from rocketline.async_table import OffLoop
from rocketline.auth.accounts import Accounts
from rocketline.auth.config import AuthConfig
from rocketline.auth.import_v1 import Import, read_v1, v1_files
from rocketline.auth.model import Acl, User, UserStatus, UserType
from rocketline.errors import ConfigError
from rocketline.store.files.disk import Disk, RealDisk
from rocketline.system.files import private_folder
from rocketline.system.sockets import is_loopback
from rocketline.transport.server_config import TlsMode
from rocketline.transport.server_tls import ServerTls

log = logging.getLogger(__name__)


async def open_accounts(
    config: AuthConfig, folder: Path | None, disk: Disk, off_loop: OffLoop | None = None
) -> Accounts:
    """The accounts in a folder, or in memory without one. ConfigError when a file cannot be read, or nobody could get in."""
    _warn(config)
    accounts = Accounts.open(folder, disk, off_loop)
    await _add_missing(accounts, config.first_users(), {})
    if config.migrates_v1:
        found = _read_v1(Path(config.v1_folder))
        await _add_missing(accounts, found.users, found.acls)
    if not any(True for _ in accounts.users()):
        raise ConfigError(
            "authenticationEnabled=true and there is no account, so nobody could get in. Write "
            '{"username":"admin","password":"..."} into a file that only you can read, and name it: --set '
            "rocketline.initUserFile=FILE. (As initAuthenticationUser it may be in the settings too, but everybody on the "
            "machine sees arguments.)"
        )
    return accounts


async def _add_missing(accounts: Accounts, users: Mapping[str, User], acls: Mapping[str, Acl]) -> None:
    missing = sorted(name for name in users if accounts.user(name) is None)
    if not missing:
        return
    saving = accounts.add_missing(users, acls)
    if saving is not None:
        await saving
    log.info("accounts created: %s", ", ".join(missing))


def _read_v1(folder: Path) -> Import:
    paths = v1_files(folder)
    if not paths:
        raise ConfigError(f"rocketline.auth.v1Folder={folder}: there is neither a plain_acl.yml nor a file in acl/")
    found = read_v1(paths)
    for note in found.notes:
        log.warning("access control of RocketMQ 4: %s", note)
    return found


def _warn(config: AuthConfig) -> None:
    for key, codes in (
        ("authenticationWhitelist", config.authentication_whitelist),
        ("authorizationWhitelist", config.authorization_whitelist),
    ):
        if codes:
            log.warning(
                "%s=%s: anybody may send these requests; those about accounts (3001 to 3010) are checked all the same",
                key,
                codes,
            )
    if not config.authorizes:
        log.warning("authorizationEnabled=false: every account may do everything but manage accounts")


def warn_of_readers(folder: Path) -> None:
    """Make the folder of the messages of a server with accounts, readable by its owner only; a warning if it is there and
    is not."""
    if not private_folder(folder):
        log.warning(
            "other users of this machine may read the messages in %s, whatever their accounts: chmod 700 %s",
            folder,
            folder,
        )


def warn_of_listeners(host: str, tls: ServerTls | None) -> None:
    """A warning when accounts are asked for and what they send can be read on the way."""
    if not is_loopback(host) and (tls is None or tls.mode is not TlsMode.ENFORCING):
        log.warning(
            "%s lets other machines in %s: whoever listens on the way reads messages and can send requests again. Give the "
            "server certificates (tls.server.certPath), and leave tls.server.mode out or set it to enforcing",
            host or "all addresses",
            "without TLS" if tls is None else f"in TLS mode {tls.mode}",
        )


def reset_admin(folder: Path, name: str, password: str) -> None:
    """Make an account a super user with this password, in the files of a server that does not run. ConfigError when it
    cannot be done.

    `folder` is the one with users.json: `config` in the folder of a broker's store, or rocketline.authPath."""
    if not (folder / "users.json").exists():
        raise ConfigError(f"there is no users.json in {folder}: is this the folder `config` of a broker with accounts?")
    accounts = Accounts.open(folder, RealDisk())
    if accounts.user(name) is None:
        accounts.add_missing({name: User(name, password, UserType.SUPER)}, {})
    else:
        accounts.update_user(name, lambda former: User(name, password, UserType.SUPER, UserStatus.ENABLE))
