"""Measures what TLS costs a broker that receives messages: `python bench/tls.py` (see bench/README.md).

One of our brokers on one core takes plain and TLS connections on one port; raw frames come from the other core, plain and
through TLS in short runs that take turns. What counts is the broker's processor time per message, as medians over many runs.
Connections are opened before the time is taken, but processor time is that of the whole run: runs are long enough for
handshakes not to matter. `--apache` measures Apache's broker instead, with the certificate it makes for itself. `--bar`
fails the run when a ratio is above it. `--quick` runs everything with tiny sizes.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine, wire
from bench.compare import OURS_COMMAND
from bench.generators import LoadFailed, RawLoad
from bench.sides import ApacheSide, CommandSide, Side, SideFailed
from bench.wire import WireError

SERVER_CORE, LOAD_CORE = 0, 1
TOPIC = "bench-tls"
QUEUES = 8
LOADS = {
    "raw-64": {"connections": 64, "window": 1, "body": 128},
    "raw-64-1k": {"connections": 64, "window": 1, "body": 1024},
    "pipelined": {"connections": 8, "window": 32, "body": 128},
}


class Cost(NamedTuple):
    cpu_us: float
    rate: float


def run(side: Side, load: RawLoad, options: dict[str, int], seconds: float) -> Cost:
    before = machine.cpu_seconds(side.pids())
    result = load.run(
        side.broker, side.broker_name, seconds, topic=TOPIC, queues=QUEUES, seconds=seconds, warmup=0.1, **options
    )
    cpu_s = machine.cpu_seconds(side.pids()) - before
    if result["errors"]:
        raise LoadFailed(f"{result['errors']} sends failed: {result['first_error']}")
    return Cost(cpu_s / result["acked"] * 1e6, result["rate"])


def measure(side: Side, pairs: int, seconds: float) -> dict[str, dict[str, float]]:
    """Print a line for each load; returns the figures."""
    plain_load, tls_load, kept = RawLoad(LOAD_CORE), RawLoad(LOAD_CORE, "tls_load"), {}
    for name, options in LOADS.items():
        found = []
        for turn in range(pairs + 1):
            order = (plain_load, tls_load) if turn % 2 else (tls_load, plain_load)
            costs = {load: run(side, load, options, seconds) for load in order}
            found.append((costs[plain_load], costs[tls_load]))
        found = found[1:]  # the first pair warms up
        ratios = sorted(encrypted.cpu_us / plain.cpu_us for plain, encrypted in found)
        ratio = statistics.median(ratios)
        plain_us, tls_us = (statistics.median(pair[which].cpu_us for pair in found) for which in (0, 1))
        rates = [statistics.median(pair[which].rate for pair in found) for which in (0, 1)]
        print(
            f"{name:<10} broker CPU per message {plain_us:.2f} us plain, {tls_us:.2f} us through TLS: {ratio:.2f} "
            f"({ratios[0]:.2f}-{ratios[-1]:.2f}, {len(found)} pairs); {rates[0]:,.0f} and {rates[1]:,.0f} msg/s",
            flush=True,
        )
        kept[name] = {"plain_us": plain_us, "tls_us": tls_us, "ratio": ratio, "low": ratios[0], "high": ratios[-1]}
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, help="runs of each load, plain and through TLS (5)")
    parser.add_argument("--seconds", type=float, help="length of a run (6)")
    parser.add_argument("--bar", type=float, default=1.8, help="highest ratio of processor time that passes (1.8)")
    parser.add_argument("--apache", action="store_true", help="Apache's broker instead of ours, and no bar")
    parser.add_argument("--quick", action="store_true", help="tiny, and no bar")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures to this file")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server is stopped
    pairs, seconds = args.pairs or (1 if args.quick else 5), args.seconds or (0.3 if args.quick else 6.0)
    with tempfile.TemporaryDirectory(prefix="rocketline-bench-") as scratch:
        certs = Path(scratch) / "certs"
        rocketline = Path(sys.executable).parent / "rocketline"
        subprocess.run([rocketline, "certs", certs], check=True, stdout=subprocess.DEVNULL)
        flags = f" --tls-cert {certs / 'server.pem'} --tls-key {certs / 'server.key'}"
        side: Side = CommandSide("rocketline", SERVER_CORE, OURS_COMMAND + flags)
        if args.apache:
            side = ApacheSide("apache", SERVER_CORE, heap_mb=2048, quick=args.quick)
        try:
            side.start(Path(scratch) / "data")
            wire.create_topic(side.namesrv, side.broker, TOPIC, QUEUES)
            wire.await_route(side.namesrv, TOPIC)
            kept = measure(side, pairs, seconds)
        except (SideFailed, LoadFailed, WireError) as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            side.stop()
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(kept, indent=1) + "\n")
    worst = max(figures["ratio"] for figures in kept.values())
    return int(worst > args.bar and not (args.quick or args.apache))


if __name__ == "__main__":
    raise SystemExit(main())
