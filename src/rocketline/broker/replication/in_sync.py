"""Which members a master takes to have everything: as they report, and for how long they have been behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rocketline.coordination import GroupRecord, View


class Reported(Protocol):
    """What a master knows of a connected member."""

    end: int
    """It has the log up to here."""


class InSyncJudge:
    def __init__(self, max_behind_s: float) -> None:
        self._max_behind_s = max_behind_s
        self._was_level: dict[int, float] = {}
        """When each member was last seen with all that the master has."""

    def wanted(
        self, view: View, record: GroupRecord, replicas: Mapping[int, Reported], ends: tuple[int, int], now: float
    ) -> frozenset[int]:
        """Members other than the master that should be in sync; `ends` are those of the log and of what is confirmed."""
        log_end, confirmed = ends
        self._was_level = {key: value for key, value in self._was_level.items() if key in replicas}
        found = set()
        for member_id, replica in replicas.items():
            if member_id not in record.members:
                continue
            is_level = replica.end >= log_end
            if is_level:
                self._was_level[member_id] = now
            behind_s = now - self._was_level.get(member_id, now - self._max_behind_s)
            is_running = member_id in view.live
            if member_id in record.in_sync:
                # One that does not run is not waited for.
                if is_level or (is_running and behind_s < self._max_behind_s):
                    found.add(member_id)
            elif is_running and replica.end >= confirmed and behind_s < self._max_behind_s:
                found.add(member_id)
        return frozenset(found)
