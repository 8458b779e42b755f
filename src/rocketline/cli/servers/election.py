"""Waits until every group of a cluster that elects its master has one: before that nobody can send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from rocketline.broker.config import BrokerConfig
from rocketline.errors import ProcessFailed
from rocketline.nameserver import NameServer
from rocketline.protocol.bodies import MASTER_ID

LIMIT_S = 60.0
POLL_S = 0.05


async def all_led(name_server: NameServer, brokers: Iterable[BrokerConfig], limit_s: float = LIMIT_S) -> None:
    """Return when the name server knows a master of each; ProcessFailed when that takes too long."""
    without = {config.name: config.coordination.url for config in brokers if config.is_coordinated}
    until = asyncio.get_running_loop().time() + limit_s
    while without:
        known = name_server.routes.cluster_info().broker_addr_table
        led = {name for name, group in known.items() if MASTER_ID in group.broker_addrs}
        without = {name: engine for name, engine in without.items() if name not in led}
        if without and asyncio.get_running_loop().time() >= until:
            engines = ", ".join(sorted(set(without.values())))
            raise ProcessFailed(
                f"nobody leads {', '.join(sorted(without))} after {limit_s:g} s: the logs of the brokers say why. Is "
                f"{engines} reachable, and its record of this data folder?"
            )
        await asyncio.sleep(POLL_S if without else 0)
