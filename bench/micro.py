"""Micro benchmarks of our own parts: `python bench/micro.py [--only TEXT] [--seconds S] [--json OUT]`.

Cases are in the `micro_*` modules imported below; bench/case.py describes how to write one.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine, micro_broker, micro_filters, micro_protocol
from bench.case import CASES, Timing, time_case

MODULES = (micro_protocol, micro_broker, micro_filters)  # importing one registers its cases


def show(timings: list[Timing], console: Console) -> None:
    table = Table(title="micro benchmarks, per operation")
    table.add_column("case", no_wrap=True)
    for head in ("best ns", "median ns", "per second"):
        table.add_column(head, justify="right")
    for timing in timings:
        if timing.problem:
            table.add_row(timing.name, "-", "-", timing.problem)
        else:
            figures = (timing.best_ns, timing.median_ns, 1e9 / timing.median_ns)
            table.add_row(timing.name, *(f"{figure:,.0f}" for figure in figures))
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--seconds", type=float, default=1.0, help="per case (1)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write the figures to this file")
    args = parser.parse_args()
    chosen = [case for case in CASES if args.only in case.name]
    if not chosen:
        parser.error(f"no case contains {args.only!r}; there are: {', '.join(case.name for case in CASES)}")
    timings = [time_case(case, args.seconds) for case in chosen]
    show(timings, Console(width=None if sys.stdout.isatty() else 140))
    if args.json:
        about = machine.describe(Path(__file__).resolve().parent.parent)
        text = json.dumps({"about": about, "timings": [asdict(timing) for timing in timings]}, indent=1)
        args.json.write_text(text + "\n")
    return 1 if any(timing.problem for timing in timings) else 0


if __name__ == "__main__":
    raise SystemExit(main())
