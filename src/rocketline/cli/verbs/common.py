"""Flags and functions that several verbs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketline.cli.times import parse_time_ms
from rocketline.cli.usage import UsageProblem
from rocketline.cli.verb import Args, Flag

if TYPE_CHECKING:
    from rocketline.admin import Admin, AdminBroker

BROKER = Flag("b", "brokerAddr", "Address of one broker, host:port.")
CLUSTER = Flag("c", "clusterName", "All brokers of this cluster.")
TOPIC = Flag("t", "topic", "Topic.", required=True)
GROUP = Flag("g", "consumerGroup", "Consumer group.", required=True)
ONE_CLUSTER = Flag("c", "cluster", "Only this cluster.")
CLUSTER_BROKERS = Flag("c", "cluster", "All brokers of this cluster.")
IGNORED = "Accepted for compatibility with mqadmin; ignored."
IGNORED_CLUSTER = Flag("c", "cluster", IGNORED)
BEGIN = Flag("b", "beginTimestamp", "Stored at or after: ms, now, or 2026-05-31#12:00:00:000.", kind=parse_time_ms)
END = Flag("e", "endTimestamp", "Stored at or before; same formats.", kind=parse_time_ms)


def parse_attributes(flag: str, text: str | None) -> dict[str, str]:
    """The attributes of `+name=value,-name`, with their signs; UsageProblem when one has none."""
    attributes = {}
    for item in filter(None, (text or "").split(",")):
        name, _, value = item.partition("=")
        if name[:1] not in ("+", "-"):
            raise UsageProblem(f"{flag} {item}: +name=value or -name is expected")
        attributes[name] = value
    return attributes


async def chosen_brokers(admin: Admin, args: Args, *, slaves: bool = False) -> list[AdminBroker]:
    """The broker given with `-b`, or those of the cluster given with `-c`; UsageProblem without either."""
    cluster = getattr(args, "cluster_name", None) or getattr(args, "cluster", None)
    if args.broker_addr:
        return [await admin.named_broker_at(args.broker_addr)]
    if cluster:
        return await admin.brokers(cluster, slaves=slaves)
    raise UsageProblem("which broker? -b HOST:PORT, or -c CLUSTER for all of a cluster")


def broker_subject(broker: AdminBroker) -> dict[str, str]:
    """What the tables of one broker are about."""
    return {"broker": broker.name, "address": broker.address}


async def all_or_chosen(admin: Admin, args: Args) -> list[AdminBroker]:
    """As `chosen_brokers`, but without `-b` and `-c` the masters of all clusters."""
    cluster = getattr(args, "cluster_name", None) or getattr(args, "cluster", None)
    return await chosen_brokers(admin, args) if args.broker_addr or cluster else await admin.brokers()
