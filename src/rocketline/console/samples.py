"""Numbers over time, in memory: the last hour every 5 seconds, the last day every minute."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from itertools import islice

STEP_S = 5.0
FINE_POINTS = 720
COARSE_POINTS = 1440
FINE_IN_COARSE = 12
MAX_SERIES = 2000
FORGET_COARSE_MINUTES = 60


class Ring:
    """Values of many series at common times; the oldest give way."""

    def __init__(self, points: int) -> None:
        self._points = points
        self._times: list[int] = []
        self._next = 0
        self._values: dict[str, array[float]] = {}

    def add(self, now_ms: int, values: Mapping[str, float]) -> None:
        if len(self._times) < self._points:
            self._times.append(now_ms)
        else:
            self._times[self._next] = now_ms
        for name, row in self._values.items():
            row[self._next] = values.get(name, math.nan)
        self._begin_series(values)
        self._next = (self._next + 1) % self._points

    def _begin_series(self, values: Mapping[str, float]) -> None:
        """Series that are new. The first names of `values` matter most; for them, one that has no value now is given up."""
        wanted = dict(islice(values.items(), MAX_SERIES))
        new = [name for name in wanted if name not in self._values]
        silent = [name for name in self._values if name not in wanted]
        for name in silent[: max(0, len(self._values) + len(new) - MAX_SERIES)]:
            del self._values[name]
        for name in new:
            # 4 bytes a point: a chart does not show more digits.
            self._values[name] = array("f", [math.nan]) * self._points
            self._values[name][self._next] = wanted[name]

    def forget_silent(self) -> None:
        """Give up series that have no value left."""
        for name in [name for name, row in self._values.items() if all(map(math.isnan, row))]:
            del self._values[name]

    def times(self) -> list[int]:
        """Oldest first."""
        return self._times if len(self._times) < self._points else self._times[self._next :] + self._times[: self._next]

    def row(self, name: str) -> list[float | None]:
        """The values at `times`; None where there was none."""
        stored = self._values.get(name)
        if stored is None:
            return [None] * len(self._times)
        row = stored[: len(self._times)]
        if len(self._times) == self._points:
            row = stored[self._next :] + stored[: self._next]
        return [None if math.isnan(value) else round(value, 3) for value in row]

    def last(self, name: str) -> float | None:
        """The newest value there is."""
        stored = self._values.get(name)
        if stored is None:
            return None
        places = ((self._next - back) % self._points for back in range(1, len(self._times) + 1))
        value = next((stored[place] for place in places if not math.isnan(stored[place])), None)
        return None if value is None else round(value, 3)

    def names(self) -> list[str]:
        return sorted(self._values)


class Samples:
    def __init__(self) -> None:
        self.fine = Ring(FINE_POINTS)
        self.coarse = Ring(COARSE_POINTS)
        self._sums: dict[str, tuple[float, int]] = {}
        self._count = 0
        self._minutes = 0

    def add(self, now_ms: int, values: Mapping[str, float]) -> None:
        self.fine.add(now_ms, values)
        for name, value in values.items():
            total, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = (total + value, count + 1)
        self._count += 1
        if self._count == FINE_IN_COARSE:
            self.coarse.add(now_ms, {name: total / count for name, (total, count) in self._sums.items()})
            self._sums, self._count = {}, 0
            self.fine.forget_silent()
            self._minutes += 1
            if self._minutes % FORGET_COARSE_MINUTES == 0:
                self.coarse.forget_silent()

    def last(self, name: str) -> float | None:
        return self.fine.last(name)

    def read(self, names: Iterable[str], *, day: bool) -> tuple[list[int], dict[str, list[float | None]]]:
        ring = self.coarse if day else self.fine
        return list(ring.times()), {name: ring.row(name) for name in names}
