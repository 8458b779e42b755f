"""Numbers over time: rates, lag and disk of the last hour and day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from rocketline.admin.overview import is_system_group
from rocketline.console.access import Role
from rocketline.console.endpoints import Input, View, reads

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

MAX_NAMES = 20


class SeriesInput(Input, kw_only=True):
    names: Annotated[list[Annotated[str, msgspec.Meta(max_length=300)]], msgspec.Meta(max_length=MAX_NAMES)] = []
    """`in`, `out`, `lag`; `in.BROKER`, `out.BROKER`, `disk.BROKER`, `lag.GROUP`."""
    span: Literal["hour", "day"] = "hour"
    all_names: bool = False
    """Tell the names of all series too."""


class Series(View, kw_only=True):
    times_ms: list[int]
    values: dict[str, list[float | None]]
    names: list[str]
    """All series that there are, if they were asked for."""
    is_sampled: bool


@reads("/series", Role.VIEWER)
async def series(visit: Visit, wanted: SeriesInput) -> Series:
    """Samples: every 5 s for an hour, every minute for a day."""
    sampler = visit.desk.samplers.get(visit.cluster)
    if sampler is None:
        return Series(times_ms=[], values={}, names=[], is_sampled=False)
    sampler.watch(wanted.names)
    times, values = sampler.samples.read(wanted.names, day=wanted.span == "day")
    names = sampler.samples.fine.names() if wanted.all_names else []
    return Series(times_ms=times, values=values, names=names, is_sampled=True)


class ChartsInput(Input, kw_only=True):
    span: Literal["hour", "day"] = "hour"


class Charts(View, kw_only=True):
    span: str
    brokers: list[str]
    groups: list[str]
    is_sampled: bool


@reads("/charts", Role.VIEWER, "charts.html", in_api=False)
async def charts(visit: Visit, wanted: ChartsInput) -> Charts:
    """Which charts are drawn."""
    sampler = visit.desk.samplers.get(visit.cluster)
    names = sampler.samples.fine.names() if sampler is not None else []
    lags = (
        {
            name.removeprefix("lag."): sampler.samples.last(name) or 0.0
            for name in names
            if name.startswith("lag.") and not is_system_group(name.removeprefix("lag."))
        }
        if sampler
        else {}
    )
    return Charts(
        span=wanted.span,
        brokers=sorted(name.removeprefix("in.") for name in names if name.startswith("in.")),
        groups=sorted(lags, key=lambda name: -lags[name])[:8],
        is_sampled=sampler is not None,
    )
