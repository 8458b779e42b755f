"""Messages that wait: by delay level, and by a time of their own; recalling those that can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from rocketline.admin.delayed import (
    RECALL_SETTING,
    Waiting,
    no_recall_at,
    recall,
    timer_messages,
    timer_states,
    waiting_by_level,
)
from rocketline.admin.partial import merged
from rocketline.console.access import Role
from rocketline.console.bodies import LISTED_BYTES, MessageRow, message_row
from rocketline.console.endpoints import Change, Input, PartialView, View, changes, reads
from rocketline.console.limits import Heavy
from rocketline.console.views import Item, Result, silent

if TYPE_CHECKING:
    from rocketline.console.visit import Visit


MOST = 100
"""Messages shown, of those by level and of those by time."""


class DelayedInput(Input, kw_only=True):
    level: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None


class LevelRow(View, kw_only=True):
    broker: str
    level: int
    delay: str
    waiting: int
    next_due_ms: int | None


class TimerRow(View, kw_only=True):
    broker: str
    topic: str
    waiting: int


class WaitingRow(View, kw_only=True):
    message: MessageRow
    topic: str
    queue: int | None
    due_ms: int
    level: int | None
    handle: str
    """For recalling it; empty when that is not possible."""


class Delayed(PartialView, kw_only=True):
    levels: list[LevelRow]
    timers: list[TimerRow]
    items: list[WaitingRow]
    """The soonest."""
    limited: bool
    """More wait than these."""
    no_recall: list[str]
    """Brokers that take none of these messages back."""
    recall_setting: str = RECALL_SETTING
    """The setting that says whether they do."""


@reads("/delayed", Role.READER, "delayed.html", heavy=Heavy.SCAN, audited=True)
async def delayed(visit: Visit, wanted: DelayedInput) -> Delayed:
    """Messages that wait, the soonest first."""
    admin = visit.admin
    states = await timer_states(admin)
    by_level = await waiting_by_level(admin, wanted.level, MOST, LISTED_BYTES)
    by_time = await timer_messages(admin, most=MOST)
    timed = by_time.value if wanted.level is None else []
    waiting = sorted([*by_level.value.messages, *timed], key=lambda item: item.due_ms)
    is_limited = by_level.limited or (wanted.level is None and by_time.limited)
    rows = [
        LevelRow(
            broker=item.broker, level=item.level, delay=item.delay, waiting=item.waiting, next_due_ms=item.next_due_ms
        )
        for item in by_level.value.counts
        if item.waiting
    ]
    timers = [
        TimerRow(broker=state.broker, topic=topic, waiting=count)
        for state in states.value
        for topic, count in sorted(state.waiting.items())
        if count
    ]
    no_recall = await no_recall_at(admin, {item.message.broker_name for item in timed if item.handle})
    return Delayed(
        levels=rows, timers=timers, items=[_row(visit, item, no_recall) for item in waiting],
        partial=silent(merged(states, by_level, by_time)), limited=is_limited, no_recall=no_recall,
        complete=not is_limited and by_level.complete and states.complete and by_time.complete,
    )  # fmt: skip


def _row(visit: Visit, item: Waiting, no_recall: list[str]) -> WaitingRow:
    handle = "" if item.message.broker_name in no_recall else item.handle or ""
    return WaitingRow(
        message=message_row(visit, item.message, body_bytes=item.body_bytes), topic=item.topic, queue=item.queue_id,
        due_ms=item.due_ms, level=item.level, handle=handle,
    )  # fmt: skip


class RecallMessage(Change, kw_only=True):
    handle: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]


@changes("POST", "/timers/recall", Role.OPERATOR, "/delayed")
async def recall_message(visit: Visit, wanted: RecallMessage) -> Result:
    """Take a message back that waits for its time."""
    unique_id = await recall(visit.admin, wanted.handle)
    return Result(title="message_recalled", about=unique_id, items=[Item(where=unique_id, ok=True)], back="/delayed")
