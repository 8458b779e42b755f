"""Answers that are put together from several brokers: what came, and whose part is missing.

A part is missing because a broker is silent, or because it refused. Whoever shows such an answer names those brokers: half
of a cluster must not look like the whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rocketline.errors import BrokerError, RequestNotSupported, RocketlineError

T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")


@dataclass(frozen=True)
class Missing:
    """A broker whose part an answer lacks, and why."""

    broker: str
    address: str
    problem: str
    code: int | None = None
    """RocketMQ's answer code; None when the broker was silent."""
    error: RocketlineError | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def of(broker: str, address: str, error: RocketlineError) -> Missing:
        if isinstance(error, BrokerError):
            return Missing(broker, address, refusal_text(error), error.code, error)
        return Missing(broker, address, str(error), error=error)

    @property
    def where(self) -> str:
        return f"{self.broker} {self.address}".strip()


@dataclass(frozen=True)
class Partial(Generic[T_co]):
    """An answer, and the brokers whose part it lacks."""

    value: T_co
    missing: tuple[Missing, ...] = ()
    answered: bool = True
    """Whether any broker answered."""
    limited: bool = False
    """Whether there may be more than was looked at, or than is told."""

    @property
    def complete(self) -> bool:
        return not self.missing and not self.limited

    def map(self, change: Callable[[T_co], R]) -> Partial[R]:
        """The same for another form of the answer."""
        return Partial(change(self.value), self.missing, self.answered, self.limited)

    def some(self) -> T_co:
        """The answer, with what is missing or not; when no broker gave any, the first refusal or failure is raised."""
        errors = [item.error for item in self.missing if item.error is not None]
        if not self.answered and errors:
            raise next((error for error in errors if isinstance(error, BrokerError)), errors[0])
        return self.value


def refusal_text(error: BrokerError) -> str:
    """A refusal in one sentence: Apache's brokers send the stack of an exception with some."""
    if isinstance(error, RequestNotSupported):
        number = re.search(r"request type (\d+)", error.remark)
        return f"this broker does not know {'request ' + number[1] if number else 'this request'}"
    lines = error.remark.strip().splitlines()
    return f"refused with {error.code}: {lines[0][:300] if lines else 'no reason given'}"


def merged(*parts: Partial[object]) -> tuple[Missing, ...]:
    """Whose part is missing in any of several answers, each broker once."""
    found: dict[str, Missing] = {}
    for part in parts:
        for item in part.missing:
            found.setdefault(item.where, item)
    return tuple(found.values())
