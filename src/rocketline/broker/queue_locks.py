"""Who may consume a queue in order: one client of a group at a time.

A lock is granted to a client id and lasts 60 s from its last renewal; holders renew every 20 s and by themselves stop
consuming 30 s after the last grant. Two rules follow from that, and both are Apache's:

* Losing its connection does not end a client's lock. The client may be alive and in the middle of a call; another owner
  at that moment would mean two at once. A holder that died blocks its queues until the lock expires.
* Locks live in memory only. After a restart of the broker everybody asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from rocketline.clock import Clock
from rocketline.message import MessageQueue

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Lock:
    client_id: str
    expires: float
    """In monotonic time: a clock that is set must not hand a queue to a second owner."""


class QueueLocks:
    """Locks by group and queue; groups know nothing of each other."""

    def __init__(self, clock: Clock, expiry_s: float = 60.0) -> None:
        self._clock = clock
        self._expiry_s = expiry_s
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock, or renew the lock of, those queues that are free or already this client's; returns exactly these."""
        now = self._clock.monotonic()
        locks = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            held = locks.get(queue)
            if held is None or held.client_id == client_id:
                locks[queue] = _Lock(client_id, now + self._expiry_s)
            elif held.expires < now:
                log.warning("%s of group %s goes from %s, whose lock expired, to %s", queue, group, held.client_id,
                            client_id)  # fmt: skip
                locks[queue] = _Lock(client_id, now + self._expiry_s)
            else:
                log.info("%s of group %s is locked by %s: refused to %s", queue, group, held.client_id, client_id)
                continue
            granted.append(queue)
        if not locks:
            del self._groups[group]
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give back what this client holds; the locks of others stay."""
        locks = self._groups.get(group, {})
        for queue in queues:
            held = locks.get(queue)
            if held is None:
                continue
            if held.client_id != client_id:
                log.warning("%s cannot unlock %s of group %s: %s holds it", client_id, queue, group, held.client_id)
                continue
            del locks[queue]
        if not locks:
            self._groups.pop(group, None)

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """The client that has a queue locked now."""
        held = self._groups.get(group, {}).get(queue)
        return held.client_id if held is not None and held.expires >= self._clock.monotonic() else None

    def are_held(self, group: str) -> bool:
        """Whether a group holds any lock now: it then consumes in order."""
        locks = self._groups.get(group)
        if not locks:
            return False
        now = self._clock.monotonic()
        return any(held.expires >= now for held in locks.values())

    def drop_expired(self) -> None:
        now = self._clock.monotonic()
        for group, locks in list(self._groups.items()):
            for queue, held in list(locks.items()):
                if held.expires < now:
                    log.info("the lock of %s on %s of group %s expired", held.client_id, queue, group)
                    del locks[queue]
            if not locks:
                del self._groups[group]
