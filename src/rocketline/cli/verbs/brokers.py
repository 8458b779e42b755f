"""Verbs about brokers: their state, their settings, and cleaning up."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from rocketline.cli.tables import Ms, Parts, Table, sentence, settings
from rocketline.cli.verb import Args, Flag, verb
from rocketline.cli.verbs.common import (
    BROKER,
    CLUSTER,
    CLUSTER_BROKERS,
    all_or_chosen,
    broker_subject,
    chosen_brokers,
)

if TYPE_CHECKING:
    from rocketline.admin import Admin, AdminBroker

CLUSTER_COLUMNS = (
    "cluster", "broker", "id", "address", "version", "in/s", "out/s", "waits (in, out) ms", "timer (behind s, new, waiting)",
    "lock ms", "oldest h", "disk", "active",
)  # fmt: skip
MORE_COLUMNS = ("cluster", "broker", "in yesterday", "out yesterday", "in today", "out today")


@verb(
    "clusterList",
    "Clusters and their brokers, each with its load, disk and age of data.",
    Flag("m", "moreStats", "Totals of yesterday and today instead.", switch=True),
    Flag("i", "interval", "Repeat after this many seconds, as --watch.", kind=float),
    CLUSTER,
    aliases=("clusters", "brokers"),
)
async def cluster_list(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.errors import RocketlineError

    info = await admin.cluster_info()
    table = Table(MORE_COLUMNS if args.more_stats else CLUSTER_COLUMNS)
    wanted = [args.cluster_name] if args.cluster_name else await admin.clusters()
    places = [
        (cluster, name, broker_id, admin.broker_at(address, name))
        for cluster in wanted
        for name in sorted(info.cluster_addr_table.get(cluster, ()))
        if name in info.broker_addr_table
        for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items())
    ]
    answers = await admin.gather_or_errors(broker.runtime_info() for *_, broker in places)
    for (cluster, name, broker_id, broker), found in zip(places, answers):
        if isinstance(found, RocketlineError):
            empty = [None] * (len(table.columns) - 5)
            table.rows.append((cluster, name, broker_id, broker.address, str(found), *empty)[: len(table.columns)])
        elif args.more_stats:
            table.rows.append((cluster, name, *_day_totals(found)))
        else:
            table.rows.append((cluster, name, broker_id, broker.address, *_load_columns(found)))
    if not info.broker_addr_table:
        table.about = admin.no_broker_text
    yield table


def _load_columns(info: dict[str, str]) -> list[object]:
    oldest_ms = _number(info, "earliestMessageTimeStamp")
    waits = {"in": "sendThreadPoolQueueHeadWaitTimeMills", "out": "pullThreadPoolQueueHeadWaitTimeMills"}
    timer = {"behind_s": "timerReadBehind", "new": "timerOffsetBehind", "waiting": "timerCongestNum"}
    return [
        info.get("brokerVersionDesc"),
        _first_rate(info, "putTps"),
        _first_rate(info, "getTransferredTps"),
        _parts(info, waits),
        _parts(info, timer),
        int(_number(info, "pageCacheLockTimeMills")),
        round((time.time() * 1000 - oldest_ms) / 3_600_000, 2) if oldest_ms > 0 else 0.0,
        round(_number(info, "commitLogDiskRatio"), 4),
        info.get("brokerActive") == "true",
    ]


def _day_totals(info: dict[str, str]) -> list[int]:
    def grown(kind: str, since: str, until: str) -> int:
        return int(_number(info, f"msg{kind}Total{until}") - _number(info, f"msg{kind}Total{since}"))

    return [
        grown("Put", "YesterdayMorning", "TodayMorning"),
        grown("Get", "YesterdayMorning", "TodayMorning"),
        grown("Put", "TodayMorning", "TodayNow"),
        grown("Get", "TodayMorning", "TodayNow"),
    ]


def _parts(info: dict[str, str], keys: dict[str, str]) -> Parts:
    return Parts((name, int(_number(info, key)) if key in info else None) for name, key in keys.items())


def _number(info: dict[str, str], key: str) -> float:
    try:
        return float(info.get(key, "0"))
    except ValueError:
        return 0.0


def _first_rate(info: dict[str, str], key: str) -> float:
    try:
        return float(info.get(key, "").split(" ")[0])
    except ValueError:
        return 0.0


@verb("brokerStatus", "All runtime information of brokers.", BROKER, CLUSTER)
async def broker_status(admin: Admin, args: Args) -> AsyncIterator[Table]:
    brokers = await all_or_chosen(admin, args)
    for broker, info in zip(brokers, await admin.gather(broker.runtime_info() for broker in brokers)):
        yield settings(sorted(info.items()), "status", broker_subject(broker))


@verb("getBrokerConfig", "The settings of brokers.", BROKER, CLUSTER, aliases=("broker-config",))
async def get_broker_config(admin: Admin, args: Args) -> AsyncIterator[Table]:
    brokers = await all_or_chosen(admin, args)
    for broker, config in zip(brokers, await admin.gather(broker.config() for broker in brokers)):
        yield settings(sorted(config.items()), "settings", broker_subject(broker))


@verb(
    "updateBrokerConfig",
    "Change a setting of running brokers.",
    BROKER,
    CLUSTER,
    Flag("a", "updateAllBroker", "Slaves too.", kind=bool, default=False),
    Flag("k", "key", "Name of the setting.", required=True),
    Flag("v", "value", "Its new value.", required=True),
    aliases=("set-broker-config",),
)
async def update_broker_config(admin: Admin, args: Args) -> AsyncIterator[Table]:
    brokers = await chosen_brokers(admin, args, slaves=args.update_all_broker)
    for broker in brokers:
        await broker.update_config({args.key: args.value})
        yield sentence(f"{_title(broker)}: {args.key}={args.value}")


def _declare_clean_up(name: str, help: str, code: str, outcome: str) -> None:
    """Declare a verb that sends a request without fields to brokers; `code` is its name in `RequestCode`."""

    @verb(name, help, BROKER, CLUSTER_BROKERS)
    async def run(admin: Admin, args: Args) -> AsyncIterator[Table]:
        from rocketline.protocol.codes import RequestCode

        for broker in await all_or_chosen(admin, args):
            await broker.clean_up(RequestCode[code])
            yield sentence(f"{_title(broker)}: {outcome}")


_declare_clean_up(
    "cleanExpiredCQ",
    "Delete queue files that list only messages that are gone.",
    "CLEAN_EXPIRED_CONSUMEQUEUE",
    "expired queue files are being deleted",
)
_declare_clean_up(
    "deleteExpiredCommitLog",
    "Delete expired log files now, whatever the hour.",
    "DELETE_EXPIRED_COMMITLOG",
    "expired log files are being deleted",
)
_declare_clean_up(
    "cleanUnusedTopic",
    "Delete the queues of topics that no longer exist.",
    "CLEAN_UNUSED_TOPIC",
    "queues of unknown topics are deleted",
)


@verb(
    "brokerConsumeStats",
    "The progress of all groups of a broker, queue by queue.",
    Flag("b", "brokerAddr", "Address of the broker.", required=True),
    Flag("t", "timeoutMillis", "Time limit for the answer, in milliseconds.", kind=int),
    Flag("l", "level", "Only queues that lag at least this much.", kind=int, default=0),
    Flag("o", "order", "Only topics with ordered messages.", kind=bool, default=False),
)
async def broker_consume_stats(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.protocol.bodies import parse_queue_key

    broker = await admin.named_broker_at(args.broker_addr)
    if args.timeout_millis:
        broker.timeout_s = args.timeout_millis / 1000
    answer = await broker.all_consume_stats(ordered_only=args.order)
    table = Table(("topic", "group", "broker", "queue", "end", "consumed", "lag", "last consumed"))
    for groups in answer.consume_stats_list:
        for group, shown in groups.items():
            for key, item in (pair for stats in shown for pair in stats.offset_table.items()):
                queue, lag = parse_queue_key(key), item.broker_offset - item.consumer_offset
                if lag >= args.level:
                    place = (queue.topic, group, queue.broker_name, queue.queue_id)
                    table.rows.append((*place, item.broker_offset, item.consumer_offset, lag, Ms(item.last_timestamp)))
    table.rows.sort(key=lambda row: row[:4])
    table.about = f"total lag: {answer.total_diff}"
    yield table


def _title(broker: AdminBroker) -> str:
    return f"{broker.name} {broker.address}".strip()
