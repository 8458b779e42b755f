"""A received message as FastStream's handlers and middlewares see it."""

from __future__ import annotations

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
class ReceivedView:
    """A message, and what was decided about it."""

    view: MessageView
    outcome: AckStatus | None = None
    delay_level: int = 0

    def settle(self, *, ordered: bool) -> None:
        """Return if the message is consumed, and raise what a push consumer wants to hear if not."""
        if ordered and self.outcome is not AckStatus.ACKED:
            raise SuspendQueue  # those behind it have to wait, so it cannot be put aside
        if self.outcome is AckStatus.REJECTED:
            raise RetryLater("rejected", delay_level=TO_DEAD_LETTERS)
        if self.outcome is not AckStatus.ACKED:
            raise RetryLater("not acknowledged", delay_level=self.delay_level)


class RocketMessage(StreamMessage[ReceivedView]):
    """A message of RocketMQ; `view` has everything that the broker stored."""

    @property
    def view(self) -> MessageView:
        return self.raw_message.view

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


async def parse(received: ReceivedView) -> RocketMessage:
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


async def decode(message: StreamMessage[Any]) -> Any:
    return decode_message(message)
