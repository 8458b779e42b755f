"""Measures our gRPC front against Apache's proxy in local mode: `python bench/grpc_front.py` (see bench/README.md).

Both have the front in the broker's process, on core 0. A program in Go (`bench/go`) on core 1 makes plain gRPC calls on one
connection: sends with 1 and with 64 in flight, and receives of 32 messages that are acknowledged in one call. The two sides
take turns, and one that is not measured is stopped. What counts are ratios inside a pair; beside them there are the server's
processor time per message, its memory and how long it takes to start. At the end each figure is shown beside its bar
(`grpc_bars.py`, which puts the run that was kept into docs/performance.md). `--keep NAME` writes medians, ratios and
verdicts to bench/results/grpc. `--quick` runs everything with tiny sizes.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import grpc_bars, machine, wire
from bench.compare import OURS_COMMAND
from bench.generators import LoadFailed, RawLoad
from bench.sides import ApacheSide, CommandSide, Side, SideFailed, StartTimes
from bench.wire import WireError
from tests.support.apache_proxy import ApacheProxy
from tests.support.java import JavaUnavailable
from tests.support.toolchains import GO_BUILD, ToolMissing, built_copy

HERE = Path(__file__).resolve().parent
KEPT = HERE / "results" / "grpc"
"""Files beside this folder are those of `compare.py`, of which `page.py` makes tables."""
SERVER_CORE, LOAD_CORE = 0, 1
QUEUES = 8
LOADS = ("send-1", "send-64", "receive")
RECEIVERS = 4
GRPC = re.compile(r"\bgrpc=(\S+)")


class OurFront(CommandSide):
    """`rocketline up` with its front."""

    def __init__(self, core: int) -> None:
        super().__init__("rocketline", core, f"{OURS_COMMAND} --grpc-port 0")

    @property
    def grpc(self) -> str:
        found = GRPC.search((self.directory / "server.out").read_text())
        assert found is not None
        return found[1]


class ApacheFront(ApacheSide):
    """Apache's proxy in local mode, with the flags its broker ships with."""

    cluster_class = ApacheProxy

    def __init__(self, core: int, heap_mb: int, quick: bool) -> None:
        super().__init__("apache", core, heap_mb, quick=quick)

    @property
    def grpc(self) -> str:
        assert isinstance(self._cluster, ApacheProxy)
        return self._cluster.grpc


FrontSide = OurFront | ApacheFront


@dataclass(frozen=True)
class Measured:
    """One run on one side. CPU is that of all its processes."""

    rate: float
    p50_us: float
    p99_us: float
    cpu_us: float


FIGURES = tuple(field.name for field in fields(Measured))


@dataclass(frozen=True)
class Sizes:
    pairs: int
    seconds: float
    backlog: int
    warm_up_s: float


class Measuring:
    """Runs of the loads on both sides in turns."""

    def __init__(self, sides: tuple[FrontSide, FrontSide], sizes: Sizes) -> None:
        self._sides = sides
        self._sizes = sizes
        self._program = built_copy(HERE / "go", "grpc-load", GO_BUILD) / "program"
        self._filler = RawLoad(LOAD_CORE)
        self._topics = 0

    def warm_up(self) -> None:
        """A JVM needs a minute of load before its figures mean anything."""
        for side in self._sides:
            with _awake(side):
                for load in LOADS:
                    self._run(side, load, self._sizes.warm_up_s / len(LOADS))

    def measure(self, load: str) -> list[dict[str, Measured]]:
        """The pairs of a load, by the labels of the sides."""
        pairs = []
        for turn in range(self._sizes.pairs):
            order = self._sides if turn % 2 else self._sides[::-1]
            pair = {}
            for side in order:
                with _awake(side):
                    pair[side.label] = self._run(side, load, self._sizes.seconds)
            pairs.append(pair)
        return pairs

    def _run(self, side: FrontSide, load: str, seconds: float) -> Measured:
        self._topics += 1
        topic = f"bench-grpc-{self._topics}"
        wire.create_topic(side.namesrv, side.broker, topic, QUEUES)
        if load == "receive":
            count = self._fill(side, topic)
            arguments = ["-mode", "receive", "-in-flight", str(RECEIVERS), "-count", str(count)]
            arguments += ["-group", f"{topic}-group"]
        else:
            arguments = ["-mode", "send", "-in-flight", load.removeprefix("send-"), "-seconds", str(seconds)]
        before = machine.cpu_seconds(side.pids())
        result = self._load(side, topic, arguments, seconds)
        cpu_s = machine.cpu_seconds(side.pids()) - before
        if load != "receive" and wire.stored_messages(side.broker, topic, QUEUES) < result["messages"]:
            raise LoadFailed(f"{side.label}: fewer messages are stored than were acknowledged")
        # A send's processor time is that of the whole run, so it is shared out over all that were sent.
        done = result["messages"] if load == "receive" else wire.stored_messages(side.broker, topic, QUEUES)
        return Measured(result["rate"], result["p50_us"], result["p99_us"], cpu_s / max(done, 1) * 1e6)

    def _fill(self, side: Side, topic: str) -> int:
        """A backlog, sent through remoting; how many messages it has."""
        options = {"connections": 8, "window": 1, "batch": 32, "body": 128, "count": self._sizes.backlog}
        filled = self._filler.run(side.broker, side.broker_name, 60.0, topic=topic, queues=QUEUES, warmup=0, **options)
        if filled["errors"]:
            raise LoadFailed(f"{filled['errors']} sends failed: {filled['first_error']}")
        return wire.stored_messages(side.broker, topic, QUEUES)

    def _load(self, side: FrontSide, topic: str, arguments: list[str], seconds: float) -> dict[str, Any]:
        taskset = shutil.which("taskset") or "taskset"
        command = [
            taskset,
            "-c",
            str(LOAD_CORE),
            str(self._program),
            "-address",
            side.grpc,
            "-topic",
            topic,
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 300)
        if done.returncode != 0:
            raise LoadFailed(f"{side.label}: {' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
        result: dict[str, Any] = json.loads(done.stdout)
        if result["errors"]:
            raise LoadFailed(f"{side.label}: {result['errors']} calls failed: {result['first_error']}")
        return result


class _awake:  # noqa: N801 (a context manager)
    """A side runs inside, and is stopped outside."""

    def __init__(self, side: Side) -> None:
        self._side = side

    def __enter__(self) -> None:
        self._side.thaw()

    def __exit__(self, *_: object) -> None:
        self._side.freeze()


def ratios_of(pairs: list[dict[str, Measured]]) -> list[float]:
    """Our messages per second to Apache's, in each pair."""
    return [pair["rocketline"].rate / pair["apache"].rate for pair in pairs]


def medians_of(pairs: list[dict[str, Measured]]) -> dict[str, dict[str, float]]:
    """The medians of each side."""
    return {
        label: {name: statistics.median(getattr(pair[label], name) for pair in pairs) for name in FIGURES}
        for label in ("rocketline", "apache")
    }


def report(load: str, pairs: list[dict[str, Measured]]) -> None:
    def median(label: str, value: Callable[[Measured], float]) -> float:
        return statistics.median(value(pair[label]) for pair in pairs)

    ratios = sorted(ratios_of(pairs))
    print(f"\n{load}: {statistics.median(ratios):.2f} x Apache's messages/s ({ratios[0]:.2f}-{ratios[-1]:.2f})")
    for label in ("rocketline", "apache"):
        print(
            f"  {label:<10} {median(label, lambda run: run.rate):>9,.0f} msg/s, "
            f"p50 {median(label, lambda run: run.p50_us):,.0f} us, p99 {median(label, lambda run: run.p99_us):,.0f} us, "
            f"CPU {median(label, lambda run: run.cpu_us):.1f} us per message",
            flush=True,
        )


def report_rest(sides: tuple[FrontSide, FrontSide], starts: dict[str, StartTimes]) -> dict[str, Any]:
    """Memory after the runs, and starts."""
    found: dict[str, Any] = {}
    for side in sides:
        memory, start = machine.memory(side.pids()), starts[side.label]
        found[side.label] = {"memory_bytes": memory.rss, "anonymous_bytes": memory.anonymous, **asdict(start)}
        print(
            f"{side.label}: {memory.rss >> 20} MiB resident, {memory.anonymous >> 20} MiB without mapped files; "
            f"ready after {start.ready_s:.2f} s"
        )
    ours, theirs = (found[side.label]["anonymous_bytes"] for side in sides)
    print(f"memory without mapped files: {ours / theirs:.2f} x Apache's")
    return found


def judge(ratios: dict[str, list[float]], sides: dict[str, Any]) -> list[dict[str, Any]]:
    """Show each figure beside its bar."""
    ours, theirs = sides["rocketline"], sides["apache"]
    memory = ours["anonymous_bytes"] / theirs["anonymous_bytes"]
    found = grpc_bars.verdicts(ratios, memory, ours["ready_s"])
    print("\nbars")
    for verdict in found:
        print(f"  {verdict}")
    return [verdict.shown() for verdict in found]


def write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, help="runs of each load on each side (5)")
    parser.add_argument("--seconds", type=float, help="length of a run of sends (6)")
    parser.add_argument("--backlog", type=int, help="messages of a run of receives (100000)")
    parser.add_argument("--warm-up", type=float, help="seconds of load on each side before (60)")
    parser.add_argument("--heap", type=int, default=2048, metavar="MB", help="heap of Apache's process (2048)")
    parser.add_argument("--loads", default=",".join(LOADS), help=f"some of {', '.join(LOADS)}")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every run to a file")
    parser.add_argument(
        "--keep", metavar="NAME", help="also write medians, ratios and verdicts to bench/results/grpc/NAME.json"
    )
    parser.add_argument("--quick", action="store_true", help="tiny, to see that it works")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped, frozen ones too
    quick = args.quick
    sizes = Sizes(
        args.pairs or (1 if quick else 5),
        args.seconds or (0.3 if quick else 6.0),
        args.backlog or (2_000 if quick else 100_000),
        args.warm_up if args.warm_up is not None else (0.3 if quick else 60.0),
    )
    sides = (OurFront(SERVER_CORE), ApacheFront(SERVER_CORE, args.heap, quick))
    scratch = Path(tempfile.mkdtemp(prefix="rocketline-bench-"))
    try:
        starts = {}
        for side in sides:
            starts[side.label] = side.start(scratch / side.label)
            side.freeze()
        measuring = Measuring(sides, sizes)
        measuring.warm_up()
        runs = {load: measuring.measure(load) for load in args.loads.split(",")}
        for load, pairs in runs.items():
            report(load, pairs)
        rest = report_rest(sides, starts)
        ratios = {load: ratios_of(pairs) for load, pairs in runs.items()}
        medians = {load: medians_of(pairs) for load, pairs in runs.items()}
        judged = judge(ratios, rest)
        print(f"\n{grpc_bars.page_table(medians, ratios, rest)}")
        about = machine.describe(HERE.parent)
        if args.json:
            shown = {
                load: [{label: asdict(run) for label, run in pair.items()} for pair in runs[load]] for load in runs
            }
            write(args.json, {"about": about, "runs": shown, "sides": rest, "bars": judged})
        if args.keep:
            KEPT.mkdir(parents=True, exist_ok=True)
            kept = {"about": about, "medians": medians, "ratios": ratios, "sides": rest, "bars": judged}
            write(KEPT / f"{args.keep}.json", kept)
    except (SideFailed, LoadFailed, WireError, ToolMissing, JavaUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        for side in sides:
            side.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
