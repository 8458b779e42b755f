"""Measures how long `rocketline admin` verbs take as processes: the start alone, and on a large cluster.

    python bench/admin.py [--runs 10] [--topics 1000] [--groups 2000]

Wall time and processor time of the verb, and processor time of the servers, which run in this process; medians. Nothing
else should run meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import subprocess
import time

from rocketline.admin import Admin
from rocketline.cli.servers.child import cli_command, cli_environment
from rocketline.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from rocketline.testing import LocalCluster

QUEUES = 4
VERBS = (
    "decodeMessageId -i 7F0000010000277600000000000000FF",  # sends no request: the start alone
    "topicList",
    "topicList -c",
    "groupList",
    "consumerProgress",
    "whoConsumes -t topic0",
    "doctor --pause 0",
    "statsAll",
)


async def fill(cluster: LocalCluster, topics: int, groups: int) -> None:
    async with Admin(cluster.namesrv, timeout=60) as admin:
        (broker,) = await admin.brokers()
        await broker.put_topics([TopicConfig(f"topic{number}", QUEUES, QUEUES) for number in range(topics)])
        await broker.put_groups([SubscriptionGroupConfig(f"group{number}") for number in range(groups)])
    for number in range(groups):
        for queue_id in range(QUEUES):
            cluster.brokers[0].parts.offsets.commit("bench", f"group{number}", f"topic{number % topics}", queue_id, 0)


def children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def timed(words: str, namesrv: str, runs: int) -> str:
    """Times of one verb, run `runs` times after one warm-up run."""
    command = cli_command("admin", *words.split(), "-n", namesrv, "--timeout", "60")
    times = []
    for _ in range(runs + 1):
        wall, verb, servers = time.monotonic(), children_s(), time.process_time()
        subprocess.run(command, capture_output=True, check=True, env=cli_environment())
        times.append((time.monotonic() - wall, children_s() - verb, time.process_time() - servers))
    walls, verbs, servers_s = zip(*times[1:])
    spread = f"{min(walls):.2f}-{max(walls):.2f}"
    return f"{statistics.median(walls):.2f} ({spread}) | {statistics.median(verbs):.2f} | {statistics.median(servers_s):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=2000)
    options = parser.parse_args()
    with LocalCluster() as cluster:
        asyncio.run(fill(cluster, options.topics, options.groups))
        print("| verb | wall s | verb's CPU s | servers' CPU s |\n| --- | --- | --- | --- |")
        for words in VERBS:
            print(f"| {words.partition(' -i')[0]} | {timed(words, cluster.namesrv, options.runs)} |", flush=True)


if __name__ == "__main__":
    main()
