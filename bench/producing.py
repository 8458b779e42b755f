"""What producing costs: `python bench/producing.py [CASE ...]` (see bench/README.md).

    1 64 256              so many sends in flight, each message a request of its own
    batched-64 batched-256 batched-4096   the same, gathered into batches by the producer (10 ms, 32 KiB)
    blocking-32           32 threads on the blocking face

Our producer in a process of its own against our broker in another, each on its core; bodies of 128 B, 8 queues, one
broker. Every message is awaited and its receipt looked at; the broker is asked at the end how many it has. `--quick` does
everything in miniature: does it work? Exit code 1 when something failed or messages are missing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine, wire
from bench.compare import OURS_COMMAND
from bench.sides import CommandSide, Side, SideFailed
from bench.wire import WireError

from rocketline import Message, Producer
from rocketline.client import SendStatus, blocking

CASES = ("1", "64", "256", "batched-64", "batched-256", "batched-4096", "blocking-32")
SERVER_CORE, LOAD_CORE = 0, 1
QUEUES = 8
BODY = b"x" * 128
WARM_UP_S = 0.5


class Produced(NamedTuple):
    """One run: messages per second, their latency, and what producer and broker worked for each."""

    case: str
    sent: int
    rate: float
    p50_ms: float
    p99_ms: float
    producer_cpu_us: float
    broker_cpu_us: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.case:<13} {self.rate:>9,.0f} msg/s   p50 {self.p50_ms:7.2f} ms, p99 {self.p99_ms:7.2f} ms   "
            f"CPU per message: producer {self.producer_cpu_us:5.1f} us, broker {self.broker_cpu_us:5.1f} us"
        )


class Stopwatch:
    """Latencies of what was sent after the warm-up."""

    def __init__(self, seconds: float) -> None:
        self.start = time.perf_counter() + min(WARM_UP_S, seconds)
        self.end = self.start + seconds
        self.sent = 0
        self._latencies: list[float] = []
        self._cpu_at_start = 0.0

    def note(self, began: float) -> bool:
        """A send that began then is over; whether another may begin."""
        now = time.perf_counter()
        self.sent += 1
        if began >= self.start:
            if not self._latencies:
                self._cpu_at_start = time.process_time()
            self._latencies.append(now - began)
        return now < self.end

    def figures(self, case: str) -> Produced:
        took, cpu_s = time.perf_counter() - self.start, time.process_time() - self._cpu_at_start
        found = sorted(self._latencies) or [0.0]
        count = len(found)
        p50, p99 = found[count // 2] * 1000, found[count * 99 // 100] * 1000
        return Produced(case, self.sent, count / took, p50, p99, cpu_s / count * 1e6)


async def _in_flight(send: Callable[[], Awaitable[object]], count: int, watch: Stopwatch) -> None:
    async def work() -> None:
        more = True
        while more:
            began = time.perf_counter()
            await send()
            more = watch.note(began)

    await asyncio.gather(*(work() for _ in range(count)))


def _async_case(case: str, namesrv: str, topic: str, seconds: float) -> Produced:
    kind, _, number = case.rpartition("-")

    async def run() -> Produced:
        async with Producer(namesrv, group="bench", autobatch=kind == "batched", timeout=30.0) as producer:

            async def send() -> None:
                receipt = await producer.send(Message(topic, BODY))
                assert receipt.status is SendStatus.OK

            await send()
            watch = Stopwatch(seconds)
            watch.sent = 1
            await _in_flight(send, int(number), watch)
            return watch.figures(case)

    return asyncio.run(run())


def _blocking_case(case: str, namesrv: str, topic: str, seconds: float) -> Produced:
    with blocking.Producer(namesrv, group="bench", timeout=30.0) as producer:
        watch, lock = Stopwatch(seconds), threading.Lock()

        def work() -> None:
            more = True
            while more:
                began = time.perf_counter()
                assert producer.send(Message(topic, BODY)).status is SendStatus.OK
                with lock:
                    more = watch.note(began)

        threads = [threading.Thread(target=work) for _ in range(int(case.rpartition("-")[2]))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return watch.figures(case)


def _run(case: str, namesrv: str, topic: str, seconds: float, core: int) -> Produced:
    os.sched_setaffinity(0, {core})
    return (_blocking_case if case.startswith("blocking") else _async_case)(case, namesrv, topic, seconds)


def produce(side: Side, case: str, run: int, seconds: float) -> Produced:
    """One run into a topic of its own; SideFailed when the broker has not what was acknowledged."""
    topic = f"bench-{case}-{run}"
    wire.create_topic(side.namesrv, side.broker, topic, QUEUES)
    wire.await_route(side.namesrv, topic)
    before = machine.cpu_seconds(side.pids())
    with get_context("spawn").Pool(1) as pool:
        found = pool.apply(_run, (case, side.namesrv, topic, seconds, LOAD_CORE % (os.cpu_count() or 1)))
    broker_s = machine.cpu_seconds(side.pids()) - before
    stored = wire.stored_messages(side.broker, topic, QUEUES)
    if stored < found.sent:
        raise SideFailed(f"{case}: {found.sent} messages were acknowledged, the broker has {stored}")
    return found._replace(broker_cpu_us=broker_s / found.sent * 1e6)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"any of {', '.join(CASES)}; all when none is named")
    parser.add_argument("--quick", action="store_true", help="tiny: does it work?")
    parser.add_argument("--seconds", type=float, help="length of a run (5)")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each case (1)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker")
    args = parser.parse_args()
    if unknown := set(args.cases) - set(CASES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    seconds = args.seconds or (0.3 if args.quick else 5.0)
    with tempfile.TemporaryDirectory(prefix="rocketline-bench-") as scratch:
        side = CommandSide("rocketline", SERVER_CORE, OURS_COMMAND + "".join(f" --set {item}" for item in args.set))
        try:
            side.start(Path(scratch) / "broker")
            for run in range(args.rounds):
                for case in args.cases or CASES:
                    print(produce(side, case, run, seconds), flush=True)
        except (SideFailed, WireError) as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            side.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
