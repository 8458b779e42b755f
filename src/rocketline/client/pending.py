"""Requests of a client that wait for their reply."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rocketline.message import MessageView
from rocketline.protocol.replies import CORRELATION_ID

log = logging.getLogger(__name__)


class PendingRequests:
    """The requests of one client that wait for a reply, by correlation id."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[MessageView]] = {}
        self.late = 0
        """How many replies came too late."""

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def reply_to(self, correlation_id: str) -> Iterator[asyncio.Future[MessageView]]:
        """A future for the reply; dropped when the block ends."""
        reply: asyncio.Future[MessageView] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = reply
        try:
            yield reply
        finally:
            del self._waiting[correlation_id]

    def take(self, reply: MessageView) -> None:
        """Hand a reply to the request that waits for it."""
        correlation_id = reply.properties.get(CORRELATION_ID, "")
        waiting = self._waiting.get(correlation_id)
        if waiting is None or waiting.done():
            self.late += 1
            log.info("reply %r from %s came too late, or twice", correlation_id, reply.born_host)
            return
        waiting.set_result(reply)
