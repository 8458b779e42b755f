"""Messages that push consumers hold: the server hides them for longer, again and again, until they are settled.

Clients settle with the handle they were given. Every prolongation makes a new one, so the table maps the first to the one
that counts. When a client is gone, what it held becomes visible again after a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rocketline.broker.grpc_config import GrpcConfig
from rocketline.clock import Clock
from rocketline.errors import RocketlineError
from rocketline.protocol.pop_info import ReceiptHandle
from rocketline.proxy.clients import Client
from rocketline.proxy.links import FrontChannel

log = logging.getLogger(__name__)

STEPS_MS = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
MAX_FAILURES = 3
MAX_HELD = 100_000
"""Messages in all. More are not prolonged: they come again when their first time is over."""
GIVE_BACK_MS = 1000
AT_ONCE = 64
"""Prolongations on their way at the same time."""

Change = Callable[[FrontChannel, str, str, ReceiptHandle, int], Awaitable[ReceiptHandle | None]]
"""(channel, group, topic, handle, milliseconds): hide a message for so long from now; None: it was settled before."""


@dataclass(slots=True, eq=False)
class Held:
    """A message that a client holds."""

    client: Client
    group: str
    topic: str
    handle: ReceiptHandle
    since_ms: int
    times: int = 0
    failures: int = 0
    is_busy: bool = False


class Renewals:
    def __init__(self, config: GrpcConfig, clock: Clock, change: Change) -> None:
        self._config = config
        self._clock = clock
        self._change = change
        self._held: dict[tuple[str, str, str], Held] = {}
        """By client, group and the first handle."""
        self._of_client: dict[str, set[tuple[str, str, str]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, client: Client, group: str, topic: str, first: str, handle: ReceiptHandle) -> None:
        """A client got a message whose handle it knows as `first`."""
        if len(self._held) >= MAX_HELD:
            return
        key = client.id, group, first
        self._held[key] = Held(client, group, topic, handle, self._clock.now_ms())
        self._of_client.setdefault(client.id, set()).add(key)

    def latest(self, client_id: str, group: str, first: str) -> ReceiptHandle | None:
        """The handle that counts now for the one that a client knows."""
        held = self._held.get((client_id, group, first))
        return None if held is None else held.handle

    def settled(self, client_id: str, group: str, first: str) -> None:
        """The client is done with a message, or deals with it by itself from now on."""
        key = client_id, group, first
        if self._held.pop(key, None) is not None:
            keys = self._of_client[client_id]
            keys.discard(key)
            if not keys:
                del self._of_client[client_id]

    async def run(self) -> None:
        """Prolong what is about to end, for as long as this runs."""
        while True:
            await asyncio.sleep(self._config.renew_interval_ms / 1000)
            self.renew()

    def renew(self) -> None:
        """Begin to prolong what ends soon."""
        soon_ms = self._clock.now_ms() + self._config.renew_ahead_ms
        for key, held in list(self._held.items()):
            if len(self._tasks) >= AT_ONCE:
                return
            if not held.is_busy and held.handle.next_visible_ms <= soon_ms:
                held.is_busy = True
                self._start(self._prolong(key, held))

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _prolong(self, key: tuple[str, str, str], held: Held) -> None:
        try:
            now_ms = self._clock.now_ms()
            if now_ms - held.since_ms >= self._config.renew_max_ms or held.failures >= MAX_FAILURES:
                self.settled(*key)
                return
            handle = await self._changed(held, STEPS_MS[min(held.times, len(STEPS_MS) - 1)])
            if handle is None:
                self.settled(*key)
                return
            held.handle = handle
            held.times += 1
            held.failures = 0
        except RocketlineError as error:
            held.failures += 1
            log.info("a message held by %s could not be hidden for longer: %s", held.client.id, error)
        finally:
            held.is_busy = False

    async def _changed(self, held: Held, ms: int) -> ReceiptHandle | None:
        return await self._change(held.client.channel, held.group, held.topic, held.handle, ms)

    def client_gone(self, client: Client) -> None:
        """Give back what a client held."""
        for key in list(self._of_client.get(client.id, ())):
            held = self._held[key]
            if held.client is client:
                self.settled(*key)
                self._start(self._give_back(held))

    async def _give_back(self, held: Held) -> None:
        try:
            await self._changed(held, GIVE_BACK_MS)
        except RocketlineError as error:
            log.info("a message of %s comes again only when its time is over: %s", held.client.id, error)

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
