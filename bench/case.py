"""Registration and timing of micro benchmarks.

    @case("header decode, JSON send")
    def decode_json_send() -> Work:
        header = ...                           # set-up, not timed
        return lambda: decode_header(header)   # timed, again and again

A case that does several operations per call (a read of 64 frames) has `operations=64`, and the figure is per operation.
A case imports what it measures inside its function: one that cannot be set up is shown with the reason, and the others
still run.
"""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass

Work = Callable[[], object]


@dataclass(frozen=True)
class Case:
    name: str
    prepare: Callable[[], Work]
    operations: int


@dataclass(frozen=True)
class Timing:
    """Nanoseconds per operation: the best repeat (the machine undisturbed) and the median one."""

    name: str
    best_ns: float
    median_ns: float
    problem: str = ""


CASES: list[Case] = []


def case(name: str, operations: int = 1) -> Callable[[Callable[[], Work]], Callable[[], Work]]:
    """Register a function that prepares and returns the work to time."""

    def register(prepare: Callable[[], Work]) -> Callable[[], Work]:
        if any(known.name == name for known in CASES):
            raise ValueError(f"two micro benchmarks are called {name!r}")
        CASES.append(Case(name, prepare, operations))
        return prepare

    return register


def time_case(chosen: Case, seconds: float = 1.0, repeats: int = 7) -> Timing:
    """Time a case for about `seconds`, cut into repeats."""
    try:
        work = chosen.prepare()
        work()
    except Exception as error:
        return Timing(chosen.name, 0.0, 0.0, problem=f"{type(error).__name__}: {error}")
    rounds = _rounds_for(work, seconds / repeats)
    taken = timeit.repeat(work, number=rounds, repeat=repeats)
    per_operation = [each / rounds / chosen.operations * 1e9 for each in taken]
    return Timing(chosen.name, min(per_operation), statistics.median(per_operation))


def _rounds_for(work: Work, seconds: float) -> int:
    rounds = 1
    while True:
        began = time.perf_counter()
        for _ in range(rounds):
            work()
        took = time.perf_counter() - began
        if took >= seconds / 4:
            return max(1, round(rounds * seconds / took))
        rounds *= 4
