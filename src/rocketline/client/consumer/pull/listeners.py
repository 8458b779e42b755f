"""Listeners: a user's functions that a pull consumer calls when its queues change.

They may be async, or plain and then run in a thread, so that a blocking consumer can be used inside them. What they
raise is logged and changes nothing else.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from rocketline.client.session import ClientSession
from rocketline.client.tasks import OwnedTasks
from rocketline.message import MessageQueue

log = logging.getLogger(__name__)

QueuesListener = Callable[[list[MessageQueue]], Awaitable[None] | None]
"""Gets the queues that were added, or are about to be dropped."""

TopicListener = Callable[[str, list[MessageQueue]], Awaitable[None] | None]
"""Gets a topic and all its queues."""


async def tell(listener: Callable[..., Any] | None, *arguments: Any) -> None:
    """Call a listener and wait for it."""
    if listener is None:
        return
    try:
        if inspect.iscoroutinefunction(listener):
            await listener(*arguments)
            return
        result = await asyncio.to_thread(listener, *arguments)
        if inspect.isawaitable(result):
            await result
    except Exception:
        log.exception("listener %r failed", listener)


class RouteListeners:
    """Tells listeners when a topic has other queues than before; routes are refreshed every 30 s."""

    def __init__(self, session: ClientSession, tasks: OwnedTasks) -> None:
        self._session = session
        self._tasks = tasks
        self._watched: dict[str, tuple[TopicListener, frozenset[MessageQueue]]] = {}

    @property
    def topics(self) -> Iterable[str]:
        return self._watched.keys()

    async def add(self, topic: str, listener: TopicListener) -> None:
        route = await self._session.routes.find(topic)
        self._watched[topic] = (listener, frozenset(route.readable))

    def route_changed(self, topic: str) -> None:
        route = self._session.routes.get(topic)
        if topic not in self._watched or route is None:
            return
        listener, known = self._watched[topic]
        queues = frozenset(route.readable)
        if queues != known:
            self._watched[topic] = (listener, queues)
            self._tasks.start(tell(listener, topic, sorted(queues)), f"queues of {topic} changed")
