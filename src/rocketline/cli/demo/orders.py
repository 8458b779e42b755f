"""The Spark part of the demonstration: orders are sent, and made into tables.

`rocketline pipeline medallion` runs in a process of its own. Without Java or the extra `spark` this part is left out with a
message: the rest of the demonstration needs neither.
"""

from __future__ import annotations

import asyncio
import os
import sys
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from rocketline.errors import ConfigError

if TYPE_CHECKING:
    from rocketline.cli.demo.screen import Screen
    from rocketline.cli.servers.child import ChildCluster

TOPIC = "shop_orders"
TOTALS_TOPIC = "shop_totals"
IN_FLIGHT = 32
LIMIT_S = 600.0


async def orders_to_tables(
    cluster: ChildCluster, screen: Screen, orders: int
) -> tuple[list[tuple[str, str]], list[str]]:
    """(rows for the summary, problems)."""
    from rocketline.spark.sessions import check_java, check_libraries

    try:
        check_libraries()
        check_java()
    except ConfigError as error:
        screen.say(f"no tables: {error}")
        return [("orders made into tables", "left out, see above")], []
    sent = await _send(cluster.namesrv, orders)
    folder = mkdtemp(prefix="rocketline-tables-")
    screen.say(f"{sent:,} orders were sent; Spark makes them into tables in {folder}")
    code, lines = await _medallion(cluster.namesrv, folder, screen)
    for line in lines:
        screen.say(line)
    if code:
        return [], [f"the pipeline ended with exit code {code}"]
    return [("orders made into tables", f"{sent:,}"), ("the tables are in", folder)], []


async def _send(namesrv: str, orders: int) -> int:
    from rocketline.client import Producer
    from rocketline.message import Message
    from rocketline.pipelines.orders import order_messages

    messages = order_messages(orders)
    sent = 0

    async def send_some(producer: Producer) -> None:
        nonlocal sent
        for order in messages:
            await producer.send(Message(TOPIC, order.body, keys=[order.order_id]))
            sent += 1

    async with Producer(namesrv, group="shop") as producer:
        await asyncio.gather(*(send_some(producer) for _ in range(IN_FLIGHT)))
    return sent


async def _medallion(namesrv: str, folder: str, screen: Screen) -> tuple[int, list[str]]:
    """(exit code, lines of the result table); progress is shown while it runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rocketline.cli", "pipeline", "medallion", folder, "--namesrv", namesrv, "--topic", TOPIC,
        "--to-topic", TOTALS_TOPIC, "--master", "local[2]",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(LIMIT_S):
            output, _ = await asyncio.gather(process.stdout.read(), _tell(process.stderr, screen))
            return await process.wait(), output.decode(errors="replace").splitlines()
    except TimeoutError:
        return 1, [f"Spark was not done after {LIMIT_S:g} s"]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _tell(stderr: asyncio.StreamReader, screen: Screen) -> None:
    async for raw in stderr:
        line = raw.decode(errors="replace").rstrip()
        # Without Spark's own start-up messages.
        if line and "WARN" not in line and "log4j" not in line and "setLogLevel" not in line:
            screen.say(f"  {line}")
