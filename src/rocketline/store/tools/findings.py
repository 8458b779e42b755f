"""What an inspection found wrong, and where."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

LOG = "commit log"
QUEUES = "consume queues"
INDEX = "key index"
CHECKPOINT = "checkpoint"
CONFIG = "config"
PARTS = (LOG, QUEUES, INDEX, CHECKPOINT, CONFIG)

_KEPT = 1000


@dataclass(frozen=True)
class StoreFinding:
    """One thing that is wrong with a store."""

    part: str
    place: str
    problem: str
    heals: bool
    """Whether the next start of a broker repairs this."""

    def __str__(self) -> str:
        return f"{self.part}, {self.place}: {self.problem}"


class Findings:
    """Findings of an inspection: the first thousand, and the count of all of them, because damage may be everywhere."""

    def __init__(self) -> None:
        self.kept: list[StoreFinding] = []
        self.damaged: Counter[str] = Counter()
        """By part: how many findings no start repairs."""
        self.healing: Counter[str] = Counter()
        """By part: how many findings the next start repairs."""

    def add(self, part: str, place: str, problem: str, heals: bool = False) -> None:
        self.add_finding(StoreFinding(part, place, problem, heals))

    def add_finding(self, finding: StoreFinding) -> None:
        (self.healing if finding.heals else self.damaged)[finding.part] += 1
        if len(self.kept) < _KEPT:
            self.kept.append(finding)

    def by_part(self) -> tuple[dict[str, int], dict[str, int]]:
        """Counts of what no start repairs and of what the next start repairs, by part in the order of `PARTS`."""
        order = sorted(self.damaged.keys() | self.healing.keys(), key=PARTS.index)
        counts = (self.damaged, self.healing)
        damaged, healing = ({part: count[part] for part in order if count[part]} for count in counts)
        return damaged, healing

    @property
    def not_kept(self) -> int:
        return self.damaged.total() + self.healing.total() - len(self.kept)
