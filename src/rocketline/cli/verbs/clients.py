"""Verbs about connected clients: producers and consumers, and the state that consumers report."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from rocketline.cli.tables import Ms, Table, facts
from rocketline.cli.verb import Args, Flag, verb
from rocketline.cli.verbs.common import BROKER, GROUP, TOPIC
from rocketline.protocol.versions import version_name

if TYPE_CHECKING:
    from rocketline.admin import Admin, AdminBroker
    from rocketline.protocol.bodies import ClientConnection

CONNECTION = ("client", "address", "language", "version")


def _connection(item: ClientConnection) -> tuple[str, str, str, str]:
    return item.client_id, item.client_addr, item.language, version_name(item.version).upper()


async def _brokers_of_group(admin: Admin, group: str, address: str | None) -> list[AdminBroker]:
    return [await admin.named_broker_at(address)] if address else await admin.brokers_of_group(group)


@verb("consumerConnection", "The consumers of a group and what they subscribe to.", GROUP, BROKER)
async def consumer_connection(admin: Admin, args: Args) -> AsyncIterator[Table]:
    brokers = await _brokers_of_group(admin, args.consumer_group, args.broker_addr)
    answers = await admin.ask_brokers(brokers, lambda broker: broker.consumers(args.consumer_group))
    clients, topics = {}, {}
    for _, online in answers:
        for item in online.connection_set:
            clients[item.client_id] = _connection(item)
        for name, data in online.subscription_table.items():
            topics[name] = (name, data.expression_type, data.sub_string)
    yield Table(CONNECTION, [clients[name] for name in sorted(clients)], "consumers")
    yield Table(("topic", "kind", "expression"), [topics[name] for name in sorted(topics)], "subscriptions")
    first = answers[0][1]
    yield facts(
        [("consumes", first.consume_type), ("model", first.message_model), ("from", first.consume_from_where)],
        "settings",
    )


@verb(
    "producerConnection",
    "The producers of a group.",
    Flag("g", "producerGroup", "Producer group.", required=True),
    TOPIC,
)
async def producer_connection(admin: Admin, args: Args) -> AsyncIterator[Table]:
    brokers = await admin.brokers_of(args.topic)
    clients = {}
    for _, online in await admin.ask_brokers(brokers, lambda broker: broker.producers(args.producer_group)):
        for item in online.connection_set:
            clients[item.client_id] = _connection(item)
    yield Table(CONNECTION, [clients[name] for name in sorted(clients)])


@verb("producer", "All producers of a broker.", Flag("b", "broker", "Address of the broker."), aliases=("producers",))
async def producer(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.overview import all_producers

    found = await all_producers(admin, [args.broker] if args.broker else ())
    table = Table(("broker", "group", *CONNECTION, "last heartbeat"))
    for item in found.some():
        client = (item.client, item.address, item.language, version_name(item.version).upper())
        table.rows.append((item.broker, item.group, *client, Ms(item.seen_ms)))
    yield table


@verb(
    "consumerStatus",
    "The state of the consumers of a group: settings, queues, rates; with -s their stacks.",
    GROUP,
    Flag("i", "clientId", "Only this client."),
    BROKER,
    Flag("s", "jstack", "Show the stacks of its threads.", switch=True),
    aliases=("consumer",),
)
async def consumer_status(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.protocol.bodies import parse_queue_key

    brokers = await _brokers_of_group(admin, args.consumer_group, args.broker_addr)
    seen: set[str] = set()
    queues = Table(
        ("client", "topic", "broker", "queue", "committed", "cached", "locked", "last pulled"), title="queues"
    )
    rates = Table(("client", "topic", "pulled/s", "consumed/s", "failed/s", "consume ms"), title="rates")
    settings = Table(("client", "name", "value"), title="settings")
    stacks = Table(("client", "stacks"), title="stacks")
    for broker, online in await admin.ask_brokers(brokers, lambda broker: broker.consumers(args.consumer_group)):
        for client in (item.client_id for item in online.connection_set):
            if client in seen or args.client_id not in (None, client):
                continue
            seen.add(client)
            info = await broker.running_info(args.consumer_group, client, stacks=args.jstack)
            settings.rows += [(client, name, value) for name, value in sorted(info.properties.items())]
            for key, item in info.mq_table.items():
                queue, pulled = parse_queue_key(key), Ms(item.last_pull_timestamp)
                place = (client, queue.topic, queue.broker_name, queue.queue_id)
                queues.rows.append((*place, item.commit_offset, item.cached_msg_count, item.locked, pulled))
            for topic, status in sorted(info.status_table.items()):
                speed = (status.pull_tps, status.consume_ok_tps, status.consume_failed_tps, status.consume_rt)
                rates.rows.append((client, topic, *speed))
            if info.jstack:
                stacks.rows.append((client, info.jstack))
    queues.rows.sort(key=lambda row: row[:4])
    for table in (settings, queues, rates, stacks):
        if table is not stacks or args.jstack:
            yield table
