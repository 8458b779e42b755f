"""A consumer that keeps order in a process of its own, to be killed: one line of JSON for each message it gets.

python -m tests.support.ordered_member NAME_SERVER GROUP TOPIC
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Self

from rocketline.client import ConsumeFrom, PushConsumer
from rocketline.message import MessageView


@dataclass(frozen=True, slots=True, order=True)
class Delivery:
    at_ms: int
    queue_id: int
    queue_offset: int


class OrderedMember:
    """The process as its parent sees it; a context manager. What it wrote before it was killed is not lost."""

    def __init__(self, namesrv: str, group: str, topic: str) -> None:
        command = [sys.executable, "-m", "tests.support.ordered_member", namesrv, group, topic]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.deliveries: list[Delivery] = []

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.deliveries.append(Delivery(*json.loads(line)))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()


def tell(message: MessageView) -> None:
    line = json.dumps([time.time_ns() // 1_000_000, message.queue_id, message.queue_offset])
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def main(namesrv: str, group: str, topic: str) -> None:
    async with PushConsumer(namesrv, group=group, ordered=True, from_where=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe(topic, "*", tell, in_thread=False)
        await consumer.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
