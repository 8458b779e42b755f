"""Accounts and rights, as values. Numbers and words are RocketMQ's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cached_property
from typing import NamedTuple

from rocketline.system.networks import Networks, network


class UserType(IntEnum):
    SUPER = 1
    """May do everything, whatever the entries say."""
    NORMAL = 2


class UserStatus(IntEnum):
    ENABLE = 1
    DISABLE = 2


class ResourceKind(IntEnum):
    ANY = 1
    CLUSTER = 2
    NAMESPACE = 3
    TOPIC = 4
    GROUP = 5


class Pattern(IntEnum):
    """How an entry names resources."""

    ANY = 1
    LITERAL = 2
    PREFIX = 3


class Action(IntEnum):
    ALL = 1
    ANY = 2
    PUB = 3
    SUB = 4
    CREATE = 5
    UPDATE = 6
    DELETE = 7
    GET = 8
    LIST = 9


class Decision(IntEnum):
    ALLOW = 1
    DENY = 2


class PolicyType(IntEnum):
    CUSTOM = 1
    DEFAULT = 2
    """Counts only where no custom entry fits."""


class Resource(NamedTuple):
    """One thing that a request touches."""

    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name.capitalize()}:{self.name}"


class Need(NamedTuple):
    """What a request asks of its sender's rights: any one of the actions, on the resource."""

    resource: Resource
    actions: tuple[Action, ...]


class Level(Enum):
    """What some requests ask for instead of rights."""

    ACCOUNT = "any account"
    SUPER = "a super user"


Needs = tuple[Need, ...] | Level
"""All of several needs, in order: the first that is not met is named in the refusal."""


@dataclass(frozen=True)
class User:
    name: str
    password: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE
    second_password: str = field(default="", repr=False)
    """Valid too until `second_until_ms`, so that passwords can be changed while clients run."""
    second_until_ms: int = 0

    def passwords(self, now_ms: int) -> tuple[str, ...]:
        """Those that are valid now."""
        if self.second_password and now_ms < self.second_until_ms:
            return self.password, self.second_password
        return (self.password,)


class Target(NamedTuple):
    """The resources that an entry is about."""

    kind: ResourceKind
    pattern: Pattern
    name: str
    """The literal or the prefix; "" for any."""


@dataclass(frozen=True)
class Entry:
    """A line of an account's rights."""

    target: Target
    actions: tuple[Action, ...]
    decision: Decision
    source_ips: tuple[str, ...] = ()
    """Addresses and networks it counts for; empty: all."""

    @cached_property
    def networks(self) -> Networks:
        """The same as networks; ValueError when one is none."""
        return tuple(map(network, self.source_ips))


class EntryIndex:
    """Entries, found by the resource they are about: an account may have thousands."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: dict[Target, list[Entry]] = {}
        for entry in sorted(entries, key=lambda item: item.decision is not Decision.DENY):
            self._entries.setdefault(entry.target, []).append(entry)
        prefixes = {(target.kind, len(target.name)) for target in self._entries if target.pattern is Pattern.PREFIX}
        self._prefix_lengths = {
            kind: sorted((length for other, length in prefixes if other is kind), reverse=True) for kind, _ in prefixes
        }

    def about(self, resource: Resource) -> Iterator[Entry]:
        """The entries about a resource: the most specific first, and Deny before Allow."""
        if self._entries:
            for target in self._targets(*resource):
                yield from self._entries.get(target, ())

    def _targets(self, kind: ResourceKind, name: str) -> Iterator[Target]:
        yield Target(kind, Pattern.LITERAL, name)
        for length in self._prefix_lengths.get(kind, ()):
            if length <= len(name):
                yield Target(kind, Pattern.PREFIX, name[:length])
        yield Target(kind, Pattern.ANY, "")
        yield EVERYTHING


EVERYTHING = Target(ResourceKind.ANY, Pattern.ANY, "")


@dataclass(frozen=True)
class Acl:
    """The rights of one account."""

    custom: tuple[Entry, ...] = ()
    default: tuple[Entry, ...] = ()

    def __len__(self) -> int:
        return len(self.custom) + len(self.default)

    def entries(self, policy: PolicyType) -> tuple[Entry, ...]:
        return self.custom if policy is PolicyType.CUSTOM else self.default

    @cached_property
    def indexes(self) -> tuple[EntryIndex, EntryIndex]:
        """Custom entries, then default ones."""
        return EntryIndex(self.custom), EntryIndex(self.default)


NO_RIGHTS = Acl()


@dataclass(frozen=True)
class AccountTable:
    """All accounts and their rights, by the name of the account. Never changed in place."""

    users: Mapping[str, User] = field(default_factory=dict)
    acls: Mapping[str, Acl] = field(default_factory=dict)
    reads: int = 0
    """How often the files had been read when this, or what it was made from, was read."""


@dataclass(frozen=True)
class Verdict:
    """Whether a need is met, and by which entry."""

    is_allowed: bool
    entry: Entry | None = None
    """None: no entry fits, or the account is a super user or disabled."""
