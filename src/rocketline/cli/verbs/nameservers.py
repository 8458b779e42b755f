"""Verbs about name servers: their settings, keys and values, and the write permission of brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from rocketline.cli.tables import Table, sentence, settings
from rocketline.cli.verb import Args, Flag, verb

if TYPE_CHECKING:
    from rocketline.admin import Admin

NAMESPACE = Flag("s", "namespace", "Namespace.", required=True)
KEY = Flag("k", "key", "Key.", required=True)
VALUE = Flag("v", "value", "Value.", required=True)
BROKER_NAME = Flag("b", "brokerName", "Name of the broker.", required=True)


@verb("getNamesrvConfig", "The settings of every name server.", aliases=("namesrv-config",))
async def get_namesrv_config(admin: Admin, args: Args) -> AsyncIterator[Table]:
    for address, config in await admin.ask_name_servers(lambda server: server.config()):
        yield settings(sorted(config.items()), "settings", {"address": address})


@verb("updateNamesrvConfig", "Change a setting of every name server.", KEY, VALUE, aliases=("set-namesrv-config",))
async def update_namesrv_config(admin: Admin, args: Args) -> AsyncIterator[Table]:
    for address, _ in await admin.ask_name_servers(lambda server: server.update_config({args.key: args.value})):
        yield sentence(f"{address}: {args.key}={args.value}")


@verb("updateKvConfig", "Set a key of every name server.", NAMESPACE, KEY, VALUE, aliases=("set-kv",))
async def update_kv_config(admin: Admin, args: Args) -> AsyncIterator[Table]:
    await admin.ask_name_servers(lambda server: server.put_kv(args.namespace, args.key, args.value))
    yield sentence(f"{args.namespace}/{args.key}={args.value}")


@verb("deleteKvConfig", "Delete a key of every name server.", NAMESPACE, KEY, aliases=("delete-kv",))
async def delete_kv_config(admin: Admin, args: Args) -> AsyncIterator[Table]:
    await admin.ask_name_servers(lambda server: server.delete_kv(args.namespace, args.key))
    yield sentence(f"{args.namespace}/{args.key} is deleted")


@verb("getKvConfig", "The keys of a namespace, or one of them.", NAMESPACE, Flag("k", "key", "Key."), aliases=("kv",))
async def get_kv_config(admin: Admin, args: Args) -> AsyncIterator[Table]:
    if args.key:
        yield settings(
            [(args.key, await admin.ask_name_server(lambda server: server.get_kv(args.namespace, args.key)))]
        )
    else:
        yield settings(sorted((await admin.ask_name_server(lambda server: server.kv_list(args.namespace))).items()))


@verb("wipeWritePerm", "Forbid clients to write to a broker, before it is stopped.", BROKER_NAME, aliases=("drain",))
async def wipe_write_perm(admin: Admin, args: Args) -> AsyncIterator[Table]:
    await admin.master(args.broker_name)
    for address, count in await admin.ask_name_servers(lambda server: server.wipe_write_permission(args.broker_name)):
        yield sentence(f"{address}: {count} topics of {args.broker_name} are read-only now")


@verb("addWritePerm", "Allow clients to write to a broker again.", BROKER_NAME, aliases=("undrain",))
async def add_write_perm(admin: Admin, args: Args) -> AsyncIterator[Table]:
    await admin.master(args.broker_name)
    for address, count in await admin.ask_name_servers(lambda server: server.add_write_permission(args.broker_name)):
        yield sentence(f"{address}: {count} topics of {args.broker_name} are writable now")


@verb(
    "updateOrderConf",
    "Put, get or delete the order configuration of a topic.",
    Flag("t", "topic", "Topic.", required=True),
    Flag("v", "orderConf", "Queues of each broker: broker-a:4;broker-b:4"),
    Flag("m", "method", "put, get or delete.", required=True),
)
async def update_order_conf(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.cli.usage import UsageProblem

    namespace, topic = "ORDER_TOPIC_CONFIG", args.topic
    if args.method == "get":
        yield settings([(topic, await admin.ask_name_server(lambda server: server.get_kv(namespace, topic)))])
    elif args.method == "delete":
        await admin.ask_name_servers(lambda server: server.delete_kv(namespace, topic))
        yield sentence(f"the order configuration of {topic} is deleted")
    elif args.method == "put":
        if not args.order_conf:
            raise UsageProblem("put needs -v, such as broker-a:4;broker-b:4")
        await admin.ask_name_servers(lambda server: server.put_kv(namespace, topic, args.order_conf))
        yield sentence(f"the order configuration of {topic} is {args.order_conf}")
    else:
        raise UsageProblem(f"-m {args.method}: put, get or delete is expected")
