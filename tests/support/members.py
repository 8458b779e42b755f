"""Members of a group in processes of their own, ours and Java's, to be killed in the middle of their work.

Each tells of every message before it counts as consumed, so what a member that was killed has told is never less than what
it committed. Ours writes lines of JSON: python -m tests.support.members NAME_SERVER GROUP TOPIC ordered|concurrent
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rocketline.client import ClientOptions, ClientTiming, ConsumeFrom, PushConsumer
from rocketline.message import MessageView

from .java_client import JavaClient

LOCK_EXPIRY_MS = 9000
"""How long a broker should keep locks for these members: longer than they rely on them, as in the defaults."""
TIMING = ClientTiming(heartbeat_s=2.0, rebalance_s=1.0, lock_s=1.5, lock_valid_s=4.5)
JVM_OPTIONS = ("-Drocketmq.client.rebalance.lockInterval=1500", "-Drocketmq.client.rebalance.lockMaxLiveTime=4500")


@dataclass(frozen=True, slots=True, order=True)
class Delivery:
    at_ms: int
    queue_id: int
    queue_offset: int
    body: bytes

    @classmethod
    def of(cls, line: str) -> Self:
        at_ms, queue_id, queue_offset, body = json.loads(line)
        return cls(at_ms, queue_id, queue_offset, bytes.fromhex(body))


class OurMember:
    """A push consumer of ours; a context manager."""

    def __init__(self, namesrv: str, group: str, topic: str, *, ordered: bool) -> None:
        kind = "ordered" if ordered else "concurrent"
        command = [sys.executable, "-m", "tests.support.members", namesrv, group, topic, kind]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._told: list[Delivery] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):
                self._told.append(Delivery.of(line.decode()))

    def deliveries(self) -> list[Delivery]:
        return list(self._told)

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


class JavaMember:
    """A push consumer of Apache's client, alone in its JVM; a context manager."""

    def __init__(self, version: str, namesrv: str, group: str, topic: str, journal: Path, *, ordered: bool) -> None:
        self._journal = journal
        journal.touch()
        self._client = JavaClient(version, jvm_options=JVM_OPTIONS)
        try:
            self._client.push_consumer(namesrv, group, {topic: "*"}, orderly=ordered, journal=str(journal))
        except BaseException:
            self._client.close()
            raise

    def deliveries(self) -> list[Delivery]:
        lines = self._journal.read_text().split("\n")[:-1]  # without one that is being written
        return [Delivery.of(line) for line in lines]

    def kill(self) -> None:
        os.kill(self._client.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._client.close()


def tell(message: MessageView) -> None:
    now_ms = time.time_ns() // 1_000_000
    line = json.dumps([now_ms, message.queue_id, message.queue_offset, message.body.hex()])
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def main(namesrv: str, group: str, topic: str, kind: str) -> None:
    first = ConsumeFrom.FIRST
    async with PushConsumer(
        namesrv, group=group, ordered=kind == "ordered", from_where=first, options=ClientOptions(timing=TIMING)
    ) as consumer:
        consumer.subscribe(topic, "*", tell, in_thread=False)
        await consumer.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
