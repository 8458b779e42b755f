"""The accounts of a server at its start: read, completed by those that its settings name, and never none at all."""

from __future__ import annotations

import logging
from pathlib import Path

from rocketline.async_table import OffLoop
from rocketline.auth.accounts import Accounts
from rocketline.auth.config import AuthConfig
from rocketline.auth.model import User, UserStatus, UserType
from rocketline.errors import ConfigError
from rocketline.store.files.disk import Disk, RealDisk

log = logging.getLogger(__name__)


async def open_accounts(
    config: AuthConfig, folder: Path | None, disk: Disk, off_loop: OffLoop | None = None
) -> Accounts:
    """The accounts in a folder, or in memory without one. ConfigError when a file cannot be read, or nobody could get in."""
    _warn(config)
    accounts = Accounts.open(folder, disk, off_loop)
    missing = {name: user for name, user in config.first_users().items() if accounts.user(name) is None}
    if missing:
        saving = accounts.add_missing(missing, {})
        if saving is not None:
            await saving
        log.info("accounts created: %s", ", ".join(sorted(missing)))
    if not any(True for _ in accounts.users()):
        raise ConfigError(
            "authenticationEnabled=true and there is no account, so nobody could get in. Name the first one with "
            '--set \'initAuthenticationUser={"username":"admin","password":"..."}\', or in a file that '
            "rocketline.initUserFile names"
        )
    return accounts


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
    accounts = Accounts.open(folder, RealDisk())
    if accounts.user(name) is None:
        accounts.add_missing({name: User(name, password, UserType.SUPER)}, {})
    else:
        accounts.update_user(name, lambda former: User(name, password, UserType.SUPER, UserStatus.ENABLE))
