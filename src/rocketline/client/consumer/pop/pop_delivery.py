"""Concurrent delivery of popped messages: the outcome is told to the broker by receipt handle, there is no progress.

* a message whose invisible time is over before a worker is free is left: it is somebody else's by now
* success: acknowledged; failure: its next invisible time grows with every attempt
"""

from __future__ import annotations

import asyncio

from rocketline.client.consumer.pop.pop_loop import PopLoop
from rocketline.client.consumer.push.delivery import ConcurrentDelivery, Handling, Source
from rocketline.client.consumer.push.handlers import RetryLater
from rocketline.message import MessageView


class PopDelivery(ConcurrentDelivery):
    """Every popped message as soon as a worker is free."""

    def __init__(self, handling: Handling) -> None:
        super().__init__(handling, lambda source, offset: None, None)

    async def _deliver(self, source: Source, messages: list[MessageView]) -> None:
        assert isinstance(source, PopLoop)
        if messages := source.still_ours(messages):
            try:
                await super()._deliver(source, messages)
            finally:
                source.leave(messages)  # what ended without an outcome must not take up room

    async def _return(self, source: Source, messages: list[MessageView], error: Exception) -> list[MessageView]:
        """Have failed messages come again; none is left to be acknowledged."""
        assert isinstance(source, PopLoop)
        self._tell_of_failure(source, messages, error)
        level = error.delay_level if isinstance(error, RetryLater) else 0
        await asyncio.gather(*(source.give_back(message, level) for message in messages))
        return []
