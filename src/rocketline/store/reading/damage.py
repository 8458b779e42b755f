"""Damage found while the store runs: told once per place, counted, and never a reason to stop or to delete anything."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

_PLACES_KEPT = 100_000


class Damage:
    """What was found so far. A damaged record stays where it is: its neighbours are served, it is not."""

    def __init__(self) -> None:
        self.records = 0
        """Records whose bytes are not what was stored."""
        self.units = 0
        """Entries of consume queues that were wrong and have been mended from the log."""
        self._places: set[int] = set()

    def __contains__(self, log_offset: int) -> bool:
        return log_offset in self._places

    def record_at(self, log_offset: int, why: str) -> None:
        """Report a record once, however often it is asked for."""
        if log_offset in self._places:
            return
        if len(self._places) < _PLACES_KEPT:
            self._places.add(log_offset)
        self.records += 1
        log.error("the record at log offset %d is damaged and not served: %s", log_offset, why)

    def unit_mended(self, topic: str, queue_id: int, queue_offset: int) -> None:
        self.units += 1
        log.warning("entry %d of consume queue %s/%d was wrong; mended from the log", queue_offset, topic, queue_id)
