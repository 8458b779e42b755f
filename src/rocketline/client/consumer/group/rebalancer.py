"""Rebalancing: keeps the queues of one consumer in line with its group.

A round looks at every subscribed topic: all queues (broadcasting), or the share that the strategy gives this client
among the members a broker names (clustering). A topic whose route or members cannot be learnt keeps its queues. Rounds
come every 20 s, at once when a broker tells of a membership change, when a route changes, and soon after a round that
could not finish. Before queues are given away and after new ones are read, their owner is told of them all together.
News that follow closely are taken together, at growing distances of up to a second, or a hundred members that join would
cause a hundred rounds in each of them; only what happens here, such as a queue that must start again at another offset,
waits for nothing. A queue nothing was asked for in two minutes, though it is ours, is dropped and taken anew.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol

from rocketline.client.consumer.group.assignment import Strategy, java_order
from rocketline.client.session import ClientSession
from rocketline.errors import BrokerError, RequestNotSupported, RocketlineError, RouteNotFound
from rocketline.message import RETRY_PREFIX, MessageQueue

log = logging.getLogger(__name__)

FIRST_DISTANCE = 0.05
"""How long after a round the first news are taken up, as a part of the longest distance. Java's clients always wait the
longest, a second, which a hand-over of queues then takes as well."""


class QueueOwner(Protocol):
    """The consumer whose queues are rebalanced."""

    @property
    def topics(self) -> set[str]: ...

    def owned(self) -> set[MessageQueue]: ...

    async def add_queue(self, queue: MessageQueue) -> bool:
        """Start reading a queue; False when its start offset cannot be learnt now."""

    async def drop_queue(self, queue: MessageQueue) -> None:
        """Stop reading a queue and leave its progress where the next owner finds it."""

    async def before_drop(self, queues: Sequence[MessageQueue]) -> None:
        """These are going to be dropped."""

    async def after_add(self, queues: Sequence[MessageQueue]) -> None:
        """These are being read now."""

    def assignment_changed(self, topic: str) -> None: ...


class Rebalancer:
    """Rounds of one consumer; `run` in a task, `wake` to have one soon."""

    def __init__(
        self,
        session: ClientSession,
        group: str,
        owner: QueueOwner,
        strategy: Strategy | None,
        chance: random.Random | None = None,
        stalled: Callable[[], Collection[MessageQueue]] = tuple,
        *,
        fixed: Callable[[str], Collection[MessageQueue]] | None = None,
        ask: Callable[[str], Awaitable[Collection[MessageQueue] | None]] | None = None,
    ) -> None:
        """Without a strategy every queue is taken (broadcasting); with `fixed`, those that it names, whoever else there
        is. `ask` asks a broker instead, and None keeps what we have; the strategy then is for brokers that cannot be
        asked such a thing. `stalled` names owned queues that must be taken anew."""
        self._session = session
        self._group = group
        self._owner = owner
        self._strategy = strategy
        self._fixed = fixed
        self._ask = ask
        # From the shared generator: a simulation that seeds it can be repeated.
        self._chance = chance or random.Random(random.getrandbits(64))
        self._stalled = stalled
        self._wanted = asyncio.Event()
        self._urgent = asyncio.Event()
        self._complete = False

    def wake(self, *, urgent: bool = False) -> None:
        """Have a round soon; an `urgent` one keeps no distance from the last."""
        self._wanted.set()
        if urgent:
            self._urgent.set()

    async def run(self) -> None:
        """Round after round; the first one was the caller's."""
        timing = self._session.timing
        soon_s = timing.rebalance_soon_s
        shortest_s = min(soon_s, timing.rebalance_s) * FIRST_DISTANCE
        distance_s = shortest_s
        while True:
            pause_s = timing.rebalance_s if self._complete else min(soon_s, timing.rebalance_s)
            soon_s = timing.rebalance_soon_s if self._complete else soon_s * 2
            await _wait(self._urgent, distance_s)
            is_burst = self._wanted.is_set()
            await _wait(self._wanted, pause_s - distance_s)
            distance_s = min(distance_s * 2, shortest_s / FIRST_DISTANCE) if is_burst else shortest_s
            await self.rebalance()

    async def rebalance(self) -> bool:
        """One round; whether everything that is ours is being read now."""
        self._wanted.clear()
        self._urgent.clear()
        self._complete = await self._round()
        return self._complete

    async def _round(self) -> bool:
        complete = True
        topics = self._owner.topics
        stalled = sorted(self._stalled())
        for queue in stalled:
            log.error("group %s: reading of %s stands still, it is dropped and taken anew", self._group, queue)
        await self._drop(stalled)
        for topic in sorted(topics):
            try:
                complete &= await self._rebalance_topic(topic)
            except Exception as error:
                complete = False
                expected = isinstance(error, RocketlineError)
                level = logging.DEBUG if topic.startswith(RETRY_PREFIX) and expected else logging.WARNING
                log.log(level, "group %s keeps its queues of topic %s: %s", self._group, topic, error,
                        exc_info=None if expected else error)  # fmt: skip
        await self._drop(sorted(queue for queue in self._owner.owned() if queue.topic not in topics))
        return complete

    async def _rebalance_topic(self, topic: str) -> bool:
        route = await self._session.routes.find(topic)
        share = await self._share(topic, sorted(route.readable))
        if share is None:
            return False
        # A strategy of the user's, or by configuration, may name queues of other topics: not in this topic's turn.
        mine = {queue for queue in share if queue.topic == topic}
        owned = {queue for queue in self._owner.owned() if queue.topic == topic}
        await self._drop(sorted(owned - mine))
        new = sorted(mine - owned)
        added = await asyncio.gather(*map(self._add, new))
        if any(added):
            await self._owner.after_add([queue for queue, done in zip(new, added) if done])
        if any(added) or owned - mine:
            self._owner.assignment_changed(topic)
        return all(added)

    async def _drop(self, queues: Sequence[MessageQueue]) -> None:
        if queues:
            await self._owner.before_drop(queues)
        for queue in queues:
            log.info("group %s gives %s away", self._group, queue)
            await self._owner.drop_queue(queue)

    async def _add(self, queue: MessageQueue) -> bool:
        try:
            return await self._owner.add_queue(queue)
        except RocketlineError as error:
            log.warning("group %s cannot start reading %s yet: %s", self._group, queue, error)
            return False

    async def _share(self, topic: str, queues: list[MessageQueue]) -> Collection[MessageQueue] | None:
        if self._ask is not None:
            try:
                return await self._ask(topic)
            except RequestNotSupported as error:
                log.warning("group %s shares topic %s out by itself: %s", self._group, topic, error)
        if self._fixed is not None:
            return list(self._fixed(topic))
        if self._strategy is None or not queues:
            return queues
        ids = java_order(await self._members(topic))
        own = self._session.client_id
        if own not in ids:
            log.warning("group %s: client %s is not among the members %s the broker names", self._group, own, ids)
        return self._strategy(self._group, own, queues, ids)

    async def _members(self, topic: str) -> list[str]:
        """The group's members, from any broker that has the topic: clients tell all of them."""
        route = await self._session.routes.find(topic)
        names = sorted(route.brokers)
        self._chance.shuffle(names)
        for position, name in enumerate(names):
            found = self._session.reader_of(name, 0)
            if found is None:
                continue
            try:
                return await found[0].consumer_ids(self._group)
            except RocketlineError as error:
                if isinstance(error, BrokerError):  # it does not know the group: it missed our heartbeat
                    await self._session.heartbeat(found[0].address)
                if position == len(names) - 1:
                    raise
        raise RouteNotFound(f"no broker of topic {topic!r} can be asked for the members of {self._group!r}")


async def _wait(event: asyncio.Event, longest_s: float) -> None:
    try:
        async with asyncio.timeout(longest_s):
            await event.wait()
    except TimeoutError:
        pass
