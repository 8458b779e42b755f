"""Measures what metrics cost a broker that receives messages: `python bench/metrics.py` (see bench/README.md).

Two of our brokers on one core, one with metrics and one without; raw frames come from the other core, in short runs
that take turns, with one broker frozen while the other is measured. The page is read every second, as Prometheus would
at its busiest. What counts is the broker's processor time per message, scrapes included, as medians over many runs:
neighbours of a virtual machine change a single run by a tenth and more. `--bar` fails the run when the ratio is above
it. `--quick` runs everything with tiny sizes, to check that it works.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine, wire
from bench.compare import OURS_COMMAND
from bench.generators import LoadFailed, RawLoad
from bench.sides import CommandSide, SideFailed
from bench.wire import WireError

SERVER_CORE, LOAD_CORE = 0, 1
TOPIC = "bench-metrics"
QUEUES = 8
BODY_BYTES = 128
LOADS = {
    "pipelined": {"connections": 8, "window": 32},
    "one at a time": {"connections": 64, "window": 1},
}
SCRAPE_EVERY_S = 1.0


class Cost(NamedTuple):
    cpu_us: float
    rate: float


class PageReader:
    """Reads the page of a broker every second, in a thread."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.took_s: list[float] = []
        self.size = 0

    def __enter__(self) -> PageReader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            began = time.perf_counter()
            self.size = len(scrape(self._address))
            self.took_s.append(time.perf_counter() - began)
            if self._stop.wait(SCRAPE_EVERY_S):
                return


def scrape(address: str) -> bytes:
    connection = HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        if answer.status != 200:
            raise LoadFailed(f"the page at {address} answered {answer.status}")
        return answer.read()
    finally:
        connection.close()


def page_of(directory: Path) -> str:
    """The address of the page, from the ready line of the broker."""
    said = (directory / "server.out").read_text()
    return said.partition(" metrics=")[2].split()[0]


def run(side: CommandSide, load: RawLoad, options: dict[str, int], seconds: float) -> Cost:
    before = machine.cpu_seconds(side.pids())
    result = load.run(
        side.broker, side.broker_name, seconds, topic=TOPIC, queues=QUEUES, body=BODY_BYTES, seconds=seconds,
        warmup=0.1, **options,
    )  # fmt: skip
    cpu_s = machine.cpu_seconds(side.pids()) - before
    if result["errors"]:
        raise LoadFailed(f"{result['errors']} sends failed: {result['first_error']}")
    return Cost(cpu_s / result["acked"] * 1e6, result["rate"])


class BrokerPair(NamedTuple):
    """The two brokers, and the address of the second one's page."""

    off: CommandSide
    on: CommandSide
    page: str

    def run(self, load: RawLoad, options: dict[str, int], seconds: float, turn: int) -> tuple[Cost, Cost, list[float]]:
        """(without, with, how long scrapes took); every other time the one with metrics is first."""
        if turn % 2:
            measured, took_s = self._run_on(load, options, seconds)
            return self._run_off(load, options, seconds), measured, took_s
        plain = self._run_off(load, options, seconds)
        return plain, *self._run_on(load, options, seconds)

    def _run_off(self, load: RawLoad, options: dict[str, int], seconds: float) -> Cost:
        self.on.freeze()
        try:
            return run(self.off, load, options, seconds)
        finally:
            self.on.thaw()

    def _run_on(self, load: RawLoad, options: dict[str, int], seconds: float) -> tuple[Cost, list[float]]:
        self.off.freeze()
        try:
            with PageReader(self.page) as reader:
                return run(self.on, load, options, seconds), reader.took_s
        finally:
            self.off.thaw()


def measure(brokers: BrokerPair, pairs: int, seconds: float) -> float:
    """Print a line for each load; returns the worst ratio."""
    load, worst = RawLoad(LOAD_CORE), 0.0
    for name, options in LOADS.items():
        # The first pair warms up.
        found = [brokers.run(load, options, seconds, turn) for turn in range(pairs + 1)][1:]
        plain = statistics.median(cost.cpu_us for cost, _, _ in found)
        measured = statistics.median(cost.cpu_us for _, cost, _ in found)
        ratios = sorted(with_metrics.cpu_us / without.cpu_us for without, with_metrics, _ in found)
        scrapes = statistics.median(took for _, _, took_s in found for took in took_s)
        print(
            f"{name:<14} broker CPU per message {plain:.2f} us without, {measured:.2f} us with metrics: "
            f"{measured / plain:.3f} (half of {len(found)} pairs: {ratios[len(found) // 4]:.3f}-"
            f"{ratios[len(found) * 3 // 4]:.3f}); rate "
            f"{statistics.median(b.rate for _, b, _ in found) / statistics.median(a.rate for a, _, _ in found):.3f}; "
            f"a scrape took {scrapes * 1000:.1f} ms",
            flush=True,
        )
        worst = max(worst, measured / plain)
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, help="runs of each broker and load (40)")
    parser.add_argument("--seconds", type=float, help="length of a run (0.8)")
    parser.add_argument("--bar", type=float, default=1.03, help="highest ratio of processor time that passes (1.03)")
    parser.add_argument("--quick", action="store_true", help="tiny, and no bar")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped, frozen ones too
    pairs, seconds = args.pairs or (1 if args.quick else 40), args.seconds or (0.3 if args.quick else 0.8)
    with tempfile.TemporaryDirectory(prefix="rocketline-bench-") as scratch:
        off = CommandSide("without", SERVER_CORE, OURS_COMMAND)
        on = CommandSide("with", SERVER_CORE, OURS_COMMAND + " --metrics-port 0")
        try:
            for side in (off, on):
                side.start(Path(scratch) / side.label)
                wire.create_topic(side.namesrv, side.broker, TOPIC, QUEUES)
                wire.await_route(side.namesrv, TOPIC)
            worst = measure(BrokerPair(off, on, page_of(Path(scratch) / on.label)), pairs, seconds)
        except (SideFailed, LoadFailed, WireError) as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            for side in (off, on):
                side.stop()
    return int(worst > args.bar and not args.quick)


if __name__ == "__main__":
    raise SystemExit(main())
