"""Measures what a replica costs and brings: `python bench/replication.py` (see bench/README.md).

Ours and Apache's broker, each with one replica, and ours alone for what a replica adds to the work of its master. All are
warm, take turns, and are frozen while another one is measured. Master and replica share a core, the load has the other.

    async-*    plain sends of raw frames, with a replica that is not waited for
    sync-*     every answer waits for the replica
    catch-up   an empty replica gets a filled log; equally many bytes on both sides, from its first report on, so that no
               start of a process is in the figure

`--rows` chooses, `--keep NAME` puts the rows that ran into bench/results/replication/NAME.json beside those that are there,
`--page NAME` prints the table of docs/performance.md from that file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine, replication_page
from bench.compare import OURS_COMMAND, ROOT, our_implementation
from bench.generators import LoadFailed, RawLoad
from bench.replicas import FROZEN, ApacheReplica, Group, OurReplica
from bench.replication_page import ALONE, APACHE, CATCH_UP, OURS
from bench.sides import APACHE_VERSION, ApacheSide, CommandSide, SideFailed
from bench.wire import WireError

KEPT = ROOT / "bench" / "results" / "replication"
TOPIC, QUEUES = "bench-replication", 8
LOADS = {
    "1": {"connections": 1, "window": 1, "body": 128},
    "64": {"connections": 64, "window": 1, "body": 128},
    "8x32-1k": {"connections": 8, "window": 32, "body": 1024},
}
ASYNC, SYNC = "async", "sync"
ROWS = (*(f"{mode}-{load}" for mode in (ASYNC, SYNC) for load in LOADS), CATCH_UP)
SLICE_S = 5.0
SETTLE_S = 0.5
FILL_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Plan:
    """Times in seconds."""

    pairs: int = 3
    seconds: float = 4.0
    cut_s: float = 1.0
    warmup_s: float = 40.0
    our_warmup_s: float = 10.0
    """Nothing of ours is compiled while it runs."""
    log_mib: int = 512
    """Less than one log file: Apache's slave begins with the last one."""
    heap_mb: int = 2048
    quick: bool = False
    server_core: int = 0
    replica_core: int = 0
    load_core: int = 1
    rate: int = 0
    """Messages per second; 0: as fast as answers come."""


QUICK = Plan(pairs=1, seconds=0.4, cut_s=0.1, warmup_s=1.0, our_warmup_s=0.5, log_mib=8, heap_mb=512, quick=True)


def groups_of(mode: str, plan: Plan, apache: bool) -> list[Group]:
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"} if mode == SYNC else {"brokerRole": "ASYNC_MASTER"}
    flags = "".join(f" --set {key}={value}" for key, value in (settings | FROZEN | {"haListenPort": "0"}).items())
    ours = CommandSide(OURS, plan.server_core, OURS_COMMAND + flags)
    found = [Group(OURS, ours, OurReplica(plan.replica_core))]
    if apache:
        theirs = ApacheSide(APACHE, plan.server_core, plan.heap_mb, quick=plan.quick, settings=settings | FROZEN)
        found.append(Group(APACHE, theirs, ApacheReplica(plan.replica_core, plan.heap_mb, plan.quick)))
    if mode == ASYNC:
        found.append(Group(ALONE, CommandSide(ALONE, plan.server_core, OURS_COMMAND), None))
    return found


class Bench:
    """The groups of one mode, measured in turns."""

    def __init__(self, plan: Plan, scratch: Path, groups: list[Group]) -> None:
        self._plan, self._scratch, self._groups = plan, scratch, groups
        self._load = RawLoad(plan.load_core)

    def _awake(self, group: Group) -> None:
        for other in self._groups:
            if other is not group:
                other.freeze()
        group.thaw()
        time.sleep(SETTLE_S)
        if group.replica is not None and group.replica.pids():
            group.await_replica()

    def loads(self, mode: str, names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each run as it is done: its row and its figures."""
        with ExitStack() as cleanup:
            for group in self._groups:
                cleanup.callback(group.stop)
                group.start(self._scratch / f"{group.label}-{mode}", {TOPIC: QUEUES})
                group.freeze()
            self._warm(names)
            for _ in range(self._plan.pairs):
                for name in names:
                    for group in self._groups:
                        yield f"{mode}-{name}", self._measured(group, name)

    def _warm(self, names: Sequence[str]) -> None:
        """In turns: who is frozen for minutes loses its registration."""
        for turn in range(max(1, round(self._plan.warmup_s / SLICE_S))):
            for group in self._groups:
                if group.label == APACHE or turn * SLICE_S < self._plan.our_warmup_s:
                    self._awake(group)
                    rate = self._send(group, names[turn % len(names)], min(SLICE_S, self._plan.warmup_s), 0.0)["rate"]
                    say(f"  warm-up of {group.label} with {names[turn % len(names)]}: {rate:,.0f} msg/s")

    def _send(self, group: Group, name: str, seconds: float, cut_s: float) -> dict[str, Any]:
        options = LOADS[name] | ({"rate": self._plan.rate} if self._plan.rate else {})
        found = self._load.run(
            group.master.broker, group.master.broker_name, seconds + cut_s,
            topic=TOPIC, queues=QUEUES, seconds=seconds, warmup=cut_s, **options,
        )  # fmt: skip
        if found["errors"]:
            raise LoadFailed(f"{group.label}: {found['errors']} sends failed: {found['first_error']}")
        return found

    def _measured(self, group: Group, name: str) -> dict[str, Any]:
        self._awake(group)
        others = machine.busy_cores(0.2)
        masters, replicas = group.master.pids(), group.replica.pids() if group.replica else []
        before = machine.cpu_seconds(masters), machine.cpu_seconds(replicas)
        result = self._send(group, name, self._plan.seconds, self._plan.cut_s)
        lacked = group.progress()
        _, behind_s = group.await_replica()
        after = machine.cpu_seconds(masters), machine.cpu_seconds(replicas)
        return {
            "side": group.label,
            "rate": result["rate"],
            **{key: result[key] for key in ("p50_us", "p99_us", "p999_us", "max_us")},
            "cpu_us": (after[0] - before[0]) / result["acked"] * 1e6,
            "replica_cpu_us": (after[1] - before[1]) / result["acked"] * 1e6,
            "bytes behind": lacked[1] if lacked else 0,
            "seconds behind": behind_s,
            "cores busy before": others,
            "load average": os.getloadavg()[0],
        }

    def catching_up(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """A new replica for each run, on masters that keep their filled logs."""
        with ExitStack() as cleanup:
            for group in self._groups:
                cleanup.callback(group.stop)
                group.master.start(self._scratch / f"{group.label}-filled")
                self._fill(group)
                group.freeze()
            for pair in range(self._plan.pairs):
                for group in self._groups:
                    yield CATCH_UP, self._caught_up(group, self._scratch / f"{group.label}-new{pair}" / "replica")

    def _fill(self, group: Group) -> None:
        master = group.master
        self._load.run(
            master.broker, master.broker_name, FILL_TIMEOUT_S,
            topic="TBW102", queues=QUEUES, count=self._plan.log_mib << 10, connections=8, window=8, body=900,
        )  # fmt: skip

    def _caught_up(self, group: Group, folder: Path) -> dict[str, Any]:
        self._awake(group)
        others = machine.busy_cores(0.2)
        before = machine.cpu_seconds(group.master.pids())
        group.start_replica(folder)
        size, seconds = group.await_replica()
        cpu_s = machine.cpu_seconds(group.master.pids()) - before
        group.stop_replica()
        shutil.rmtree(folder.parent, ignore_errors=True)
        return {
            "side": group.label,
            "mib_per_s": size / (1 << 20) / seconds,
            "bytes": size,
            "seconds": seconds,
            "cpu_s": cpu_s,
            "cores busy before": others,
            "load average": os.getloadavg()[0],
        }


def measure(plan: Plan, mode: str, rows: Sequence[str], apache: bool, scratch: Path) -> dict[str, list[dict[str, Any]]]:
    """All runs of each row of a mode, each with the number of its pair."""
    found: dict[str, list[dict[str, Any]]] = {}
    groups = groups_of(ASYNC if mode == CATCH_UP else mode, plan, apache)
    if mode == CATCH_UP:
        groups = [group for group in groups if group.replica is not None]
    bench = Bench(plan, scratch, groups)
    names = [name for name in LOADS if f"{mode}-{name}" in rows]
    for row, run in bench.catching_up() if mode == CATCH_UP else bench.loads(mode, names):
        runs = found.setdefault(row, [])
        run["pair"] = sum(earlier["side"] == run["side"] for earlier in runs)
        runs.append(run)
        say(f"{row} pair {run['pair'] + 1} {replication_page.line_of(run)}")
    return found


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", default=",".join(ROWS), help=f"some of {','.join(ROWS)}; async and sync stand for all of theirs"
    )
    parser.add_argument("--pairs", type=int, help="so many runs of each side, in turns (3)")
    parser.add_argument("--seconds", type=float, help="length of a run (4)")
    parser.add_argument("--warmup", type=float, dest="warmup_s", help="seconds of load before, for Apache's (40)")
    parser.add_argument(
        "--replica-core", type=int, help="another core for the replicas: where do a master's times come from?"
    )
    parser.add_argument("--rate", type=int, help="messages per second; otherwise as fast as answers come")
    parser.add_argument("--ours", action="store_true", help="without Apache")
    parser.add_argument("--quick", action="store_true", help="tiny")
    parser.add_argument("--keep", metavar="NAME", help="put what ran into bench/results/replication/NAME.json")
    parser.add_argument("--page", metavar="NAME", help="run nothing: print the table from that file")
    args = parser.parse_args()
    if args.page:
        say(replication_page.table(json.loads((KEPT / f"{args.page}.json").read_text())["rows"]))
        return 0
    rows = [row for row in ROWS if any(row == asked or row.startswith(f"{asked}-") for asked in args.rows.split(","))]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped, frozen ones too
    chosen = asdict(QUICK if args.quick else Plan())
    plan = Plan(**chosen | {key: value for key, value in vars(args).items() if key in chosen and value is not None})
    document: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="rocketline-bench-") as scratch:
        about: dict[str, Any] = {
            **machine.describe(ROOT),
            "implementation": our_implementation(),
            "apache": APACHE_VERSION,
        }
        about |= {"when": time.strftime("%Y-%m-%d %H:%M"), "plan": asdict(plan)}
        try:
            for mode in (ASYNC, SYNC, CATCH_UP):
                if any(row == mode or row.startswith(f"{mode}-") for row in rows):
                    loads = {"load average before": os.getloadavg()}
                    for row, runs in measure(plan, mode, rows, not args.ours, Path(scratch)).items():
                        document[row] = {"about": about | loads, **replication_page.summary(row, runs), "runs": runs}
                    if args.keep:  # now: what comes next may fail
                        keep(KEPT / f"{args.keep}.json", document)
        except (SideFailed, LoadFailed, WireError) as error:
            print(error, file=sys.stderr)
            return 1
    for verdict in replication_page.verdicts(document):
        say(str(verdict))
    return 0


def keep(path: Path, rows: dict[str, Any]) -> None:
    """Beside the rows that are there."""
    former = json.loads(path.read_text()).get("rows", {}) if path.exists() else {}
    merged = {row: (former | rows)[row] for row in ROWS if row in former | rows}
    shown = [verdict.shown() for verdict in replication_page.verdicts(merged)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"verdicts": shown, "rows": merged}, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
