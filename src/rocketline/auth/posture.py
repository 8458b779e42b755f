"""Servers without accounts: whether they may serve other machines, and what they take from them.

A server that asks for no accounts serves this machine only, unless its operator says that this is wanted. Then messages go
in and out as asked, but operators' requests are taken only from this machine and from networks that are named.
"""

from __future__ import annotations

import logging
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from rocketline.auth.needs import ACCOUNT_CODES
from rocketline.errors import ConfigError, RequestRejected
from rocketline.protocol.codes import RequestCode, ResponseCode, code_name
from rocketline.protocol.command import Command
from rocketline.transport import Channel
from rocketline.transport.audit import CHANGES

log = logging.getLogger(__name__)

Networks = tuple[IPv4Network | IPv6Network, ...]

OPERATORS_CODES = (CHANGES | ACCOUNT_CODES) - {RequestCode.REGISTER_TOPIC_IN_NAMESRV}
"""Brokers of other machines register their topics, as they register themselves."""


def networks_of(text: str) -> Networks:
    """Networks with commas between; a single address is a network too.

    >>> [str(network) for network in networks_of("10.0.0.0/8, 192.168.1.7")]
    ['10.0.0.0/8', '192.168.1.7/32']
    """
    try:
        return tuple(ip_network(item.strip(), strict=False) for item in text.split(",") if item.strip())
    except ValueError as error:
        raise ConfigError(f"rocketline.adminFrom={text!r}: {error}") from None


def refuse_open_bind(host: str, *, is_insecure: bool) -> None:
    """Called for a server without accounts that other machines can reach: ConfigError, unless that is wanted."""
    if not is_insecure:
        raise ConfigError(
            f"bindAddress={host or 'all'} lets other machines in, and no accounts are asked for: anybody who reaches the "
            "port could read and delete everything. Set authenticationEnabled=true and initAuthenticationUser, or stay on "
            "127.0.0.1, or say --insecure (rocketline.insecure=true) if the network itself keeps strangers out"
        )
    log.warning(
        "anybody who reaches %s can read and write messages: accounts are off and rocketline.insecure is on. Operators' "
        "requests are taken from this machine and rocketline.adminFrom only",
        host or "all addresses",
    )


class LocalOperators:
    """The guard of a server without accounts: operators' changes come from this machine or from trusted networks."""

    def __init__(self, admin_from: str) -> None:
        self._networks = networks_of(admin_from)

    def refusal(self, channel: Channel, request: Command) -> None:
        if request.code in OPERATORS_CODES and not self._is_trusted(channel.remote_ip):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"{code_name(RequestCode, request.code)} is not taken from {channel.remote_ip}: this server asks for no "
                "accounts, so changes come only from its own machine and from rocketline.adminFrom",
            )

    def late_answer(self, channel: Channel, request: Command, answer: Command | None) -> Command | None:
        return answer

    def _is_trusted(self, text: str) -> bool:
        try:
            ip = ip_address(text.partition("%")[0])
        except ValueError:
            return not text  # no address: a socket of this machine, or a simulated one
        if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        return ip.is_loopback or any(ip in network for network in self._networks)
