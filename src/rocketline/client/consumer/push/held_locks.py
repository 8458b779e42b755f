"""Queue locks that this client holds, and how long it may rely on them.

A grant counts for 30 s from the moment it was asked for, so it always ends here before it does at the broker (60 s after
the broker answered). An answer names exactly what was granted: a queue that is missing has another owner. No answer
leaves things as they are, until the 30 s are over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator

from rocketline.client.remote_broker import RemoteBroker
from rocketline.client.session import ClientSession
from rocketline.errors import RocketlineError, RouteNotFound
from rocketline.message import MessageQueue

log = logging.getLogger(__name__)


class HeldLocks:
    """The locks of one group in this client."""

    def __init__(self, session: ClientSession, group: str) -> None:
        self._session = session
        self._group = group
        self._asked: dict[MessageQueue, float] = {}
        self._changing = asyncio.Lock()
        self.granted_ms: dict[MessageQueue, int] = {}
        """Wall time of the last grant, for the running info."""

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter(list(self._asked))

    def is_valid(self, queue: MessageQueue) -> bool:
        asked = self._asked.get(queue)
        return asked is not None and self._session.clock.monotonic() - asked <= self._session.timing.lock_valid_s

    async def take(self, queue: MessageQueue) -> bool:
        """Whether the queue is ours now; an error when its master cannot be asked."""
        return queue in await self._lock(queue.broker_name, [queue])

    async def renew(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], bool]:
        """Ask for all of them again: (those that have another owner now, whether every broker answered)."""
        # Not while some are given back: a renewal that overtakes the unlocking would lock them for nobody.
        async with self._changing:
            asked = _by_broker(queue for queue in queues if queue in self._asked)
            calls = (self._lock(name, some) for name, some in asked.items())
            answers = await asyncio.gather(*calls, return_exceptions=True)
        lost: set[MessageQueue] = set()
        complete = True
        for (name, some), answer in zip(asked.items(), answers):
            if isinstance(answer, RocketlineError):
                complete = False
                log.warning("group %s could not renew %d locks at %s: %s", self._group, len(some), name, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                lost.update(queue for queue in some if queue not in answer)
        return lost, complete

    async def _lock(self, broker_name: str, queues: list[MessageQueue]) -> set[MessageQueue]:
        session = self._session
        asked = session.clock.monotonic()
        granted = await self._master(broker_name).lock(
            self._group, session.client_id, queues, session.timing.lock_call_s
        )
        for queue in queues:
            if queue in granted:
                self._asked[queue] = asked
                self.granted_ms[queue] = session.clock.now_ms()
            else:
                self.forget(queue)
        return granted

    def forget(self, queue: MessageQueue) -> None:
        """Rely on it no more; at the broker it stays until it expires or is given back."""
        self._asked.pop(queue, None)
        self.granted_ms.pop(queue, None)

    async def give_back(self, queues: Iterable[MessageQueue]) -> None:
        """Unlock; a broker that cannot be told lets the locks expire."""
        async with self._changing:
            released = _by_broker(queues)
            for some in released.values():
                for queue in some:
                    self.forget(queue)
            await asyncio.gather(*(self._unlock(name, some) for name, some in released.items()))

    async def _unlock(self, broker_name: str, queues: list[MessageQueue]) -> None:
        session = self._session
        try:
            await self._master(broker_name).unlock(self._group, session.client_id, queues, session.timing.lock_call_s)
        except RocketlineError as error:
            log.warning("group %s could not unlock %d queues at %s, they are free when the locks expire: %s",
                        self._group, len(queues), broker_name, error)  # fmt: skip

    def _master(self, broker_name: str) -> RemoteBroker:
        broker = self._session.master_of(broker_name)
        if broker is None:
            raise RouteNotFound(f"broker {broker_name!r} has no master at the moment: nobody can lock its queues")
        return broker


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    grouped: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        grouped.setdefault(queue.broker_name, []).append(queue)
    return grouped
