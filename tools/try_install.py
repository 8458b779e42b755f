"""Try an installed rocketline, with the core alone: `try_install.py compiled`, or `try_install.py pure`.

A cluster, a producer and a consumer, asyncio and blocking. `--clients` only opens a client, for systems without servers.
"""

from __future__ import annotations

import asyncio
import sys

import rocketline
from rocketline import Message, Producer, PushConsumer
from rocketline.cli.entry import main as command
from rocketline.client import blocking

WAIT_S = 60.0


async def send_and_receive(namesrv: str) -> None:
    async with Producer(namesrv, group="try-sends") as producer:
        print(await producer.send(Message("try", b"hello")))
    async with asyncio.timeout(WAIT_S), PushConsumer(namesrv, group="try-reads") as consumer:
        async for message in consumer.messages("try"):
            print("received", message.body)
            return


def try_cluster() -> None:
    from rocketline.testing import LocalCluster

    with LocalCluster() as cluster:
        asyncio.run(send_and_receive(cluster.namesrv))
        with blocking.Producer(cluster.namesrv, group="try-blocking") as producer:
            print(producer.send(Message("try", b"again")))


def try_clients() -> None:
    with blocking.Producer("127.0.0.1:9876", group="try-clients"):
        print("a producer opened")


def main(arguments: list[str]) -> int:
    kind = {"c": "compiled", "python": "pure"}[rocketline.__impl__]
    if kind not in arguments:
        raise SystemExit(f"this install is {kind}, expected: {' '.join(arguments)}")
    try_clients() if "--clients" in arguments else try_cluster()
    return command(["version"])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
