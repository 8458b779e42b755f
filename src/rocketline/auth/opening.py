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
            "authenticationEnabled=true and there is no account, so nobody could get in. Name the first one with "
            '--set \'initAuthenticationUser={"username":"admin","password":"..."}\', or in a file that '
            "rocketline.initUserFile names"
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
