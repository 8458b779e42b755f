"""The plan and the results of a comparison: plain values for the report and for JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

BACKLOG_BATCH = 32


@dataclass(frozen=True)
class BenchPlan:
    """Numbers and times of a comparison; times are in seconds."""

    pairs: int = 3
    seconds: float = 10.0
    cut_s: float = 2.0  # of each run, not measured
    warmup_s: float = 60.0  # of load per side before the first pair
    starts: int = 3
    recoveries: int = 2  # pairs of kill -9 and start
    recovery_gib: float = 0.5  # stored when the kill comes
    stored: tuple[int, ...] = (
        100_000,
        1_000_000,
        10_000_000,
    )  # messages in the store when the cost of a send is measured
    idle_s: float = 10.0  # of rest before idle figures are measured
    settle_s: float = 0.5  # after waking a side
    calm_s: float = 20.0  # longest wait before a run for the neighbours to become quiet
    backlog: int = 1_000_000  # messages, whole batches of BACKLOG_BATCH
    queues: int = 8
    load_core: int = 1
    freeze: bool = True

    def __post_init__(self) -> None:
        if self.backlog % BACKLOG_BATCH:
            raise ValueError(f"the backlog must be a multiple of {BACKLOG_BATCH} messages, not {self.backlog}")


@dataclass(frozen=True)
class MeasuredRun:
    """One workload once on one side. `cpu_per_million_s` is the servers' processor time per million messages."""

    side: str
    workload: str
    pair: int
    void: str  # why it does not count; empty if it does
    rate: float = 0.0
    p50_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None
    max_us: float | None = None
    cpu_per_million_s: float = 0.0
    server_busy: float = 0.0  # share of the run the servers used a core
    load_busy: float = 0.0  # while it was measured, where the generator says so
    others_busy: float = 0.0  # cores used by everything else meanwhile
    rss: int = 0
    anonymous: int = 0
    flushes_per_s: float | None = None  # of the disk, by all processes
    fsync_p50_us: float = 0.0
    memcpy_gb_s: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    side: str
    ready_s: float
    first_ack_s: float
    idle_rss: int
    idle_anonymous: int


@dataclass(frozen=True)
class RecoveryTime:
    """A start after kill -9; void if a message acknowledged before the kill is missing."""

    side: str
    pair: int
    messages: int
    ready_s: float = 0.0
    first_ack_s: float = 0.0
    void: str = ""


@dataclass(frozen=True)
class Rest:
    """A side after all runs, with nothing to do."""

    side: str
    cpu: float  # share of a core
    rss: int
    anonymous: int
