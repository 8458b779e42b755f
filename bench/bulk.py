"""Measures how fast the bulk reader drains a queue of our broker and of Apache's.

    python bench/bulk.py                      our broker
    python bench/bulk.py --apache             Apache's with its limits (32 messages a reply), then with ours

Everything runs on this machine: wall time includes the broker's work, CPU time is the reader's alone.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rocketline.client import Producer
from rocketline.client.bulk.reader import BulkReader
from rocketline.message import Message
from rocketline.testing import LocalCluster

TOPIC = "bulk"
PER_BATCH = 32
IN_FLIGHT = 64
FILES = {"mappedFileSizeCommitLog": str(256 << 20), "mappedFileSizeConsumeQueue": "6000000"}
LARGE_REPLIES = {"maxTransferCountOnMessageInMemory": "4096", "maxTransferBytesOnMessageInMemory": str(4 << 20)}


async def fill(namesrv: str, count: int, body_bytes: int) -> None:
    body = bytes(body_bytes)
    async with Producer(namesrv, group="bulk_fill") as producer:
        queue = (await producer.send(Message(TOPIC, body))).queue
        for _ in range(0, count, PER_BATCH * IN_FLIGHT):
            batches = ([Message(TOPIC, body) for _ in range(PER_BATCH)] for _ in range(IN_FLIGHT))
            await asyncio.gather(*(producer.send_batch(batch, queue=queue) for batch in batches))


def drain(namesrv: str, batch: int) -> str:
    """Read everything once; returns a line with the result."""
    messages = replies = size = 0
    with BulkReader(namesrv, group="bulk_read", batch=batch) as reader:
        queues = reader.queues(TOPIC)
        started, cpu = time.perf_counter(), time.process_time()
        for queue in queues:
            for reply in reader.read(queue, *reader.bounds(queue)):
                messages += reply.next_offset - reply.first_offset
                replies += 1
                size += len(reply.records)
        wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    return (
        f"asking for {batch:5}: {messages} messages, {size / 1e6:.0f} MB in {replies} replies: "
        f"{messages / wall_s:,.0f}/s, {size / wall_s / 1e6:,.0f} MB/s; "
        f"{messages / cpu_s:,.0f} per second of the reader's CPU"
    )


@contextmanager
def cluster(apache: bool, large: bool) -> Iterator[str]:
    if not apache:
        with LocalCluster(config=FILES) as ours:
            yield ours.namesrv
        return
    from tests.support.apache import ApacheCluster

    with tempfile.TemporaryDirectory() as folder:
        theirs = ApacheCluster(Path(folder), broker_conf={**FILES, **(LARGE_REPLIES if large else {})}).start()
        try:
            yield theirs.namesrv
        finally:
            theirs.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apache", action="store_true")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--body", type=int, default=1024)
    chosen = parser.parse_args()
    for large in (False, True) if chosen.apache else (False,):
        print(f"{'Apache' if chosen.apache else 'rocketline'}{', large replies' if large else ''}", flush=True)
        # Our broker runs in this process; the reader gets one of its own.
        with cluster(chosen.apache, large) as namesrv, get_context("spawn").Pool(1) as pool:
            asyncio.run(fill(namesrv, chosen.messages, chosen.body))
            for batch in (32, 1024, 4096):
                best = max((pool.apply(drain, (namesrv, batch)) for _ in range(3)), key=_rate)
                print("  " + best, flush=True)


def _rate(line: str) -> float:
    return float(line.rpartition("/s, ")[0].rpartition(" ")[2].replace(",", ""))


if __name__ == "__main__":
    main()
