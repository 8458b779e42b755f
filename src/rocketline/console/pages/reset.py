"""Moving a group to another place: first what it repeats and skips in each queue, then doing exactly that."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from rocketline.admin.partial import Partial
from rocketline.admin.resets import END_MS, QueueMove, apply_reset, moved_meanwhile, preview_reset
from rocketline.console.access import Role
from rocketline.console.endpoints import Change, Count, Input, Name, PartialView, View, changes, reads
from rocketline.console.moments import moment_ms
from rocketline.console.pages.groups import group_view
from rocketline.console.problems import Problem, field_problem
from rocketline.console.views import Item, Result, silent
from rocketline.message import MessageQueue

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

MAX_PLAN_BYTES = 512 << 10

Target = Literal["time", "end", "oldest", "offset"]


class ResetInput(Input, kw_only=True):
    group: Name
    topic: Annotated[str, msgspec.Meta(max_length=255)] = ""
    to: Target = "time"
    time: Annotated[str, msgspec.Meta(max_length=40)] = ""
    broker: Annotated[str, msgspec.Meta(max_length=255)] = ""
    queue: Annotated[int, msgspec.Meta(ge=0, le=100_000)] | None = None
    offset: Count | None = None


class MoveRow(View, kw_only=True):
    broker: str
    queue: int
    oldest: int
    end: int
    before: int | None
    after: int
    repeats: int
    skips: int


class ResetView(PartialView, kw_only=True):
    group: str
    topics: list[str]
    topic: str
    members: int
    is_preview: bool
    moves: list[MoveRow] = []
    repeats: int = 0
    skips: int = 0
    plan: str = ""
    """These moves, to send with the change that makes them."""


@reads("/groups/{group}/reset", Role.OPERATOR, "reset.html")
async def reset_preview(visit: Visit, wanted: ResetInput) -> ResetView:
    """What a reset would do: per queue, how many messages come again and how many never come."""
    whole = await group_view(visit, wanted.group)
    topics = sorted({row.topic for row in whole.queues})
    is_preview = bool(wanted.topic) and (wanted.to != "time" or bool(wanted.time))
    view = ResetView(
        group=wanted.group, topics=topics, topic=wanted.topic, members=len(whole.members), is_preview=is_preview
    )
    if is_preview:
        moves = await _moves(visit, wanted)
        view.moves = [_row(move) for move in moves.value]
        view.plan = _encode_plan(Plan(wanted.group, wanted.topic, bool(view.members), moves.value))
        view.repeats, view.skips = sum(row.repeats for row in view.moves), sum(row.skips for row in view.moves)
        view.partial = silent(moves.missing)
    return view


async def _moves(visit: Visit, wanted: ResetInput) -> Partial[list[QueueMove]]:
    if wanted.to == "offset":
        if not wanted.broker or wanted.queue is None or wanted.offset is None:
            raise field_problem("offset", visit.look.t("reset.which_queue"))
        offsets = {MessageQueue(wanted.topic, wanted.broker, wanted.queue): wanted.offset}
        return await preview_reset(visit.admin, wanted.group, wanted.topic, offsets=offsets)
    to_ms = {"end": END_MS, "oldest": 0}.get(wanted.to)
    if to_ms is None:
        to_ms = moment_ms(wanted.time, visit.look, visit.now_ms, "time")
    if to_ms is None:
        raise field_problem("time", visit.look.t("reset.which_time"))
    moves = await preview_reset(visit.admin, wanted.group, wanted.topic, to_ms=to_ms)
    if wanted.queue is None and not wanted.broker:
        return moves
    return moves.map(
        lambda found: [
            move
            for move in found
            if wanted.broker in ("", move.queue.broker_name) and wanted.queue in (None, move.queue.queue_id)
        ]
    )


def _row(move: QueueMove) -> MoveRow:
    return MoveRow(
        broker=move.queue.broker_name, queue=move.queue.queue_id, oldest=move.begin, end=move.end, before=move.before,
        after=move.after, repeats=move.repeats, skips=move.skips,
    )  # fmt: skip


class Plan(msgspec.Struct, array_like=True):
    """The moves that somebody saw in a preview. It comes back from a browser: it names nothing that a form could not."""

    group: str
    topic: str
    is_online: bool
    moves: list[QueueMove]


def _encode_plan(plan: Plan) -> str:
    return base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(plan))).decode()


def _decode_plan(text: str, wanted: Reset) -> Plan:
    try:
        content = zlib.decompressobj().decompress(base64.urlsafe_b64decode(text), MAX_PLAN_BYTES)
        plan = msgspec.json.decode(content, type=Plan)
    except (ValueError, msgspec.DecodeError, zlib.error, RecursionError) as error:
        raise field_problem("plan", "this is no plan of a preview") from error
    if (plan.group, plan.topic) != (wanted.group, wanted.topic) or any(
        move.queue.topic != wanted.topic for move in plan.moves
    ):
        raise field_problem("plan", "the plan is for another group or topic")
    return plan


class Reset(Change, kw_only=True):
    group: Name
    topic: Name
    plan: Annotated[str, msgspec.Meta(max_length=MAX_PLAN_BYTES)] = ""
    """Of a preview: exactly its moves are made, or none if they are not what they were. Without it, `to` counts now."""
    to: Target = "time"
    time: Annotated[str, msgspec.Meta(max_length=40)] = ""
    broker: Annotated[str, msgspec.Meta(max_length=255)] = ""
    queue: Annotated[int, msgspec.Meta(ge=0, le=100_000)] | None = None
    offset: Count | None = None


@changes("POST", "/groups/{group}/reset", Role.OPERATOR, "/groups/{group}/reset")
async def reset_offsets(visit: Visit, wanted: Reset) -> Result:
    """Move a group; the outcome of every queue."""
    visit.confirm(wanted.confirm, wanted.group)
    moves = await (_planned(visit, wanted) if wanted.plan else _moves(visit, _place(wanted)))
    moved = await apply_reset(visit.admin, wanted.group, wanted.topic, moves.value)
    items = [
        Item(where=f"{item.move.queue}: {item.move.before} → {item.move.after}", ok=item.ok, problem=item.problem or "")
        for item in moved
    ]
    items += [Item(where=f"{item.broker} {item.address}", ok=False, problem=item.problem) for item in moves.missing]
    return Result(title="group_moved", about=wanted.group, items=items, back=f"/groups/{wanted.group}")


async def _planned(visit: Visit, wanted: Reset) -> Partial[list[QueueMove]]:
    plan = _decode_plan(wanted.plan, wanted)
    reasons = await moved_meanwhile(visit.admin, plan.group, plan.topic, plan.moves, is_online=plan.is_online)
    if reasons:
        raise Problem(409, "moved", "; ".join(reasons[:5]))
    return Partial(plan.moves)


def _place(wanted: Reset) -> ResetInput:
    return ResetInput(
        group=wanted.group, topic=wanted.topic, to=wanted.to, time=wanted.time, broker=wanted.broker,
        queue=wanted.queue, offset=wanted.offset,
    )  # fmt: skip
