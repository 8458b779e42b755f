"""The trace of a message as a picture: producer, store, and each attempt of each group on one time axis."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import msgspec

from rocketline.admin.traces import Timeline, trace_of
from rocketline.console.access import Role
from rocketline.console.endpoints import Input, PartialView, View, reads
from rocketline.console.problems import Problem
from rocketline.console.views import silent
from rocketline.errors import RouteNotFound

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
WIDTH, LEFT, RIGHT, ROW, TOP = 1100, 220, 24, 30, 52
TICK_ROOM = 110
LEAST_BAR = 5.0
Place = Callable[[int], float]
"""From a time to its place on the axis."""
PAUSE_SHARE = 0.12
"""A pause longer than this share of all is drawn shorter, with its length as its label."""


class TracesInput(Input, kw_only=True):
    id: Annotated[str, msgspec.Meta(max_length=200)] = ""
    topic: Annotated[str, msgspec.Meta(max_length=255)] = TRACE_TOPIC


class TraceInput(Input, kw_only=True):
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    topic: Annotated[str, msgspec.Meta(max_length=255)] = TRACE_TOPIC
    """The topic that has the traces."""


class TraceEvent(View, kw_only=True):
    what: str
    """`sent`, `handled`, `decided` or `recalled`."""
    group: str
    client: str
    began_ms: int | None
    took_ms: int | None
    ok: bool | None
    outcome: str
    attempt: int | None = None


class Bar(View, kw_only=True):
    row: int
    x: float
    width: float
    state: str
    what: str
    attempt: int | None
    took_ms: int | None


class Lane(View, kw_only=True):
    label: str
    detail: str
    y: int


class Tick(View, kw_only=True):
    x: float
    time_ms: int


class Pause(View, kw_only=True):
    x: float
    width: float
    took_ms: int


class Picture(View, kw_only=True):
    width: int
    height: int
    left: int
    lanes: list[Lane]
    bars: list[Bar]
    pauses: list[Pause]
    ticks: list[Tick]


class Trace(PartialView, kw_only=True):
    id: str
    topic: str
    events: list[TraceEvent]
    silent_side: str
    limited: bool
    picture: Picture | None


class TraceSearch(View, kw_only=True):
    id: str
    topic: str


@reads("/traces", Role.READER, "traces.html", in_api=False)
async def traces(visit: Visit, wanted: TracesInput) -> TraceSearch:
    """The form that asks for an id."""
    return TraceSearch(id=wanted.id, topic=wanted.topic)


@reads("/traces/{id}", Role.READER, "trace.html", audited=True)
async def trace(visit: Visit, wanted: TraceInput) -> Trace:
    """What happened to a message, as clients wrote it down."""
    try:
        found = await trace_of(visit.admin, wanted.id, trace_topic=wanted.topic)
    except RouteNotFound as error:
        if wanted.topic != TRACE_TOPIC:
            raise Problem(404, "no_topic", wanted.topic) from error
        # nobody has ever written a trace
        found = Timeline(wanted.id)
    events = _events(found)
    return Trace(
        id=wanted.id, topic=wanted.topic, events=events, silent_side=found.silent_side, limited=found.limited,
        picture=_picture(events), partial=silent(found.missing),
    )  # fmt: skip


def _events(found: Timeline) -> list[TraceEvent]:
    events = [
        TraceEvent(
            what="sent", group=item.group, client=item.client, began_ms=item.began_ms, took_ms=item.took_ms, ok=item.ok,
            outcome=item.kind,
        )
        for item in found.sent
    ]  # fmt: skip
    counts: dict[str, int] = {}
    for item in found.attempts:
        counts[item.group] = counts.get(item.group, 0) + 1
        events.append(
            TraceEvent(
                what="handled",
                group=item.group,
                client=item.client,
                began_ms=item.began_ms,
                took_ms=item.took_ms,
                ok=item.ok,
                outcome=item.outcome,
                attempt=counts[item.group],
            )
        )
    for decided in found.decided:
        events.append(
            TraceEvent(
                what="decided",
                group=decided.group,
                client="",
                began_ms=decided.timestamp_ms,
                took_ms=None,
                ok=None,
                outcome=decided.state,
            )
        )
    for recalled in found.recalled:
        events.append(
            TraceEvent(
                what="recalled",
                group=recalled.group,
                client="",
                began_ms=recalled.timestamp_ms,
                took_ms=None,
                ok=recalled.success,
                outcome="",
            )
        )
    return sorted(events, key=lambda event: event.began_ms or 0)


def _picture(events: list[TraceEvent]) -> Picture | None:
    """Where everything is drawn. Long pauses are made short, so that what happened can be seen."""
    dated = [event for event in events if event.began_ms]
    if not dated:
        return None
    lanes: dict[str, Lane] = {}
    for event in dated:
        label = event.group or event.what
        lanes.setdefault(label, Lane(label=label, detail=event.client, y=TOP + ROW * len(lanes)))
    place, pauses = _axis(dated)
    rows = {label: number for number, label in enumerate(lanes)}
    bars = [_bar(event, rows[event.group or event.what], place) for event in dated]
    return Picture(
        width=WIDTH, height=TOP + ROW * len(lanes) + 6, left=LEFT, lanes=list(lanes.values()), bars=bars,
        pauses=[
            Pause(x=round(place(begin), 1), width=round(place(end) - place(begin), 1), took_ms=end - begin)
            for begin, end in pauses
        ],
        ticks=_ticks(dated, place),
    )  # fmt: skip


def _bar(event: TraceEvent, row: int, place: Place) -> Bar:
    began_ms = event.began_ms or 0
    x = place(began_ms)
    width = max(LEAST_BAR, place(began_ms + (event.took_ms or 0)) - x)
    state = "unknown" if event.ok is None else "ok" if event.ok else "failed"
    return Bar(
        row=row, x=round(min(x, WIDTH - RIGHT - width), 1), width=round(width, 1), state=state, what=event.what,
        attempt=event.attempt, took_ms=event.took_ms,
    )  # fmt: skip


def _ticks(dated: list[TraceEvent], place: Place) -> list[Tick]:
    """The clock at the beginning of events, where there is room for it."""
    ticks: list[Tick] = []
    for event in dated:
        x = place(event.began_ms or 0)
        if not ticks or x - ticks[-1].x >= TICK_ROOM:
            ticks.append(Tick(x=round(x, 1), time_ms=event.began_ms or 0))
    return ticks


def _axis(events: list[TraceEvent]) -> tuple[Place, list[tuple[int, int]]]:
    """(function from a time to its place, pauses that were made short)."""
    spans = sorted((event.began_ms or 0, (event.began_ms or 0) + (event.took_ms or 0)) for event in events)
    busy: list[list[int]] = []
    for begin, end in spans:
        if busy and begin <= busy[-1][1]:
            busy[-1][1] = max(busy[-1][1], end)
        else:
            busy.append([begin, max(end, begin + 1)])
    gaps = [(one[1], other[0]) for one, other in pairwise(busy)]
    work_ms = sum(end - begin for begin, end in busy)
    longest = max(work_ms * PAUSE_SHARE, 1.0)
    room = WIDTH - LEFT - RIGHT - LEAST_BAR
    total = work_ms + sum(min(end - begin, longest) for begin, end in gaps)
    scale = room / max(total, 1)

    def place(moment: int) -> float:
        x = 0.0
        for index, (begin, end) in enumerate(busy):
            if moment <= end:
                return LEFT + (x + max(0, moment - begin)) * scale
            x += end - begin
            if index < len(gaps):
                gap_begin, gap_end = gaps[index]
                if moment < gap_end:
                    return LEFT + (x + min(moment - gap_begin, longest)) * scale
                x += min(gap_end - gap_begin, longest)
        return LEFT + x * scale

    return place, [(begin, end) for begin, end in gaps if end - begin > longest]
