"""Who may do what: roles, and the people who have them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from rocketline.protocol.signing import Credentials


class Role(IntEnum):
    """Each may do what the ones before it may."""

    VIEWER = 1
    """Names and numbers, no bodies."""
    READER = 2
    """Bodies, traces, exports."""
    OPERATOR = 3
    """Sending, resending, resetting, creating and changing."""
    ADMIN = 4
    """Deleting, settings of brokers, accounts."""

    @property
    def word(self) -> str:
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> Role:
        """
        >>> Role.of("reader") is Role.READER
        True
        """
        return cls[word.upper()]


ROLE_WORDS = tuple(role.word for role in Role)


@dataclass(frozen=True)
class Person:
    """Somebody who is let in."""

    name: str
    role: Role
    how: str = "link"
    """`link`, `password`, `token` or `broker`."""
    account: Credentials | None = field(default=None, repr=False)
    """With `--login broker`: signs all requests of this person."""
    stamp: str = field(default="", repr=False)
    """What the account or token was when this person was let in; another password is another stamp."""
    clusters: frozenset[str] | None = None
    """The clusters that this person may enter; None: all."""
    sees_console: bool = True
    """Whether it may see what no broker guards: audit, store and runs. With `--login broker` only super users may."""

    @property
    def key(self) -> str:
        """Tells people apart whose names are equal."""
        return f"{self.how} {self.name} {self.stamp}"

    def may(self, role: Role) -> bool:
        return self.role >= role

    def may_enter(self, cluster: str) -> bool:
        return self.clusters is None or cluster in self.clusters
