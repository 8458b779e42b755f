"""A received message as FastStream's handlers and middlewares see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from faststream.message import AckStatus, StreamMessage, decode_message

from rocketline.client import RetryLater, SuspendQueue
from rocketline.message import MessageView
from rocketline.protocol.replies import REPLY_TO_CLIENT

CONTENT_TYPE = "content-type"
CORRELATION_ID = "correlation_id"
TO_DEAD_LETTERS = -1


@dataclass(slots=True)
class Received:
    """A message, or those of a list, and what was decided about it."""

    views: Sequence[MessageView]
    outcome: AckStatus | None = None
    delay_level: int = 0

    @property
    def view(self) -> MessageView:
        return self.views[0]

    def settle(self, *, ordered: bool) -> None:
        """Return if all is consumed, and raise what a push consumer wants to hear if not."""
        if ordered and self.outcome is not AckStatus.ACKED:
            raise SuspendQueue  # those behind it have to wait, so it cannot be put aside
        if self.outcome is AckStatus.REJECTED:
            raise RetryLater("rejected", delay_level=TO_DEAD_LETTERS)
        if self.outcome is not AckStatus.ACKED:
            raise RetryLater("not acknowledged", delay_level=self.delay_level)


class RocketMessage(StreamMessage[Received]):
    """A message of RocketMQ; `view` has everything that the broker stored. A list has `views`, and `view` is its first."""

    @property
    def view(self) -> MessageView:
        return self.raw_message.view

    @property
    def views(self) -> Sequence[MessageView]:
        return self.raw_message.views

    async def ack(self) -> None:
        await super().ack()
        self.raw_message.outcome = self.committed

    async def nack(self, delay_level: int = 0) -> None:
        """Let it come again; `delay_level` 1 to 18 says when, 0 leaves that to the broker."""
        if self.committed is None:
            self.raw_message.delay_level = delay_level
        await super().nack()
        self.raw_message.outcome = self.committed

    async def reject(self) -> None:
        await super().reject()
        self.raw_message.outcome = self.committed


async def parse(received: Received) -> RocketMessage:
    view = received.view
    properties = view.properties
    return RocketMessage(
        received,
        view.body,
        headers=dict(properties),
        reply_to=properties.get(REPLY_TO_CLIENT, ""),
        content_type=properties.get(CONTENT_TYPE),
        correlation_id=properties.get(CORRELATION_ID),
        message_id=view.message_id,
    )


async def parse_batch(received: Received) -> RocketMessage:
    """A list as one message, with the headers of its first."""
    message = await parse(received)
    message.body = [view.body for view in received.views]
    message.batch_headers = [dict(view.properties) for view in received.views]
    return message


async def decode(message: StreamMessage[Any]) -> Any:
    return decode_message(message)


async def decode_batch(message: StreamMessage[Received]) -> list[Any]:
    """FastStream knows by its name that this gives a list."""
    return [decode_message(await parse(Received([view]))) for view in message.raw_message.views]
