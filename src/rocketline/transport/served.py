"""What a listening server knows of one of its connections, whatever protocol it speaks."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Served(Protocol):
    """A connection of a server; the protocol of its transport."""

    peer: tuple[str, int] | None
    """Whom a load balancer connects for; None: whoever is at the other end of the socket."""
    identity: str
    """The account that a certificate of the peer names; "" when there is none."""
    remote: str
    remote_ip: str
    last_active: float

    @property
    def is_open(self) -> bool: ...

    @property
    def waiting_count(self) -> int:
        """Requests of the peer that were not answered yet."""

    @property
    def unfinished_bytes(self) -> int:
        """How much was received of a frame that is not complete."""

    def close(self) -> None:
        """Close after what was written has left."""

    def abort(self) -> None: ...

    async def wait_closed(self) -> None: ...

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...
