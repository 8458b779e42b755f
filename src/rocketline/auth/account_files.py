"""The files of accounts: `users.json` and `acls.json`, readable by their owner only.

Each is an object by key, with RocketMQ's own keys, members and numbers. A file is replaced as a whole. There is no backup to
fall back to: it would bring back accounts that were deleted and rights that were taken away. So a file that cannot be read
stops the start.

`acls.json` is written before `users.json`: an account that is deleted loses its rights first.

Somebody else may change the files while the server runs. They are then read again, and never overwritten before that.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from rocketline.auth.model import (
    EVERYTHING,
    AccountTable,
    Acl,
    Action,
    Decision,
    Entry,
    Pattern,
    PolicyType,
    ResourceKind,
    Target,
    User,
    UserStatus,
    UserType,
)
from rocketline.auth.words import subject_name, subject_of
from rocketline.errors import ConfigError, StoreError
from rocketline.files import OWNER_ONLY
from rocketline.protocol.bodies import Body
from rocketline.store.files.disk import Disk

T = TypeVar("T")

USER_SUBJECT = 1


class SavedUser(Body):
    """A value in users.json."""

    password: str
    user_status: UserStatus
    user_type: UserType
    username: str
    subject_type: int = USER_SUBJECT
    second_password: str | UnsetType = msgspec.field(default=UNSET, name="rocketlineSecondPassword")
    second_until_ms: int | UnsetType = msgspec.field(default=UNSET, name="rocketlineSecondUntilMs")

    def __repr__(self) -> str:
        return f"SavedUser({self.username!r})"


class SavedEnvironment(Body):
    source_ips: list[str] | UnsetType = UNSET


class SavedResource(Body):
    resource_pattern: Pattern
    resource_type: ResourceKind
    resource_name: str | UnsetType = UNSET


class SavedEntry(Body):
    actions: list[Action]
    decision: Decision
    resource: SavedResource
    environment: SavedEnvironment = msgspec.field(default_factory=SavedEnvironment)


class SavedPolicy(Body):
    entries: list[SavedEntry]
    policy_type: PolicyType = PolicyType.CUSTOM


class SavedSubject(Body):
    username: str
    subject_type: int = USER_SUBJECT


class SavedAcl(Body):
    """A value in acls.json."""

    policies: list[SavedPolicy]
    subject: SavedSubject


class _File:
    """One of the two, with what is known to be in it."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.path = path
        self._disk = disk
        self._modified_ms: int | None = None
        self._digest: bytes | None = None
        """Of the content that is in force; None when there was no file."""

    def is_changed(self) -> bool:
        """Whether somebody else wrote it."""
        modified_ms = self._disk.modified_ms(self.path) if self._disk.exists(self.path) else None
        if modified_ms is not None and modified_ms == self._modified_ms:
            return False
        data = self._disk.read(self.path)
        if (None if data is None else _digest(data)) != self._digest:
            return True
        # The time is from before the read, so that no later change is missed.
        self._modified_ms = modified_ms
        return False

    def read(self, decode: Callable[[bytes], dict[str, T]]) -> tuple[dict[str, T], bytes | None]:
        """The content, empty when there is no file yet, and what `note` takes; ConfigError when it cannot be read."""
        data = self._disk.read(self.path)
        if data is None:
            if self._digest is not None:
                raise ConfigError(f"{self.path} is gone; put it back, or restart to begin without it")
            return {}, None
        try:
            return decode(data), _digest(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"{self.path} cannot be read ({error}); repair it or restore it from a copy: without it nobody's rights "
                "are known"
            ) from error

    def note(self, digest: bytes | None) -> None:
        self._digest, self._modified_ms = digest, None

    def write(self, data: bytes) -> None:
        if self.is_changed():
            raise StoreError(f"{self.path} was changed by another program and is not read yet; try again in a moment")
        self._disk.write_atomic(self.path, data, mode=OWNER_ONLY)
        self.note(_digest(data))


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


class AccountFiles:
    """Both files. Blocking; any thread."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        disk.make_folder(folder)
        self._folder = folder
        self._users = _File(disk, folder / "users.json")
        self._acls = _File(disk, folder / "acls.json")
        self._kept = AccountTable()
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return str(self._folder)

    def load(self) -> AccountTable:
        """What the files have; ConfigError when one cannot be read."""
        with self._lock:
            return self._load()

    def load_changes(self) -> AccountTable | None:
        """The same when somebody else changed them; None when not."""
        with self._lock:
            if self._users.is_changed() or self._acls.is_changed():
                return self._load()
            return None

    def save(self, table: AccountTable) -> None:
        with self._lock:
            if table.reads != self._kept.reads:
                raise StoreError(f"{self}: accounts were read again meanwhile; repeat the change")
            if table.acls is not self._kept.acls:
                self._acls.write(encode_acls(table.acls))
                self._kept = replace(self._kept, acls=table.acls)
            if table.users is not self._kept.users:
                self._users.write(encode_users(table.users))
                self._kept = table

    def _load(self) -> AccountTable:
        acls, acls_digest = self._acls.read(decode_acls)
        users, users_digest = self._users.read(decode_users)
        self._acls.note(acls_digest)
        self._users.note(users_digest)
        self._kept = AccountTable(users, acls, self._kept.reads + 1)
        return self._kept


class NoFiles:
    """Accounts in memory only."""

    def load(self) -> AccountTable:
        return AccountTable()

    def load_changes(self) -> AccountTable | None:
        return None

    def save(self, table: AccountTable) -> None:
        pass


def encode_users(users: Mapping[str, User]) -> bytes:
    return _pretty({name: saved_user(user) for name, user in users.items()})


def encode_acls(acls: Mapping[str, Acl]) -> bytes:
    return _pretty({subject_of(name): saved_acl(name, acl) for name, acl in acls.items()})


def decode_users(data: bytes) -> dict[str, User]:
    found = msgspec.json.decode(data, type=dict[str, SavedUser])
    return {name: _user(name, saved) for name, saved in found.items()}


def decode_acls(data: bytes) -> dict[str, Acl]:
    found = msgspec.json.decode(data, type=dict[str, SavedAcl])
    return {_subject_name(key): _acl(key, saved) for key, saved in found.items()}


def _pretty(table: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(table, order="sorted"), indent=2) + b"\n"


def saved_user(user: User) -> SavedUser:
    saved = SavedUser(user.password, user.status, user.type, user.name)
    if user.second_password:
        saved.second_password, saved.second_until_ms = user.second_password, user.second_until_ms
    return saved


def _user(name: str, saved: SavedUser) -> User:
    if saved.username != name:
        raise ValueError(f"the account under {name!r} says it is {saved.username!r}")
    second = saved.second_password if isinstance(saved.second_password, str) else ""
    until_ms = saved.second_until_ms if isinstance(saved.second_until_ms, int) else 0
    return User(name, saved.password, saved.user_type, saved.user_status, second, until_ms)


def saved_acl(name: str, acl: Acl) -> SavedAcl:
    policies = [
        SavedPolicy(list(map(_saved_entry, entries)), policy)
        for policy in PolicyType
        if (entries := acl.entries(policy))
    ]
    return SavedAcl(policies, SavedSubject(name))


def _saved_entry(entry: Entry) -> SavedEntry:
    target = entry.target
    name = UNSET if target.pattern is Pattern.ANY else target.name
    environment = SavedEnvironment(list(entry.source_ips) or UNSET)
    return SavedEntry(
        list(entry.actions), entry.decision, SavedResource(target.pattern, target.kind, name), environment
    )


def _subject_name(key: str) -> str:
    name = subject_name(key)
    if name is None:
        raise ValueError(f"{key!r} is not {subject_of('name')!r}")
    return name


def _acl(key: str, saved: SavedAcl) -> Acl:
    entries: dict[PolicyType, list[Entry]] = {policy: [] for policy in PolicyType}
    try:
        for policy in saved.policies:
            entries[policy.policy_type] += map(_entry, policy.entries)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error
    return Acl(tuple(entries[PolicyType.CUSTOM]), tuple(entries[PolicyType.DEFAULT]))


def _entry(saved: SavedEntry) -> Entry:
    resource = saved.resource
    if resource.resource_type is ResourceKind.ANY:
        target = EVERYTHING
    else:
        name = resource.resource_name if isinstance(resource.resource_name, str) else ""
        target = Target(resource.resource_type, resource.resource_pattern, name)
    ips = saved.environment.source_ips
    entry = Entry(target, tuple(saved.actions), saved.decision, tuple(ips) if isinstance(ips, list) else ())
    _ = entry.networks  # an address that cannot be read must be noticed now
    return entry
