"""Who may use a server, and what each may do: accounts and their rights in memory, with their files if there are any.

A change is saved before it is in force, and in force when it is answered. Changes are made one after the other: each is
checked against what the one before it left. `version` grows with every change, so that whoever remembers a decision sees
that it is old.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from rocketline.async_table import AsyncTable, Edit, OffLoop, Saving
from rocketline.auth import decisions
from rocketline.auth.account_files import (
    AccountFiles,
    NoFiles,
    decode_acls,
    decode_users,
    encode_acls,
    encode_users,
)
from rocketline.auth.model import NO_RIGHTS, AccountTable, Acl, Entry, Need, PolicyType, Target, User, Verdict
from rocketline.errors import ConfigError, RequestRejected, StoreError
from rocketline.protocol.codes import ResponseCode
from rocketline.store.files.disk import Disk
from rocketline.transport.audit import log_changed_files

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.5

MAX_USERS = 100_000
MAX_ENTRIES = 10_000
"""Of one account."""
MAX_ENTRIES_IN_ALL = 1_000_000


class Accounts:
    """All accounts and their rights."""

    def __init__(self, files: AccountFiles | NoFiles, off_loop: OffLoop | None = None) -> None:
        """Without `off_loop` every change is saved at once, which blocks. Reads the files; ConfigError when that fails."""
        self.version = 0
        """Grows with every change."""
        self._files = files
        self._off_loop = off_loop
        self._table = AccountTable()
        self._content = AsyncTable(files, self._table, self._use, off_loop)
        self._content.begin(files.load(), is_saved=True)

    @staticmethod
    def open(folder: Path | None, disk: Disk, off_loop: OffLoop | None = None) -> Accounts:
        """The accounts of a folder, or in memory only. ConfigError when a file cannot be read."""
        return Accounts(NoFiles() if folder is None else AccountFiles(disk, folder), off_loop)

    def _use(self, table: AccountTable) -> None:
        if table is not self._table:  # changes that were refused change nothing
            self._table = table
            self.version += 1

    @property
    def user_count(self) -> int:
        return len(self._table.users)

    def user(self, name: str) -> User | None:
        return self._table.users.get(name)

    def acl(self, name: str) -> Acl:
        """The rights of an account; no entries when it has none, or there is no such account."""
        return self._table.acls.get(name, NO_RIGHTS)

    def decide(self, user: User, need: Need, ip: str) -> Verdict:
        return decisions.decide(user, self.acl(user.name), need, ip)

    def users(self) -> Iterator[User]:
        """In the order of their names, as RocketMQ lists them."""
        users = self._table.users
        return (users[name] for name in sorted(users, key=str.encode))

    def acls(self) -> Iterator[tuple[str, Acl]]:
        acls = self._table.acls
        return ((name, acls[name]) for name in sorted(acls, key=str.encode))

    def create_user(self, user: User) -> Saving:
        """A new account has no rights, whatever an account of that name once had."""
        return self._change(partial(_with_user, user))

    def update_user(self, name: str, change: Callable[[User], User]) -> Saving:
        """`change` may refuse."""
        return self._change(partial(_with_changed_user, name, change))

    def delete_user(self, name: str, check: Callable[[User], object]) -> Saving:
        """Delete an account and its rights; one that does not exist is none any more. `check` may refuse."""
        return self._change(partial(_without_user, name, check))

    def put_entries(self, name: str, acl: Acl) -> Saving:
        """Replace the entries about the same resources, and add the others."""
        return self._change(partial(_with_entries, name, acl))

    def delete_entries(self, name: str, policy: PolicyType, target: Target | None) -> Saving:
        """Delete the entry about some resources, or without `target` all rights of an account."""
        return self._change(partial(_without_entries, name, policy, target))

    def export(self) -> tuple[bytes, bytes]:
        """Users and rights, as their files have them."""
        return encode_users(self._table.users), encode_acls(self._table.acls)

    def follow(self, users: bytes, acls: bytes) -> None:
        """Have the accounts of a master, in the form of its files. ConfigError when they cannot be read."""
        if (users, acls) != self.export():
            table = AccountTable(decode_users(users), decode_acls(acls))
            self._content.change(lambda _: table)

    def add_missing(self, users: Mapping[str, User], acls: Mapping[str, Acl]) -> Saving:
        """Create those accounts that do not exist yet, with their rights; the others stay as they are."""
        return self._change(partial(_with_missing, users, acls))

    async def watch(self) -> None:
        """Read the files again when somebody else changed them, for as long as this runs."""
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            try:
                await self.reload()
            except Exception:  # or no later change would ever count
                log.exception("accounts are not read again, those from before stay in force")

    async def reload(self) -> bool:
        """Read the files again if somebody else changed them; whether there was something new.

        When they cannot be read, what was in force stays in force."""
        try:
            table = await self._load_changes()
        except (ConfigError, StoreError) as error:
            log.error("accounts are not read again, those from before stay in force: %s", error)
            return False
        if table is None:
            return False
        former = self._table
        self._content.change(lambda _: table)
        log_changed_files(str(self._files), _names_changed(former, table))
        return True

    async def _load_changes(self) -> AccountTable | None:
        if self._off_loop is None:
            return self._files.load_changes()
        found: list[AccountTable | None] = []
        await self._off_loop(lambda: found.append(self._files.load_changes()))
        return found[0]

    def _change(self, edit: Edit[AccountTable]) -> Saving:
        """Make a change, unless the edit raises: the change then is none, and whoever waits for it gets the reason."""
        refused: list[RequestRejected] = []

        def tried(former: AccountTable) -> AccountTable:
            refused.clear()
            try:
                return edit(former)
            except RequestRejected as refusal:
                refused.append(refusal)
                return former

        def tell() -> None:
            if refused:
                raise refused[0]

        return self._content.change_saved(tried, tell)


def _names_changed(former: AccountTable, table: AccountTable) -> dict[str, list[str]]:
    """The accounts that are not as they were, and those whose rights are not."""
    return {"users": _differing(former.users, table.users), "rights": _differing(former.acls, table.acls)}


def _differing(former: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    return sorted(name for name in former.keys() | now.keys() if former.get(name) != now.get(name))


def _with_user(user: User, former: AccountTable) -> AccountTable:
    if user.name in former.users:
        raise RequestRejected(ResponseCode.NO_PERMISSION, "The user is existed")
    _check_user_count(len(former.users) + 1)
    return replace(former, users={**former.users, user.name: user}, acls=_without(former.acls, user.name))


def _check_user_count(count: int) -> None:
    if count > MAX_USERS:
        raise RequestRejected(ResponseCode.INVALID_PARAMETER, f"{count} users are more than {MAX_USERS}")


def _with_changed_user(name: str, change: Callable[[User], User], former: AccountTable) -> AccountTable:
    user = former.users.get(name)
    if user is None:
        raise RequestRejected(ResponseCode.NO_PERMISSION, "The user is not exist")
    return replace(former, users={**former.users, name: change(user)})


def _without_user(name: str, check: Callable[[User], object], former: AccountTable) -> AccountTable:
    user = former.users.get(name)
    if user is None:
        return former
    check(user)
    users = {other: item for other, item in former.users.items() if other != name}
    return replace(former, users=users, acls=_without(former.acls, name))


def _without(acls: Mapping[str, Acl], name: str) -> Mapping[str, Acl]:
    return {other: acl for other, acl in acls.items() if other != name} if name in acls else acls


def _with_entries(name: str, acl: Acl, former: AccountTable) -> AccountTable:
    if name not in former.users:
        raise RequestRejected(ResponseCode.NO_PERMISSION, f"The subject of User:{name} is not exist.")
    old = former.acls.get(name, NO_RIGHTS)
    new = Acl(_merged(old.custom, acl.custom), _merged(old.default, acl.default))
    acls = {**former.acls, name: new}
    _check_entry_count([name], acls)
    return replace(former, acls=acls)


def _merged(old: tuple[Entry, ...], changes: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Entries that are there keep their place. The first of several about the same resources is replaced, as in RocketMQ."""
    if not old:
        return changes
    merged = list(old)
    places: dict[Target, int] = {}
    for place, entry in enumerate(merged):
        places.setdefault(entry.target, place)
    for entry in changes:
        place = places.setdefault(entry.target, len(merged))
        merged[place : place + 1] = [entry]
    return tuple(merged)


def _check_entry_count(changed: Iterable[str], acls: Mapping[str, Acl]) -> None:
    most = max((len(acls[name]) for name in changed if name in acls), default=0)
    total = sum(map(len, acls.values()))
    if most > MAX_ENTRIES or total > MAX_ENTRIES_IN_ALL:
        raise RequestRejected(
            ResponseCode.INVALID_PARAMETER,
            f"an account would have {most} entries, and all accounts {total}; "
            f"the limits are {MAX_ENTRIES} and {MAX_ENTRIES_IN_ALL}",
        )


def _without_entries(name: str, policy: PolicyType, target: Target | None, former: AccountTable) -> AccountTable:
    if name not in former.users:
        raise RequestRejected(ResponseCode.NO_PERMISSION, "The subject is not exist.")
    old = former.acls.get(name)
    if old is None:
        raise RequestRejected(ResponseCode.NO_PERMISSION, "The acl is not exist.")
    left = NO_RIGHTS if target is None else _without_entry(old, policy, target)
    acls = {**former.acls, name: left} if left else _without(former.acls, name)
    return replace(former, acls=acls)


def _without_entry(acl: Acl, policy: PolicyType, target: Target) -> Acl:
    """Without all entries about `target`: one that stayed behind would still grant something."""
    left = tuple(entry for entry in acl.entries(policy) if entry.target != target)
    return replace(acl, custom=left) if policy is PolicyType.CUSTOM else replace(acl, default=left)


def _with_missing(users: Mapping[str, User], acls: Mapping[str, Acl], former: AccountTable) -> AccountTable:
    new = {name: user for name, user in users.items() if name not in former.users}
    _check_user_count(len(former.users) + len(new))
    rights = {name: acl for name, acl in former.acls.items() if name not in new}
    rights.update((name, acl) for name in new if (acl := acls.get(name)))
    _check_entry_count(new, rights)
    return replace(former, users={**former.users, **new}, acls=rights)
