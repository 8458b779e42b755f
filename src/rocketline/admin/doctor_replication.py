"""Problems of copies of a log: replicas that do not follow or are far behind, groups with few members in sync."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from rocketline.admin.cluster import Admin
from rocketline.admin.diagnosis import Diagnosis
from rocketline.admin.remote import AdminBroker
from rocketline.errors import RequestNotSupported, RocketlineError
from rocketline.protocol.bodies import MASTER_ID, GroupSyncState

FAR_BEHIND_BYTES = 256 << 20


async def replication_problems(admin: Admin, brokers: Sequence[AdminBroker]) -> AsyncIterator[Diagnosis]:
    """Of groups with replicas."""
    groups = (await admin.cluster_info()).broker_addr_table
    ids = {address: (name, number) for name, group in groups.items() for number, address in group.broker_addrs.items()}
    concerned = [found for found in brokers if len(groups[found.name].broker_addrs) > 1 if found.address in ids]
    async for finding in _election_problems(admin, brokers):
        yield finding
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


async def _election_problems(admin: Admin, brokers: Sequence[AdminBroker]) -> AsyncIterator[Diagnosis]:
    """Of groups that elect their master; each member is asked, because each has its own way to etcd."""
    answers = await admin.gather_or_errors(broker.elections.sync_state([]) for broker in brokers)
    seen = set()
    for broker, answer in zip(brokers, answers):
        where = f"{broker.name} {broker.address}"
        if isinstance(answer, RequestNotSupported):
            continue  # fixed roles
        if isinstance(answer, RocketlineError):
            yield Diagnosis("error", where, f"does not say who leads its group: {answer}", "see that it reaches etcd")
            continue
        group = answer.get(broker.name)
        if group is None:
            continue
        if group.rocketline_problem:
            yield Diagnosis(
                "error", where, f"takes no part in elections: {group.rocketline_problem}", "see its log, and etcd"
            )
        elif broker.name not in seen:
            seen.add(broker.name)
            for finding in _of_group(broker.name, group):
                yield finding


def _of_group(name: str, group: GroupSyncState) -> Iterator[Diagnosis]:
    away = [f"{item.broker_id} at {item.broker_address}" for item in group.not_in_sync_replicas if not item.alive]
    behind = [f"{item.broker_id} at {item.broker_address}" for item in group.not_in_sync_replicas if item.alive]
    if away:
        yield Diagnosis(
            "warning",
            name,
            f"members do not run: {', '.join(away)}",
            "start them; one that never comes back is removed with removeMember",
        )
    if behind:
        yield Diagnosis(
            "warning",
            name,
            f"members run and are not in sync: {', '.join(behind)}",
            "wait if they have just started; otherwise look at their logs",
        )
    if len(group.in_sync_replicas) == 1 and group.not_in_sync_replicas:
        only = group.in_sync_replicas[0]
        yield Diagnosis(
            "error",
            name,
            f"only member {only.broker_id} at {only.broker_address} has everything: its failure stops the group",
            "bring the others back in sync",
        )
