"""Print the messages of a topic as they come, until Ctrl-C.

    python examples/tail.py orders 127.0.0.1:9876

Each message is acknowledged when the loop asks for the next one. Ctrl-C ends the loop after its message. If the loop ends
with an error, the message it was working on is delivered again.
"""

from __future__ import annotations

import asyncio
import sys

from rocketline.client import PushConsumer


async def main(topic: str, namesrv: str) -> None:
    async with PushConsumer(namesrv, group="tail") as consumer:
        async for message in consumer.messages(topic):
            print(f"{message.queue} {message.queue_offset}: {message.body.decode(errors='replace')}")
    print("bye")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:9876"))
