"""Compares our broker with Apache's: `python bench/compare.py` (see bench/README.md).

Exit code 0 when every workload has all its pairs, 1 when some are missing because of void runs, or nothing could be
measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine, page, report
from bench.generators import LoadFailed
from bench.measure import Comparison
from bench.peers import PeerRounds, peers_named
from bench.results import BACKLOG_BATCH, BenchPlan
from bench.sides import APACHE_VERSION, ApacheSide, CommandSide, Side, SideFailed
from bench.summary import summarize
from bench.wire import WireError
from bench.workloads import SETS, WORKLOADS, FlushKind, LoadKind, Workload, choose
from tests.support.java import JavaCompileError, JavaUnavailable

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "bench" / "results"
OURS_COMMAND = (
    f"{Path(sys.executable).parent / 'rocketline'} up"
    " --data {data} --namesrv-port 0 --broker-port 0 --flush {flush} --set waitTimeMillsInSendQueue=10000"
)
SMOKE = BenchPlan(
    pairs=1,
    seconds=0.3,
    cut_s=0.1,
    warmup_s=1.0,
    starts=1,
    recoveries=1,
    recovery_gib=0.005,
    stored=(1_000, 10_000, 100_000),
    idle_s=0.1,
    settle_s=0.05,
    calm_s=0.0,
    backlog=6_400,
)
QUICK = BenchPlan(seconds=5.0, starts=1, recoveries=0, stored=())
DISK_PER_SECOND = 1 << 30  # of each pair, for the default set


def arguments() -> argparse.Namespace:
    names = ", ".join(workload.name for workload in WORKLOADS)
    parser = argparse.ArgumentParser(description="Compare rocketline's broker with Apache RocketMQ's.")
    parser.add_argument("--workloads", metavar="A,B", help=f"which ones, or 'all'; there are {names}")
    parser.add_argument(
        "--sets", choices=list(SETS), default="default", help="quick: the main ones; full: all there are"
    )
    parser.add_argument("--raw-only", action="store_true", help="leave out the workloads of Apache's Java client")
    parser.add_argument("--pairs", type=int, help="interleaved pairs per workload (3; 7 for published figures)")
    parser.add_argument("--seconds", type=float, help="measured seconds per run (10)")
    parser.add_argument("--warmup", type=float, help="seconds of load per side before the first pair (60)")
    parser.add_argument("--starts", type=int, help="starts per side to measure (3)")
    parser.add_argument("--recoveries", type=int, help="pairs of kill -9 and start to measure (2)")
    parser.add_argument("--no-growth", action="store_true", help="leave out sends with 10^5 to 10^7 messages stored")
    parser.add_argument("--recovery-gib", type=float, help="stored when the kill comes (0.5)")
    parser.add_argument("--calm", type=float, help="seconds to wait for busy neighbours before a run (20)")
    parser.add_argument("--backlog", type=int, help="messages to read in the pull and push workloads (1000000)")
    parser.add_argument("--peers", metavar="redis,nats", help="then also raw sends against these servers")
    parser.add_argument("--smoke", action="store_true", help="everything, but tiny: does the harness work?")
    parser.add_argument("--ours", choices=["rocketline", "apache"], default="rocketline")
    parser.add_argument(
        "--both", action="store_true", help="our compiled broker against our Python one, without Apache"
    )
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="against our broker of another checkout, without Apache"
    )
    parser.add_argument(
        "--accounts",
        choices=["both", "against-none"],
        help="raw sends, signed: both sides ask for accounts, or the one of --ours is compared with itself without accounts",
    )
    parser.add_argument("--ours-command", default=OURS_COMMAND, help="how to start ours; {data} is its directory")
    parser.add_argument("--heap", type=int, default=2048, metavar="MB", help="heap of Apache's broker (2048)")
    parser.add_argument("--no-freeze", action="store_true", help="leave the side not measured running")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--scratch", type=Path, help="where the data goes (a new folder in the temporary folder)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write everything to this file")
    parser.add_argument("--keep", metavar="NAME", help="also write medians and ranges to bench/results/NAME.json")
    parser.add_argument("--page", action="store_true", help="also print the tables of docs/performance.md")
    return parser.parse_args()


def plan_of(args: argparse.Namespace) -> BenchPlan:
    base = SMOKE if args.smoke else QUICK if args.sets == "quick" else BenchPlan()
    given = {
        "pairs": args.pairs,
        "seconds": args.seconds,
        "warmup_s": args.warmup,
        "starts": args.starts,
        "recoveries": args.recoveries,
        "recovery_gib": args.recovery_gib,
        "calm_s": args.calm,
        "backlog": args.backlog and args.backlog // BACKLOG_BATCH * BACKLOG_BATCH,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    if args.no_growth:
        chosen["stored"] = ()
    return replace(base, load_core=args.load_core, freeze=not args.no_freeze, **chosen)


def sides_of(args: argparse.Namespace, flush: FlushKind) -> list[Side]:
    core = args.server_core
    if args.both:
        # In turns within every pair, as with Apache.
        return [
            CommandSide(label, core, f"env ROCKETLINE_IMPL={choice} {args.ours_command}", flush=flush.value)
            for label, choice in (("compiled", "c"), ("python", "python"))
        ]
    if args.before:
        return [
            CommandSide(label, core, f"env PYTHONPATH={tree / 'src'} {args.ours_command}", flush=flush.value)
            for label, tree in (("rocketline", ROOT), ("before", args.before.resolve()))
        ]
    settings, accounts = {"flushDiskType": f"{flush.name}_FLUSH"}, args.accounts == "both"
    if args.accounts == "against-none":
        return [_asking_side(args, core, flush, settings, asks) for asks in (True, False)]
    peer = ApacheSide("apache", core, args.heap, quick=args.smoke, settings=settings, accounts=accounts)
    if args.ours == "apache":
        return [ApacheSide("apache-b", core, args.heap, quick=args.smoke, settings=settings, accounts=accounts), peer]
    return [CommandSide("rocketline", core, args.ours_command, flush=flush.value, accounts=accounts), peer]


def _asking_side(args: argparse.Namespace, core: int, flush: FlushKind, settings: dict[str, str], asks: bool) -> Side:
    """The broker of `--ours`, which asks for accounts or does not."""
    label = "accounts" if asks else "none"
    if args.ours == "apache":
        return ApacheSide(label, core, args.heap, quick=args.smoke, settings=settings, accounts=asks)
    return CommandSide(label, core, args.ours_command, flush=flush.value, accounts=asks)


def about_of(args: argparse.Namespace) -> dict[str, str]:
    """What was compared, where and when."""
    about = machine.describe(ROOT)
    about["implementation"] = "both" if args.both else args.ours if args.ours == "apache" else our_implementation()
    about["versions"] = f"CPython {about['python']} ({about['implementation']})"
    if args.ours == "apache" or not (args.both or args.before or args.accounts == "against-none"):
        about["versions"] += f", Apache RocketMQ {APACHE_VERSION}, heap {args.heap} MiB"
    about["when"] = time.strftime("%Y-%m-%d %H:%M")
    about["server_core"] = str(args.server_core)
    return about


def our_implementation() -> str:
    """The implementation that a broker started from here uses: c or python."""
    asked = [sys.executable, "-c", "import rocketline; print(rocketline.__impl__)"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise SideFailed(f"rocketline cannot be imported: {done.stderr.strip()}")
    return done.stdout.strip()


def compare(args: argparse.Namespace, workloads: list[Workload], scratch: Path, console: Console) -> bool:
    """Measure and report; True if every workload has all its pairs."""

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False)

    about = about_of(args)
    peers = peers_named(args.peers, args.server_core, say) if args.peers else []
    comparison = Comparison(lambda flush: sides_of(args, flush), plan_of(args), scratch, say)
    try:
        comparison.measure(workloads)
        if peers:
            ours = sides_of(args, FlushKind.ASYNC)[0]
            comparison.peer_runs = PeerRounds(ours, peers, comparison.plan, scratch, say).measure()
    finally:
        if comparison.runs:
            report.show(comparison, workloads, about, console)
            write(args, report.as_dict(comparison, workloads, about))
    rows = summarize(comparison, workloads)
    return all(row.pairs == comparison.plan.pairs for row in rows) and not any(
        found.void for found in comparison.recoveries
    )


def write(args: argparse.Namespace, document: dict[str, Any]) -> None:
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(document, indent=1) + "\n")
    if args.keep:
        KEPT.mkdir(exist_ok=True)
        (KEPT / f"{args.keep}.json").write_text(json.dumps(page.without_runs(document), indent=1) + "\n")
    if args.page:
        print(page.page([document]))


def main() -> int:
    args = arguments()
    console = Console(width=None if sys.stdout.isatty() else 160)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped, frozen ones too
    try:
        workloads = choose(args.workloads, args.raw_only, args.sets)
    except ValueError as error:
        console.print(str(error), style="red", highlight=False)
        return 1
    if args.accounts and any(workload.kind is not LoadKind.RAW_SEND for workload in workloads):
        console.print(
            "--accounts: only raw sends can be signed; choose them with --workloads", style="red", highlight=False
        )
        return 1
    if any(workload.flush is FlushKind.SYNC for workload in workloads) and "{flush}" not in args.ours_command:
        console.print("workloads with sync flush need {flush} in --ours-command", style="red", highlight=False)
        return 1
    if max(args.server_core, args.load_core) >= (os.cpu_count() or 1):
        console.print(f"this machine has no core {max(args.server_core, args.load_core)}", style="red")
        return 1
    if args.scratch:
        args.scratch.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="rocketline-bench-", dir=args.scratch))
    plan = plan_of(args)
    needed = int(plan.pairs * (plan.seconds + plan.cut_s)) * DISK_PER_SECOND
    if shutil.disk_usage(scratch).free < needed and not args.workloads:
        console.print(f"{scratch} has less than {needed >> 30} GiB free: expect void runs", style="yellow")
    try:
        return 0 if compare(args, workloads, scratch, console) else 1
    except (SideFailed, LoadFailed, WireError, JavaUnavailable, JavaCompileError, ValueError) as error:
        console.print(str(error), style="red", highlight=False, markup=False)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())
