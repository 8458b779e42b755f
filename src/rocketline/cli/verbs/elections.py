"""Verbs about a group that elects its master. Any member can be asked, as if it were Apache's controller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from rocketline.cli.tables import Table, sentence
from rocketline.cli.usage import UsageProblem
from rocketline.cli.verb import Args, Flag, verb
from rocketline.cli.verbs.common import ONE_CLUSTER, broker_subject

if TYPE_CHECKING:
    from rocketline.admin import Admin
    from rocketline.admin.remote import AdminBroker
    from rocketline.protocol.headers import GroupMasterHeader

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
    Flag(
        "",
        "unclean",
        "Have the member of -b lead although it may lack messages that were acknowledged, because those that have them "
        "never come back. What it lacks is lost, and members that have more need an empty folder.",
        switch=True,
    ),
    aliases=("handOver",),
)
async def elect_master(admin: Admin, args: Args) -> AsyncIterator[Table]:
    member = await admin.named_broker_at(args.controller_address)
    if args.unclean:
        elected = await _elect_unclean(admin, member, args)
    else:
        master = admin.broker_at(await member.elections.master(), member.name)
        elected = await master.elections.elect_master(args.broker_id or 0, args.broker_name)
    yield sentence(
        f"member {elected.master_broker_id} at {elected.master_address} leads in epoch {elected.master_epoch}"
    )
    if args.unclean:
        yield sentence(
            "what the former master acknowledged and this member did not have is lost. Members whose logs are longer say "
            "so, and need an empty folder"
        )


async def _elect_unclean(admin: Admin, member: AdminBroker, args: Args) -> GroupMasterHeader:
    if not args.broker_id:
        raise UsageProblem("--unclean needs the number of the member that is to lead: -b")
    [group] = (await member.elections.sync_state([])).values()
    replicas = {replica.broker_id: replica for replica in [*group.in_sync_replicas, *group.not_in_sync_replicas]}
    if args.broker_id not in replicas:
        raise UsageProblem(f"the group has no member {args.broker_id}, but {sorted(replicas)}")
    chosen = admin.broker_at(replicas[args.broker_id].broker_address, member.name)
    return await chosen.elections.elect_master(args.broker_id, args.broker_name, unclean=True)


@verb(
    "removeMember",
    "Have a group that elects its master forget a member that never comes back.",
    ANY_MEMBER,
    Flag("b", "brokerId", "Number of the member; it must not run.", kind=int, required=True),
    Flag("bn", "brokerName", "Name of the group."),
)
async def remove_member(admin: Admin, args: Args) -> AsyncIterator[Table]:
    member = await admin.named_broker_at(args.controller_address)
    await member.elections.remove_member(args.broker_id, args.broker_name)
    yield sentence(f"member {args.broker_id} was removed; its folder has to be emptied before it joins again")


@verb(
    "getBrokerEpoch",
    "Which master wrote which span of the log, by each member of a group.",
    Flag("b", "brokerName", "Name of the group."),
    ONE_CLUSTER,
    aliases=("epochs",),
)
async def get_broker_epoch(admin: Admin, args: Args) -> AsyncIterator[Table]:
    info = await admin.cluster_info()
    names = sorted(info.cluster_addr_table.get(args.cluster, ()) if args.cluster else info.broker_addr_table)
    members = [
        admin.broker_at(address, name)
        for name in names
        if args.broker_name in (None, name)
        for address in info.broker_addr_table[name].broker_addrs.values()
    ]
    for broker, found in (await admin.ask_each(members, lambda item: item.epochs())).some():
        about = f"the log ends at {found.max_offset}"
        table = Table(("epoch", "from", "to"), subject=broker_subject(broker), about=about)
        for entry in found.epoch_list:
            table.rows.append((entry.epoch, entry.start_offset, min(entry.end_offset, found.max_offset)))
        yield table


@verb(
    "changeMaster",
    "Make another broker the master of its group. For groups with fixed roles: others have electMaster.",
    Flag("b", "brokerAddr", "Address of the broker that is to be the master, host:port.", required=True),
    Flag("", "masterIsGone", "The former master does not run and never comes back as master.", switch=True),
)
async def change_master(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.roles import change_master

    name, told = await change_master(admin, args.broker_addr, master_is_gone=args.master_is_gone)
    yield sentence(
        f"{args.broker_addr} is the master of {name}; told: {', '.join(told)}. They remember it over a restart, as long as "
        "brokerRole and brokerId in their settings files stay as they are"
    )
