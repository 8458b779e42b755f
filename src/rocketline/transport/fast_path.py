"""What a channel knows of a fast path: something that is shown every read first and may serve what it begins with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from rocketline.protocol.records import Buffer

if TYPE_CHECKING:
    from rocketline.transport.channel import Channel


class FastState(Protocol):
    """What a fast path remembers of one connection."""

    @property
    def waiting(self) -> int:
        """Requests that the fast path took and has not answered yet."""


class FastPath(Protocol):
    def serve(self, channel: Channel, data: bytes) -> tuple[int, Sequence[Buffer]]:
        """Serve the requests that a read begins with: how many bytes were consumed, and the answers to write now.

        A piece of a frame that came before is joined to the read. What was consumed may also be kept and served in this
        turn of the loop; then the fast path writes the answers.
        """

    def settle(self, channel: Channel) -> None:
        """Serve now what was kept, if something of this connection is among it."""

    def settle_all(self) -> None:
        """Serve now what was kept."""
