"""Verbs that show a whole cluster at a glance, and the settings of its brokers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from rocketline.cli.tables import Ms, Table, facts, sentence
from rocketline.cli.verb import Args, Flag, verb
from rocketline.cli.verbs.common import BROKER, CLUSTER, all_or_chosen, broker_subject, chosen_brokers

if TYPE_CHECKING:
    from rocketline.admin import Admin


@verb(
    "topicSummary",
    "Topics with their queues, groups and lag; one request to each broker, however many there are.",
    Flag("", "all", "Also topics of the system, of retries and of dead letters.", switch=True),
)
async def topic_summary(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.overview import USER, topic_summaries

    table = Table(("topic", "kind", "type", "brokers", "read queues", "write queues", "groups", "lag"))
    for topic in (await topic_summaries(admin)).some():
        if args.all or topic.kind == USER:
            shape = (topic.message_type, sorted(topic.brokers), topic.read_queues, topic.write_queues)
            table.rows.append((topic.name, topic.kind, *shape, sorted(topic.groups), topic.lag))
    yield table


@verb(
    "groupSummary",
    "Consumer groups with their brokers, topics, rate and lag; one request to each broker.",
    Flag("", "all", "Also groups of the system.", switch=True),
)
async def group_summary(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.overview import group_summaries, is_system_group
    from rocketline.message import RETRY_PREFIX

    table = Table(("group", "brokers", "topics", "consumed/s", "lag"))
    for group in (await group_summaries(admin)).some():
        if is_system_group(group.name) and not args.all:
            continue
        progress = group.progress
        topics = [name for name in progress.topics if not name.startswith(RETRY_PREFIX)] if progress else []
        speed = (progress.rate, progress.lag) if progress else (None, None)
        table.rows.append((group.name, sorted(group.brokers), topics, *speed))
    yield table


@verb(
    "clusterRates",
    "Messages a second into and out of each broker, as rows over some time.",
    CLUSTER,
    Flag("", "seconds", "The time of a row; default 5.", kind=float, default=5.0),
    Flag("", "rows", "How many rows for each broker; default 1.", kind=int, default=1),
    aliases=("rates",),
)
async def cluster_rates(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.rates import Rates

    table, rates = Table(("time", "broker", "in/s", "out/s")), Rates()
    for row in range(args.rows + 1):
        if row:
            await asyncio.sleep(args.seconds)
        answers = await admin.ask_each(await admin.brokers(args.cluster_name), lambda broker: broker.runtime_info())
        now = Ms(int(time.time() * 1000))
        for broker, info in answers.some():
            speed = rates.of(broker.name, info)
            if row:
                table.rows.append((now, broker.name, *(speed or (None, None))))
    yield table


@verb("proxyList", "The proxies of a cluster, as far as brokers know them.", aliases=("proxies",))
async def proxy_list(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.overview import proxies

    found = await proxies(admin)
    about = "no proxy is known: none runs, or they do not tell each other" if found is None else ""
    yield Table(("address",), [(address,) for address in found or ()], about=about)


@verb("haStatus", "How replication of brokers goes.", BROKER, CLUSTER, aliases=("replication",))
async def ha_status(admin: Admin, args: Args) -> AsyncIterator[Table]:
    for broker, status in (
        await admin.ask_each(await all_or_chosen(admin, args), lambda item: item.replication())
    ).some():
        pairs: list[tuple[str, object]] = [("master", status.master), ("log end", status.master_commit_log_max_offset)]
        replicas = Table(("replica", "has up to", "behind bytes", "in sync", "bytes/s"), title="replicas")
        for item in status.ha_connection_info:
            speed = (item.in_sync, item.transferred_byte_in_second)
            replicas.rows.append((item.addr, item.slave_ack_offset, item.diff, *speed))
        source = status.ha_client_runtime_info
        if not status.master:
            pairs += [("its master", source.master_addr), ("has up to", source.max_offset)]
            pairs.append(("last heard", Ms(source.last_read_timestamp)))
        yield facts([*pairs, ("replicas in sync", status.in_sync_slave_nums)], subject=broker_subject(broker))
        yield replicas


@verb(
    "brokerSettings",
    "Settings of brokers: their defaults where they are known, and which can be changed while a broker runs.",
    BROKER,
    CLUSTER,
    Flag("", "changed", "Only those that differ from their default.", switch=True),
    Flag("", "search", "Only those with this text in their name."),
)
async def broker_settings(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.broker_settings import settings_of

    brokers = await all_or_chosen(admin, args)
    for broker, found in (await admin.ask_each(brokers, settings_of)).some():
        table = Table(("name", "value", "default", "changed", "changeable"), subject=broker_subject(broker))
        for item in found:
            if (item.changed or not args.changed) and (args.search or "").lower() in item.name.lower():
                table.rows.append((item.name, item.value, item.default, item.changed, item.changeable))
        yield table


@verb(
    "changeBrokerSetting",
    "Change a setting that is safe to change while brokers run; the old and the new value.",
    BROKER,
    CLUSTER,
    Flag("k", "key", "Name of the setting.", required=True),
    Flag("v", "value", "Its new value.", required=True),
)
async def change_broker_setting(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.broker_settings import change_setting

    for broker in await chosen_brokers(admin, args):
        before, now = await change_setting(broker, args.key, args.value)
        yield sentence(f"{broker.name} {broker.address}: {args.key} was {before}, and is {now}")
