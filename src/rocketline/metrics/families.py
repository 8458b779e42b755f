"""Families of series: a name, a kind, and samples that differ in their labels.

The number of series of a family is limited, because peers choose topics, groups and clusters: those beyond the limit are
added up in one series whose topic, group and cluster are called `__other__`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeVar

T = TypeVar("T")

OTHER = "__other__"
CLIENT_CHOSEN_LABELS = ("topic", "consumer_group", "cluster")
"""Labels whose values peers choose."""
DEFAULT_LIMIT = 10_000
ITEMS_PER_TURN = 256
"""Items handled before the event loop gets a turn."""

Labels = tuple[tuple[str, str], ...]


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Distribution(NamedTuple):
    """The counts of the buckets of a histogram, the last one for values above all bounds, and the sum of all values."""

    counts: tuple[int, ...]
    total: float

    def plus(self, other: Distribution) -> Distribution:
        return Distribution(tuple(a + b for a, b in zip(self.counts, other.counts)), self.total + other.total)


class Tally:
    """Counts values into the buckets of a histogram."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total: float = 0

    def note(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._total += value * times

    @property
    def distribution(self) -> Distribution:
        return Distribution(tuple(self._counts), self._total)


@dataclass
class Family:
    name: str
    kind: MetricKind
    help: str
    unit: str = ""
    bounds: tuple[float, ...] = ()
    """Upper ends of a histogram's buckets, without the last."""
    takes_largest: bool = False
    """Equal labels give the largest value and not the sum: for ages, which cannot be added."""
    limit: int = DEFAULT_LIMIT
    samples: dict[Labels, float] = field(default_factory=dict)
    distributions: dict[Labels, Distribution] = field(default_factory=dict)

    def add(self, value: float, **labels: str) -> None:
        """Add a sample; samples with equal labels, and those over the limit, are combined."""
        key = self._key(self.samples, labels)
        known = self.samples.get(key)
        if known is None:
            self.samples[key] = value
        else:
            self.samples[key] = max(known, value) if self.takes_largest else known + value

    def add_distribution(self, distribution: Distribution, **labels: str) -> None:
        key = self._key(self.distributions, labels)
        known = self.distributions.get(key)
        self.distributions[key] = distribution if known is None else known.plus(distribution)

    def _key(self, taken: dict[Labels, T], labels: dict[str, str]) -> Labels:
        key = tuple(labels.items())
        if len(taken) < self.limit or key in taken:
            return key
        return tuple((name, OTHER if name in CLIENT_CHOSEN_LABELS else value) for name, value in key)


def counter(name: str, help: str, unit: str = "", *, limit: int = DEFAULT_LIMIT) -> Family:
    return Family(name, MetricKind.COUNTER, help, unit, limit=limit)


def gauge(name: str, help: str, unit: str = "", *, limit: int = DEFAULT_LIMIT, takes_largest: bool = False) -> Family:
    return Family(name, MetricKind.GAUGE, help, unit, takes_largest=takes_largest, limit=limit)


def histogram(name: str, help: str, unit: str = "", *, bounds: tuple[float, ...], limit: int = DEFAULT_LIMIT) -> Family:
    return Family(name, MetricKind.HISTOGRAM, help, unit, bounds, limit=limit)


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with a turn for the event loop every `ITEMS_PER_TURN`, so that a server with many topics keeps serving."""
    for number, item in enumerate(list(items), 1):
        yield item
        if number % ITEMS_PER_TURN == 0:
            await asyncio.sleep(0)
