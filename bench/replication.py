"""Measures what a replica costs and brings: `python bench/replication.py` (see bench/README.md).

For ours and for Apache's broker, each with one replica beside it: how fast an empty replica catches up with a filled log,
from its first report on, so that no start of a process is in the figure, and counted by the bytes that it reports; then
plain sends of raw frames, without a replica, with one that is not waited for, and with one for whose acknowledgement every
answer waits. Master and replica share a core, the load has the other one. `--quick` runs everything with tiny sizes,
`--ours` leaves Apache out, and `--keep NAME` writes all figures to bench/results/replication, with the ratios that are
wanted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine, wire
from bench.compare import OURS_COMMAND
from bench.generators import LoadFailed, RawLoad
from bench.sides import APACHE_VERSION, PATIENCE, ApacheSide, CommandSide, Side, SideFailed
from bench.wire import WireError
from tests.support.apache import AS_SHIPPED, QUICK_START, ApacheCluster, request

KEPT = Path(__file__).resolve().parent / "results" / "replication"
SERVER_CORE, LOAD_CORE = 0, 1
TOPIC = "bench-replication"
QUEUES = 8
HA_STATUS = 907
LOADS = {
    "one sender": {"connections": 1, "window": 1, "body": 128},
    "64 senders": {"connections": 64, "window": 1, "body": 128},
    "pipelined, 1 KiB": {"connections": 8, "window": 32, "body": 1024},
}
PATIENCE_S = 120.0


class Found(NamedTuple):
    rate: float
    p99_us: float
    cpu_us: float
    """Of the master, for each message."""


class Replica(ABC):
    """A replica that can be started beside a side."""

    @abstractmethod
    def start(self, side: Side, directory: Path) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...


class OurReplica(Replica):
    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, side: Side, directory: Path) -> None:
        command = [
            str(Path(sys.executable).parent / "rocketline"),
            "broker",
            "-n",
            side.namesrv,
            "--data",
            str(directory),
        ]
        settings = {
            "brokerName": side.broker_name,
            "brokerId": "1",
            "brokerRole": "SLAVE",
            "metricsPromExporterPort": "0",
        }
        command += ["--port", "0", *(word for pair in settings.items() for word in ("--set", "=".join(pair)))]
        with (directory.parent / "replica.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["taskset", "-c", str(SERVER_CORE), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class ApacheReplica(Replica):
    def __init__(self, quick: bool) -> None:
        self._quick = quick
        self._cluster: ApacheCluster | None = None

    def start(self, side: Side, directory: Path) -> None:
        self._cluster = ApacheCluster(
            directory,
            version=APACHE_VERSION,
            broker_conf=PATIENCE | {"brokerName": side.broker_name, "brokerId": "1", "brokerRole": "SLAVE"},
            heap_mb=512 if self._quick else 2048,
            cpu=SERVER_CORE,
            namesrv=False,
            namesrv_addr=side.namesrv,
            apache_defaults=not self._quick,
            jvm_options=QUICK_START if self._quick else AS_SHIPPED,
        )
        self._cluster.start()

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.kill()


class CaughtUp(NamedTuple):
    size: int
    """Bytes that came between the first and the last report. Apache's slave begins with the last file of the log."""
    seconds: float

    @property
    def mib_per_s(self) -> float:
        return self.size / (1 << 20) / self.seconds if self.seconds else 0.0


def progress(side: Side) -> tuple[int, int] | None:
    """(end that the replica reported, bytes it lacks); None: it has reported nothing yet."""
    answer = request(side.broker, HA_STATUS)
    end, behind = re.search(rb'"slaveAckOffset":(\d+)', answer), re.search(rb'"diff":(-?\d+)', answer)
    if not end or not behind or (int(end[1]) == 0 < int(behind[1])):
        return None
    return int(end[1]), int(behind[1])


def await_replica(side: Side) -> CaughtUp:
    """Wait until the replica has everything."""
    limit = time.monotonic() + PATIENCE_S
    while (first := progress(side)) is None:
        _require_time(side, limit)
    began, found = time.monotonic(), first
    while found is None or found[1] > 0:
        _require_time(side, limit)
        found = progress(side)
    return CaughtUp(found[0] - first[0], time.monotonic() - began)


def _require_time(side: Side, limit: float) -> None:
    if time.monotonic() > limit:
        raise SideFailed(f"{side.label}: the replica does not catch up: (end, bytes it lacks) {progress(side)}")
    time.sleep(0.002)


def send(side: Side, options: dict[str, int], seconds: float) -> Found:
    master = side.pids()
    before = machine.cpu_seconds(master)
    result = RawLoad(LOAD_CORE).run(
        side.broker,
        side.broker_name,
        seconds,
        topic=TOPIC,
        queues=QUEUES,
        seconds=seconds,
        warmup=seconds / 4,
        **options,
    )
    if result["errors"]:
        raise LoadFailed(f"{result['errors']} sends failed: {result['first_error']}")
    cpu_s = machine.cpu_seconds(master) - before
    return Found(result["rate"], result["p99_us"], cpu_s / result["acked"] * 1e6)


Figures = dict[str, dict[str, dict[str, float]]]
"""By side, then by mode and load."""


def measure(side: Side, replica: Replica, scratch: Path, seconds: float, waits: bool, figures: Figures) -> None:
    """Print a line for each load."""
    kept = figures.setdefault(side.label, {})
    mode = "sync" if waits else "async"
    directory = scratch / f"{side.label}-{mode}"
    if waits:
        directory.mkdir(parents=True)
        side._launch(directory)  # `start` waits for an acknowledged message, and there is none without a replica
    else:
        side.start(directory)
    try:
        wire.create_topic(side.namesrv, side.broker, TOPIC, QUEUES)
        alone = {} if waits else {name: send(side, options, seconds) for name, options in LOADS.items()}
        replica.start(side, scratch / f"{side.label}-{mode}-replica")
        caught_up = await_replica(side)
        if not waits:
            kept["catching up"] = {"MiB/s": caught_up.mib_per_s, "bytes": caught_up.size, "seconds": caught_up.seconds}
            print(
                f"{side.label:<10} catches up with {caught_up.size / (1 << 20):,.1f} MiB in {caught_up.seconds:.2f} s from "
                f"its first report on: {caught_up.mib_per_s:,.0f} MiB/s",
                flush=True,
            )
        for name, options in LOADS.items():
            found = send(side, options, seconds)
            line = f"{side.label:<10} {mode:<5} {name:<16} {found.rate:>10,.0f} msg/s  p99 {found.p99_us:>9,.0f} us"
            kept[f"{mode}, {name}"] = found._asdict()
            if name in alone:
                ratio = found.cpu_us / alone[name].cpu_us
                kept[f"{mode}, {name}"]["CPU to alone"] = ratio
                line += f"  CPU of the master {alone[name].cpu_us:.1f} us alone, {found.cpu_us:.1f} us now: {ratio:.2f}"
            print(line, flush=True)
    finally:
        replica.stop()
        side.stop()


def sides_of(args: argparse.Namespace, waits: bool) -> list[tuple[Side, Replica]]:
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"} if waits else {"brokerRole": "ASYNC_MASTER"}
    flags = "".join(f" --set {key}={value}" for key, value in (settings | {"haListenPort": "0"}).items())
    found: list[tuple[Side, Replica]] = [(CommandSide("rocketline", SERVER_CORE, OURS_COMMAND + flags), OurReplica())]
    if not args.ours:
        apache = ApacheSide(
            "apache", SERVER_CORE, heap_mb=512 if args.quick else 2048, quick=args.quick, settings=settings
        )
        found.append((apache, ApacheReplica(args.quick)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, help="length of a run (10)")
    parser.add_argument("--ours", action="store_true", help="without Apache")
    parser.add_argument("--quick", action="store_true", help="tiny")
    parser.add_argument("--keep", metavar="NAME", help="also write everything to bench/results/replication/NAME.json")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped
    seconds = args.seconds or (0.4 if args.quick else 10.0)
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="rocketline-bench-") as scratch:
        try:
            for waits in (False, True):
                for side, replica in sides_of(args, waits):
                    measure(side, replica, Path(scratch), seconds, waits, figures)
        except (SideFailed, LoadFailed, WireError) as error:
            print(error, file=sys.stderr)
            return 1
    bars = bars_of(figures)
    for name, (value, wanted) in bars.items():
        print(f"{name}: {value:.2f}, wanted {wanted}")
    if args.keep:
        about = {"seconds": seconds, "quick": args.quick, "load average": os.getloadavg()}
        text = json.dumps({"about": about, "figures": figures, "bars": bars}, indent=1)
        KEPT.mkdir(exist_ok=True)
        (KEPT / f"{args.keep}.json").write_text(text + "\n")
    return 0


def bars_of(figures: Figures) -> dict[str, tuple[float, str]]:
    """What was measured against what is wanted."""
    ours, apache = figures.get("rocketline", {}), figures.get("apache", {})
    found = {
        f"CPU of the master with a replica, to alone: {name}": (each["CPU to alone"], "at most 1.4")
        for name, each in ours.items()
        if "CPU to alone" in each
    }
    for name in ours.keys() & apache.keys():
        if name == "catching up":
            found["catching up, to Apache's"] = (ours[name]["MiB/s"] / apache[name]["MiB/s"], "at least 1")
        else:
            found[f"rate to Apache's: {name}"] = (ours[name]["rate"] / apache[name]["rate"], "at least 2")
            found[f"p99 to Apache's: {name}"] = (ours[name]["p99_us"] / apache[name]["p99_us"], "at most 0.5")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
