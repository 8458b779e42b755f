"""Client ids, name server addresses and group names.

A client id is `ip@instance[@unit][@STREAM]`. Brokers tell the members of a group apart by it, so the instance is unique for
every client unless the caller names one; clients with the same id share one session. A broadcasting consumer keeps the
instance `DEFAULT`, because its offsets lie in a folder named after its id and must be found again after a restart.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address
from itertools import count

from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import ConfigError, InvalidMessage
from rocketline.protocol.names import group_problem
from rocketline.transport.client import split_address

DEFAULT_INSTANCE = "DEFAULT"

# Instance names become folder names (broadcasting offsets): no separators, no leading dot.
_LEGAL_INSTANCE = re.compile(r"[A-Za-z0-9_%#@-][A-Za-z0-9_%#@.-]{0,127}", re.ASCII)

_sequence = count(1)


def unique_instance(clock: Clock = SYSTEM_CLOCK) -> str:
    """`pid#number`, never the same twice."""
    return f"{os.getpid()}#{clock.now_ms()}{next(_sequence):04d}"


def client_id(
    instance: str | None = None, *, ip: str | None = None, unit: str | None = None, stream: bool = False
) -> str:
    """
    >>> client_id("worker-1", ip="10.0.0.7")
    '10.0.0.7@worker-1'
    """
    instance = instance if instance is not None else unique_instance()
    for what, name in (("instance", instance), ("unit", unit)):
        if name is not None and not _LEGAL_INSTANCE.fullmatch(name):
            raise ConfigError(f"{what} name {name!r}: letters, digits and _ % # @ . - expected, at most 128")
    try:
        ip_address(ip or local_ip())
    except ValueError as error:
        raise ConfigError(f"client_ip {ip!r}: an IPv4 or IPv6 address expected") from error
    return f"{ip or local_ip()}@{instance}{f'@{unit}' if unit is not None else ''}{'@STREAM' if stream else ''}"


@lru_cache(maxsize=1)
def local_ip() -> str:
    """The address of the interface that leads out of this machine, or loopback when none does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address: connecting a datagram socket sends nothing
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address


def parse_name_servers(addresses: str | Sequence[str]) -> tuple[str, ...]:
    """
    >>> parse_name_servers("10.0.0.1:9876;10.0.0.2:9876")
    ('10.0.0.1:9876', '10.0.0.2:9876')
    """
    parts = addresses.replace(",", ";").split(";") if isinstance(addresses, str) else addresses
    servers = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not servers:
        raise ConfigError("no name server given: 'host:port', several separated by ';', is needed")
    for server in servers:
        try:
            split_address(server)
        except ValueError as error:
            raise ConfigError(f"name server {error}") from error
    return servers


def check_group(group: str) -> str:
    """The group, or InvalidMessage saying what is wrong with it."""
    problem = group_problem(group)
    if problem:
        raise InvalidMessage(problem)
    return group
