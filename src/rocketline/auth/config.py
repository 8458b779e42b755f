"""Settings of access control, for brokers and name servers: RocketMQ's keys, and some of ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from rocketline.auth.model import User, UserType
from rocketline.auth.posture import admin_networks
from rocketline.errors import ConfigError
from rocketline.protocol.signing import Credentials
from rocketline.settings import setting
from rocketline.transport.credentials import CredentialsFile, CredentialsOption

_PACKAGE = "org.apache.rocketmq.auth."
_KNOWN_CLASSES = {
    "authenticationProvider": ("DefaultAuthenticationProvider",),
    "authorizationProvider": ("DefaultAuthorizationProvider",),
    "authenticationMetadataProvider": ("LocalAuthenticationMetadataProvider",),
    "authorizationMetadataProvider": ("LocalAuthorizationMetadataProvider",),
    "authenticationStrategy": ("StatelessAuthenticationStrategy",),
    "authorizationStrategy": ("StatelessAuthorizationStrategy",),
}
"""Classes of RocketMQ that do what this server does anyway."""


class ReplayProtection(Enum):
    CHECK = "check"
    """Of requests that say when and as what they were signed."""
    DEMAND = "demand"


class _InitUser(msgspec.Struct):
    username: str
    password: str
    userType: str = "Super"  # noqa: N815

    def __repr__(self) -> str:
        return f"_InitUser({self.username!r})"


class _InnerAccount(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        return f"_InnerAccount({self.access_key!r})"


@dataclass(frozen=True)
class AuthConfig:
    enabled: bool = setting(
        False, "authenticationEnabled", "Ask every request for an account: it must be signed with its password."
    )
    authorization: str = setting(
        "",
        "authorizationEnabled",
        "false: every account may do everything but manage accounts. Empty: rights count as soon as accounts do.",
    )
    init_user: str = setting(
        "",
        "initAuthenticationUser",
        'The first administrator, `{"username":"...","password":"..."}`: created at the start if it does not exist.',
        is_secret=True,
    )
    init_user_file: str = setting(
        "",
        "rocketline.initUserFile",
        "A file with the same, or with a list of such accounts; it may have a userType each.",
    )
    inner_account: str = setting(
        "",
        "innerClientAuthenticationCredentials",
        'The account this server signs its own requests with, `{"accessKey":"...","secretKey":"..."}`: created likewise.',
        is_secret=True,
    )
    inner_account_file: str = setting(
        "",
        "rocketline.innerCredentialsFile",
        "A file with the same, which is read again when it changes: the password can be replaced while the server runs.",
    )
    path: str = setting(
        "",
        "rocketline.authPath",
        "Folder of users.json and acls.json. Empty: a broker has them in the folder `config` of its store, a name server "
        "beside kvConfigPath. A name server without either has the accounts of its settings, which no request changes.",
    )
    is_follower: bool = setting(
        False,
        "rocketline.auth.readOnly",
        "Another server writes these files: read them again when they change, and take no requests that change accounts.",
    )
    replay_protection: ReplayProtection = setting(
        ReplayProtection.CHECK,
        "rocketline.auth.replayProtection",
        "check: the time, code and fields that a request has signed count; demand: a request without them is refused, "
        "and so are signed gRPC calls without TLS from other machines.",
    )
    reveals_passwords: bool = setting(
        False,
        "rocketline.auth.revealPasswords",
        "Show passwords to administrators who ask for users, over TLS or on this machine; Apache's copyUser needs it.",
    )
    authentication_whitelist: str = setting(
        "", "authenticationWhitelist", "Codes of requests that need no account, separated by commas."
    )
    authorization_whitelist: str = setting(
        "", "authorizationWhitelist", "Codes of requests that need an account, but no rights."
    )
    migrates_v1: bool = setting(
        False, "migrateAuthFromV1Enabled", "At every start, create the accounts of plain_acl.yml that do not exist yet."
    )
    v1_folder: str = setting(
        "", "rocketline.auth.v1Folder", "RocketMQ's folder `conf`, with plain_acl.yml and the folder acl in it."
    )
    acl_v1: bool = setting(False, "aclEnable", "Access control of RocketMQ 4: with true the server does not start.")
    authentication_provider: str = setting("", "authenticationProvider", "Only RocketMQ's default can be named.")
    authorization_provider: str = setting("", "authorizationProvider", "Only RocketMQ's default can be named.")
    authentication_metadata: str = setting(
        "", "authenticationMetadataProvider", "Only RocketMQ's local one can be named; accounts are in users.json."
    )
    authorization_metadata: str = setting(
        "", "authorizationMetadataProvider", "Only RocketMQ's local one can be named; rights are in acls.json."
    )
    authentication_strategy: str = setting(
        "", "authenticationStrategy", "Only RocketMQ's stateless one can be named: every request is checked."
    )
    authorization_strategy: str = setting(
        "", "authorizationStrategy", "Only RocketMQ's stateless one can be named: every request is checked."
    )
    insecure: bool = setting(
        False,
        "rocketline.insecure",
        "Serve other machines without asking for accounts; without this such a server does not start.",
    )
    admin_from: str = setting(
        "",
        "rocketline.adminFrom",
        "With that, addresses and networks from which operators may change things, besides this machine; commas between.",
    )

    def __post_init__(self) -> None:
        if self.authorization.lower() not in ("", "true", "false"):
            raise ConfigError(f"authorizationEnabled={self.authorization!r} is neither true nor false")
        admin_networks(self.admin_from)
        for text in (self.authentication_whitelist, self.authorization_whitelist):
            codes_in(text)
        if _inner_account(self.inner_account) is not None and self.inner_account_file:
            raise ConfigError(
                "innerClientAuthenticationCredentials and rocketline.innerCredentialsFile name an account: leave one out"
            )

    def refuse_false_safety(self) -> None:
        """ConfigError when these settings promise access control that a server would not have."""
        if self.acl_v1:
            raise ConfigError(
                "aclEnable=true: access control of RocketMQ 4 does not exist here, and without it everybody could do "
                "everything. Take its accounts over with authenticationEnabled=true and migrateAuthFromV1Enabled=true, or "
                "set authenticationEnabled=true and make new accounts; then remove aclEnable"
            )
        if self.authorization.lower() == "true" and not self.enabled:
            raise ConfigError(
                "authorizationEnabled=true without authenticationEnabled=true would believe every account name: set both"
            )
        if self.migrates_v1 and not self.v1_folder:
            raise ConfigError(
                "migrateAuthFromV1Enabled=true: say where plain_acl.yml is, with rocketline.auth.v1Folder=/path/to/conf"
            )
        self._check_classes()

    def _check_classes(self) -> None:
        given = {
            "authenticationProvider": self.authentication_provider,
            "authorizationProvider": self.authorization_provider,
            "authenticationMetadataProvider": self.authentication_metadata,
            "authorizationMetadataProvider": self.authorization_metadata,
            "authenticationStrategy": self.authentication_strategy,
            "authorizationStrategy": self.authorization_strategy,
        }
        for key, name in given.items():
            known = _KNOWN_CLASSES[key]
            if name and not (name.startswith(_PACKAGE) and name.rpartition(".")[2] in known):
                raise ConfigError(f"{key}={name} does not exist here: leave it out, which does what {known[0]} does")

    @property
    def authorizes(self) -> bool:
        """Whether rights count."""
        return self.enabled and self.authorization.lower() != "false"

    @property
    def credentials(self) -> CredentialsOption:
        """What this server signs its own requests with."""
        if not self.inner_account_file:
            return _inner_account(self.inner_account)
        file = CredentialsFile(self.inner_account_file)
        return lambda: replace(file(), replay_protection=True)

    def first_users(self) -> dict[str, User]:
        """The accounts that must exist; ConfigError when they cannot be read."""
        users = list(self._init_users())
        if (inner := self.credentials) is not None:
            inner = inner() if callable(inner) else inner
            users.append(User(inner.access_key, inner.secret_key, UserType.SUPER))
        return {user.name: user for user in reversed(users)}

    def _init_users(self) -> Iterator[User]:
        if self.init_user:
            yield _user(
                _decoded(self.init_user.encode(), _InitUser, "initAuthenticationUser"), "initAuthenticationUser"
            )
        if self.init_user_file:
            where = f"rocketline.initUserFile={self.init_user_file}"
            try:
                data = Path(self.init_user_file).read_bytes()
            except OSError as error:
                raise ConfigError(f"{where} cannot be read: {error.strerror}") from error
            found = _decoded(data, list[_InitUser] | _InitUser, where)
            yield from (_user(item, where) for item in (found if isinstance(found, list) else [found]))


def codes_in(text: str) -> frozenset[int]:
    """The request codes of a whitelist."""
    try:
        return frozenset(int(item) for item in text.split(",") if item.strip())
    except ValueError:
        raise ConfigError(f"a whitelist has request codes with commas between, not {text!r}") from None


def _user(given: _InitUser, where: str) -> User:
    if not given.username.strip() or not given.password.strip():
        raise ConfigError(f"{where}: username or password is blank")
    kinds = {"super": UserType.SUPER, "normal": UserType.NORMAL}
    if given.userType.lower() not in kinds:
        raise ConfigError(f"{where}: userType {given.userType!r} is neither Super nor Normal")
    return User(given.username, given.password, kinds[given.userType.lower()])


def _inner_account(text: str) -> Credentials | None:
    if not text:
        return None
    where = "innerClientAuthenticationCredentials"
    given = _decoded(text.encode(), _InnerAccount, where)
    return Credentials(given.access_key, given.secret_key, replay_protection=True)


def _decoded(data: bytes, kind: Any, where: str) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # The reason is left out: it may quote a password.
        raise ConfigError(f"{where} is not the JSON that is expected; docs/reference/config.md shows it") from None
