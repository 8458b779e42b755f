"""Messages that push consumers hold: the server hides them for longer, again and again, until they are settled.

Clients settle with the handle they were given. Every prolongation makes a new one, so the table maps the first to the one
that counts. When a client is gone, what it held becomes visible again after a second.

One thing happens to a message at a time: whoever settles it claims it, so it is not prolonged meanwhile, and waits for a
prolongation that is under way. With the handle from before that the broker would take an acknowledgement, and give the
message out again all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count

from rocketline.broker.grpc_config import GrpcConfig
from rocketline.clock import Clock
from rocketline.errors import RocketlineError
from rocketline.protocol.pop_info import ReceiptHandle
from rocketline.proxy.background import Background
from rocketline.proxy.clients import Client
from rocketline.proxy.links import FrontChannel

log = logging.getLogger(__name__)

STEPS_MS = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
MAX_FAILURES = 3
MAX_HELD = 100_000
"""Messages in all. More are not prolonged: they come again when their first time is over."""
GIVE_BACK_MS = 1000
SPARE_ENTRIES = 1024

Change = Callable[[FrontChannel, str, str, ReceiptHandle, int], Awaitable[ReceiptHandle | None]]
"""(channel, group, topic, handle, milliseconds): hide a message for so long from now; None: it was settled before."""
Key = tuple[str, str, str]
"""(client id, group, first handle)"""


@dataclass(slots=True, eq=False)
class Held:
    """A message that a client holds."""

    client: Client
    group: str
    topic: str
    first: str
    """The handle that the client knows."""
    handle: ReceiptHandle
    """The one that counts."""
    since_ms: int
    times: int = 0
    failures: int = 0
    is_renewing: bool = False
    """A prolongation is under way."""
    claims: int = 0
    """Calls that settle it now."""
    is_settled: bool = False
    changed: asyncio.Future[None] | None = None
    """For those who wait until one of these changes."""

    @property
    def key(self) -> Key:
        return self.client.id, self.group, self.first


class Renewals:
    def __init__(self, config: GrpcConfig, clock: Clock, change: Change, background: Background) -> None:
        self._config = config
        self._clock = clock
        self._change = change
        self._background = background
        self._held: dict[Key, Held] = {}
        self._of_client: dict[str, set[Key]] = {}
        self._due: list[tuple[int, int, Held]] = []
        """A heap: (when to prolong, a number, what). Those that are held no more are passed over."""
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, client: Client, group: str, topic: str, first: str, handle: ReceiptHandle) -> None:
        """A client got a message whose handle it knows as `first`."""
        if len(self._held) >= MAX_HELD:
            return
        held = Held(client, group, topic, first, handle, self._clock.now_ms())
        self._held[held.key] = held
        self._of_client.setdefault(client.id, set()).add(held.key)
        self._schedule(held, handle.next_visible_ms - self._config.renew_ahead_ms)

    # For those who settle

    def claim(self, client_id: str, group: str, first: str) -> Held | None:
        """The message of a handle that a client knows, which is not prolonged until `release`; None: it is not held."""
        held = self._held.get((client_id, group, first))
        if held is not None:
            held.claims += 1
        return held

    async def until_renewed(self, held: Held) -> None:
        """Wait for a prolongation that is under way. Only futures are awaited: see `grpc/steps.py`."""
        while held.is_renewing:
            await self._until_changed(held)

    def release(self, held: Held) -> None:
        held.claims -= 1
        _wake(held)

    def settled(self, held: Held) -> None:
        """The client is done with a message, or deals with it by itself from now on."""
        held.is_settled = True
        self._drop(held)

    def give_back(self, client_id: str, group: str, first: str) -> bool:
        """Let others have a message that its client never got; False: it is not held."""
        held = self._held.get((client_id, group, first))
        if held is None:
            return False
        self._drop(held)
        self._background.start(held.handle.broker_name, partial(self._give_back, held))
        return True

    def client_gone(self, client: Client) -> None:
        """Give back what a client held."""
        for key in list(self._of_client.get(client.id, ())):
            if self._held[key].client is client:
                self.give_back(*key)

    def _drop(self, held: Held) -> None:
        key = held.key
        if self._held.get(key) is held:
            del self._held[key]
            keys = self._of_client[key[0]]
            keys.discard(key)
            if not keys:
                del self._of_client[key[0]]

    # Prolonging

    async def run(self) -> None:
        """Prolong what is about to end, for as long as this runs."""
        while True:
            await asyncio.sleep(self._config.renew_interval_ms / 1000)
            self.renew()

    def renew(self) -> None:
        """Begin to prolong what ends soon."""
        now_ms = self._clock.now_ms()
        while self._due and self._due[0][0] <= now_ms:
            held = heappop(self._due)[2]
            if self._is_held(held):
                self._background.start(held.handle.broker_name, partial(self._prolong, held))

    def _is_held(self, held: Held) -> bool:
        return self._held.get(held.key) is held

    def _schedule(self, held: Held, due_ms: int) -> None:
        heappush(self._due, (due_ms, next(self._numbers), held))
        if len(self._due) > 2 * len(self._held) + SPARE_ENTRIES:
            self._due = [entry for entry in self._due if self._is_held(entry[2])]
            heapify(self._due)

    async def _prolong(self, held: Held) -> None:
        now_ms = self._clock.now_ms()
        if not self._is_held(held):
            return
        if held.claims:  # if that fails, it is still held
            self._schedule(held, now_ms + 1)
            return
        if now_ms - held.since_ms >= self._config.renew_max_ms or held.failures >= MAX_FAILURES:
            self._drop(held)
            return
        held.is_renewing = True
        try:
            await self._hide_longer(held)
        finally:
            held.is_renewing = False
            _wake(held)

    async def _hide_longer(self, held: Held) -> None:
        try:
            handle = await self._changed(held, STEPS_MS[min(held.times, len(STEPS_MS) - 1)])
        except RocketlineError as error:
            held.failures += 1
            log.info("a message held by %s could not be hidden for longer: %s", held.client.id, error)
            self._schedule(held, self._clock.now_ms())
            return
        if handle is None:
            self.settled(held)
            return
        held.handle = handle
        held.times += 1
        held.failures = 0
        self._schedule(held, handle.next_visible_ms - self._config.renew_ahead_ms)

    async def _changed(self, held: Held, ms: int) -> ReceiptHandle | None:
        return await self._change(held.client.channel, held.group, held.topic, held.handle, ms)

    async def _give_back(self, held: Held) -> None:
        while held.is_renewing or held.claims:
            await self._until_changed(held)
        if held.is_settled:
            return
        try:
            await self._changed(held, GIVE_BACK_MS)
        except RocketlineError as error:
            log.info("a message of %s comes again only when its time is over: %s", held.client.id, error)

    async def _until_changed(self, held: Held) -> None:
        if held.changed is None:
            held.changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(held.changed)


def _wake(held: Held) -> None:
    if held.changed is not None:
        held.changed.set_result(None)
        held.changed = None
