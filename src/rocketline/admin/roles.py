"""The master of a group with fixed roles is changed by an operator: every member is told, the former master first."""

from __future__ import annotations

from rocketline.admin.cluster import Admin
from rocketline.errors import RocketlineError
from rocketline.protocol.bodies import MASTER_ID


async def change_master(admin: Admin, address: str, *, master_is_gone: bool = False) -> tuple[str, list[str]]:
    """Make the broker at this address the master; (name of its group, addresses that were told, in this order).

    The former master stops only for a replica that has everything, and refuses otherwise: then nothing is changed. Nobody
    prevents two masters if it runs and was called gone.
    """
    groups = (await admin.cluster_info()).broker_addr_table
    for name, group in groups.items():
        ids = {known: number for number, known in group.broker_addrs.items()}
        if address not in ids:
            continue
        if ids[address] == MASTER_ID:
            raise RocketlineError(f"{address} is the master of {name} already")
        former = group.broker_addrs.get(MASTER_ID, "")
        if not former and not master_is_gone:
            raise RocketlineError(
                f"name servers know no master of {name}: if it is gone for good, say --master-is-gone"
            )
        first = [former] if former and not master_is_gone else []
        others = [known for known in ids if known not in (address, former)]
        told = [*first, address, *others]
        for each in told:
            await admin.broker_at(each, name).change_master(address, ids[address])
        return name, told
    raise RocketlineError(f"no name server knows a broker at {address}")
