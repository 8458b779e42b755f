"""Workers that share a topic message by message: start as many as you like, stop any of them at any time.

    python examples/workers.py orders 127.0.0.1:9876

What a worker does not finish within 30 s of its death comes to another one.
"""

from __future__ import annotations

import asyncio
import sys

from rocketline.client import ConsumeFrom, PopConsumer
from rocketline.message import MessageView


async def work(message: MessageView) -> None:
    print(f"{message.message_id}, attempt {message.reconsume_times + 1}: {message.body.decode()}")
    if message.body == b"fail" and not message.reconsume_times:
        raise ValueError("not at the first attempt")


async def main(topic: str, namesrv: str, idle_s: float = 60.0) -> int:
    """Work until nothing came for a while; how much was done."""
    done = 0
    async with PopConsumer(namesrv, group="workers", from_where=ConsumeFrom.FIRST, invisible=30.0) as consumer:
        await consumer.subscribe(topic)
        while messages := await consumer.receive(8, wait=idle_s):
            for message in messages:
                try:
                    await work(message)
                except ValueError as error:
                    print(f"{message.message_id} later: {error}")
                    await consumer.nack(message, delay=5.0)
                else:
                    await consumer.ack(message)
                    done += 1
    return done


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:9876"))
