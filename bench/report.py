"""A comparison as tables for people and a dictionary for programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from bench.growth import growths
from bench.measure import Comparison
from bench.results import RecoveryTime, Rest, Start
from bench.summary import Row, Spread, peer_rows, stored_costs, summarize
from bench.workloads import Workload
from rich.console import Console
from rich.table import Table

WARM_ENOUGH_S = 50.0  # what a JVM needs


def show(comparison: Comparison, workloads: list[Workload], about: dict[str, str], console: Console) -> None:
    rows = summarize(comparison, workloads)
    ours, peer = comparison.labels
    console.print(_workload_table(rows, ours, peer))
    console.print(_start_table(comparison, ours, peer))
    for line in _growth_lines(comparison, rows):
        console.print(line, highlight=False)
    for row in rows:
        for note in row.notes:
            console.print(f"  {row.workload}: {note}", highlight=False, soft_wrap=True)
    for workload in workloads:
        console.print(f"  {workload.name} = {workload.what}", highlight=False, style="dim")
    console.print(conditions(comparison, about), highlight=False)
    if comparison.plan.warmup_s < WARM_ENOUGH_S:
        console.print(
            "Not warmed up: these figures show that the harness works, and nothing else.", style="bold yellow"
        )


def _workload_table(rows: list[Row], ours: str, peer: str) -> Table:
    table = Table(title=f"{ours} against {peer}; ratio = {ours} / {peer}, median of pairs (range)")
    table.add_column("workload", no_wrap=True)
    for head in (
        f"msg/s {ours}",
        f"msg/s {peer}",
        "ratio",
        f"p50 us {ours} : {peer}",
        f"p99 us {ours} : {peer}",
        f"p99.9 us {ours} : {peer}",
        f"CPU-s per 10^6 {ours} : {peer}",
        "CPU ratio",
        "pairs",
    ):
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(
            row.workload,
            _number(row.rate[ours]),
            _number(row.rate[peer]),
            _ratio(row.ratio),
            f"{_number(row.p50_us[ours])} : {_number(row.p50_us[peer])}",
            f"{_number(row.p99_us[ours])} : {_number(row.p99_us[peer])}",
            f"{_number(row.p999_us[ours])} : {_number(row.p999_us[peer])}",
            f"{_number(row.cpu_per_million_s[ours], 1)} : {_number(row.cpu_per_million_s[peer], 1)}",
            _ratio(row.cpu_ratio),
            f"{row.pairs}" + (f" ({row.void} void)" if row.void else ""),
        )
    return table


def _start_table(comparison: Comparison, ours: str, peer: str) -> Table:
    table = Table(title="start and memory (name server and broker together), median (range)")
    table.add_column("figure")
    for label in (ours, peer):
        table.add_column(label, justify="right")
    starts: list[tuple[str, Callable[[Start], float]]] = [
        ("start to ready, s", lambda start: start.ready_s),
        ("start to first ack, s", lambda start: start.first_ack_s),
        ("idle RSS after a start, MiB", lambda start: start.idle_rss / 2**20),
        ("  without mapped files", lambda start: start.idle_anonymous / 2**20),
    ]
    for name, of_start in starts:
        spreads = (
            Spread.of(of_start(start) for start in comparison.starts if start.side == label) for label in (ours, peer)
        )
        table.add_row(name, *map(_span, spreads))
    recoveries: list[tuple[str, Callable[[RecoveryTime], float]]] = [
        (f"kill -9 with {comparison.plan.recovery_gib:g} GiB to ready, s", lambda found: found.ready_s),
        ("  to first ack, s", lambda found: found.first_ack_s),
    ]
    for name, of_recovery in recoveries:
        good = [found for found in comparison.recoveries if not found.void]
        spreads = (Spread.of(of_recovery(found) for found in good if found.side == label) for label in (ours, peer))
        table.add_row(name, *map(_span, spreads))
    rests: list[tuple[str, Callable[[Rest], float]]] = [
        ("idle RSS after all runs, MiB", lambda rest: rest.rss / 2**20),
        ("  without mapped files", lambda rest: rest.anonymous / 2**20),
        ("idle CPU after all runs, % of a core", lambda rest: rest.cpu * 100),
    ]
    for name, of_rest in rests:
        cells = {rest.side: f"{of_rest(rest):,.1f}" for rest in comparison.rests}
        table.add_row(name, *(cells.get(label, "-") for label in (ours, peer)))
    return table


def _growth_lines(comparison: Comparison, rows: list[Row]) -> list[str]:
    ours = comparison.labels[0]
    spreads = {row.workload: row.cpu_per_million_s[ours] for row in rows} | stored_costs(comparison.stored_runs)
    costs = {name: spread.median for name, spread in spreads.items() if spread}
    return [
        f"{ours}, CPU us per message, {grown.what}: "
        + ", ".join(f"{cost:.1f}" for cost in grown.costs)
        + " (per decade "
        + ", ".join(f"{step:.2f}x" for step in grown.steps)
        + ")"
        for grown in growths(costs)
    ]


def conditions(comparison: Comparison, about: dict[str, str]) -> str:
    """What has to stand beside every figure."""
    plan = comparison.plan
    fsync = Spread.of(run.fsync_p50_us for run in comparison.runs if run.fsync_p50_us)
    memcpy = Spread.of(run.memcpy_gb_s for run in comparison.runs if run.memcpy_gb_s)
    warm = ", ".join(
        f"{label} {rates[0]:,.0f} to {rates[-1]:,.0f} msg/s" for label, rates in comparison.warmth.items() if rates
    )
    return (
        f"Servers on core {about['server_core']}, load on core {plan.load_core}; the idle side "
        f"{'frozen' if plan.freeze else 'left running'}; {plan.seconds:g} s per run after {plan.cut_s:g} s cut off; "
        f"{plan.warmup_s:g} s of warm-up per side ({warm}).\n"
        f"Async flush unless said, no replication, {plan.queues} queues, bodies half random. Disk: fsync p50 "
        f"{_span(fsync)} us; memory: memcpy {_span(memcpy, 1)} GB/s.\n"
        f"{about['processor']}, {about['cores']} cores, {about['memory_gib']} GiB, Linux {about['kernel']}; "
        f"{about['versions']}; commit {about['commit']}; {about['when']}."
    )


def as_dict(comparison: Comparison, workloads: list[Workload], about: dict[str, str]) -> dict[str, Any]:
    """Everything: what, where and when, the medians, and each run. `bench/page.py` reads it, with or without the runs."""
    summary = [asdict(row) for row in summarize(comparison, workloads)]
    probes = {
        "fsync_p50_us": Spread.of(run.fsync_p50_us for run in comparison.runs if run.fsync_p50_us),
        "memcpy_gb_s": Spread.of(run.memcpy_gb_s for run in comparison.runs if run.memcpy_gb_s),
    }
    return {
        "about": about,
        "sides": comparison.labels,
        "conditions": conditions(comparison, about),
        "probes": {name: spread and asdict(spread) for name, spread in probes.items()},
        "summary": summary,
        "stored": {name: spread and asdict(spread) for name, spread in stored_costs(comparison.stored_runs).items()},
        "peers": [asdict(row) for row in peer_rows(comparison.peer_runs)],
        **comparison.as_dict(),
    }


def _number(spread: Spread | None, digits: int = 0) -> str:
    return "-" if spread is None else f"{spread.median:,.{digits}f}"


def _ratio(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.median:.2f}x ({spread.low:.2f}-{spread.high:.2f})"


def _span(spread: Spread | None, digits: int | None = None) -> str:
    if spread is None:
        return "-"
    places = digits if digits is not None else (2 if spread.high < 20 else 0)
    return f"{spread.median:,.{places}f} ({spread.low:,.{places}f}-{spread.high:,.{places}f})"
