"""Measures what popping costs: `python bench/pop.py` (see bench/README.md).

Four clients of one group take a backlog in pops of 32 and acknowledge every message, with one request each or one for the
whole pop: on our broker, on Apache's, and with XREADGROUP and XACK on a redis stream. Sides take turns, run by run, and
only one runs at a time. Every run is a new group that reads the whole backlog; a message that is missing or comes
twice ends the benchmark.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine, wire
from bench.compare import OURS_COMMAND
from bench.generators import LoadFailed, RawLoad
from bench.redis_side import RedisSide
from bench.sides import ApacheSide, CommandSide, Side, SideFailed
from tests.support.java import JavaCompileError, JavaUnavailable

TOPIC = "bench-pop"
QUEUES = 8
PER_SEND = 32
BODY_BYTES = 128
SERVER_CORE, LOAD_CORE = 0, 1
MERGE = "enablePopBufferMerge"
WORKLOADS: dict[str, dict[str, bool]] = {"ack each": {}, "batch ack": {"batch": True}}


class PopRun(NamedTuple):
    rate: float
    cpu_us: float
    take_p50_us: float
    ack_p50_us: float


class PopBench:
    def __init__(self, args: argparse.Namespace, sides: list[Side]) -> None:
        self.args, self.sides = args, sides
        self.runs: dict[tuple[str, str], list[PopRun]] = defaultdict(list)
        self._loads = {"pop": RawLoad(LOAD_CORE, "pop"), "streams": RawLoad(LOAD_CORE, "streams")}
        self._groups = 0

    def measure(self, scratch: Path) -> None:
        for side in self.sides:
            self._prepare(side, scratch)
            side.freeze()
        for number in range(self.args.warm + self.args.rounds):
            for workload in WORKLOADS:
                for side in self.sides:
                    self._run(side, workload, counts=number >= self.args.warm)

    def _prepare(self, side: Side, scratch: Path) -> None:
        if isinstance(side, RedisSide):
            side.start_empty(scratch / side.label)
            side.fill(TOPIC, self.args.messages, b"x" * BODY_BYTES)
            return
        side.start(scratch / side.label)
        wire.create_topic(side.namesrv, side.broker, TOPIC, QUEUES)
        RawLoad(LOAD_CORE).run(
            side.broker, side.broker_name, 600, topic=TOPIC, queues=QUEUES, connections=QUEUES, batch=PER_SEND,
            body=BODY_BYTES, count=self.args.messages,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while (stored := wire.stored_messages(side.broker, TOPIC, QUEUES)) < self.args.messages:
            if time.monotonic() > deadline:
                raise LoadFailed(f"only {stored} of {self.args.messages} messages can be read from {side.label}")
            time.sleep(0.05)

    def _run(self, side: Side, workload: str, *, counts: bool) -> None:
        side.thaw()
        try:
            run = self._take_all(side, workload)
        finally:
            side.freeze()
        if counts:
            self.runs[side.label, workload].append(run)
        print(f"  {workload:<10} {side.label:<11} {run.rate:>9,.0f} msg/s  {run.cpu_us:6.1f} us CPU a message"
              f"{'' if counts else '  (warm-up)'}", flush=True)  # fmt: skip

    def _take_all(self, side: Side, workload: str) -> PopRun:
        self._groups += 1
        group = f"bench_pop_{self._groups}"
        count = self.args.messages
        options: dict[str, Any] = {"topic": TOPIC, "group": group, "count": count, **WORKLOADS[workload]}
        options |= {"clients": self.args.clients, "invisible": self.args.invisible * 1000, "limit": 300}
        if isinstance(side, RedisSide):
            side.new_group(TOPIC, group)
            load, options = self._loads["streams"], options | {"queues": 1}
        else:
            wire.await_route(side.namesrv, TOPIC)
            load, options = self._loads["pop"], options | {"queues": QUEUES}
        before = machine.cpu_seconds(side.pids())
        found = load.run(side.broker, side.broker_name, 300, **options)
        cpu = machine.cpu_seconds(side.pids()) - before
        return PopRun(found["rate"], cpu / count * 1e6, found["take_p50_us"], found["ack_p50_us"])

    def show(self) -> None:
        first = self.sides[0].label
        print("\n| | msg/s | broker CPU per message | pop p50 | its acks p50 | rate against ours, run by run |")
        print("| --- | --- | --- | --- | --- | --- |")
        for workload in WORKLOADS:
            ours = self.runs[first, workload]
            for side in self.sides:
                runs = self.runs[side.label, workload]
                rate, cpu, take, ack = map(statistics.median, zip(*runs))
                ratios = [mine.rate / other.rate for mine, other in zip(ours, runs)]
                against = f"ours is {statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})"
                print(
                    f"| {workload}, {side.label} | {rate:,.0f} | {cpu:.1f} us | {take / 1000:.1f} ms | "
                    f"{ack / 1000:.1f} ms | {'' if side.label == first else against} |"
                )


def sides_of(args: argparse.Namespace) -> list[Side]:
    settings = {MERGE: "true"} if args.merge else {}
    command = OURS_COMMAND + "".join(f" --set {key}={value}" for key, value in settings.items())
    sides: list[Side] = [CommandSide("rocketline", SERVER_CORE, command, 120.0)]
    if not args.no_apache:
        sides.append(ApacheSide("apache", SERVER_CORE, args.heap, quick=args.quick, settings=settings))
    redis = args.redis or shutil.which("redis-server")
    if redis and not args.no_redis:
        sides.append(RedisSide("redis", SERVER_CORE, redis))
    return sides


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, help="in the backlog (200000)")
    parser.add_argument("--rounds", type=int, help="measured runs of each workload on each side (3)")
    parser.add_argument("--warm", type=int, help="runs before those, for Apache's JVM (2)")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--invisible", type=int, default=60, metavar="S", help="seconds (60)")
    parser.add_argument("--merge", action="store_true", help=f"both brokers with {MERGE}=true")
    parser.add_argument("--heap", type=int, default=2048, metavar="MB", help="heap of Apache's broker (2048)")
    parser.add_argument("--redis", metavar="PROGRAM", help="redis-server, if it is not on PATH")
    parser.add_argument("--no-redis", action="store_true")
    parser.add_argument("--no-apache", action="store_true")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to check that it works")
    args = parser.parse_args()
    args.messages = (args.messages or (3_200 if args.quick else 200_000)) // PER_SEND * PER_SEND
    args.rounds = args.rounds or (1 if args.quick else 3)
    args.warm = args.warm if args.warm is not None else (0 if args.quick else 2)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped, frozen ones too
    sides = sides_of(args)
    with tempfile.TemporaryDirectory(prefix="rocketline-bench-") as scratch, ExitStack() as stops:
        for side in sides:
            stops.callback(side.stop)
        try:
            bench = PopBench(args, sides)
            bench.measure(Path(scratch))
        except (SideFailed, LoadFailed, wire.WireError, JavaUnavailable, JavaCompileError) as error:
            print(error, file=sys.stderr)
            return 1
        bench.show()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
