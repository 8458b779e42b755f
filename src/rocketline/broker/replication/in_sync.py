"""Which members a master takes to have everything: as they report, and for how long they have been behind.

A member that comes back joins in two steps. First the master waits for it too, so that nothing more is acknowledged which it
lacks; when it has everything that was acknowledged before, the record can name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from rocketline.coordination import GroupRecord, View

NEAR = 0.2
"""Share of the time a member may be behind: one that is nearer joins."""
REJOIN_S = 1.0
"""After a hand-over the others are in sync and not connected yet: so long they are waited for."""


class Reported(Protocol):
    """What a master knows of a connected member."""

    end: int
    """It has the log up to here."""
    caught_up_at: float | None
    """The last time of which it has everything."""

    def look(self, now: float, log_end: int) -> None:
        """Compare it with the end of the log."""


class Judged(NamedTuple):
    """Members other than the master."""

    wanted: frozenset[int]
    """They should be in sync."""
    joining: frozenset[int]
    """They should be waited for, and in sync as soon as they have everything acknowledged."""


class InSyncJudge:
    def __init__(self, max_behind_s: float) -> None:
        self._max_behind_s = max_behind_s

    def judge(
        self,
        view: View,
        record: GroupRecord,
        replicas: Mapping[int, Reported],
        ends: tuple[int, int],
        now: float,
        leads_since: float,
    ) -> Judged:
        """`ends` are those of the log and of what is confirmed."""
        log_end, confirmed = ends
        found: set[int] = set()
        joining: set[int] = set()
        for member_id, replica in replicas.items():
            replica.look(now, log_end)
            behind_s = now - (leads_since if replica.caught_up_at is None else replica.caught_up_at)
            is_running = member_id in view.live
            if member_id not in record.members:
                continue
            if member_id in record.in_sync:
                # One that does not run is not waited for.
                if replica.end >= log_end or (is_running and behind_s < self._max_behind_s):
                    found.add(member_id)
            elif is_running and replica.caught_up_at is not None and behind_s < self._max_behind_s * NEAR:
                (found if replica.end >= confirmed else joining).add(member_id)
        if now - leads_since < REJOIN_S:
            found |= {other for other in record.in_sync - replicas.keys() if other in view.live}
        return Judged(frozenset(found), frozenset(joining))
