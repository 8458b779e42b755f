"""Medians and ratios of a comparison.

A ratio is ours / peer inside one pair; of the pairs it is the median and the range. For msg/s more is better, for
microseconds and processor time less.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.measure import NOISY_CORES, Comparison
from bench.results import MeasuredRun
from bench.workloads import FlushKind, Workload

LOAD_BOUND = 0.9  # a generator busier than this limits the figure


@dataclass(frozen=True)
class Spread:
    """The median of some figures and their range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        known = list(values)
        return cls(statistics.median(known), min(known), max(known)) if known else None


@dataclass(frozen=True)
class Row:
    """A workload's result: per side the medians, between them the ratios.

    `is_open`: it sends at a given rate. `client_bound`: the load generator limited our side.
    """

    workload: str
    what: str
    is_open: bool
    client_bound: bool
    pairs: int
    void: int
    rate: dict[str, Spread | None]
    p50_us: dict[str, Spread | None]
    p99_us: dict[str, Spread | None]
    p999_us: dict[str, Spread | None]
    cpu_per_million_s: dict[str, Spread | None]
    rss_mib: dict[str, Spread | None]
    anonymous_mib: dict[str, Spread | None]
    flushes_per_s: dict[str, Spread | None]
    ratio: Spread | None
    p50_ratio: Spread | None
    p99_ratio: Spread | None
    p999_ratio: Spread | None
    cpu_ratio: Spread | None
    notes: list[str]


def summarize(comparison: Comparison, workloads: list[Workload]) -> list[Row]:
    return [_row(comparison, workload) for workload in workloads]


def _row(comparison: Comparison, workload: Workload) -> Row:
    runs = [run for run in comparison.runs if run.workload == workload.name]
    labels = comparison.labels
    pairs = _whole_pairs(runs, labels)
    sides = {label: [pair[label] for pair in pairs] for label in labels}

    def each(figure: Callable[[MeasuredRun], float | None]) -> dict[str, Spread | None]:
        return {
            label: Spread.of(value for run in sides[label] if (value := figure(run)) is not None) for label in labels
        }

    def ratio(figure: Callable[[MeasuredRun], float | None]) -> Spread | None:
        ours, peer = labels
        both = [(figure(pair[ours]), figure(pair[peer])) for pair in pairs]
        return Spread.of(mine / other for mine, other in both if mine is not None and other)

    return Row(
        workload=workload.name,
        what=workload.what,
        is_open=workload.is_open,
        client_bound=_is_client_bound(sides[labels[0]], workload),
        pairs=len(pairs),
        void=sum(bool(run.void) for run in runs),
        rate=each(lambda run: run.rate),
        p50_us=each(lambda run: run.p50_us),
        p99_us=each(lambda run: run.p99_us),
        p999_us=each(lambda run: run.p999_us),
        cpu_per_million_s=each(lambda run: run.cpu_per_million_s),
        rss_mib=each(lambda run: run.rss / 2**20),
        anonymous_mib=each(lambda run: run.anonymous / 2**20),
        flushes_per_s=each(lambda run: run.flushes_per_s),
        ratio=ratio(lambda run: run.rate),
        p50_ratio=ratio(lambda run: run.p50_us),
        p99_ratio=ratio(lambda run: run.p99_us),
        p999_ratio=ratio(lambda run: run.p999_us),
        cpu_ratio=ratio(lambda run: run.cpu_per_million_s),
        notes=_notes(runs, workload, labels),
    )


@dataclass(frozen=True)
class PeerRow:
    """A workload on a server of --peers, or on ours in the same rounds. Ratios are ours / the peer's."""

    workload: str
    side: str
    rounds: int
    rate: Spread | None
    p99_us: Spread | None
    cpu_per_million_s: Spread | None
    ratio: Spread | None
    cpu_ratio: Spread | None


def peer_rows(runs: list[MeasuredRun]) -> list[PeerRow]:
    """Ours is the side that was measured first."""
    good = {(run.workload, run.side, run.pair): run for run in runs if not run.void}
    rows = []
    for workload, side in dict.fromkeys((run.workload, run.side) for run in runs):
        mine = [run for (name, label, _), run in good.items() if (name, label) == (workload, side)]
        pairs = [(ours, run) for run in mine if (ours := good.get((workload, runs[0].side, run.pair)))]
        rows.append(
            PeerRow(
                workload,
                side,
                len(mine),
                Spread.of(run.rate for run in mine),
                Spread.of(run.p99_us for run in mine if run.p99_us is not None),
                Spread.of(run.cpu_per_million_s for run in mine),
                Spread.of(ours.rate / run.rate for ours, run in pairs),
                Spread.of(
                    ours.cpu_per_million_s / run.cpu_per_million_s for ours, run in pairs if run.cpu_per_million_s
                ),
            )
        )
    return rows


def _whole_pairs(runs: list[MeasuredRun], labels: list[str]) -> list[dict[str, MeasuredRun]]:
    """Pairs without a void run: a ratio needs both runs of a pair."""
    pairs: dict[int, dict[str, MeasuredRun]] = {}
    for run in runs:
        if not run.void:
            pairs.setdefault(run.pair, {})[run.side] = run
    return [pair for _, pair in sorted(pairs.items()) if len(pair) == len(labels)]


def _is_client_bound(runs: list[MeasuredRun], workload: Workload) -> bool:
    """Whether the generator was the limit. A load at a given rate always spins, so it never counts."""
    return bool(runs) and not workload.is_open and statistics.median(run.load_busy for run in runs) > LOAD_BOUND


def _notes(runs: list[MeasuredRun], workload: Workload, labels: list[str]) -> list[str]:
    notes = []
    for label in labels:
        mine = [run for run in runs if run.side == label and not run.void]
        if _is_client_bound(mine, workload):
            notes.append(f"{label}: the load generator was the limit")
        flushes = [run.flushes_per_s for run in mine if run.flushes_per_s]
        if workload.flush is FlushKind.SYNC and flushes:
            each = statistics.median(run.rate / run.flushes_per_s for run in mine if run.flushes_per_s)
            notes.append(
                f"{label}: {statistics.median(flushes):,.0f} flushes of the disk per second, {each:.1f} messages to each"
            )
    noisy = sum(run.others_busy > NOISY_CORES for run in runs)
    if noisy:
        notes.append(f"{noisy} of {len(runs)} runs had a busy neighbour")
    notes += [f"{run.side} pair {run.pair + 1} void: {run.void}" for run in runs if run.void]
    return notes


def stored_costs(runs: list[MeasuredRun]) -> dict[str, Spread | None]:
    """Processor time per million sends, by how much was stored."""
    names = dict.fromkeys(run.workload for run in runs)
    return {
        name: Spread.of(run.cpu_per_million_s for run in runs if run.workload == name and not run.void)
        for name in names
    }
