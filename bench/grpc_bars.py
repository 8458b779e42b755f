"""The targets of our gRPC front against Apache's proxy in local mode on the same core, and which of them a run reaches."""

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
