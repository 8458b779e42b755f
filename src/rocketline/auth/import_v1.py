"""Accounts of RocketMQ 4 (ACL 1.0): `plain_acl.yml` and the files in `acl/`, turned into accounts and rights of today.

An admin becomes a super user. Rights on topics and groups become custom entries, the default rights default ones. What
cannot be taken over is in the notes: above all addresses from which no signature was needed, because one is always needed
now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rocketline.auth.model import Acl, Action, Decision, Entry, Pattern, ResourceKind, Target, User, UserType
from rocketline.auth.yaml_text import load_yaml
from rocketline.errors import ConfigError
from rocketline.protocol.names import retry_topic

MAIN_FILE = "plain_acl.yml"
FOLDER = "acl"
TOOLS_FILE = "tools.yml"

_PERMISSIONS = {
    "PUB": (Action.PUB,),
    "SUB": (Action.SUB,),
    "PUB|SUB": (Action.PUB, Action.SUB),
    "SUB|PUB": (Action.PUB, Action.SUB),
}
DENY = "DENY"


class OldAccount(msgspec.Struct, rename="camel"):
    access_key: str = ""
    secret_key: str = ""
    white_remote_address: str = ""
    admin: str = ""
    default_topic_perm: str = ""
    default_group_perm: str = ""
    topic_perms: list[str] = msgspec.field(default_factory=list)
    group_perms: list[str] = msgspec.field(default_factory=list)

    def __repr__(self) -> str:
        return f"OldAccount({self.access_key!r})"


class OldFile(msgspec.Struct, rename="camel"):
    global_white_remote_addresses: list[str] = msgspec.field(default_factory=list)
    accounts: list[OldAccount] = msgspec.field(default_factory=list)


@dataclass
class Import:
    """What was found, by the name of the account, and what was dropped."""

    users: dict[str, User] = field(default_factory=dict)
    acls: dict[str, Acl] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def v1_files(folder: Path) -> list[Path]:
    """The files of ACL 1.0 in RocketMQ's folder `conf`, in the order in which they count."""
    inside = sorted(path for path in (folder / FOLDER).rglob("*") if path.suffix in (".yml", ".yaml"))
    main = folder / MAIN_FILE
    return [*(path for path in inside if path.name != TOOLS_FILE), *([main] if main.exists() else [])]


def read_v1(paths: Iterable[Path]) -> Import:
    """All accounts of these files; one that is in several counts as in the first. ConfigError when one cannot be read."""
    found = Import()
    for path in paths:
        file = _read(path)
        for address in file.global_white_remote_addresses:
            found.notes.append(f"{path}: global white address {address!r} is dropped: its clients need an account now")
        for account in file.accounts:
            _take(account, path, found)
    return found


def _read(path: Path) -> OldFile:
    content = load_yaml(path)
    try:
        return msgspec.convert(_without_empty(content or {}), OldFile)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path} is no file of ACL 1.0: {error}") from error


def _without_empty(content: object) -> object:
    """YAML's empty value is an empty text here, also where a list may be."""
    if isinstance(content, dict):
        return {key: _without_empty(value) for key, value in content.items() if value not in ("", "null", "~")}
    return [_without_empty(item) for item in content] if isinstance(content, list) else content


def _take(account: OldAccount, path: Path, found: Import) -> None:
    name = account.access_key
    if not name.strip() or not account.secret_key.strip():
        found.notes.append(f"{path}: account {name!r} is dropped: it has no access key or no secret key")
        return
    if name in found.users:
        found.notes.append(f"{path}: account {name!r} is dropped: another file has it already")
        return
    is_admin = account.admin.lower() == "true"
    found.users[name] = User(name, account.secret_key, UserType.SUPER if is_admin else UserType.NORMAL)
    start = f"{path}: account {name!r}: "
    if account.white_remote_address.strip():
        found.notes.append(
            f"{start}white address {account.white_remote_address!r} is dropped: requests from there need a signature now"
        )
    notes: list[str] = []
    topics = _entries(ResourceKind.TOPIC, account.topic_perms, notes)
    groups = _entries(ResourceKind.GROUP, account.group_perms, notes)
    defaults = _defaults(account, notes)
    found.notes += (start + note for note in notes)
    if acl := Acl((*topics, *groups), tuple(defaults)):
        found.acls[name] = acl
        if is_admin:
            found.notes.append(f"{start}it is an admin, so that its entries bind it no more")


def _entries(kind: ResourceKind, permissions: list[str], notes: list[str]) -> list[Entry]:
    entries = []
    for text in permissions:
        name, equals, permission = (part.strip() for part in text.partition("="))
        if kind is ResourceKind.GROUP:
            name = name.removeprefix(retry_topic(""))
        if not equals or not name or "=" in permission or "*" in name:
            notes.append(f"{text!r} is dropped: it is not NAME=PERMISSION")
        else:
            entries.append(_entry(Target(kind, Pattern.LITERAL, name), permission, notes))
    return entries


def _defaults(account: OldAccount, notes: list[str]) -> Iterator[Entry]:
    for kind, permission in (
        (ResourceKind.TOPIC, account.default_topic_perm.strip()),
        (ResourceKind.GROUP, account.default_group_perm.strip()),
    ):
        if permission:
            yield _entry(Target(kind, Pattern.ANY, ""), permission, notes)


def _entry(target: Target, permission: str, notes: list[str]) -> Entry:
    actions = _PERMISSIONS.get(permission)
    if actions is None and permission != DENY:
        notes.append(f"{permission!r} is no permission and denies, as it did")
    return Entry(target, actions or (Action.ALL,), Decision.ALLOW if actions else Decision.DENY)
