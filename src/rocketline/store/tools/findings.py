"""What an inspection found wrong, each thing with its place."""

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
    part: str
    place: str
    problem: str
    heals: bool
    """Whether the next start of a broker repairs it."""

    def __str__(self) -> str:
        return f"{self.part}, {self.place}: {self.problem}"


class Findings:
    """Keeps the first thousand and counts them all: a store may be damaged everywhere."""

    def __init__(self) -> None:
        self.kept: list[StoreFinding] = []
        self.damaged: Counter[str] = Counter()
        """By part, what no start repairs."""
        self.healing: Counter[str] = Counter()

    def add(self, part: str, place: str, problem: str, heals: bool = False) -> None:
        (self.healing if heals else self.damaged)[part] += 1
        if len(self.kept) < _KEPT:
            self.kept.append(StoreFinding(part, place, problem, heals))

    def by_part(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many no start repairs, and how many one does, part by part from the log on."""
        order = sorted(self.damaged.keys() | self.healing.keys(), key=PARTS.index)
        counts = (self.damaged, self.healing)
        damaged, healing = ({part: count[part] for part in order if count[part]} for count in counts)
        return damaged, healing

    @property
    def not_kept(self) -> int:
        return self.damaged.total() + self.healing.total() - len(self.kept)
