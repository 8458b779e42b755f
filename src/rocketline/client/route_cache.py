"""The routes a client knows, and the broker addresses they name.

A fetch that fails leaves the old route in place. Callers that want the same topic at the same time share one fetch. A
topic that does not exist yet can be written through a route borrowed from the template topic (the broker then creates
it); borrowed routes are never shown to readers. A route in doubt, because a broker that it names cannot be reached or is
not the master any more, is fetched again at once: the broker may have come back at another address, or another one may
lead. So is the route of a topic whose brokers have no master at the moment. As long as somebody waits for a change it is
fetched again and again: every fifth of a second at first, every second when that has not helped for a while. So is a route
that nobody knows yet, as long as no name server can be reached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any

from rocketline.client.remote_nameserver import RemoteNameServer
from rocketline.client.routes import TopicRoute, borrowed_route, topic_route
from rocketline.client.tasks import OwnedTasks, cancel_and_wait
from rocketline.errors import ClientError, NoMaster, NoNameServer, RocketlineError, RouteNotFound, TopicNotExist
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.names import DEFAULT_TOPIC, is_derived

log = logging.getLogger(__name__)

_NO_IDS: Mapping[int, str] = {}

NOT_MASTER_CODES = frozenset({ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY})
"""Answers of a broker that may not be the master any more: its route is in doubt too."""

DOUBT_S = 0.2
"""Least time between two fetches of one route because it is in doubt."""

LASTING_DOUBT_S = 1.0
"""The same when it has been in doubt for a while without a change."""

HURRY_S = 10.0
"""After so long a doubt lasts."""

MOST_NAMES = 4096
"""Of brokers, also of those that are gone."""


class RouteCache:
    """Routes by topic; `on_change` is called with a new or changed route, `on_new_broker` with each address first seen."""

    def __init__(
        self,
        name_server: RemoteNameServer,
        on_change: Callable[[TopicRoute], None],
        on_new_broker: Callable[[str], None],
    ) -> None:
        self._name_server = name_server
        self._on_change = on_change
        self._on_new_broker = on_new_broker
        self._routes: dict[str, TopicRoute] = {}
        self._borrowed: dict[str, TopicRoute] = {}
        self._addresses: dict[str, dict[int, str]] = {}
        self._names: dict[str, None] = {}
        self._fetches: dict[str, asyncio.Task[TopicRoute]] = {}
        self._doubted: set[str] = set()
        self._doubts: dict[str, tuple[float, float]] = {}
        """Since when a route that did not change is in doubt, and when it was doubted last."""
        self._awaited: dict[str, asyncio.Event] = {}
        self._unreached: dict[str, NoNameServer] = {}
        self._pauses: dict[str, asyncio.Task[None]] = {}
        self._tasks = OwnedTasks()
        self._closed = False

    def get(self, topic: str) -> TopicRoute | None:
        """What is known of an existing topic."""
        return self._routes.get(topic)

    def writable(self, topic: str) -> TopicRoute | None:
        """A known route that can be written to, borrowed ones included."""
        route = self._routes.get(topic) or self._borrowed.get(topic)
        return route if route is not None and route.writable else None

    async def find(self, topic: str) -> TopicRoute:
        """The route of an existing topic; RouteNotFound otherwise."""
        return self._routes.get(topic) or await self.refresh(topic)

    async def find_writable(self, topic: str, queue_count: int) -> TopicRoute:
        """The route for sending: the topic's own, or one borrowed from the template when it does not exist yet.

        NoMaster when the topic is known and all that is missing is a master.
        """
        route = self.writable(topic)
        if route is not None:
            return route
        try:
            route = await self.refresh(topic)
        except RouteNotFound as error:
            if (gone := self.no_master(topic)) is not None:
                raise gone from error
            # Only a topic that does not exist may borrow a route, not one that no name server answered for.
            if is_derived(topic) or not isinstance(error.__cause__, TopicNotExist):
                raise
            absent = error
            route = await self._shared(f"template for {topic}", lambda: self._borrow(topic, queue_count, absent))
        if not route.writable:
            raise self.no_master(topic) or RouteNotFound(
                f"topic {topic!r} has no queue that can be written: its brokers {sorted(route.brokers)} "
                "lack write permission or have no master at the moment"
            )
        return route

    async def await_writable(self, topic: str, queue_count: int) -> TopicRoute:
        """Like `find_writable`, but waits for a master where only that is missing, and for a name server; the caller sets
        the limit, and `why_not_writable` says what was waited for."""
        was_unreached = False
        while True:
            try:
                return await self.find_writable(topic, queue_count)
            except NoMaster:
                while self.no_master(topic) is not None and not self._closed:
                    await self.changed_within(topic, HURRY_S)
            except RouteNotFound as error:
                # A name server that has just come back knows no topic before the brokers have registered.
                was_unreached = was_unreached or isinstance(error, NoNameServer)
                if not was_unreached:
                    raise
                await self._pause(topic)

    async def changed_within(self, topic: str, seconds: float) -> None:
        """Ask for the route of a topic until it has changed, or this time is over."""
        change = self._awaited.setdefault(topic, asyncio.Event())
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not change.is_set() and not self._closed:
                    self.doubt(topic)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(DOUBT_S):
                            await change.wait()

    async def _pause(self, topic: str) -> None:
        """A moment that all who wait for the route of a topic share, so that they ask together."""
        pause = self._pauses.get(topic)
        if pause is None:
            pause = self._pauses[topic] = self._tasks.start(asyncio.sleep(DOUBT_S), f"pause before {topic}")
            pause.add_done_callback(lambda _: self._pauses.pop(topic, None))
        await asyncio.wait([pause])

    def why_not_writable(self, topic: str) -> NoMaster | NoNameServer | None:
        """What is missing that may come soon."""
        return self.no_master(topic) or self._unreached.get(topic)

    def no_master(self, topic: str) -> NoMaster | None:
        """The error for a known topic that could be written to if its brokers had a master."""
        route = self._routes.get(topic)
        if route is None or route.writable or not route.without_master:
            return None
        names = ", ".join(route.without_master)
        return NoMaster(f"topic {topic!r} cannot be written to at the moment: no master of {names} is registered")

    async def refresh(self, topic: str) -> TopicRoute:
        """Ask the name servers now."""
        return await self._shared(f"route of {topic}", lambda: self._fetch(topic))

    async def _shared(self, what: str, fetch: Callable[[], Coroutine[Any, Any, TopicRoute]]) -> TopicRoute:
        """The result of a fetch that runs already, or of a new one."""
        task = self._fetches.get(what)
        if task is None:
            if self._closed:
                raise ClientError(f"the client was closed before it looked for the {what}")
            task = asyncio.get_running_loop().create_task(fetch(), name=what)
            self._fetches[what] = task
            task.add_done_callback(lambda task: self._fetched(what, task))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._closed:
                raise ClientError(f"the client was closed while it looked for the {what}") from None
            raise

    def doubt(self, topic: str) -> None:
        """Fetch the route of a topic again in the background, unless that was done a moment ago."""
        if topic in self._doubted or self._closed:
            return
        now = asyncio.get_running_loop().time()
        since, last = self._doubts.get(topic, (now, now))
        if now - last > HURRY_S:  # a trouble of its own
            since = now
        self._doubts[topic] = since, now
        self._doubted.add(topic)
        pause_s = DOUBT_S if now - since < HURRY_S else LASTING_DOUBT_S
        self._tasks.start(self._fetch_again(topic, pause_s), f"route of {topic} again")

    async def _fetch_again(self, topic: str, pause_s: float) -> None:
        try:
            await self.refresh(topic)
        except RocketlineError as error:
            log.debug("the route of topic %s stays as it was: %s", topic, error)
        finally:
            asyncio.get_running_loop().call_later(pause_s, self._doubted.discard, topic)

    async def refresh_all(self, more: Iterable[str] = ()) -> None:
        """Fetch every known route anew, and the routes of `more` topics."""
        topics = {*self._routes, *self._borrowed, *more}
        results = await asyncio.gather(*map(self.refresh, topics), return_exceptions=True)
        for topic, result in zip(topics, results):
            if isinstance(result, RouteNotFound) and topic not in self._routes:
                log.debug("%s", result)
            elif isinstance(result, Exception):
                log.warning("the route of topic %s stays as it was: %s", topic, result)

    async def _fetch(self, topic: str) -> TopicRoute:
        try:
            route = topic_route(topic, await self._name_server.route(topic))
        except NoNameServer as error:
            self._unreached[topic] = error
            raise
        except RocketlineError:
            self._unreached.pop(topic, None)
            raise
        self._unreached.pop(topic, None)
        self._borrowed.pop(topic, None)
        changed = self._routes.get(topic) != route
        self._routes[topic] = route
        self._learn_brokers(route)
        if changed:
            self._doubts.pop(topic, None)
            if (awaited := self._awaited.pop(topic, None)) is not None:
                awaited.set()
            self._on_change(route)
        return route

    def _fetched(self, what: str, task: asyncio.Task[TopicRoute]) -> None:
        self._fetches.pop(what, None)
        if not task.cancelled():
            task.exception()  # every waiter may be gone; the failure is theirs, not the loop's

    async def _borrow(self, topic: str, queue_count: int, absent: RouteNotFound) -> TopicRoute:
        try:
            template = await self._name_server.route(DEFAULT_TOPIC)
        except RouteNotFound as error:
            if isinstance(error.__cause__, TopicNotExist):
                raise absent from absent.__cause__
            raise
        route = borrowed_route(topic, template, queue_count)
        self._borrowed[topic] = route
        self._learn_brokers(route)
        return route

    def _learn_brokers(self, route: TopicRoute) -> None:
        known = self.addresses()
        for name, ids in route.brokers.items():
            self._addresses[name] = dict(ids)
            self._names[name] = None
        while len(self._names) > MOST_NAMES:
            del self._names[next(iter(self._names))]
        for address in sorted(route.addresses - known):
            self._on_new_broker(address)

    def addresses(self, slaves: bool = True) -> set[str]:
        """All broker addresses that routes name, or only the masters'."""
        return {
            address
            for ids in self._addresses.values()
            for broker_id, address in ids.items()
            if slaves or broker_id == 0
        }

    def ids_of(self, broker_name: str) -> Mapping[int, str]:
        """The addresses of one broker by id, 0 being the master."""
        return self._addresses.get(broker_name, _NO_IDS)

    def was_named(self, broker_name: str) -> bool:
        """Whether some route has ever named a broker, which may be gone for the moment."""
        return broker_name in self._names

    def name_at(self, address: str) -> str:
        """The name of the broker at an address."""
        return next((name for name, ids in self._addresses.items() if address in ids.values()), "")

    def forget_offline(self) -> set[str]:
        """Forget the addresses that no route names any more, and return them."""
        named: set[str] = set()
        for route in (*self._routes.values(), *self._borrowed.values()):
            named |= route.addresses
        gone = self.addresses() - named
        for name, ids in list(self._addresses.items()):
            kept = {broker_id: address for broker_id, address in ids.items() if address in named}
            if kept:
                self._addresses[name] = kept
            else:
                del self._addresses[name]
        return gone

    async def close(self) -> None:
        self._closed = True
        for awaited in self._awaited.values():
            awaited.set()
        await self._tasks.cancel()
        await cancel_and_wait(*self._fetches.values())
