"""What a router knows of access control: somebody who is asked before every request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rocketline.protocol.command import Command

if TYPE_CHECKING:
    from rocketline.transport.channel import Channel
    from rocketline.transport.router import Reply


class Guard(Protocol):
    def refusal(self, channel: Channel, request: Command) -> Reply:
        """The answer to a request that may not be served; None when it may. Raises RequestRejected likewise."""

    def late_answer(self, channel: Channel, request: Command, answer: Command | None) -> Command | None:
        """The answer to a request that had to wait, or a refusal when its sender lost the right to it meanwhile."""
