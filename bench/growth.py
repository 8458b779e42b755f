"""The cost of a message for our broker with 10 and 100 times as many connections, topics or stored messages.

The figure is the servers' CPU time per message, as medians of one comparison; `steps` are the ratios per decade.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.stored import STEP_NAMES

DECADES = {
    "10, 100, 1,000 connections, 1 send in flight each": ("raw-10", "raw-100", "raw-1000"),
    "10, 100, 1,000 topics of 4 queues, 5,000 sends/s": ("topics-10", "topics-100", "topics-1000"),
    "10^5, 10^6, 10^7 messages stored, 8 connections with 32 sends in flight": STEP_NAMES,
}


@dataclass(frozen=True)
class Growth:
    """`costs`: microseconds per message at the three sizes; `steps`: each divided by the one before."""

    what: str
    costs: tuple[float, ...]

    @property
    def steps(self) -> tuple[float, ...]:
        return tuple(after / before for before, after in zip(self.costs, self.costs[1:], strict=False) if before)

    @property
    def worst(self) -> float:
        return max(self.steps)


def growths(cost_of: Mapping[str, float]) -> list[Growth]:
    """The growths for costs by workload; those not measured at all sizes are left out."""
    return [
        Growth(what, tuple(cost_of[name] for name in names))
        for what, names in DECADES.items()
        if all(cost_of.get(name) for name in names)
    ]
