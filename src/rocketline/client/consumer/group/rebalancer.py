"""Rebalancing: keeps the queues of one consumer in line with its group.

A round looks at every subscribed topic: all queues (broadcasting), or the share that the strategy gives this client
among the members a broker names (clustering). A topic whose route or members cannot be learnt keeps its queues. Rounds
come every 20 s, at once when a broker tells of a membership change, when a route changes, and soon after a round that
could not finish. Queues are given away before others are taken, so that members that wait for each other's queues get
them, and a queue that another member had is taken when that member has let go of it (`hand_over.py`). Before queues are
given away and after new ones are read, their owner is told of them all together.

News that follow closely are taken together, at growing distances of up to a second, or a hundred members that join would
cause a hundred rounds in each of them; only what happens here, such as a queue that must start again at another offset,
waits for nothing. A queue nothing was asked for in two minutes, though it is ours, is dropped and taken anew.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from rocketline.client.consumer.group.assignment import Strategy, java_order
from rocketline.client.consumer.group.hand_over import FormerOwner, LastShares
from rocketline.client.session import ClientSession
from rocketline.errors import BrokerError, RequestNotSupported, RocketlineError, RouteNotFound
from rocketline.message import RETRY_PREFIX, MessageQueue

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_DISTANCE = 0.05
"""How long after a round the first news are taken up, as a part of the longest distance. Java's clients always wait the
longest, a second, which a hand-over of queues then takes as well."""


class QueueOwner(Protocol):
    """The consumer whose queues are rebalanced."""

    @property
    def topics(self) -> set[str]: ...

    def owned(self) -> set[MessageQueue]: ...

    async def commit_progress(self) -> None:
        """Tell the brokers how far we are; members that take queues over without waiting begin there."""

    async def add_queue(self, queue: MessageQueue, former: FormerOwner | None) -> bool:
        """Start reading a queue, which another member may still have; False when that cannot be now."""

    async def drop_queue(self, queue: MessageQueue) -> None:
        """Stop reading a queue and leave its progress where the next owner finds it."""

    async def before_drop(self, queues: Sequence[MessageQueue]) -> None:
        """These are going to be dropped."""

    async def after_add(self, queues: Sequence[MessageQueue]) -> None:
        """These are being read now."""

    def assignment_changed(self, topic: str) -> None: ...

    def after_round(self, problems: Mapping[str, RocketlineError]) -> None:
        """A round has ended; `problems` says, by topic, why queues of it could not be taken."""


@dataclass
class _Share:
    """What is ours of a topic, and among whom all its queues are shared out."""

    topic: str
    queues: list[MessageQueue]
    members: list[str]
    """Empty when no other member can have had our queues."""
    mine: set[MessageQueue]
    is_smaller: bool = False
    """Whether some that were ours are not any more."""


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
        self._last = LastShares(group, session.client_id, strategy) if strategy is not None else None
        self._telling = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._urgent = asyncio.Event()
        self._complete = False
        self._problems: dict[str, RocketlineError] = {}

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
            if self._wanted.is_set():
                await self._commit()
            await self.rebalance()

    async def _commit(self) -> None:
        try:
            await self._owner.commit_progress()
        except Exception as error:  # of an offset store of the user's
            log.warning("group %s could not commit its progress before queues change hands: %s", self._group, error)

    async def rebalance(self) -> bool:
        """One round; whether everything that is ours is being read now."""
        self._wanted.clear()
        self._urgent.clear()
        self._problems = {}
        self._complete = await self._round()
        self._owner.after_round(self._problems)
        return self._complete

    async def _round(self) -> bool:
        topics = self._owner.topics
        stalled = sorted(self._stalled())
        for queue in stalled:
            log.error("group %s: reading of %s stands still, it is dropped and taken anew", self._group, queue)
        await self._drop(stalled)
        shares = [await self._guarded(topic, partial(self._give_away, topic)) for topic in sorted(topics)]
        await self._drop(sorted(queue for queue in self._owner.owned() if queue.topic not in topics))
        former: dict[str, FormerOwner] = {}
        known = [share for share in shares if share is not None]
        # Letting go may have taken long. If members changed meanwhile, what was ours then may be read by another now.
        is_old = self._wanted.is_set() and any(share.is_smaller for share in known)
        taken = await asyncio.gather(
            *(self._guarded(share.topic, partial(self._take, share, former, is_old=is_old)) for share in known)
        )
        return None not in shares and all(taken)

    async def _guarded(self, topic: str, work: Callable[[], Awaitable[T | None]]) -> T | None:
        """What `work` for one topic returns; None after a failure, which other topics have nothing to do with."""
        try:
            return await work()
        except Exception as error:
            if expected := isinstance(error, RocketlineError):
                self._problems[topic] = error
            level = logging.DEBUG if topic.startswith(RETRY_PREFIX) and expected else logging.WARNING
            log.log(level, "group %s keeps its queues of topic %s: %s", self._group, topic, error,
                    exc_info=None if expected else error)  # fmt: skip
            return None

    async def _give_away(self, topic: str) -> _Share | None:
        """Drop what is not ours any more; returns what is."""
        share = await self._share(topic)
        if share is not None:
            gone = sorted(self._owned(topic) - share.mine)
            share.is_smaller = bool(gone)
            await self._drop(gone)
        return share

    async def _take(self, share: _Share, former: dict[str, FormerOwner], *, is_old: bool) -> bool:
        """Start reading what is ours; whether all of it is being read now."""
        topic, owned = share.topic, self._owned(share.topic)
        new = sorted(share.mine - owned)
        owners = self._former_owners(share, new, former)
        adding = [] if is_old else [self._add(queue, owners.get(queue)) for queue in new]
        added = await asyncio.gather(*adding) if adding else [False] * len(new)
        if any(added):
            async with self._telling:  # one topic after the other
                await self._owner.after_add([queue for queue, done in zip(new, added) if done])
        if self._last is not None and all(added):
            self._last.note(topic, share.queues, share.members)
        if any(added) or share.is_smaller:
            self._owner.assignment_changed(topic)
        return all(added)

    def _owned(self, topic: str) -> set[MessageQueue]:
        return {queue for queue in self._owner.owned() if queue.topic == topic}

    def _former_owners(
        self, share: _Share, new: Sequence[MessageQueue], former: dict[str, FormerOwner]
    ) -> Mapping[MessageQueue, FormerOwner]:
        if self._last is None:
            return {}
        try:
            owners = self._last.owners(share.topic, share.queues, share.members, new)
        except Exception as error:  # of a strategy of the user's that knows its own share only
            log.debug("group %s does not know who had %s: %s", self._group, new, error)
            return {}
        for member in owners.values():
            former.setdefault(member, FormerOwner(self._session, self._group, member, self._wanted))
        return {queue: former[member] for queue, member in owners.items()}

    async def _drop(self, queues: Sequence[MessageQueue]) -> None:
        if not queues:
            return
        await self._owner.before_drop(queues)
        for queue in queues:
            log.info("group %s gives %s away", self._group, queue)
        await asyncio.gather(*map(self._owner.drop_queue, queues))

    async def _add(self, queue: MessageQueue, former: FormerOwner | None) -> bool:
        try:
            return await self._owner.add_queue(queue, former)
        except RocketlineError as error:
            self._problems[queue.topic] = error
            log.warning("group %s cannot start reading %s yet: %s", self._group, queue, error)
            return False

    async def _share(self, topic: str) -> _Share | None:
        """None: the brokers do not say what is ours now."""
        queues = sorted((await self._session.routes.find(topic)).readable)
        if self._ask is not None:
            try:
                asked = await self._ask(topic)
                # Whoever had a queue before is asked to let go of it. Popped queues, number -1, belong to nobody.
                is_pulled = asked is not None and any(queue.queue_id >= 0 for queue in asked)
                ids = java_order(await self._members(topic)) if is_pulled else []
                return _Share(topic, queues, ids, set(asked)) if asked is not None else None
            except RequestNotSupported as error:
                log.warning("group %s shares topic %s out by itself: %s", self._group, topic, error)
        if self._fixed is not None:
            return _Share(topic, queues, [], set(self._fixed(topic)))
        if self._strategy is None or not queues:
            return _Share(topic, queues, [], set(queues))
        ids = java_order(await self._members(topic))
        own = self._session.client_id
        if own not in ids:
            log.warning("group %s: client %s is not among the members %s the broker names", self._group, own, ids)
        # A strategy of the user's, or by configuration, may name queues of other topics: not in this topic's turn.
        mine = {queue for queue in self._strategy(self._group, own, queues, ids) if queue.topic == topic}
        return _Share(topic, queues, ids, mine)

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
