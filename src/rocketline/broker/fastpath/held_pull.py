"""A plain pull that found nothing and waits for messages: what it needs to be answered, and no more.

With every message that is awaited, a pull is held and let go again. So there is no future here, no task and no request that
somebody decoded; the answer is written in the turn of the loop in which the message can be read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rocketline.broker.waiters import AcceptProperties, AcceptTags, Answers
from rocketline.protocol.codes import ResponseCode
from rocketline.transport import Channel
from rocketline.transport.router import CANCELLED

if TYPE_CHECKING:
    from rocketline.broker.fastpath.pulls import FastPulls, Plan


class HeldPull:
    """A waiter (see `waiters.py`) that its connection lets go when it ends."""

    __slots__ = (
        "_began", "_is_done", "_pulls", "accept_tags", "channel", "expiry", "frame", "key", "marked", "opaque", "plan",
        "queue_offset",
    )  # fmt: skip
    accept_properties: AcceptProperties | None = None

    def __init__(
        self, pulls: FastPulls, channel: Channel, plan: Plan, opaque: int, queue_offset: int, frame: bytes
    ) -> None:
        self._pulls = pulls
        self._is_done = False
        self._began = channel.router.began
        self.channel = channel
        self.plan = plan
        self.opaque = opaque
        self.frame = frame
        """The request as it came, for answers that need more than a plan."""
        self.key = plan.queue
        self.queue_offset = queue_offset
        self.accept_tags: AcceptTags | None = plan.selected.accept_tags
        self.expiry: asyncio.TimerHandle | None = None
        self.marked = False

    def done(self) -> bool:
        return self._is_done

    def answer(self, answers: Answers) -> None:
        self._is_done = True
        self.channel.release(self)
        code, result, buffers = self._pulls.answer(self)
        self._note(code, result)
        answers.setdefault(self.channel, []).extend(buffers)

    def _note(self, response: int, result: str) -> None:
        self.channel.router.note_held(self.channel, self.plan.code, response, result, self._began)

    def cancel(self) -> None:
        """The connection went away."""
        self._is_done = True
        self._pulls.forget(self)
        self._note(ResponseCode.SYSTEM_ERROR, CANCELLED)
