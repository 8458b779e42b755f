"""Send a few orders and consume them again.

rocketline up &
python examples/orders.py 127.0.0.1:9876
"""

from __future__ import annotations

import asyncio
import sys

from rocketline.client import ConsumeFrom, Producer, PushConsumer, RetryLater
from rocketline.message import Message, MessageView

ORDERS = [("1001", "created"), ("1001", "paid"), ("1002", "created"), ("1002", "cancelled"), ("1001", "shipped")]


async def main(namesrv: str) -> list[str]:
    async with Producer(namesrv, group="shop") as producer:
        for number, state in ORDERS:
            receipt = await producer.send(
                Message("orders", f"order {number} {state}".encode(), tag=state, keys=[number])
            )
            print(f"sent {number} {state}: {receipt.queue} offset {receipt.queue_offset}")

    billed: list[str] = []
    done = asyncio.Event()

    async def bill(message: MessageView) -> None:
        if not message.keys:
            raise RetryLater("no order number yet")  # it comes again in 10 s
        billed.append(f"{message.keys[0]} {message.tag}")
        print(f"billing has seen {billed[-1]}")
        if len(billed) == 3:
            done.set()

    async with PushConsumer(namesrv, group="billing", from_where=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("orders", "created || paid", bill)
        running = asyncio.create_task(consumer.run())
        await done.wait()
        consumer.stop()
        await running
    return billed


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
