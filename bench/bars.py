"""The targets ("bars") of our broker against Apache's, and whether a result reaches them.

A bar is a line such as "ratio >= 1.2 or client-bound and cpu <= 0.5", one for the compiled broker and one for pure Python.
Figures are ours / Apache's, medians of the pairs:

| name | figure |
| --- | --- |
| ratio | msg/s |
| cpu | the servers' processor time per message |
| p99 | 99th percentile of the latency |
| time, memory | of a start, or at rest |
| per-decade | our own cost per message with ten times as many of something |
| client-bound | the load generator limited our side |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

CONDITION = re.compile(r"(?P<name>[\w-]+) (?P<sign>[<>]=) (?P<limit>[\d.]+)")
COMPILED, PURE = "c", "python"


@dataclass(frozen=True)
class Bar:
    compiled: str
    pure: str

    def of(self, implementation: str) -> str:
        return self.compiled if implementation == COMPILED else self.pure


BARS = {
    "raw-64": Bar("ratio >= 2.5", "ratio >= 1.3"),
    "raw-64-1k": Bar("ratio >= 2.5", "ratio >= 1.3"),
    "raw-1": Bar("ratio >= 1.5", "ratio >= 1.2"),
    "raw-8x32": Bar("ratio >= 3.0", "ratio >= 1.5"),
    "raw-batch": Bar("ratio >= 1.5", "ratio >= 0.8"),
    "java-64": Bar("ratio >= 1.1 and cpu <= 0.4", "ratio >= 1.0 and cpu <= 0.7"),
    "java-batch": Bar("ratio >= 1.1 and cpu <= 0.4", "ratio >= 1.0 and cpu <= 0.7"),
    "java-push": Bar("ratio >= 1.2 or client-bound and cpu <= 0.5", "ratio >= 0.8"),
    "raw-pull": Bar("ratio >= 2.0", "ratio >= 1.0"),
    "raw-sync-64": Bar("ratio >= 1.5", "ratio >= 1.2"),
    "e2e-5k": Bar("p99 <= 0.5", "p99 <= 1.0"),
    "first ack": Bar("time <= 0.08", "time <= 0.1"),
    "idle memory": Bar("memory <= 0.12", "memory <= 0.12"),
    "memory after runs": Bar("memory <= 0.1", "memory <= 0.1"),
    "growth": Bar("per-decade <= 1.15", "per-decade <= 1.15"),
}


def is_reached(bar: str, figures: Mapping[str, float | bool | None]) -> bool | None:
    """Whether a bar is reached; None if a figure that would decide it is missing.

    >>> is_reached("ratio >= 1.2 or client-bound and cpu <= 0.5", {"ratio": 1.1, "client-bound": True, "cpu": 0.4})
    True
    """
    verdicts = []
    for way in bar.split(" or "):
        parts = [_holds(condition, figures) for condition in way.split(" and ")]
        verdicts.append(False if False in parts else None if None in parts else True)
    return True if True in verdicts else None if None in verdicts else False


def _holds(condition: str, figures: Mapping[str, float | bool | None]) -> bool | None:
    found = CONDITION.fullmatch(condition)
    if found is None:
        flag = figures.get(condition)
        return None if flag is None else bool(flag)
    figure = figures.get(found["name"])
    if figure is None:
        return None
    return figure >= float(found["limit"]) if found["sign"] == ">=" else figure <= float(found["limit"])
