"""Our broker against Apache's, side by side: `python bench/compare.py` (see bench/README.md).

Exit code 0 when every workload has its pairs, 1 when void runs left one short or nothing could be measured.
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
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine, report
from bench.generators import LoadFailed
from bench.measure import Comparison
from bench.results import BACKLOG_BATCH, Plan
from bench.sides import APACHE_VERSION, ApacheSide, CommandSide, Side, SideFailed
from bench.wire import WireError
from bench.workloads import WORKLOADS, Workload, choose
from tests.support.java import JavaCompileError, JavaUnavailable

ROOT = Path(__file__).resolve().parent.parent
OURS_COMMAND = f"{Path(sys.executable).parent / 'rocketline'} up --data {{data}} --namesrv-port 0 --broker-port 0"
SMOKE = Plan(
    pairs=1, seconds=0.3, cut_s=0.1, warmup_s=1.0, starts=1, idle_s=0.1, settle_s=0.05, calm_s=0.0, backlog=6_400
)
DISK_NEEDED = 20 << 30


def arguments() -> argparse.Namespace:
    names = ", ".join(workload.name for workload in WORKLOADS)
    parser = argparse.ArgumentParser(description="Compare rocketline's broker with Apache RocketMQ's.")
    parser.add_argument("--workloads", metavar="A,B", help=f"which ones, or 'all'; there are {names}")
    parser.add_argument("--raw-only", action="store_true", help="leave out the workloads of Apache's Java client")
    parser.add_argument("--pairs", type=int, help="interleaved pairs per workload (3; 7 for published figures)")
    parser.add_argument("--seconds", type=float, help="measured seconds per run (10)")
    parser.add_argument("--warmup", type=float, help="seconds of load per side before the first pair (60)")
    parser.add_argument("--starts", type=int, help="starts per side to measure (3)")
    parser.add_argument("--calm", type=float, help="seconds to wait for busy neighbours before a run (20)")
    parser.add_argument("--backlog", type=int, help="messages to read in the pull and push workloads (1000000)")
    parser.add_argument("--smoke", action="store_true", help="everything, but tiny: does the harness work?")
    parser.add_argument("--ours", choices=["rocketline", "apache"], default="rocketline")
    parser.add_argument(
        "--twins", action="store_true", help="our compiled broker against our Python one, without Apache"
    )
    parser.add_argument("--ours-command", default=OURS_COMMAND, help="how to start ours; {data} is its directory")
    parser.add_argument("--heap", type=int, default=2048, metavar="MB", help="heap of Apache's broker (2048)")
    parser.add_argument("--no-freeze", action="store_true", help="leave the side not measured running")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--scratch", type=Path, help="where the data goes (a new folder in the temporary folder)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write everything to this file")
    return parser.parse_args()


def plan_of(args: argparse.Namespace) -> Plan:
    base = SMOKE if args.smoke else Plan()
    return Plan(
        pairs=args.pairs or base.pairs,
        seconds=args.seconds or base.seconds,
        cut_s=base.cut_s,
        warmup_s=args.warmup or base.warmup_s,
        starts=args.starts or base.starts,
        idle_s=base.idle_s,
        settle_s=base.settle_s,
        calm_s=base.calm_s if args.calm is None else args.calm,
        backlog=(args.backlog or base.backlog) // BACKLOG_BATCH * BACKLOG_BATCH,
        load_core=args.load_core,
        freeze=not args.no_freeze,
    )


def sides_of(args: argparse.Namespace) -> list[Side]:
    if args.twins:
        # One after the other in every pair, as with Apache.
        return [
            CommandSide(label, args.server_core, f"env ROCKETLINE_IMPL={choice} {args.ours_command}")
            for label, choice in (("compiled", "c"), ("python", "python"))
        ]
    peer = ApacheSide("apache", args.server_core, args.heap, quick=args.smoke)
    if args.ours == "apache":
        return [ApacheSide("apache-b", args.server_core, args.heap, quick=args.smoke), peer]
    return [CommandSide("rocketline", args.server_core, args.ours_command), peer]


def compare(args: argparse.Namespace, workloads: list[Workload], scratch: Path, console: Console) -> bool:
    """Measure and report; True if every workload has the pairs it was to have."""
    comparison = Comparison(sides_of(args), plan_of(args), scratch, lambda line: console.print(line, highlight=False))
    about = machine.describe(ROOT)
    about["versions"] = f"CPython {about['python']}, Apache RocketMQ {APACHE_VERSION}, heap {args.heap} MiB"
    about["when"] = time.strftime("%Y-%m-%d %H:%M")
    about["server_core"] = str(args.server_core)
    try:
        comparison.measure(workloads)
    finally:
        if comparison.runs:
            report.show(comparison, workloads, about, console)
            if args.json:
                args.json.write_text(json.dumps(report.as_dict(comparison, workloads, about), indent=1) + "\n")
    rows = report.summarize(comparison, workloads)
    return all(row.pairs == comparison.plan.pairs for row in rows)


def main() -> int:
    args = arguments()
    console = Console(width=None if sys.stdout.isatty() else 160)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped, frozen ones too
    try:
        workloads = choose(args.workloads, args.raw_only)
    except ValueError as error:
        console.print(str(error), style="red", highlight=False)
        return 1
    if max(args.server_core, args.load_core) >= (os.cpu_count() or 1):
        console.print(f"this machine has no core {max(args.server_core, args.load_core)}", style="red")
        return 1
    if args.scratch:
        args.scratch.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="rocketline-bench-", dir=args.scratch))
    if shutil.disk_usage(scratch).free < DISK_NEEDED and not args.smoke:
        console.print(f"{scratch} has less than {DISK_NEEDED >> 30} GiB free: expect void runs", style="yellow")
    try:
        return 0 if compare(args, workloads, scratch, console) else 1
    except (SideFailed, LoadFailed, WireError, JavaUnavailable, JavaCompileError) as error:
        console.print(str(error), style="red", highlight=False, markup=False)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())
