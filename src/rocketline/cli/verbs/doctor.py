"""Verbs that look for problems of a cluster, and that export it to files."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketline.cli.tables import Table, sentence
from rocketline.cli.verb import Args, Flag, verb
from rocketline.cli.verbs.common import BROKER, CLUSTER, all_or_chosen

if TYPE_CHECKING:
    from rocketline.admin import Admin

EXPORT_FOLDER = "rocketmq-export"


@verb(
    "doctor",
    "Look for problems and give advice; exit code 1 if there is one.",
    Flag("", "pause", "Seconds between two readings of the lag; default 2.", kind=float, default=2.0),
    is_check=True,
)
async def doctor(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.doctor import examine

    table = Table(("level", "where", "problem", "advice"))
    async for finding in examine(admin, args.pause):
        table.rows.append((finding.level, finding.where, finding.problem, finding.advice))
    count = len(table.rows)
    table.about = f"{count or 'no'} problem{'s' if count > 1 else ''} found"
    yield table


FILE_PATH = Flag("f", "filePath", f"Folder to write to; default {EXPORT_FOLDER}.", default=EXPORT_FOLDER)


def _write(folder: str, name: str, content: Any) -> Table:
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    return sentence(f"written: {path}")


@verb(
    "exportMetadata",
    "Write topics and groups to a file.",
    CLUSTER,
    BROKER,
    FILE_PATH,
    Flag("t", "topic", "Only topics.", switch=True),
    Flag("g", "subscriptionGroup", "Only groups.", switch=True),
    Flag("s", "specialTopic", "Retry and dead-letter topics too.", switch=True),
)
async def export_metadata(admin: Admin, args: Args) -> AsyncIterator[Table]:
    import msgspec

    content: dict[str, Any] = {}
    for broker in await all_or_chosen(admin, args):
        if args.topic or not args.subscription_group:
            topics = content.setdefault("topicConfigTable", {})
            for name, topic in (await broker.topics()).items():
                if args.special_topic or not name.startswith(("%RETRY%", "%DLQ%")):
                    topics.setdefault(name, msgspec.to_builtins(topic))
        if args.subscription_group or not args.topic:
            groups = content.setdefault("subscriptionGroupTable", {})
            for name, group in (await broker.groups()).items():
                groups.setdefault(name, msgspec.to_builtins(group))
    yield _write(args.file_path, "metadata.json", content)


@verb(
    "exportConfigs",
    "Write the settings of all brokers of a cluster to a file.",
    Flag("c", "clusterName", "Cluster.", required=True),
    FILE_PATH,
)
async def export_configs(admin: Admin, args: Args) -> AsyncIterator[Table]:
    brokers = await admin.brokers(args.cluster_name, slaves=True)
    configs = {broker.name: await broker.config() for broker in brokers}
    addresses = [server.address for server in admin.name_servers]
    scale = {"namesrvSize": len(addresses), "masterBrokerSize": len(await admin.brokers(args.cluster_name))}
    yield _write(
        args.file_path, "configs.json", {"brokerConfigs": configs, "clusterScale": scale, "namesrvs": addresses}
    )


@verb(
    "exportMetrics",
    "Write the load of all brokers of a cluster to a file.",
    Flag("c", "clusterName", "Cluster.", required=True),
    FILE_PATH,
)
async def export_metrics(admin: Admin, args: Args) -> AsyncIterator[Table]:
    brokers = await admin.brokers(args.cluster_name)
    infos = {broker.name: await broker.runtime_info() for broker in brokers}
    counts = {
        broker.name: {"topicSize": len(await broker.topics()), "groupSize": len(await broker.groups())}
        for broker in brokers
    }
    yield _write(args.file_path, "metrics.json", {"runtime": infos, "sizes": counts})
