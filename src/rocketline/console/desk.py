"""What all requests of a console share: clusters, sessions, limits, audit, samples."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar, cast
from urllib.parse import quote

from rocketline.admin import Admin
from rocketline.clock import SYSTEM_CLOCK
from rocketline.console.access import Person
from rocketline.console.audit import Audit
from rocketline.console.config import ClusterPlace, ConsoleConfig
from rocketline.console.limits import Limits
from rocketline.console.logins import Logins
from rocketline.console.masks import Masks
from rocketline.console.problems import Problem
from rocketline.console.sampler import Sampler
from rocketline.console.sessions import Session, Sessions
from rocketline.errors import ConfigError

FRESH_S = 5.0
"""How long routes and the list of brokers are used again."""
MAX_ADMINS = 200
MAX_RESULTS = 1000
MAX_RATES = 5000
KEPT_S = 1.5
SWEEP_EVERY_S = 60.0
RATE_LEAST_S, RATE_MOST_S = 1.5, 120.0

BrokerPlace = tuple[str, str, int, str]
"""Cluster, name, id and address."""
T = TypeVar("T")


class Desk:
    """Everything a running console has; an async context manager that owns its connections and its sampler."""

    def __init__(self, config: ConsoleConfig) -> None:
        self.config = config
        self.sessions = Sessions(on_end=self._forget_person)
        self.logins = Logins(config)
        self.limits = Limits()
        self.audit = Audit(config.audit)
        self.masks = Masks(config.masks)
        self.places = {place.name: place for place in config.clusters}
        self.samplers: dict[str, Sampler] = {}
        self._reads: dict[str, Counter[str]] = {name: Counter() for name in self.places}
        """Messages that pages read from each broker: no traffic of the cluster, so charts leave them out."""
        self._admins: OrderedDict[tuple[str, str], tuple[Admin, float]] = OrderedDict()
        """By cluster, and by the key of a person with an account of its own."""
        self._closing: set[asyncio.Task[None]] = set()
        self._results: OrderedDict[tuple[str, ...], asyncio.Future[Any]] = OrderedDict()
        self._ends: OrderedDict[tuple[str, str], tuple[float, int, float | None]] = OrderedDict()
        self._seen: dict[tuple[str, BrokerPlace], float] = {}
        self._kept: dict[tuple[str, str, str], tuple[float, asyncio.Future[Any]]] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for place in self.config.clusters:
            if not self.config.broker_login:  # without an account of its own the console may ask nothing by itself
                sampler = Sampler(self._admin(place, None))
                self.samplers[place.name] = await self._stack.enter_async_context(sampler)
        sweeping = asyncio.create_task(self._sweep(), name="sessions that are over")
        self._stack.callback(sweeping.cancel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        for key in list(self._admins):
            self._close_admin(key)
        await asyncio.gather(*self._closing)
        self.audit.close()

    def home_of(self, person: Person) -> str:
        """Where somebody begins: the overview of the first cluster that it may enter."""
        first = next((name for name in self.places if person.may_enter(name)), next(iter(self.places)))
        return f"/c/{quote(first)}/"

    def stays(self, person: Person, session: Session | None) -> bool:
        """Whether what goes on for somebody may go on; one without a session has a token."""
        if session is not None and not self.sessions.is_alive(session):
            return False
        try:
            return self.logins.stays(person)
        except ConfigError:  # a users file that cannot be read lets nobody in
            return False

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            self.sessions.forget_ended()

    def _forget_person(self, person: Person) -> None:
        """A session ended: nobody else may use what its account signed, and its secret is not kept."""
        if person.account is not None:
            for key in [key for key in self._admins if key[1] == person.key]:
                self._close_admin(key)
            for kept in [kept for kept in self._kept if kept[1] == person.key]:
                del self._kept[kept]

    def _close_admin(self, key: tuple[str, str]) -> None:
        admin, _looked_up_s = self._admins.pop(key)
        task = asyncio.get_running_loop().create_task(admin.__aexit__(None, None, None))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def admin_of(self, cluster: str, person: Person) -> Admin:
        """Connections to a cluster; people with an account of their own have connections of their own."""
        place = self.places.get(cluster)
        if place is None:
            raise Problem(404, "no_cluster", cluster)
        key = (cluster, person.key if person.account is not None else "")
        now = SYSTEM_CLOCK.monotonic()
        admin, looked_up_s = self._admins.pop(key, (None, now))
        if admin is None:
            admin = self._admin(place, person)
        elif now - looked_up_s > FRESH_S:
            admin.forget()
            looked_up_s = now
        self._admins[key] = (admin, looked_up_s)
        if len(self._admins) > MAX_ADMINS:
            self._close_admin(next(iter(self._admins)))
        return admin

    def _admin(self, place: ClusterPlace, person: Person | None) -> Admin:
        access = dict(place.access)
        if person is not None and person.account is not None:
            access["credentials"] = person.account
        return Admin(place.namesrv, reads=self._reads[place.name], **access)

    async def kept(self, key: tuple[str, str, str], ask: Callable[[], Awaitable[T]]) -> T:
        """An answer that is at most `KEPT_S` old; those who ask at the same time wait for one answer."""
        now = SYSTEM_CLOCK.monotonic()
        found = self._kept.get(key)
        if found is not None and now - found[0] < KEPT_S:
            return cast(T, await asyncio.shield(found[1]))
        for old in [old for old, (asked_s, _) in self._kept.items() if now - asked_s >= KEPT_S]:
            del self._kept[old]
        task = asyncio.ensure_future(ask())
        self._kept[key] = (now, task)
        try:
            return await asyncio.shield(task)
        except BaseException:
            self._kept.pop(key, None)
            raise

    def forget_kept(self, cluster: str) -> None:
        for key in [key for key in self._kept if key[0] == cluster]:
            del self._kept[key]

    def rate_of(self, cluster: str, topic: str, end: int) -> float | None:
        """Messages a second that a topic gets: by how much the sum of its ends grew since it was last looked at."""
        now = SYSTEM_CLOCK.monotonic()
        before_s, before, rate = self._ends.pop((cluster, topic), (now, end, None))
        if now - before_s >= RATE_LEAST_S:
            rate = max(0, end - before) / (now - before_s) if now - before_s < RATE_MOST_S else None
            before_s, before = now, end
        self._ends[cluster, topic] = (before_s, before, rate)
        if len(self._ends) > MAX_RATES:
            self._ends.popitem(last=False)
        return rate

    def left_brokers(
        self, cluster: str, present: list[BrokerPlace], forget_s: float, make: Callable[[BrokerPlace], T]
    ) -> list[T]:
        """Brokers that were there before and are not any more: one that is stopped must not just vanish."""
        now = SYSTEM_CLOCK.monotonic()
        self._seen.update({(cluster, place): now for place in present})
        names = {(name, broker_id) for _, name, broker_id, _ in present}
        for key in [key for key, seen_s in self._seen.items() if now - seen_s > forget_s]:
            del self._seen[key]
        gone = {
            (place[1], place[2]): place
            for (where, place), _ in sorted(self._seen.items(), key=lambda item: item[1])
            if where == cluster and (place[1], place[2]) not in names
        }
        return [make(place) for _, place in sorted(gone.items())]

    async def once(self, place: tuple[str, ...], make: Callable[[], Awaitable[T]]) -> T:
        """The result of a change; of one that was asked for in all the same words before, the result of then."""
        if place in self._results:
            return cast(T, await asyncio.shield(self._results[place]))
        future = self._results[place] = asyncio.get_running_loop().create_future()
        if len(self._results) > MAX_RESULTS:
            self._results.popitem(last=False)
        try:
            result = await make()
        except BaseException as error:
            self._results.pop(place, None)
            if not future.done():
                future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
                future.exception()
            raise
        future.set_result(result)
        return result
