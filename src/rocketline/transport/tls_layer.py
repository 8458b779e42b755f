"""TLS of one connection that a server accepted: encrypted bytes below, plain bytes above.

It is the protocol of the socket's transport, and the transport of the protocol above it. The loops' own TLS is not used:
it cannot begin with bytes that were read already, which a port for plain and TLS connections must do.
What is read and written at once becomes one read above and one write below, so the channel's way of serving requests stays
what it is. Back-pressure is that of the socket's transport.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

from rocketline.protocol.records import Buffer

log = logging.getLogger(__name__)

RECORD_BYTES = 16 * 1024
"""Most plain bytes of one TLS record."""


class TlsLayer(asyncio.Protocol, asyncio.Transport):
    """Begins with `begin`; then `on_end` is told once how the handshake ended: with nothing, or with the reason."""

    def __init__(
        self, context: ssl.SSLContext, below: asyncio.Transport, on_end: Callable[[TlsLayer, str], None]
    ) -> None:
        asyncio.Transport.__init__(self)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._below = below
        self._on_end: Callable[[TlsLayer, str], None] | None = on_end
        self._above: asyncio.Protocol | None = None
        self._limit: asyncio.TimerHandle | None = None

    def begin(self, data: bytes, limit_s: float) -> None:
        """Shake hands; `data` is what was read already."""
        self._limit = asyncio.get_running_loop().call_later(limit_s, self._give_up, limit_s)
        if data:
            self.data_received(data)

    # What the transport below calls

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        try:
            if self._on_end is not None and not self._shakes_hands():
                return
            self._read()
        except ssl.SSLZeroReturnError:  # the peer said that nothing follows
            self._flush()
            if self._above is not None:
                self._above.eof_received()
            self._below.close()
        except ssl.SSLError as error:
            self._failed(error)

    def _shakes_hands(self) -> bool:
        """Go on with the handshake; True when it is done."""
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        self._flush()
        self._handshake_ended("")
        return True

    def _read(self) -> None:
        incoming, parts = self._incoming, []
        try:
            while incoming.pending:
                parts.append(self._ssl.read(RECORD_BYTES))
        except ssl.SSLWantReadError:
            pass  # the beginning of a record, which OpenSSL has now
        finally:
            if self._outgoing.pending:
                self._flush()
            if parts and self._above is not None:
                self._above.data_received(parts[0] if len(parts) == 1 else b"".join(parts))

    def _failed(self, error: ssl.SSLError) -> None:
        self._flush()  # the alert for the peer
        reason = getattr(error, "reason", None) or str(error)
        if self._on_end is None:
            log.info("closing %s: TLS failed: %s", self.get_extra_info("peername"), reason)
        self._below.close()
        self._handshake_ended(reason)

    def _give_up(self, limit_s: float) -> None:
        self._below.abort()
        self._handshake_ended(f"not complete after {limit_s:g} s")

    def _handshake_ended(self, reason: str) -> None:
        on_end, self._on_end = self._on_end, None
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        if on_end is not None:
            on_end(self, reason)

    def eof_received(self) -> bool:
        if self._above is not None:
            self._above.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._handshake_ended("the peer left")
        above, self._above = self._above, None
        if above is not None:
            above.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        if self._above is not None:
            self._above.resume_writing()

    # What the protocol above calls

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._above = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._above is not None
        return self._above

    def write(self, data: Buffer) -> None:
        if data and not self._below.is_closing():
            try:
                self._ssl.write(data)
            except ssl.SSLError as error:  # it failed before, and the connection is of no use
                self._failed(error)
            else:
                self._below.write(self._outgoing.read())

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._below.write(self._outgoing.read())

    def close(self) -> None:
        """Close after what was written has left, without waiting for the peer's consent: frames tell what is whole."""
        if not self._below.is_closing():
            with suppress(ssl.SSLError):
                self._ssl.unwrap()
            self._flush()
            self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def pause_reading(self) -> None:
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._below.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._ssl
        if name == "peercert":
            return self._ssl.getpeercert()
        return self._below.get_extra_info(name, default)
