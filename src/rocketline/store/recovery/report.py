"""What recovery starts from, and what it reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rocketline.store.flush.checkpoint_writer import QueueExtent
from rocketline.store.flush.progress import ProgressMark
from rocketline.store.recovery.record_runs import ParseProperties

QueueKey = tuple[str, int]


@dataclass(frozen=True)
class RecoveryInput:
    """What the small files and the folders say about a store, before its log is read."""

    after_crash: bool
    parse_properties: ParseProperties | None = None
    """How to read properties when more are needed than those in queues and index."""
    mark: ProgressMark | None = None
    flushed: int = 0
    """The log below this offset was on disk once; 0: not known."""
    extents: dict[QueueKey, QueueExtent] = field(default_factory=dict)
    """The units each queue must have at least."""
    are_exact: bool = False
    """Whether the queues had exactly these units when the store was closed."""
    broken: frozenset[QueueKey] = frozenset()
    """Queues whose files could not be loaded."""
    index_broken: bool = False


@dataclass(frozen=True)
class RecoveryReport:
    """What opening a store found and did."""

    after_crash: bool
    log_min_offset: int
    log_next_offset: int
    scanned_from: int
    records_scanned: int
    ended_by: str
    """Why reading the log stopped where it did."""
    files_deleted: int
    queue_count: int
    rebuilt: tuple[str, ...] = ()
    """The queues, as TOPIC/NUMBER, and "index", that were rebuilt."""
    damaged_records: int = 0

    def __str__(self) -> str:
        parts = [
            f"store opened after {'a crash' if self.after_crash else 'a clean stop'}: log {self.log_min_offset} to "
            f"{self.log_next_offset}, {self.queue_count} queues",
            f"{self.records_scanned} records read from {self.scanned_from} to {self.ended_by}",
        ]
        if self.files_deleted:
            parts.append(f"{self.files_deleted} log files after the end removed")
        if self.rebuilt:
            parts.append(f"rebuilt: {shortened(self.rebuilt)}")
        if self.damaged_records:
            parts.append(f"{self.damaged_records} damaged records skipped")
        return "; ".join(parts)


def shortened(names: Sequence[str]) -> str:
    """The first ten names, and how many more there are."""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"{', '.join(names[:10])}{more}"
