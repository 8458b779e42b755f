"""Measures what producing costs: `python bench/producing.py [CASE ...]` (see bench/README.md).

    1 64 256              this many sends in flight, one message per request
    batched-64 batched-256 batched-4096   the same, gathered into batches by the producer (2 ms, 32 KiB)
    blocking-1 blocking-32   this many threads with the blocking producer

Our producer in a process of its own against our broker in another, each on its core; bodies of 128 B, 8 queues, one
broker. Every message is awaited and its receipt checked; at the end the broker is asked how many it has. `--quick` runs
everything with tiny sizes, to check that it works. Exit code 1 when something failed or messages are missing.

Clients that use asyncio, rivals' too, run on uvloop, which comes with rocketline; `--loop asyncio` takes Python's own.
`--against official nats redis` measures other Python producers with their servers in turns with ours (`bench/rivals.py`),
and shows the ratio inside each pair.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine, wire
from bench.compare import OURS_COMMAND
from bench.rivals import RIVALS, Official, Rival
from bench.sides import CommandSide, Side, SideFailed
from bench.stopwatch import LOOPS, Produced, Stopwatch, in_flight, run_on
from bench.wire import WireError

from rocketline import Message, Producer
from rocketline.client import AutoBatch, SendStatus, blocking

CASES = ("1", "64", "256", "batched-64", "batched-256", "batched-4096", "blocking-1", "blocking-32")
COMPARED = ("1", "64", "256", "batched-64", "batched-256", "blocking-1")
SERVER_CORE, LOAD_CORE = 0, 1
QUEUES = 8
BODY = b"x" * 128
LINGER_S = 0.002
"""With RocketMQ's 10 ms only the waiting would be measured: 64 in flight could not exceed 6,400 messages per second."""


def _async_case(case: str, namesrv: str, topic: str, seconds: float, loop: str) -> Produced:
    kind, _, number = case.rpartition("-")

    async def run() -> Produced:
        autobatch = AutoBatch(linger_s=LINGER_S) if kind == "batched" else False
        async with Producer(namesrv, group="bench", timeout=30.0, autobatch=autobatch) as producer:

            async def send() -> None:
                receipt = await producer.send(Message(topic, BODY))
                assert receipt.status is SendStatus.OK

            await send()
            watch = Stopwatch(seconds)
            watch.sent = 1
            await in_flight(send, int(number), watch)
            return watch.figures(case)

    return run_on(loop, run())


def _blocking_case(case: str, namesrv: str, topic: str, seconds: float, loop: str) -> Produced:
    with blocking.Producer(namesrv, group="bench", timeout=30.0) as producer:
        assert producer.send(Message(topic, BODY)).status is SendStatus.OK
        watch, lock = Stopwatch(seconds), threading.Lock()
        watch.sent = 1

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


def _run(case: str, namesrv: str, topic: str, seconds: float, core: int, loop: str) -> Produced:
    os.sched_setaffinity(0, {core})
    return (_blocking_case if case.startswith("blocking") else _async_case)(case, namesrv, topic, seconds, loop)


def produce(side: Side, case: str, run: str, seconds: float, loop: str) -> Produced:
    """One run into a topic of its own; SideFailed when the broker has fewer messages than were acknowledged."""
    topic = f"bench-{case}-{run}"
    wire.create_topic(side.namesrv, side.broker, topic, QUEUES)
    wire.await_route(side.namesrv, topic)
    before = machine.cpu_seconds(side.pids())
    with get_context("spawn").Pool(1) as pool:
        found = pool.apply(_run, (case, side.namesrv, topic, seconds, LOAD_CORE % (os.cpu_count() or 1), loop))
    broker_s = machine.cpu_seconds(side.pids()) - before
    stored = wire.stored_messages(side.broker, topic, QUEUES)
    if stored < found.sent:
        raise SideFailed(f"{case}: {found.sent} messages were acknowledged, the broker has {stored}")
    return found._replace(broker_cpu_us=broker_s / found.sent * 1e6)


def compare(
    side: Side, rival: Rival, cases: tuple[str, ...], pairs: int, seconds: float, warm_up_s: float, loop: str
) -> None:
    """Run ours and theirs in turns, only one at a time; ratios are taken inside a pair."""
    warm_up_s = min(warm_up_s, rival.warm_up_s)
    if warm_up_s:
        rival.produce(cases[-1], "warm", warm_up_s)
    ratios: dict[str, list[float]] = {case: [] for case in cases}
    for pair in range(pairs):
        for case in cases:
            rival.signal(signal.SIGSTOP)
            ours = produce(side, case, f"{rival.label}-{pair}", seconds, loop)
            rival.signal(signal.SIGCONT)
            side.freeze()
            theirs = rival.produce(case, str(pair), seconds)
            side.thaw()
            ratios[case].append(ours.rate / theirs.rate)
            print(f"{side.label:<10} {ours}\n{rival.label:<10} {theirs}", flush=True)
    for case, found in ratios.items():
        low, high = min(found), max(found)
        print(f"{case:<13} ours / {rival.label}: {statistics.median(found):6.2f} ({low:.2f} to {high:.2f})", flush=True)


def _rival(name: str, quick: bool, loop: str) -> Rival:
    core = LOAD_CORE % (os.cpu_count() or 1)
    kind = RIVALS[name]
    return kind(SERVER_CORE, core, quick=quick) if issubclass(kind, Official) else kind(SERVER_CORE, core, loop)


def _measure(side: Side, args: argparse.Namespace, seconds: float, scratch: Path) -> None:
    for run in range(0 if args.against else args.rounds):
        for case in args.cases or CASES:
            print(produce(side, case, str(run), seconds, args.loop), flush=True)
    for name in args.against:
        rival = _rival(name, args.quick, args.loop)
        try:
            rival.start(scratch / name)
            warm_up_s = 1.0 if args.quick else 60.0
            compare(side, rival, tuple(args.cases) or COMPARED, args.rounds, seconds, warm_up_s, args.loop)
        finally:
            rival.stop()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"any of {', '.join(CASES)}; all when none is named")
    parser.add_argument("--against", nargs="+", default=[], choices=sorted(RIVALS), help="measure these in turns too")
    parser.add_argument("--loop", default="uvloop", choices=LOOPS, help="what asyncio runs on (uvloop)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to check that it works")
    parser.add_argument("--seconds", type=float, help="length of a run (5)")
    parser.add_argument("--rounds", type=int, default=1, help="runs, or pairs of runs, of each case (1)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker")
    args = parser.parse_args()
    if unknown := set(args.cases) - set(CASES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    return args


def main() -> int:
    args = _options()
    seconds = args.seconds or (0.3 if args.quick else 5.0)
    with tempfile.TemporaryDirectory(prefix="rocketline-bench-") as scratch:
        side = CommandSide("rocketline", SERVER_CORE, OURS_COMMAND + "".join(f" --set {item}" for item in args.set))
        try:
            side.start(Path(scratch) / "broker")
            _measure(side, args, seconds, Path(scratch))
        except (SideFailed, WireError) as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            side.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
