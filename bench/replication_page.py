"""Medians, bars and the table of docs/performance.md for bench/replication.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.grpc_bars import Verdict
from bench.measure import NOISY_CORES
from bench.summary import Spread

OURS, APACHE, ALONE = "rocketline", "apache", "alone"
"""Ours with a replica, Apache's with one, ours without."""
CATCH_UP = "catch-up"
RATE, P99, CPU, CATCHING_UP = 2.0, 0.5, 1.4, 1.0
"""The bars: to Apache's at least or at most so much; CPU of the master with a replica to alone."""
FIGURES = (
    "rate",
    "p50_us",
    "p99_us",
    "p999_us",
    "cpu_us",
    "replica_cpu_us",
    "seconds behind",
    "mib_per_s",
    "seconds",
    "bytes",
)
WHAT = {
    "async-1": "not waited for, one sender",
    "async-64": "not waited for, 64 senders",
    "async-8x32-1k": "not waited for, 256 in flight, 1 KiB",
    "sync-1": "waited for, one sender",
    "sync-64": "waited for, 64 senders",
    "sync-8x32-1k": "waited for, 256 in flight, 1 KiB",
}

Run = Mapping[str, Any]


def line_of(run: Run) -> str:
    if "mib_per_s" in run:
        return f"{run['side']}: {run['bytes'] / (1 << 20):,.0f} MiB in {run['seconds']:.2f} s, {run['mib_per_s']:,.0f} MiB/s"
    return (
        f"{run['side']}: {run['rate']:,.0f} msg/s, p99 {run['p99_us']:,.0f} us, CPU of the master {run['cpu_us']:.1f} us, "
        f"of the replica {run['replica_cpu_us']:.1f} us, which was {run['seconds behind']:.2f} s behind at the end"
    )


def summary(row: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Medians and ranges by side, and of the ratios inside the pairs."""
    sides = {
        side: {
            figure: asdict(spread)
            for figure in FIGURES
            if (spread := Spread.of(run[figure] for run in runs if run["side"] == side and figure in run))
        }
        for side in dict.fromkeys(run["side"] for run in runs)
    }
    wanted = {
        "rate": ("rate", APACHE),
        "p99": ("p99_us", APACHE),
        "CPU to alone": ("cpu_us", ALONE),
        CATCH_UP: ("mib_per_s", APACHE),
    }
    ratios = {name: asdict(found) for name, (figure, other) in wanted.items() if (found := _ratio(runs, figure, other))}
    return {"sides": sides, "ratios": ratios}


def _ratio(runs: Sequence[Run], figure: str, other: str) -> Spread | None:
    """Ours to the other side's, inside each pair."""
    of_pairs: dict[int, dict[str, float]] = {}
    for run in runs:
        if figure in run:
            of_pairs.setdefault(run["pair"], {})[run["side"]] = run[figure]
    return Spread.of(pair[OURS] / pair[other] for pair in of_pairs.values() if OURS in pair and pair.get(other))


def verdicts(rows: Mapping[str, Any]) -> list[Verdict]:
    """Medians against what is wanted."""
    bars = {"rate": (RATE, True), "p99": (P99, False), "CPU to alone": (CPU, False), CATCH_UP: (CATCHING_UP, True)}
    return [
        Verdict(row if name == row else f"{row}, {name}", found["median"], *bars[name])
        for row, document in rows.items()
        for name, found in document["ratios"].items()
    ]


def table(rows: Mapping[str, Any]) -> str:
    """In Markdown."""
    lines = [
        "| replica, load | ours, msg/s | Apache, msg/s | ratio | p99, ms | ratio | CPU of our master |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row, what in WHAT.items():
        if row in rows:
            ours, apache = (rows[row]["sides"][side] for side in (OURS, APACHE))
            ratios = rows[row]["ratios"]
            p99 = " : ".join(_ms(side["p99_us"]["median"]) for side in (ours, apache))
            cpu = _range(ratios["CPU to alone"]) if "CPU to alone" in ratios else ""
            rates = f"{ours['rate']['median']:,.0f} | {apache['rate']['median']:,.0f} | {_range(ratios['rate'])}"
            lines.append(f"| {what} | {rates} | {p99} | {_range(ratios['p99'])} | {cpu} |")
    disturbed = {WHAT[row]: _disturbed(rows[row]["runs"]) for row in WHAT if row in rows}
    if any(disturbed.values()):
        named = ", ".join(f"{what} {count}" for what, count in disturbed.items() if count)
        lines += ["", f"Runs before which something else used more than {NOISY_CORES:g} of a core: {named}."]
    if CATCH_UP in rows:
        ours, apache = (rows[CATCH_UP]["sides"][side]["mib_per_s"]["median"] for side in (OURS, APACHE))
        lines += [
            "",
            f"Catching up: {ours:,.0f} MiB/s, Apache's {apache:,.0f}: {_range(rows[CATCH_UP]['ratios'][CATCH_UP])}.",
        ]
    return "\n".join(lines)


def _disturbed(runs: Sequence[Run]) -> int:
    return sum(run.get("cores busy before", 0.0) > NOISY_CORES for run in runs)


def _ms(us: float) -> str:
    return f"{us / 1000:.2f}" if us < 10_000 else f"{us / 1000:.1f}"


def _range(found: Mapping[str, float]) -> str:
    """
    >>> _range({"median": 2.0, "low": 1.5, "high": 2.25})
    '2.00 (1.50-2.25)'
    """
    return f"{found['median']:.2f} ({found['low']:.2f}-{found['high']:.2f})"
