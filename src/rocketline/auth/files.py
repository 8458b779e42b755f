"""Accounts and rights as a file that people read and keep in git, and what must change on a server to be as the file says.

    users:
      shop:
        password_file: secrets/shop      # or password_env, or password
        rights:
        - allow: Pub,Sub on Topic:orders* from 10.0.0.0/8
        - deny: All on Topic:orders-private

`type` is Normal unless given, `status` enable. `default_rights` count where none of `rights` fits. The path of a password's
file is relative to this file. An account without a password keeps the one that it has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rocketline.auth.model import (
    NO_RIGHTS,
    AccountTable,
    Acl,
    Action,
    Entry,
    PolicyType,
    Target,
    User,
    UserStatus,
    UserType,
)
from rocketline.auth.words import (
    acl_info,
    acl_of,
    by_word,
    entry_of,
    entry_text,
    subject_name,
    subject_of,
    target_text,
    word,
)
from rocketline.auth.yaml_text import dump_yaml, load_yaml
from rocketline.errors import ClientError, ConfigError
from rocketline.protocol.bodies import AclInfo, PolicyEntryInfo, UserInfo

_RIGHT = re.compile(r"(?P<actions>.+?) on (?P<resource>\S+)(?: from (?P<sources>.+))?")


class _FileUser(msgspec.Struct, forbid_unknown_fields=True):
    password: str = ""
    password_file: str = ""
    password_env: str = ""
    type: str = "Normal"
    status: str = "enable"
    rights: list[dict[str, str]] = msgspec.field(default_factory=list)
    default_rights: list[dict[str, str]] = msgspec.field(default_factory=list)

    def __repr__(self) -> str:
        return "_FileUser()"  # it has a password


class _File(msgspec.Struct, forbid_unknown_fields=True):
    users: dict[str, _FileUser]


def read_users(path: Path, environment: Mapping[str, str] = os.environ) -> AccountTable:
    """What a file says; a password that it does not give is empty. ConfigError names the user and what is wrong."""
    try:
        file = msgspec.convert(load_yaml(path), _File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error
    users, acls = {}, {}
    for name, found in file.users.items():
        try:
            users[name] = _user(name, found, path.parent, environment)
            acls[name] = Acl(_entries(found.rights), _entries(found.default_rights))
        except (ValueError, OSError) as error:
            raise ConfigError(f"{path}: user {name}: {error}") from error
    return AccountTable(users, {name: acl for name, acl in acls.items() if acl})


def _user(name: str, found: _FileUser, folder: Path, environment: Mapping[str, str]) -> User:
    kind, status = by_word(UserType, found.type), by_word(UserStatus, found.status)
    if not name.strip() or kind is None or status is None:
        raise ValueError("a user has a name, the type Normal or Super, and the status enable or disable")
    return User(name, _password(found, folder, environment), kind, status)


def _password(found: _FileUser, folder: Path, environment: Mapping[str, str]) -> str:
    given = [text for text in (found.password, found.password_file, found.password_env) if text]
    if not given:
        return ""
    if len(given) > 1:
        raise ValueError("give only one of password, password_file and password_env")
    if found.password_file:
        password = (folder / found.password_file).read_text("utf-8").rstrip("\r\n")
    else:
        password = environment.get(found.password_env, "") if found.password_env else found.password
    if not password.strip():
        raise ValueError(f"{found.password_file or found.password_env or 'password'} is empty or not set")
    return password


def _entries(lines: list[dict[str, str]]) -> tuple[Entry, ...]:
    entries = tuple(map(_entry, lines))
    targets = [entry.target for entry in entries]
    for target in targets:
        if targets.count(target) > 1:
            raise ValueError(f"{target_text(target)} has two lines; a server keeps one for each resource")
    return entries


def _entry(line: dict[str, str]) -> Entry:
    if len(line) != 1 or not (found := _RIGHT.fullmatch(next(iter(line.values())).strip())):
        raise ValueError(f"{line} is not as `allow: Pub,Sub on Topic:orders* from 10.0.0.0/8` is")
    decision = next(iter(line))
    actions, sources = _list(found["actions"]), _list(found["sources"] or "")
    if unknown := [text for text in actions if by_word(Action, text) is None]:
        raise ValueError(f"{unknown[0]!r} is no action")
    return entry_of(PolicyEntryInfo(actions, decision, found["resource"], sources or None))


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def write_users(table: AccountTable) -> str:
    """The file of these accounts, without passwords."""
    return dump_yaml({"users": plain_users(table)})


def plain_users(table: AccountTable) -> dict[str, dict[str, Any]]:
    """The accounts by name, as the file has them."""
    return {name: _plain(user, table.acls.get(name, NO_RIGHTS)) for name, user in table.users.items()}


def _plain(user: User, acl: Acl) -> dict[str, Any]:
    plain: dict[str, Any] = {"type": word(user.type), "status": word(user.status).lower()}
    if acl.custom:
        plain["rights"] = list(map(_line, acl.custom))
    if acl.default:
        plain["default_rights"] = list(map(_line, acl.default))
    return plain


def _line(entry: Entry) -> dict[str, str]:
    decision, _, rest = entry_text(entry).partition(" ")
    return {decision.lower(): rest}


class AccountServer(Protocol):
    """A server whose accounts can be read and changed."""

    async def users(self) -> list[UserInfo]: ...

    async def acls(self) -> list[AclInfo]: ...

    async def create_user(self, user: UserInfo) -> None: ...

    async def update_user(self, user: UserInfo, keep_old_s: int | None = None) -> None: ...

    async def delete_user(self, name: str) -> None: ...

    async def put_acl(self, acl: AclInfo) -> None: ...

    async def delete_acl(self, subject: str, resource: str | None = None, policy: str | None = None) -> None: ...


@dataclass(frozen=True)
class ServerAccounts(AccountTable):
    """The accounts of a server; their passwords are empty unless it shows them."""

    own: str = ""
    """The one it signs its own requests with, which stays an enabled super user. "": none, or it does not tell."""


async def fetch(server: AccountServer) -> ServerAccounts:
    listed = await server.users()
    users = {user.name: user for user in map(_known_user, listed)}
    acls = {}
    for info in await server.acls():
        name = subject_name(info.subject)
        try:
            if name is not None:
                acls[name] = acl_of(info)
        except ValueError as error:
            raise ClientError(f"the rights of {info.subject} cannot be read: {error}") from error
    own = next((info.username or "" for info in listed if info.rocketline_own), "")
    return ServerAccounts(users, acls, own=own)


def _known_user(info: UserInfo) -> User:
    kind = by_word(UserType, info.user_type) or UserType.NORMAL
    status = by_word(UserStatus, info.user_status) or UserStatus.ENABLE
    return User(info.username or "", info.password or "", kind, status)


class Change(Protocol):
    """One request to a server. As text it is lines for people, without secrets: `-` what goes, `+` what comes."""

    async def apply(self, server: AccountServer, keep_old_s: int | None) -> None: ...


@dataclass(frozen=True)
class CreateUser:
    user: User

    def __str__(self) -> str:
        return f"+ user {self.user.name} ({_state(self.user)})"

    async def apply(self, server: AccountServer, keep_old_s: int | None) -> None:
        await server.create_user(_user_info(self.user))


@dataclass(frozen=True)
class UpdateUser:
    old: User
    new: User
    """Its password is empty when it stays."""

    def __str__(self) -> str:
        parts = [f"{_state(self.old)} -> {_state(self.new)}"] if _state(self.old) != _state(self.new) else []
        parts += ["new password"] if self.new.password else []
        return f"~ user {self.new.name}: {', '.join(parts)}"

    async def apply(self, server: AccountServer, keep_old_s: int | None) -> None:
        await server.update_user(_user_info(self.new), keep_old_s if self.new.password else None)


@dataclass(frozen=True)
class DeleteUser:
    name: str
    acl: Acl = NO_RIGHTS
    """Which goes with it."""

    def __str__(self) -> str:
        return "\n".join([f"- user {self.name}", *_acl_lines("-", self.name, self.acl)])

    async def apply(self, server: AccountServer, keep_old_s: int | None) -> None:
        await server.delete_user(self.name)


@dataclass(frozen=True)
class PutEntries:
    """One request: all of them are in force together."""

    name: str
    acl: Acl
    former: Acl = NO_RIGHTS
    """What they replace."""

    def __str__(self) -> str:
        return "\n".join([*_acl_lines("-", self.name, self.former), *_acl_lines("+", self.name, self.acl)])

    async def apply(self, server: AccountServer, keep_old_s: int | None) -> None:
        await server.put_acl(acl_info(self.name, self.acl))


@dataclass(frozen=True)
class DeleteEntry:
    name: str
    policy: PolicyType
    entries: tuple[Entry, ...]
    """All that a server has about the same resources; mostly one."""

    def __str__(self) -> str:
        return "\n".join(_entry_line("-", self.name, self.policy, entry) for entry in self.entries)

    async def apply(self, server: AccountServer, keep_old_s: int | None) -> None:
        await server.delete_acl(subject_of(self.name), target_text(self.entries[0].target), word(self.policy))


@dataclass(frozen=True)
class KeepOwn:
    """No change: the file asks for one that the server refuses."""

    name: str

    def __str__(self) -> str:
        return f"# user {self.name} stays an enabled super user: the server signs its own requests with it"

    async def apply(self, server: AccountServer, keep_old_s: int | None) -> None:
        pass


def _state(user: User) -> str:
    return f"{word(user.type)}, {word(user.status).lower()}"


def _user_info(user: User) -> UserInfo:
    return UserInfo(user.password or None, word(user.status).lower(), word(user.type), user.name)


def _entry_line(sign: str, name: str, policy: PolicyType, entry: Entry) -> str:
    default = " by default" if policy is PolicyType.DEFAULT else ""
    return f"{sign} {name}: {entry_text(entry)}{default}"


def _acl_lines(sign: str, name: str, acl: Acl) -> Iterator[str]:
    return (_entry_line(sign, name, policy, entry) for policy in PolicyType for entry in acl.entries(policy))


def count_lines(changes: Iterable[Change]) -> int:
    """How many lines show what changes; notes are none."""
    return sum(not line.startswith("#") for change in changes for line in str(change).splitlines())


def differing(one: AccountTable, other: AccountTable) -> list[str]:
    """The accounts that two servers do not have alike, but for passwords: `-` only the first has, `+` only the second, `~`
    both."""
    found = []
    for name in sorted(one.users.keys() | other.users.keys()):
        mine, yours = one.users.get(name), other.users.get(name)
        if mine is None or yours is None:
            found.append(f"{'+' if mine is None else '-'}{name}")
        elif _state(mine) != _state(yours) or _rights(one, name) != _rights(other, name):
            found.append(f"~{name}")
    return found


def _rights(table: AccountTable, name: str) -> set[str]:
    return set(_acl_lines("", name, table.acls.get(name, NO_RIGHTS)))


def plan(
    current: AccountTable, wanted: AccountTable, *, set_passwords: bool = False, prune: bool = False
) -> list[Change]:
    """What makes `current` as `wanted`. ConfigError when a user to be created has no password.

    A password that the server does not show is sent only with `set_passwords`. Accounts that `wanted` does not name stay,
    or are deleted with `prune`.
    """
    changes: list[Change] = []
    own = current.own if isinstance(current, ServerAccounts) else ""
    for name, user in wanted.users.items():
        if name == own and _state(user) != _state(current.users[name]):
            changes.append(KeepOwn(name))
            user = replace(user, type=current.users[name].type, status=current.users[name].status)
        changes += _user_changes(current.users.get(name), user, set_passwords)
        changes += _right_changes(name, current.acls.get(name, NO_RIGHTS), wanted.acls.get(name, NO_RIGHTS))
    if prune:
        for name in current.users:
            if name not in wanted.users:
                changes.append(KeepOwn(name) if name == own else DeleteUser(name, current.acls.get(name, NO_RIGHTS)))
    return changes


async def apply(server: AccountServer, changes: Iterable[Change], keep_old_s: int | None = None) -> None:
    """Make the changes one after the other. A changed password stays valid for `keep_old_s` where the server can do that."""
    for change in changes:
        await change.apply(server, keep_old_s)


def _user_changes(old: User | None, new: User, set_passwords: bool) -> Iterator[Change]:
    if old is None:
        if not new.password:
            raise ConfigError(f"user {new.name} does not exist yet: give it a password, password_file or password_env")
        yield CreateUser(new)
        return
    is_new_password = bool(new.password) and (new.password != old.password if old.password else set_passwords)
    if is_new_password or _state(old) != _state(new):
        yield UpdateUser(old, new if is_new_password else replace(new, password=""))


def _right_changes(name: str, old: Acl, new: Acl) -> Iterator[Change]:
    """What is new comes first, in one request. An entry that a server has twice is deleted first, or one would stay."""
    custom, default = (_differences(name, policy, old, new) for policy in PolicyType)
    first = [*custom.doubled, *default.doubled]
    yield from first
    if put := Acl(custom.put, default.put):
        yield PutEntries(name, put, Acl(custom.replaced, default.replaced))
    yield from custom.gone
    yield from default.gone


@dataclass(frozen=True)
class _Differences:
    doubled: list[DeleteEntry]
    put: tuple[Entry, ...]
    replaced: tuple[Entry, ...]
    gone: list[DeleteEntry]


def _differences(name: str, policy: PolicyType, old: Acl, new: Acl) -> _Differences:
    had: dict[Target, tuple[Entry, ...]] = {}
    for entry in old.entries(policy):
        had[entry.target] = (*had.get(entry.target, ()), entry)
    wanted = {entry.target: entry for entry in new.entries(policy)}
    doubled = [entries for target, entries in had.items() if target in wanted and len(entries) > 1]
    put = tuple(entry for target, entry in wanted.items() if had.get(target) != (entry,))
    replaced = tuple(entries[0] for entry in put if len(entries := had.get(entry.target, ())) == 1)
    gone = [entries for target, entries in had.items() if target not in wanted]
    return _Differences(
        [DeleteEntry(name, policy, entries) for entries in doubled],
        put,
        replaced,
        [DeleteEntry(name, policy, entries) for entries in gone],
    )
