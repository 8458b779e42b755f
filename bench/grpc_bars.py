"""The targets of our gRPC front against Apache's proxy in local mode on the same core, which of them a run reaches, and its
figures as a table of docs/performance.md."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

RATE = 1.0
"""Of each load, messages per second: at least so many times Apache's."""
MEMORY = 0.2
"""Without mapped files: at most so many times Apache's."""
START_S = 1.0
"""Until it is ready: at most so many seconds."""


@dataclass(frozen=True)
class Verdict:
    """A figure beside its bar."""

    name: str
    value: float
    bar: float
    is_least: bool
    """The bar is the least that is wanted, not the most."""

    @property
    def is_reached(self) -> bool:
        return self.value >= self.bar if self.is_least else self.value <= self.bar

    def __str__(self) -> str:
        sign = "at least" if self.is_least else "at most"
        reached = "reached" if self.is_reached else "NOT REACHED"
        return f"{self.name}: {self.value:.2f}, {sign} {self.bar:g} wanted: {reached}"

    def shown(self) -> dict[str, Any]:
        return {**asdict(self), "is_reached": self.is_reached}


def verdicts(ratios: Mapping[str, Sequence[float]], memory_ratio: float, start_s: float) -> list[Verdict]:
    """`ratios` are those of the pairs of each load, ours to Apache's; what counts is their median."""
    found = [Verdict(load, statistics.median(of_pairs), RATE, True) for load, of_pairs in ratios.items()]
    return [*found, Verdict("memory", memory_ratio, MEMORY, False), Verdict("start", start_s, START_S, False)]


Figures = Mapping[str, Mapping[str, float]]
"""By side, then by name."""


def page_table(medians: Mapping[str, Figures], ratios: Mapping[str, Sequence[float]], sides: Figures) -> str:
    """In Markdown. `medians` are those of each load; `sides` have memory and start."""
    rows = ["| | ours | Apache's proxy 5.4.0 | ratio |", "| --- | --- | --- | --- |"]
    for load, of_sides in medians.items():
        ours, theirs = (
            f"{figures['rate']:,.0f} msg/s, {figures['cpu_us']:.0f} us of CPU"
            for figures in (of_sides["rocketline"], of_sides["apache"])
        )
        of_pairs = ratios[load]
        ratio = f"{statistics.median(of_pairs):.2f} ({min(of_pairs):.2f}-{max(of_pairs):.2f})"
        rows.append(f"| `{load}` | {ours} | {theirs} | {ratio} |")
    ours, theirs = sides["rocketline"], sides["apache"]
    mib = [side["anonymous_bytes"] / (1 << 20) for side in (ours, theirs)]
    rows.append(
        f"| memory after the runs, without mapped files | {mib[0]:.0f} MiB | {mib[1]:.0f} MiB | {mib[0] / mib[1]:.2f} |"
    )
    rows.append(f"| ready after | {ours['ready_s']:.2f} s | {theirs['ready_s']:.1f} s | |")
    return "\n".join(rows)
