"""Where a group begins in a queue it has never read."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from rocketline.client.consumer.group.offsets import OffsetStore
from rocketline.client.session import ClientSession
from rocketline.errors import ConfigError
from rocketline.message import RETRY_PREFIX, ConsumerOffset, MessageQueue


class ConsumeFrom(Enum):
    """Where a new group begins. A group that has committed before goes on from there instead."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
    """Said by giving a datetime."""


class StartFrom:
    """The rule of one consumer."""

    def __init__(self, where: ConsumeFrom | datetime) -> None:
        if where is ConsumeFrom.TIMESTAMP:
            raise ConfigError("to begin at a time, give the time itself: a datetime")
        self._timestamp_ms = round(where.timestamp() * 1000) if isinstance(where, datetime) else 0
        self.where = ConsumeFrom.TIMESTAMP if isinstance(where, datetime) else where

    async def offset(
        self, session: ClientSession, offsets: OffsetStore, queue: MessageQueue, *, store: bool
    ) -> ConsumerOffset:
        """The stored offset, or the one that the rule gives; with `store` the latter is stored at once.

        Java's client stores it only after the first message. Until then another member that takes the queue over
        applies the rule again, and with LAST steps over everything that arrived in between.
        """
        stored = await offsets.read(queue)
        if stored is not None and stored >= 0:
            return stored
        offset = ConsumerOffset(await self._by_rule(session, queue))
        if store:
            offsets.update(queue, offset, may_decrease=True)
            await offsets.persist([queue])
        return offset

    async def _by_rule(self, session: ClientSession, queue: MessageQueue) -> int:
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if self.where is ConsumeFrom.FIRST or (is_retry and self.where is ConsumeFrom.LAST):
            return 0
        broker = await session.broker_of(queue)
        if self.where is ConsumeFrom.LAST or is_retry:
            return await broker.max_offset(queue)
        return await broker.offset_at(queue, self._timestamp_ms)
