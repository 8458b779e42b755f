"""How far the replicas are that count, and so which messages may be acknowledged and read.

Acknowledgements are counted by member, never by connection: two connections of one replica are one copy. A replica that
does not say who it is never counts, unless the operator named its address.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

MemberKey = Hashable
"""Number of a member; for a replica of Apache's, the address that an operator named."""


@dataclass
class Replica:
    """A member that is connected, as its master sees it."""

    end: int = 0
    """End of its log as it reported it, with SYNC_FLUSH of what is on its disk."""
    caught_up_at: float | None = None
    """The last monotonic time of which it is known that the replica has all that its master had then; None: not yet."""
    _mark: tuple[float, int] | None = None
    """A time, and the end of the master's log then."""

    def look(self, now: float, log_end: int) -> None:
        """Compare with the end of the master's log, which is never reached at one instant while messages come all the
        time: who has reached where it was at some time was level then."""
        if self.end >= log_end:
            self.caught_up_at, self._mark = now, None
        elif self._mark is None:
            self._mark = now, log_end
        elif self.end >= self._mark[1]:
            self.caught_up_at, self._mark = self._mark[0], (now, log_end)


class Acks:
    """Counts either the `wanted` fastest replicas or all of a given set."""

    def __init__(self, wanted: int = 0) -> None:
        self.replicas: dict[MemberKey, Replica] = {}
        self.wanted = wanted
        """Replicas that must have a message, whichever they are."""
        self.members: frozenset[int] | None = None
        """Members that all must have it, besides this one; None: `wanted` is asked."""
        self._ends: dict[MemberKey, int] = {}
        self._limit = 0

    def count_members(self, members: frozenset[int]) -> None:
        """All of these must have a message from now on."""
        self.members = members
        for key in set(self._ends) - members:
            if key not in self.replicas:
                del self._ends[key]

    def reported(self, key: MemberKey, end: int) -> None:
        # It stays known while the member is not connected: what it had it has.
        self._ends[key] = end

    def confirm(self, log_offset: int) -> None:
        """Everything below was acknowledged already, by what was asked for then."""
        self._limit = max(self._limit, log_offset)

    def start_over(self) -> None:
        """Forget all: another epoch begins."""
        self._ends.clear()
        self.replicas.clear()
        self._limit = 0

    @property
    def waits(self) -> bool:
        """Whether anything has to be waited for."""
        return bool(self.wanted) if self.members is None else bool(self.members)

    @property
    def limit(self) -> int:
        """Everything below this log offset is where it must be; never goes back while it counts the same epoch."""
        if self.members is not None:
            found = min((self._ends.get(member, 0) for member in self.members), default=0)
        else:
            ends = sorted(self._ends.values(), reverse=True)
            found = ends[self.wanted - 1] if 0 < self.wanted <= len(ends) else 0
        self._limit = max(self._limit, found)
        return self._limit


def connected_members(replicas: Mapping[MemberKey, Replica]) -> dict[int, Replica]:
    """Those that proved to be a member."""
    return {key: replica for key, replica in replicas.items() if isinstance(key, int)}
