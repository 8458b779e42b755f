"""The address of a broker: what clients are told, and what message ids are made of."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address
from typing import NamedTuple

from rocketline.errors import ConfigError
from rocketline.protocol.message_ids import encode_host

REACH_S = 5.0
"""So long the broker tries to reach itself. Networks that drop what they do not know let a connection wait for minutes."""


class BrokerAddress(NamedTuple):
    host: str
    """Name or IP that clients are told."""
    ip: str
    port: int

    @property
    def text(self) -> str:
        """What clients are told: `host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def store_host(self) -> bytes:
        """IP and port as message ids have them."""
        return encode_host(self.ip, self.port)


async def why_unreachable(address: BrokerAddress, limit_s: float = REACH_S) -> str:
    """Why nobody answers at an address, seen from here; empty when somebody does."""
    try:
        async with asyncio.timeout(limit_s):
            _, writer = await asyncio.open_connection(address.ip, address.port)
    except TimeoutError:
        return f"no answer within {limit_s:g} s"
    except OSError as error:
        return error.strerror or str(error)
    writer.close()
    return ""


def own_host(bind_host: str) -> str:
    """The host to tell clients: what we bind to, or this host's own address when that is "all"."""
    if bind_host not in ("", "0.0.0.0", "::"):  # noqa: S104 (a comparison, nothing is bound)
        return bind_host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Chooses the interface of the default route; a datagram socket sends nothing here.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def ip_of(host: str) -> str:
    """An IP for the message ids; a host name that does not resolve cannot be advertised."""
    try:
        return str(ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        return str(socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)[0][4][0])
    except OSError as error:
        raise ConfigError(f"brokerIP1={host!r} is neither an address nor a name that resolves: {error}") from error
