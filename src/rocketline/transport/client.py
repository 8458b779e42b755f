"""Connections to many servers, opened on first use and shared by all callers.

The next call after a loss opens a new connection. After a failed attempt there is a pause (0.05 s, doubled up to 1 s);
calls during the pause fail at once with the last reason, so that callers of a dead broker can go to another one without
waiting.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from rocketline.errors import ClientClosed, ConnectFailed, RequestTimeout, TlsFailed
from rocketline.protocol.command import Command
from rocketline.protocol.numbers import read_number
from rocketline.transport.access import OPEN, Access
from rocketline.transport.channel import Channel
from rocketline.transport.limits import Limits
from rocketline.transport.router import Router
from rocketline.transport.tls import tls_problem, unheard_hint

log = logging.getLogger(__name__)

FIRST_BACKOFF_S = 0.05
LAST_BACKOFF_S = 1.0

TLS_CLOSE_S = 0.2
"""How long to wait for a server's close message at the end of a TLS connection; Apache's sends none."""

_NEXT_ATTEMPT = "; next attempt"


class _Link:
    """State of one address: its channel, or why there is none."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.connecting: asyncio.Task[Channel] | None = None
        self.backoff_s = 0.0
        self.retry_at = 0.0
        self.last_error = ""
        self.failure_kind = ConnectFailed


class RemotingClient:
    """Calls by address over shared connections; an async context manager.

    `router` serves the requests that servers send over these connections; `access` signs and encrypts.
    """

    def __init__(
        self,
        router: Router | None = None,
        *,
        limits: Limits | None = None,
        connect_timeout_s: float = 3.0,
        access: Access = OPEN,
    ) -> None:
        self._router = router or Router()
        self._limits = limits or Limits()
        self._connect_timeout_s = connect_timeout_s
        self._sign = access.sign
        self._contexts = access.contexts()
        self._hint = unheard_hint(has_tls=self._contexts is not None)
        self._links: dict[str, _Link] = {}
        self._closed = False
        self._inherited: list[_Link] = []
        self.on_connection: Callable[[str, str | None], None] | None = None
        """Told of every connection that is made (None) or lost (why), with its address."""

    def call(self, address: str, command: Command, timeout: float) -> Awaitable[Command]:
        """Send a request to `host:port` and wait for its answer; `timeout` covers connecting too."""
        channel = self.connected(address)
        if channel is None or channel.is_congested:
            return self._call_when_ready(address, command, timeout)
        return channel.call(command, timeout)

    async def _call_when_ready(self, address: str, command: Command, timeout: float) -> Command:
        loop = asyncio.get_running_loop()
        started = loop.time()
        channel = await self._ready_within(address, timeout)
        return await channel.call(command, max(0.001, timeout - (loop.time() - started)))

    async def send_oneway(self, address: str, command: Command, timeout: float = 3.0) -> None:
        """Send a request that is not answered; fails only if connecting or writing fails."""
        channel = self.connected(address)
        if channel is None or channel.is_congested:
            channel = await self._ready_within(address, timeout)
        channel.send_oneway(command)

    def connected(self, address: str) -> Channel | None:
        """The open channel to an address, if there is one."""
        link = self._links.get(address)
        channel = link.channel if link is not None else None
        return channel if channel is not None and channel.is_open else None

    def drop(self, address: str) -> None:
        """Forget an address and close its connection."""
        link = self._links.pop(address, None)
        if link is None:
            return
        if link.connecting is not None:
            link.connecting.cancel()
        if link.channel is not None:
            link.channel.close()

    async def close(self) -> None:
        self._closed = True
        channels = [link.channel for link in self._links.values() if link.channel is not None]
        for address in list(self._links):
            self.drop(address)
        for channel in channels:
            try:
                await asyncio.wait_for(channel.wait_closed(), 1.0)
            except TimeoutError:
                channel.abort()

    def disown(self) -> None:
        """In a forked child: stop using the parent's connections, and do not keep them open when the parent ends."""
        self._closed = True
        self._inherited = list(self._links.values()) or [_Link()]
        self._links = {}
        for link in self._inherited:
            if link.channel is not None:
                link.channel.disown()

    async def __aenter__(self) -> RemotingClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ready_within(self, address: str, timeout: float) -> Channel:
        """A channel whose peer reads what it is sent: otherwise unsent data would pile up here."""
        step = "no connection to {} within {:g} s"
        try:
            async with asyncio.timeout(timeout):
                channel = self.connected(address) or await self._connect_again(address)
                step = "{} does not read what it is sent: nothing left within {:g} s"
                await channel.drained()
                return channel
        except TimeoutError as error:
            raise RequestTimeout(step.format(address, timeout)) from error

    async def _connect_again(self, address: str) -> Channel:
        if self._closed:
            why = "was opened before this process was forked, open a new one" if self._inherited else "is closed"
            raise ClientClosed(f"cannot connect to {address}: this client {why}")
        link = self._links.setdefault(address, _Link())
        if link.connecting is None:
            wait_s = link.retry_at - asyncio.get_running_loop().time()
            if wait_s > 0:
                raise link.failure_kind(f"{link.last_error}{_NEXT_ATTEMPT} in {wait_s:.1f} s")
            link.connecting = asyncio.get_running_loop().create_task(self._connect(address, link))
            link.connecting.add_done_callback(_mark_retrieved)
        connecting = link.connecting
        await asyncio.wait([connecting])
        if connecting.cancelled():
            raise ConnectFailed(f"cannot connect to {address}: the address was dropped or the client was closed")
        return connecting.result()

    async def _connect(self, address: str, link: _Link) -> Channel:
        loop = asyncio.get_running_loop()
        try:
            host, port = split_address(address)
            async with asyncio.timeout(self._connect_timeout_s):
                _, channel = await loop.create_connection(self._new_channel, host, port, **self._tls_options())
        except (OSError, TimeoutError, ValueError) as error:
            link.backoff_s = min(LAST_BACKOFF_S, link.backoff_s * 2 or FIRST_BACKOFF_S)
            link.retry_at = loop.time() + link.backoff_s
            failed = connect_failed(address, error, self._connect_timeout_s, tls=self._contexts is not None)
            link.last_error, link.failure_kind = str(failed), type(failed)
            raise failed from error
        else:
            link.backoff_s = link.retry_at = 0.0
            link.channel = channel
            self._watch(address, link, channel)
            return channel
        finally:
            link.connecting = None

    def _tls_options(self) -> dict[str, Any]:
        """For a connection that is made now."""
        if self._contexts is None:
            return {}
        return {"ssl": self._contexts(), "ssl_shutdown_timeout": TLS_CLOSE_S}

    def _watch(self, address: str, link: _Link, channel: Channel) -> None:
        tell = self.on_connection
        if tell is None:
            return

        def lost(_: Channel) -> None:
            is_ours = self._links.get(address) is not link
            tell(address, "closed by this client" if is_ours else channel.lost_because)

        tell(address, None)
        channel.on_close.append(lost)
        if not channel.is_open and channel.lost_because:  # it ended before anybody could watch it
            lost(channel)

    def _new_channel(self) -> Channel:
        return Channel(self._router, self._limits, sign=self._sign, unheard_hint=self._hint)


def split_address(address: str) -> tuple[str, int]:
    """(host, port) of `host:port` or `[ipv6]:port`.

    >>> split_address("127.0.0.1:9876")
    ('127.0.0.1', 9876)
    """
    host, _, text = address.rpartition(":")
    port = read_number(text, highest=65535)
    if not host or port is None:
        raise ValueError(f"{address[:300]!r} is not an address: host:port expected")
    return host.strip("[]"), port


def without_next_attempt(text: str) -> str:
    """The text of an error for somebody who makes no attempt any more."""
    return text.partition(_NEXT_ATTEMPT)[0]


def _mark_retrieved(task: asyncio.Task[Channel]) -> None:
    """Keep asyncio from logging a failure that no waiter retrieved, because all timed out: it is saved in the link."""
    if not task.cancelled():
        task.exception()


def connect_failed(address: str, error: Exception, timeout: float, *, tls: bool) -> ConnectFailed:
    """The error for a failed connection, with the fix if TLS is the reason."""
    is_final = isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
    kind = TlsFailed if is_final else ConnectFailed
    reason = (tls_problem(error) if tls else None) or _reason(error, timeout)
    return kind(f"cannot connect to {address}: {reason}")


def _reason(error: Exception, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no connection within {timeout:g} s"
    if isinstance(error, OSError) and error.errno and error.errno in errno.errorcode:
        return os.strerror(error.errno)  # asyncio's own text repeats the address and leaves out the reason
    return getattr(error, "strerror", None) or str(error)
