"""The address of a broker: what clients are told, and what message ids are made of."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import NamedTuple

from rocketline.errors import ConfigError
from rocketline.protocol.message_ids import encode_host


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
