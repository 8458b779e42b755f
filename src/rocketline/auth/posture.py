"""Servers without accounts: whether they may serve other machines, and what they take from them.

A server that asks for no accounts serves this machine only, unless its operator says that this is wanted. Then messages go
in and out as asked, but operators' requests are taken only from this machine and from networks that are named.
"""

from __future__ import annotations

import logging

from rocketline.auth.needs import ACCOUNT_CODES
from rocketline.auth.refusal_log import Reason, RefusalLog
from rocketline.clock import Clock
from rocketline.errors import ConfigError, RequestRejected
from rocketline.protocol.codes import RequestCode, ResponseCode, code_name
from rocketline.protocol.command import Command
from rocketline.system.networks import Networks, has_address, networks_of
from rocketline.system.sockets import is_loopback
from rocketline.transport import Channel
from rocketline.transport.audit import CHANGES

log = logging.getLogger(__name__)

OPERATORS_CODES = (
    CHANGES | ACCOUNT_CODES | {RequestCode.EXCHANGE_BROKER_HA_INFO, RequestCode.RESET_MASTER_FLUSH_OFFSET}
    # Brokers of other machines register their topics, as they register themselves.
) - {RequestCode.REGISTER_TOPIC_IN_NAMESRV}
"""What strangers may not ask for. With the requests between the brokers of a group they could have a replica copy their own
log, or count as a replica."""


def admin_networks(text: str) -> Networks:
    """Where operators may be, as `rocketline.adminFrom` says it; ConfigError when that says no networks."""
    try:
        return networks_of(text)
    except ValueError as error:
        raise ConfigError(f"rocketline.adminFrom={text!r}: {error}") from None


def is_near(ip: str, networks: Networks) -> bool:
    """Whether an address is of this machine or of one of the networks."""
    # Without an address: a socket of this machine, or a simulated one.
    return not ip or is_loopback(ip) or has_address(networks, ip)


def refuse_open_bind(host: str, *, is_insecure: bool, key: str = "bindAddress") -> None:
    """Called for a server without accounts that other machines can reach: ConfigError, unless that is wanted."""
    if not is_insecure:
        raise ConfigError(
            f"{key}={host or 'all'} lets other machines in, and no accounts are asked for: anybody who reaches the "
            "port could read and delete everything. Set authenticationEnabled=true and rocketline.initUserFile, or stay on "
            "127.0.0.1, or say --insecure (rocketline.insecure=true) if the network itself keeps strangers out"
        )
    log.warning(
        "anybody who reaches %s can read and write messages: accounts are off and rocketline.insecure is on. Operators' "
        "requests are taken from this machine and rocketline.adminFrom only",
        host or "all addresses",
    )


class LocalOperators:
    """The guard of a server without accounts: operators' changes come from this machine or from trusted networks."""

    def __init__(self, admin_from: str, clock: Clock) -> None:
        self._networks = admin_networks(admin_from)
        self.refusals = RefusalLog(clock)

    def refusal(self, channel: Channel, request: Command) -> None:
        if request.code in OPERATORS_CODES and not self.trusts(channel):
            remark = (
                f"{code_name(RequestCode, request.code)} is not taken from {channel.remote_ip}: this server asks for no "
                "accounts, so changes come only from its own machine and from rocketline.adminFrom"
            )
            self.refusals.note(channel, request, Reason.NOT_FROM_THERE, remark)
            raise RequestRejected(ResponseCode.NO_PERMISSION, remark)

    def late_answer(self, channel: Channel, request: Command, answer: Command | None) -> Command | None:
        return answer

    def trusts(self, channel: Channel) -> bool:
        """Whether an operator may be there."""
        return self._is_trusted(channel.remote_ip)

    def _is_trusted(self, ip: str) -> bool:
        return is_near(ip, self._networks)
