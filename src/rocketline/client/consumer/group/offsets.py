"""Progress of a group: stored by the broker for clustering consumers, in a local file for broadcasting ones.

Both keep a table in memory that every finished message updates; a timer stores it. Progress only grows, except when
somebody resets it on purpose.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from rocketline.client.route_cache import DOUBT_S
from rocketline.client.session import ClientSession
from rocketline.errors import (
    ConfigError,
    ConnectFailed,
    ProtocolError,
    QueryNotFound,
    RocketlineError,
    ServiceNotAvailable,
)
from rocketline.files import backup_of, replace_file
from rocketline.message import ConsumerOffset, MessageQueue
from rocketline.protocol.bodies import ResetOffsetBody, decode_file, parse_queue_key, pretty_json, queue_key

log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Where a consumer keeps its progress."""

    async def load(self) -> None: ...

    def get(self, queue: MessageQueue) -> ConsumerOffset | None:
        """What is in memory."""

    def update(self, queue: MessageQueue, offset: ConsumerOffset, *, may_decrease: bool = False) -> None: ...

    async def read(self, queue: MessageQueue) -> ConsumerOffset | None:
        """The stored offset; None when there is none."""

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """Store the offsets of these queues; with `wait`, return only when that is certain."""

    def forget(self, queue: MessageQueue) -> None:
        """Drop what is in memory: the queue went to somebody else."""


class _Table:
    """Offsets in memory."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, ConsumerOffset] = {}

    def get(self, queue: MessageQueue) -> ConsumerOffset | None:
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: ConsumerOffset, *, may_decrease: bool = False) -> None:
        known = self._offsets.get(queue)
        if known is None or offset > known or may_decrease:
            self._offsets[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)


class BrokerOffsets(_Table):
    """Progress of a clustering group, kept by the broker of each queue."""

    def __init__(self, session: ClientSession, group: str) -> None:
        super().__init__()
        self._session = session
        self._group = group

    async def load(self) -> None:
        """Nothing to load: each queue is asked for when it is assigned."""

    async def read(self, queue: MessageQueue) -> ConsumerOffset | None:
        broker = await self._session.broker_of(queue)
        try:
            return await broker.consumer_offset(self._group, queue)
        except QueryNotFound:
            return None

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        known = [(queue, self._offsets[queue]) for queue in queues if queue in self._offsets]
        commits = (self._commit(queue, offset, wait) for queue, offset in known)
        for (queue, offset), result in zip(known, await asyncio.gather(*commits, return_exceptions=True)):
            if isinstance(result, RocketlineError):
                log.warning("offset %d of group %s in %s was not committed: %s", offset, self._group, queue, result)
            elif isinstance(result, BaseException):
                raise result

    async def _commit(self, queue: MessageQueue, offset: ConsumerOffset, wait: bool) -> None:
        """One that is waited for outlives a change of the master; others are repeated by the timer."""
        session = self._session
        until = session.clock.monotonic() + session.timing.call_s
        while True:
            try:
                broker = await session.broker_of(queue)
                await broker.commit_offset(self._group, queue, offset, oneway=not wait)
                return
            except (ConnectFailed, ServiceNotAvailable):
                left_s = until - session.clock.monotonic()
                if not wait or left_s <= 0:
                    raise
                await session.routes.changed_within(queue.topic, min(left_s, DOUBT_S))


class LocalOffsets(_Table):
    """Progress of one broadcasting consumer, in the file that Java's client uses too.

    The previous version stays beside it as `.bak` and is used when the file cannot be read. When that cannot be read
    either, the consumer does not start: it would skip to the end, or repeat everything.
    """

    def __init__(self, folder: Path, client_id: str, group: str) -> None:
        super().__init__()
        self._path = folder / client_id / group / "offsets.json"
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        self._offsets = await asyncio.to_thread(self._load)

    def _load(self) -> dict[MessageQueue, ConsumerOffset]:
        problem: Exception | None = None
        for path in (self._path, backup_of(self._path)):
            try:
                table = decode_file(ResetOffsetBody, path.read_bytes()).offset_table
                return {parse_queue_key(key): ConsumerOffset(offset) for key, offset in table.items()}
            except FileNotFoundError:
                continue
            except (ProtocolError, ConfigError, OSError) as error:
                log.warning("the offsets in %s cannot be read, trying an older version: %s", path, error)
                problem = problem or error
        if problem is not None:
            raise ConfigError(
                f"{self._path}: neither the offsets of this consumer nor their backup can be read ({problem}); mend "
                "one of the two files, or remove both to start as a new consumer does"
            ) from problem
        return {}

    async def read(self, queue: MessageQueue) -> ConsumerOffset | None:
        return self._offsets.get(queue)

    async def persist(self, queues: Iterable[MessageQueue], *, wait: bool = False) -> None:
        """The whole table is written: a queue that is not assigned at the moment keeps its place."""
        # Several queues may start at once: two writers would take each other's temporary file away.
        async with self._writing:
            if self._offsets:
                table = {queue_key(queue): int(offset) for queue, offset in self._offsets.items()}
                await asyncio.to_thread(self._write, pretty_json(ResetOffsetBody(table)))

    def _write(self, content: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, content, keep_backup=True)

    def forget(self, queue: MessageQueue) -> None:
        """A broadcasting consumer never loses a queue to another one: its place is kept."""


def offset_store(session: ClientSession, group: str, chosen: OffsetStore | Path | None, *, local: bool) -> OffsetStore:
    """The store a user chose; else files for a consumer that keeps its offsets itself, or the brokers."""
    if local:
        folder = Path.home() / ".rocketmq_offsets" if chosen is None else chosen
        return LocalOffsets(folder, session.client_id, group) if isinstance(folder, Path) else folder
    return BrokerOffsets(session, group) if chosen is None or isinstance(chosen, Path) else chosen
