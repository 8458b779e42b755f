"""Verbs about a group that elects its master. Any member can be asked, as if it were Apache's controller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from rocketline.cli.tables import Table, sentence
from rocketline.cli.verb import Args, Flag, verb

if TYPE_CHECKING:
    from rocketline.admin import Admin

ANY_MEMBER = Flag("a", "controllerAddress", "Address of any member of the group, host:port.", required=True)


@verb(
    "getSyncStateSet",
    "Members of a group that elects its master: who leads, who has everything, who runs.",
    ANY_MEMBER,
    Flag("b", "brokerName", "Name of the group; without it that of the member."),
    Flag("i", "interval", "Repeat after this many seconds, as --watch.", kind=float),
    aliases=("members",),
)
async def get_sync_state_set(admin: Admin, args: Args) -> AsyncIterator[Table]:
    broker = await admin.named_broker_at(args.controller_address)
    found = await broker.elections.sync_state([args.broker_name] if args.broker_name else [])
    for name, group in sorted(found.items()):
        about = f"epoch {group.master_epoch}; the set in sync changed {group.sync_state_set_epoch} times"
        table = Table(("id", "address", "leads", "in sync", "runs"), subject={"group": name}, about=about)
        in_sync = {replica.broker_id for replica in group.in_sync_replicas}
        for replica in sorted([*group.in_sync_replicas, *group.not_in_sync_replicas], key=lambda item: item.broker_id):
            leads = replica.broker_id == group.master_broker_id
            table.rows.append(
                (replica.broker_id, replica.broker_address, leads, replica.broker_id in in_sync, replica.alive)
            )
        yield table


@verb(
    "electMaster",
    "Have another member of a group lead: the master hands over as soon as that one has everything.",
    ANY_MEMBER,
    Flag("b", "brokerId", "Number of the member that is to lead; without it the one that has the most.", kind=int),
    Flag("bn", "brokerName", "Name of the group."),
    Flag("c", "clusterName", "Cluster of the group."),
    aliases=("handOver",),
)
async def elect_master(admin: Admin, args: Args) -> AsyncIterator[Table]:
    member = await admin.named_broker_at(args.controller_address)
    master = admin.broker_at(await member.elections.master(), member.name)
    elected = await master.elections.elect_master(args.broker_id or 0, args.broker_name)
    yield sentence(
        f"member {elected.master_broker_id} at {elected.master_address} leads in epoch {elected.master_epoch}"
    )
