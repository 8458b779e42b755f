"""Asks the brokers of a cluster for their numbers every few seconds, for charts and for the overview.

It asks each broker twice: for its counters, and for the progress of all groups. The second question costs a broker time that
grows with its groups, so it is asked at most so often that it takes 1 % of a broker's time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from heapq import nlargest
from operator import itemgetter
from typing import Self

from rocketline.admin import Admin, AdminBroker
from rocketline.admin.diagnosis import Diagnosis
from rocketline.admin.doctor import examine
from rocketline.admin.overview import is_system_group
from rocketline.admin.progress import all_progress
from rocketline.admin.rates import Rates
from rocketline.clock import SYSTEM_CLOCK
from rocketline.console.samples import STEP_S, Samples
from rocketline.errors import RocketlineError

log = logging.getLogger("rocketline.console")

BROKER_SHARE = 0.01
EXAMINE_EVERY_S = 60.0
MAX_LOOKED_AT_S = 120.0
MAX_LAGS = 500
"""Of so many groups, those with the largest lag, the lag is kept over time."""
MAX_WATCHED = 200
WATCHED_S = 600.0


def totals(values: Mapping[str, float], brokers: Iterable[str]) -> dict[str, float]:
    """The sums over all brokers. Without the part of one there is none: a gap, and not a smaller number.

    >>> totals({"in.a": 1.0, "in.b": 2.0, "out.a": 3.0}, ["a", "b"])
    {'in': 3.0}
    """
    names = list(brokers)
    return {
        kind: sum(values[f"{kind}.{name}"] for name in names)
        for kind in ("in", "out")
        if names and all(f"{kind}.{name}" in values for name in names)
    }


class Sampler:
    """Samples of one cluster; an async context manager that owns its task and its connections."""

    def __init__(self, admin: Admin, step_s: float = STEP_S) -> None:
        self._admin = admin
        self._step_s = step_s
        self.samples = Samples()
        self.findings: list[Diagnosis] | None = None
        """What the doctor found last; None: it has not finished yet."""
        self.examined_ms = 0
        self._speeds = Rates()
        self._lag_due_s = 0.0
        self._watched: OrderedDict[str, float] = OrderedDict()
        self._looked_at_s = -MAX_LOOKED_AT_S
        self._looked_at = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closing = False
        """Checked besides cancellation, which asyncio's timeouts may swallow when an answer comes at the same moment."""

    async def __aenter__(self) -> Self:
        await self._admin.__aenter__()
        self._tasks = [
            asyncio.create_task(self._sample_for_ever()),
            asyncio.create_task(self._examine_when_looked_at()),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        await self._admin.__aexit__(None, None, None)

    def look(self) -> None:
        """Somebody looks at the overview: the doctor examines the cluster now and then."""
        self._looked_at_s = SYSTEM_CLOCK.monotonic()
        self._looked_at.set()

    async def _sample_for_ever(self) -> None:
        while not self._is_closing:
            began_s = SYSTEM_CLOCK.monotonic()
            try:
                self.samples.add(SYSTEM_CLOCK.now_ms(), await self._sample())
            except RocketlineError as error:
                self.samples.add(SYSTEM_CLOCK.now_ms(), {})
                log.info("no sample of %s: %s", self._admin.namesrv, error)
            except Exception:
                log.exception("a sample of %s failed", self._admin.namesrv)
            if not self._is_closing:
                await asyncio.sleep(max(0.5, began_s + self._step_s - SYSTEM_CLOCK.monotonic()))

    async def _sample(self) -> dict[str, float]:
        self._admin.forget()
        brokers = await self._admin.brokers()
        values: dict[str, float] = {}
        answers = await self._admin.gather_or_errors(broker.runtime_info() for broker in brokers)
        for broker, info in zip(brokers, answers):
            if not isinstance(info, RocketlineError):
                values |= self._rates(broker, info)
        lags = await self._lags()
        return totals(values, [broker.name for broker in brokers]) | values | lags

    def watch(self, names: Iterable[str]) -> None:
        """Somebody looks at the charts of these series: they are kept although others are larger."""
        now_s = SYSTEM_CLOCK.monotonic()
        for name in names:
            self._watched.pop(name, None)
            self._watched[name] = now_s
        while len(self._watched) > MAX_WATCHED:
            self._watched.popitem(last=False)

    def _rates(self, broker: AdminBroker, info: dict[str, str]) -> dict[str, float]:
        values = {}
        with suppress(ValueError):
            values[f"disk.{broker.name}"] = float(info.get("commitLogDiskRatio", ""))
        speed = self._speeds.of(broker.name, info, self._admin.reads[broker.name])
        if speed is not None:
            values |= {f"in.{broker.name}": speed.into, f"out.{broker.name}": speed.out}
        return values

    async def _lags(self) -> dict[str, float]:
        began_s = SYSTEM_CLOCK.monotonic()
        if began_s < self._lag_due_s:
            return {}
        found = await all_progress(self._admin)
        self._lag_due_s = began_s + (SYSTEM_CLOCK.monotonic() - began_s) / BROKER_SHARE
        if not found.complete:  # parts of lags would look like groups that caught up
            return {}
        lags = {f"lag.{progress.group}": float(progress.lag) for progress in found.value if progress.queues}
        self._watched = OrderedDict((name, at_s) for name, at_s in self._watched.items() if began_s - at_s < WATCHED_S)
        watched = {name: lags[name] for name in self._watched if name in lags}
        total = sum(lag for name, lag in lags.items() if not is_system_group(name.removeprefix("lag.")))
        return {"lag": total, **watched, **dict(nlargest(MAX_LAGS, lags.items(), key=itemgetter(1)))}

    async def _examine_when_looked_at(self) -> None:
        while not self._is_closing:
            if SYSTEM_CLOCK.monotonic() - self._looked_at_s > MAX_LOOKED_AT_S:
                self._looked_at.clear()
            await self._looked_at.wait()
            try:
                self.findings = [finding async for finding in examine(self._admin)]
                self.examined_ms = SYSTEM_CLOCK.now_ms()
            except RocketlineError as error:
                log.info("the doctor could not examine %s: %s", self._admin.namesrv, error)
            except Exception:
                log.exception("the doctor failed on %s", self._admin.namesrv)
            if not self._is_closing:
                await asyncio.sleep(EXAMINE_EVERY_S)
