"""Waiting for a socket, listening on a port that was in use a moment ago, and who can connect to an address."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Callable

from rocketline.system.networks import address


def readable_within(connection: socket.socket) -> Callable[[float], bool]:
    """A function that waits, for as many seconds as it is told, until the socket has something to read.

    `poll` has no limit on the numbers of descriptors; Windows has only `select`, whose limit there is another one and does
    not matter for one socket.
    """
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        return lambda seconds: bool(poll.poll(seconds * 1000))
    return lambda seconds: bool(select.select([connection], [], [], seconds)[0])


def reuse_address(listening: socket.socket) -> None:
    """Let a server that was restarted listen at once, although old connections of its port are still being closed.

    Windows needs no option for that. There the option of this name lets two servers listen on one port.
    """
    if sys.platform != "win32":
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("")
    (True, True, False, False)
    """
    found = address(host.strip("[]"))
    return host == "localhost" or (found is not None and found.is_loopback)
