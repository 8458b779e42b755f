"""Problems of copies of a log: replicas that do not follow, or are far behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from rocketline.admin.cluster import Admin
from rocketline.admin.diagnosis import Diagnosis
from rocketline.admin.remote import AdminBroker
from rocketline.errors import RocketlineError
from rocketline.protocol.bodies import MASTER_ID

FAR_BEHIND_BYTES = 256 << 20


async def replication_problems(admin: Admin, brokers: Sequence[AdminBroker]) -> AsyncIterator[Diagnosis]:
    """Of groups with replicas."""
    groups = (await admin.cluster_info()).broker_addr_table
    ids = {address: (name, number) for name, group in groups.items() for number, address in group.broker_addrs.items()}
    concerned = [found for found in brokers if len(groups[found.name].broker_addrs) > 1 if found.address in ids]
    answers = await admin.gather_or_errors(broker.replication() for broker in concerned)
    for broker, status in zip(concerned, answers):
        where = f"{broker.name} {broker.address}"
        if isinstance(status, RocketlineError):
            yield Diagnosis("warning", where, f"does not say how replication goes: {status}", "look at its log")
        elif ids[broker.address][1] != MASTER_ID:
            if not status.ha_client_runtime_info.activated:
                yield Diagnosis(
                    "error",
                    where,
                    "is a replica and does not follow its master: what is sent now is not copied",
                    "look at its log: it says why; a log that diverges needs an empty folder",
                )
        else:
            for replica in status.ha_connection_info:
                if replica.diff > FAR_BEHIND_BYTES:
                    yield Diagnosis(
                        "warning",
                        where,
                        f"its replica at {replica.addr} is {replica.diff >> 20} MiB behind",
                        "check the network between them, and the disk of the replica",
                    )
