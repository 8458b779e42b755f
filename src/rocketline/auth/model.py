"""Accounts and rights, as values. Numbers and words are RocketMQ's."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple


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


@dataclass(frozen=True)
class Entry:
    """A line of an account's rights."""

    kind: ResourceKind
    pattern: Pattern
    name: str
    """The literal or the prefix; "" for any."""
    actions: frozenset[Action]
    decision: Decision
    source_ips: tuple[str, ...] = ()
    """Addresses and networks it counts for; empty: all."""


@dataclass(frozen=True)
class Acl:
    """The rights of one account."""

    custom: tuple[Entry, ...] = ()
    default: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """Whether a need is met, and by which entry."""

    is_allowed: bool
    entry: Entry | None = None
    """None: no entry fits, or the account is a super user."""
