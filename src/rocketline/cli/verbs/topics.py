"""Verbs about topics: listing, creating, changing and deleting them, and what they hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING

from rocketline.cli.tables import Ms, Table, sentence
from rocketline.cli.verb import Args, Flag, verb
from rocketline.cli.verbs.common import (
    BROKER,
    CLUSTER,
    IGNORED,
    IGNORED_CLUSTER,
    TOPIC,
    chosen_brokers,
    parse_attributes,
)

if TYPE_CHECKING:
    from rocketline.admin import Admin, AdminBroker
    from rocketline.protocol.bodies import TopicConfig

RETRY, DEAD = "%RETRY%", "%DLQ%"


@verb(
    "topicList",
    "The topics of users; --all: those of the system too.",
    Flag("c", "clusterModel", "With the cluster of each and the groups that consume it.", switch=True),
    Flag("", "all", "Also topics of the system, of retries and of dead letters.", switch=True),
    aliases=("topics",),
)
async def topic_list(admin: Admin, args: Args) -> AsyncIterator[Table]:
    every = await admin.ask_name_server(lambda server: server.topics())
    names = every if args.all else await _user_topics(admin, every)
    if not args.cluster_model:
        about = "" if names else await _why_no_topic(admin)
        yield Table(("topic",), [(name,) for name in names], about=about)
        return
    clusters, groups = await _clusters_of_topics(admin), await _groups_of_topics(admin)
    table = Table(("clusters", "topic", "group"))
    for name in names:
        if not name.startswith((RETRY, DEAD)):
            for group in groups.get(name, [""]):
                table.rows.append((clusters.get(name, []), name, group or None))
    yield table


async def _user_topics(admin: Admin, names: list[str]) -> list[str]:
    """Without the topics that RocketMQ makes for itself."""
    from rocketline.admin.overview import USER, topic_kind

    info = await admin.cluster_info()
    return [name for name in names if topic_kind(name, info) == USER]


async def _why_no_topic(admin: Admin) -> str:
    has_brokers = (await admin.cluster_info()).broker_addr_table
    return "there is no topic yet; --all shows those of the system" if has_brokers else admin.no_broker_text


async def _clusters_of_topics(admin: Admin) -> dict[str, list[str]]:
    """The clusters of each topic, by one request per cluster."""
    clusters = await admin.clusters()

    def topics_of(cluster: str) -> Awaitable[list[str]]:
        return admin.ask_name_server(lambda server: server.topics(cluster))

    lists = await admin.gather(topics_of(cluster) for cluster in clusters)
    table: dict[str, list[str]] = {}
    for cluster, topics in zip(clusters, lists):
        for topic in topics:
            table.setdefault(topic, []).append(cluster)
    return table


async def _groups_of_topics(admin: Admin) -> dict[str, list[str]]:
    from rocketline.admin.progress import all_progress

    table: dict[str, list[str]] = {}
    for progress in (await all_progress(admin)).some():
        for topic in progress.topics:
            table.setdefault(topic, []).append(progress.group)
    return table


@verb("topicRoute", "The brokers and queues of a topic.", TOPIC, Flag("l", "list", IGNORED, switch=True))
async def topic_route(admin: Admin, args: Args) -> AsyncIterator[Table]:
    route = await admin.route(args.topic)
    groups = {group.broker_name: group for group in route.broker_datas}
    table = Table(("cluster", "broker", "addresses", "read queues", "write queues", "permission"))
    for item in sorted(route.queue_datas, key=lambda item: item.broker_name):
        group = groups.get(item.broker_name)
        addresses = dict(sorted(group.broker_addrs.items())) if group else {}
        counts = (item.read_queue_nums, item.write_queue_nums)
        table.rows.append(
            (group.cluster if group else "", item.broker_name, addresses, *counts, _permission(item.perm))
        )
    yield table


def _permission(perm: int) -> str:
    """
    >>> _permission(6), _permission(4)
    ('RW', 'R')
    """
    return "".join(letter for bit, letter in ((4, "R"), (2, "W"), (1, "X")) if perm & bit) or "none"


@verb("topicClusterList", "The clusters that have a topic.", TOPIC)
async def topic_cluster_list(admin: Admin, args: Args) -> AsyncIterator[Table]:
    route = await admin.route(args.topic)
    yield Table(("cluster",), [(name,) for name in sorted({group.cluster for group in route.broker_datas})])


@verb(
    "topicStatus", "How many messages each queue of a topic has, and when the last was stored.", TOPIC, IGNORED_CLUSTER
)
async def topic_status(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.protocol.bodies import parse_queue_key

    table = Table(("broker", "queue", "min offset", "max offset", "messages", "last stored"))
    rate = 0.0
    for _, stats in await admin.ask_brokers(
        await admin.brokers_of(args.topic), lambda broker: broker.topic_stats(args.topic)
    ):
        rate += stats.topic_put_tps
        for key, item in stats.offset_table.items():
            queue = parse_queue_key(key)
            count = item.max_offset - item.min_offset
            place = (queue.broker_name, queue.queue_id, item.min_offset, item.max_offset)
            table.rows.append((*place, count, Ms(item.last_update_timestamp)))
    table.rows.sort(key=lambda row: row[:2])
    table.about = f"{sum(row[4] for row in table.rows)} messages, {rate:.2f} a second in the last minute"
    yield table


@verb(
    "updateTopic",
    "Create a topic, or change it.",
    BROKER,
    CLUSTER,
    TOPIC,
    Flag("r", "readQueueNums", "Queues to read; default 8.", kind=int),
    Flag("w", "writeQueueNums", "Queues to write; default 8.", kind=int),
    Flag("p", "perm", "2 write, 4 read, 6 both.", kind=int),
    Flag("o", "order", "Ordered messages: name servers keep its queues fixed.", kind=bool),
    Flag("a", "attributes", "Attributes to set and to remove: +message.type=FIFO,-name"),
    Flag("u", "unit", "It belongs to a unit.", kind=bool),
    Flag("s", "hasUnitSub", "It is consumed by units.", kind=bool),
    aliases=("create-topic",),
)
async def update_topic(admin: Admin, args: Args) -> AsyncIterator[Table]:
    brokers = await chosen_brokers(admin, args)
    for broker in brokers:
        await broker.put_topic(_topic_config(args))
        yield sentence(f"{broker.name} {broker.address}: topic {args.topic} is created or changed")
    if args.order:
        conf = ";".join(f"{broker.name}:{_topic_config(args).write_queue_nums}" for broker in brokers)
        await admin.ask_name_servers(lambda server: server.put_kv("ORDER_TOPIC_CONFIG", args.topic, conf))
        yield sentence(f"order configuration: {conf}")


def _topic_config(args: Args) -> TopicConfig:
    """The topic as the flags say; a missing flag means Apache's default, even if the topic exists with another value."""
    from rocketline.protocol.bodies import TopicConfig

    flags = (1 if args.unit else 0) | (2 if args.has_unit_sub else 0)
    topic = TopicConfig(
        args.topic,
        8 if args.read_queue_nums is None else args.read_queue_nums,
        8 if args.write_queue_nums is None else args.write_queue_nums,
        6 if args.perm is None else args.perm,
        topic_sys_flag=flags,
        order=bool(args.order),
    )
    topic.attributes |= parse_attributes("-a", args.attributes)
    return topic


@verb(
    "updateTopicList",
    "Create or change the topics of a JSON file.",
    BROKER,
    CLUSTER,
    Flag("f", "filename", "A list of topics, as topics.json has them.", required=True),
)
async def update_topic_list(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.cli.verbs.files import read_list
    from rocketline.protocol.bodies import TopicConfig

    topics = read_list(args.filename, TopicConfig)
    for broker in await chosen_brokers(admin, args):
        await broker.put_topics(topics)
        yield sentence(f"{broker.name} {broker.address}: {len(topics)} topics are created or changed")


@verb(
    "updateTopicPerm",
    "Change the permission of a topic: 2 write, 4 read, 6 both.",
    BROKER,
    CLUSTER,
    TOPIC,
    Flag("p", "perm", "2, 4 or 6.", kind=int, required=True),
)
async def update_topic_perm(admin: Admin, args: Args) -> AsyncIterator[Table]:
    for broker in await _brokers_with_topic(admin, args):
        topic = await broker.topic(args.topic)
        before, topic.perm, topic.attributes = topic.perm, args.perm, {}
        await broker.put_topic(topic)
        yield sentence(
            f"{broker.name} {broker.address}: {args.topic} {_permission(before)} -> {_permission(args.perm)}"
        )


async def _brokers_with_topic(admin: Admin, args: Args) -> list[AdminBroker]:
    if args.broker_addr:
        return await chosen_brokers(admin, args)
    brokers = await admin.brokers_of(args.topic)
    if not args.cluster_name:
        return brokers
    names = {broker.name for broker in await admin.brokers(args.cluster_name)}
    return [broker for broker in brokers if broker.name in names]


@verb(
    "deleteTopic",
    "Delete a topic from brokers and name servers.",
    TOPIC,
    Flag("c", "clusterName", "The cluster to delete it from.", required=True),
)
async def delete_topic(admin: Admin, args: Args) -> AsyncIterator[Table]:
    brokers = await admin.brokers(args.cluster_name)
    await admin.gather(broker.delete_topic(args.topic) for broker in brokers)
    await admin.ask_name_servers(lambda server: server.delete_topic(args.topic, args.cluster_name))
    await admin.ask_name_servers(lambda server: server.delete_kv("ORDER_TOPIC_CONFIG", args.topic))
    yield sentence(f"topic {args.topic} is deleted from {len(brokers)} brokers of {args.cluster_name}")


@verb(
    "statsAll",
    "Messages in and out of every topic, by group.",
    Flag("a", "activeTopic", "Only topics with traffic.", switch=True),
    Flag("t", "topic", "Only this topic."),
    aliases=("stats",),
)
async def stats_all(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.progress import all_progress

    table = Table(("topic", "group", "lag", "in/s", "out/s", "in last day", "out last day"))
    lags: dict[str, dict[str, int]] = {}
    for progress in (await all_progress(admin)).some():
        for queue, item in progress.queues.items():
            groups = lags.setdefault(queue.topic, {})
            groups[progress.group] = groups.get(progress.group, 0) + max(0, item.broker_offset - item.consumer_offset)
    names = [args.topic] if args.topic else await admin.ask_name_server(lambda server: server.topics())
    shown = [name for name in names if not name.startswith((RETRY, DEAD))]
    brokers = await admin.brokers()
    puts = await admin.gather(_sum_counter(admin, brokers, "TOPIC_PUT_NUMS", name) for name in shown)
    pairs = [(name, group) for name in shown for group in sorted(lags.get(name, {}))]
    keys = [f"{name}@{group}" for name, group in pairs]
    gets = dict(zip(pairs, await admin.gather(_sum_counter(admin, brokers, "GROUP_GET_NUMS", key) for key in keys)))
    for name, (put_rate, put_day) in zip(shown, puts):
        rows = [(group, gets[name, group]) for group in sorted(lags.get(name, {}))] or [("", (0.0, 0))]
        for group, (rate, day) in rows:
            if not args.active_topic or put_rate or rate:
                table.rows.append((name, group, lags.get(name, {}).get(group, 0), put_rate, rate, put_day, day))
    yield table


async def _sum_counter(admin: Admin, brokers: list[AdminBroker], name: str, key: str) -> tuple[float, int]:
    """(messages per second in the last minute, messages in the last day) of all brokers that have this counter."""
    from rocketline.errors import RocketlineError

    rate, day = 0.0, 0
    for broker in brokers:
        try:
            data = await broker.stats(name, key)
        except RocketlineError:
            continue
        rate += data.stats_minute.tps
        day += data.stats_day.sum or data.stats_hour.sum or data.stats_minute.sum
    return rate, day


@verb(
    "allocateMQ",
    "How consumers at these addresses would share the queues of a topic.",
    TOPIC,
    Flag("i", "ipList", "Addresses, separated by commas.", required=True),
)
async def allocate_mq(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.client import allocate_averagely

    members = sorted(filter(None, (item.strip() for item in args.ip_list.split(","))))
    queues = sorted(queue for _, queue in await admin.queues_of(args.topic))
    table = Table(("consumer", "broker", "queue"))
    for member in members:
        for queue in allocate_averagely("allocateMQ", member, queues, members):
            table.rows.append((member, queue.broker_name, queue.queue_id))
    yield table
