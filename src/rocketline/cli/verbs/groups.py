"""Verbs about consumer groups: creating, changing and deleting them, and their progress."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from rocketline.cli.tables import Ms, Table, sentence, settings
from rocketline.cli.usage import UsageProblem
from rocketline.cli.verb import Args, Flag, verb
from rocketline.cli.verbs.common import (
    BROKER,
    CLUSTER,
    ONE_CLUSTER,
    all_or_chosen,
    broker_subject,
    chosen_brokers,
    parse_attributes,
)

if TYPE_CHECKING:
    from rocketline.admin import Admin
    from rocketline.admin.progress import GroupProgress

GROUP_NAME = Flag("g", "groupName", "Consumer group.", required=True)


@verb(
    "updateSubGroup",
    "Create a consumer group, or change it.",
    BROKER,
    CLUSTER,
    GROUP_NAME,
    Flag("s", "consumeEnable", "Whether it may consume.", kind=bool, default=True),
    Flag("m", "consumeFromMinEnable", "Whether it may begin at the oldest message.", kind=bool, default=False),
    Flag("d", "consumeBroadcastEnable", "Whether it may broadcast.", kind=bool, default=False),
    Flag("o", "consumeMessageOrderly", "Whether it consumes in order.", kind=bool, default=False),
    Flag("q", "retryQueueNums", "Queues of the retry topic.", kind=int, default=1),
    Flag("r", "retryMaxTimes", "Retries before a message becomes a dead letter.", kind=int, default=16),
    Flag("p", "groupRetryPolicy", "Delays between retries, as JSON."),
    Flag("i", "brokerId", "Broker id to read from.", kind=int, default=0),
    Flag("w", "whichBrokerWhenConsumeSlowly", "Broker id to read from when far behind.", kind=int, default=1),
    Flag("a", "notifyConsumerIdsChanged", "Tell members when one comes or goes.", kind=bool, default=True),
    Flag("", "attributes", "Attributes to set and to remove: +name=value,-name"),
    aliases=("create-group",),
)
async def update_sub_group(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.protocol.bodies import GroupRetryPolicy, SubscriptionGroupConfig, decode_body

    group = SubscriptionGroupConfig(
        group_name=args.group_name,
        consume_enable=args.consume_enable,
        consume_from_min_enable=args.consume_from_min_enable,
        consume_broadcast_enable=args.consume_broadcast_enable,
        consume_message_orderly=args.consume_message_orderly,
        retry_queue_nums=args.retry_queue_nums,
        retry_max_times=args.retry_max_times,
        broker_id=args.broker_id,
        which_broker_when_consume_slowly=args.which_broker_when_consume_slowly,
        notify_consumer_ids_changed_enable=args.notify_consumer_ids_changed,
    )
    if args.group_retry_policy:
        group.group_retry_policy = decode_body(GroupRetryPolicy, args.group_retry_policy.encode())
    group.attributes |= parse_attributes("--attributes", args.attributes)
    for broker in await chosen_brokers(admin, args):
        await broker.put_group(group)
        yield sentence(f"{broker.name} {broker.address}: group {args.group_name} is created or changed")


@verb(
    "updateSubGroupList",
    "Create or change the groups of a JSON file.",
    BROKER,
    CLUSTER,
    Flag("f", "filename", "A list of groups, as subscriptionGroup.json has them.", required=True),
)
async def update_sub_group_list(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.cli.verbs.files import read_list
    from rocketline.protocol.bodies import SubscriptionGroupConfig

    groups = read_list(args.filename, SubscriptionGroupConfig)
    for broker in await chosen_brokers(admin, args):
        await broker.put_groups(groups)
        yield sentence(f"{broker.name} {broker.address}: {len(groups)} groups are created or changed")


@verb(
    "deleteSubGroup",
    "Delete a consumer group.",
    BROKER,
    CLUSTER,
    GROUP_NAME,
    Flag("r", "removeOffset", "Delete its offsets too.", kind=bool, default=False),
    aliases=("delete-group",),
)
async def delete_sub_group(admin: Admin, args: Args) -> AsyncIterator[Table]:
    for broker in await chosen_brokers(admin, args):
        await broker.delete_group(args.group_name, with_offsets=args.remove_offset)
        yield sentence(f"{broker.name} {broker.address}: group {args.group_name} is deleted")
    if args.cluster_name and not args.broker_addr:
        async for table in _delete_derived_topics(admin, args.cluster_name, args.group_name):
            yield table


async def _delete_derived_topics(admin: Admin, cluster: str, group: str) -> AsyncIterator[Table]:
    """Delete the retry topic and the dead letters of a group deleted from a whole cluster, as Apache's tool does."""
    from rocketline.protocol.names import dlq_topic, retry_topic

    topics = (retry_topic(group), dlq_topic(group))
    for broker in await admin.brokers(cluster):
        for topic in topics:
            await broker.delete_topic(topic)
    for topic in topics:
        await admin.ask_name_servers(lambda server, it=topic: server.delete_topic(it, cluster))  # type: ignore[misc]
    yield sentence(f"its retry and dead-letter topics are deleted too: {', '.join(topics)}")


@verb("getConsumerConfig", "The settings of a consumer group on every broker.", GROUP_NAME, aliases=("group-config",))
async def get_consumer_config(admin: Admin, args: Args) -> AsyncIterator[Table]:
    import msgspec

    for broker, group in await admin.ask_brokers(await admin.brokers(), lambda broker: broker.group(args.group_name)):
        yield settings(sorted(msgspec.to_builtins(group).items()), "settings", broker_subject(broker))


@verb("groupList", "All consumer groups.", BROKER, CLUSTER, aliases=("groups",))
async def group_list(admin: Admin, args: Args) -> AsyncIterator[Table]:
    brokers = await all_or_chosen(admin, args)
    table: dict[str, list[str]] = {}
    for broker, groups in zip(brokers, await admin.gather(broker.groups() for broker in brokers)):
        for name in groups:
            table.setdefault(name, []).append(broker.name or broker.address)
    yield Table(("group", "brokers"), [(name, table[name]) for name in sorted(table)])


@verb(
    "consumerProgress",
    "The lag of a group, queue by queue; without -g, of all groups.",
    Flag("g", "groupName", "Consumer group."),
    Flag("t", "topicName", "Only this topic."),
    Flag("s", "showClientIP", "Show which consumer holds each queue.", kind=bool, default=False),
    ONE_CLUSTER,
    aliases=("lag", "progress"),
)
async def consumer_progress(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.progress import all_progress, progress_of

    if not args.group_name:
        table = Table(("group", "topics", "lag", "in flight", "out/s"))
        for progress in (await all_progress(admin, args.cluster)).some():
            if progress.queues:
                names = [topic for topic in progress.topics if not topic.startswith("%RETRY%")]
                table.rows.append((progress.group, names, progress.lag, progress.in_flight, progress.rate))
        yield table
        return
    progress = await progress_of(admin, args.group_name, args.topic_name)
    yield await _queues(admin, progress, args.show_client_ip)


async def _queues(admin: Admin, progress: GroupProgress, with_clients: bool) -> Table:
    columns = ("topic", "broker", "queue", "end", "consumed", "lag", "in flight", "last consumed")
    owners = await _owners(admin, progress) if with_clients else {}
    table = Table((*columns, "client") if with_clients else columns)
    for queue, item in sorted(progress.queues.items()):
        lag, flight = item.broker_offset - item.consumer_offset, item.pull_offset - item.consumer_offset
        offsets = (item.broker_offset, item.consumer_offset, lag, flight, Ms(item.last_timestamp))
        owner = (owners.get(str(queue), ""),) if with_clients else ()
        table.rows.append((queue.topic, queue.broker_name, queue.queue_id, *offsets, *owner))
    table.about = f"lag {progress.lag}, in flight {progress.in_flight}, {progress.rate:.2f} consumed a second"
    return table


async def _owners(admin: Admin, progress: GroupProgress) -> dict[str, str]:
    """Which client holds each queue, as reported by the clients; none when none is online."""
    from rocketline.errors import ConsumerNotOnline, RouteNotFound
    from rocketline.protocol.bodies import parse_queue_key

    owners: dict[str, str] = {}
    try:
        brokers = await admin.brokers_of_group(progress.group)
        answers = await admin.ask_brokers(brokers, lambda broker: broker.consumers(progress.group))
    except (ConsumerNotOnline, RouteNotFound):  # the latter: none ever was
        return owners
    for broker, online in answers:
        for client in online.connection_set:
            info = await broker.running_info(progress.group, client.client_id)
            owners.update((str(parse_queue_key(key)), client.client_id) for key in info.mq_table)
    return owners


@verb(
    "whoConsumes",
    "The groups that consume a topic, and the lag of each.",
    Flag("t", "topic", "Topic.", required=True),
    aliases=("topic-groups",),
)
async def who_consumes(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.progress import all_progress

    brokers = await admin.brokers_of(args.topic)
    answers = await admin.ask_brokers(brokers, lambda broker: broker.groups_of_topic(args.topic))
    names = {name for _, groups in answers for name in groups}
    # One request per broker, however many groups there are.
    found = {item.group: item.in_topic(args.topic) for item in (await all_progress(admin)).some()}
    table = Table(("group", "lag", "in flight"))
    for name in sorted(names):
        progress = found.get(name)
        if progress is None or not progress.queues:
            table.rows.append((name, None, None))
        else:
            table.rows.append((name, progress.lag, progress.in_flight))
    yield table


@verb(
    "setConsumeMode",
    "Let a group pull a topic, or pop it.",
    BROKER,
    CLUSTER,
    Flag("t", "topicName", "Topic.", required=True),
    GROUP_NAME,
    Flag("m", "mode", "PULL or POP.", required=True),
    Flag("q", "popShareQueueNum", "Consumers that share a queue when popping.", kind=int, default=0),
)
async def set_consume_mode(admin: Admin, args: Args) -> AsyncIterator[Table]:
    mode = args.mode.upper()
    if mode not in ("PULL", "POP"):
        raise UsageProblem(f"-m {args.mode}: PULL or POP is expected")
    for broker in await chosen_brokers(admin, args):
        await broker.set_request_mode(args.topic_name, args.group_name, mode, args.pop_share_queue_num)
        yield sentence(f"{broker.name} {broker.address}: {args.group_name} uses {mode} for {args.topic_name}")
