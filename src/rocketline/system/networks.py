"""Addresses and networks, as settings and rights name them.

IPv4 addresses that IPv6 writes in its own form (`::ffff:10.1.2.3`) are taken for what they stand for, and the families are
never mixed: no IPv6 network has an IPv4 address in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network
Networks = tuple[Network, ...]

_MAPPED = IPv6Network("::ffff:0:0/96")


def network(text: str, *, strict: bool = False) -> Network:
    """An address or a network; ValueError when it is none, and with `strict` when it is an address within a network.

    >>> str(network("10.1.2.3/8")), str(network("::ffff:10.1.2.3"))
    ('10.0.0.0/8', '10.1.2.3/32')
    """
    found = ip_network(text, strict=strict)
    if isinstance(found, IPv6Network) and found.subnet_of(_MAPPED):
        return IPv4Network((int(found.network_address) & 0xFFFFFFFF, found.prefixlen - 96))
    return found


def networks_of(text: str) -> Networks:
    """Networks of a setting, with commas between; a single address is a network too. ValueError when one is none.

    >>> [str(item) for item in networks_of("10.0.0.0/8, 192.168.1.7")]
    ['10.0.0.0/8', '192.168.1.7/32']
    """
    return tuple(network(item.strip(), strict=True) for item in text.split(",") if item.strip())


@lru_cache(4096)
def address(text: str) -> IPv4Address | IPv6Address | None:
    """The address of a peer, with or without the interface that it came by; None when it has none."""
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def has_address(networks: Iterable[Network], ip: str) -> bool:
    """Whether a peer's address is in one of the networks.

    >>> has_address(networks_of("10.0.0.0/8"), "::ffff:10.1.2.3"), has_address(networks_of("::/0"), "10.1.2.3")
    (True, False)
    """
    found = address(ip)
    return found is not None and any(found.version == item.version and found in item for item in networks)
