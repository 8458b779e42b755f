"""What became of the transactions of each topic since the broker started."""

from __future__ import annotations

from dataclasses import dataclass, field

from rocketline.metrics.families import Tally

COMMIT_BOUNDS_S = (5, 60, 600, 3600, 12 * 3600, 24 * 3600)
MAX_TOPICS = 10_000
"""Topics beyond are not counted: a half message may name any."""


@dataclass(slots=True)
class TopicTransactions:
    open: int = 0
    """Half messages whose end is not known; of those from before the start only the end counts."""
    committed: int = 0
    rolled_back: int = 0
    took: Tally = field(default_factory=lambda: Tally(COMMIT_BOUNDS_S))
    """Seconds from birth to commit."""

    def close(self) -> None:
        self.open = max(0, self.open - 1)


class TransactionsByTopic(dict[str, TopicTransactions]):
    def of(self, topic: str) -> TopicTransactions:
        counts = self.get(topic)
        if counts is None:
            counts = TopicTransactions()
            if len(self) < MAX_TOPICS:
                self[topic] = counts
        return counts

    def committed(self, topic: str, took_ms: int) -> None:
        counts = self.of(topic)
        counts.close()
        counts.committed += 1
        counts.took.note(max(0, took_ms) // 1000)

    def rolled_back(self, topic: str) -> None:
        counts = self.of(topic)
        counts.close()
        counts.rolled_back += 1
