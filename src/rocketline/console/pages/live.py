"""The live tail of a topic: messages as they arrive, as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import msgspec

from rocketline.admin.search import Wanted
from rocketline.admin.tail import Room, Tail, TailBatch
from rocketline.clock import SYSTEM_CLOCK
from rocketline.console.access import Role
from rocketline.console.bodies import MessageRow, message_row
from rocketline.console.endpoints import Input, Name, Silent, Stream, Text, View, reads
from rocketline.console.limits import Heavy
from rocketline.console.problems import field_problem, problem_of
from rocketline.console.views import silent

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

BODY_BYTES = 2048
BATCH = 200
EVERY_S = 0.1
LIFE_S = 30 * 60.0
ROOM = Room(messages=1000, bytes=4 << 20, body_bytes=BODY_BYTES)


class LiveInput(Input, kw_only=True):
    topic: Name
    tag: Annotated[str, msgspec.Meta(max_length=500)] = ""
    where: Text = ""
    text: Annotated[str, msgspec.Meta(max_length=500)] = ""
    position: Annotated[str, msgspec.Meta(max_length=20_000)] = ""
    """The id of the last event that a viewer has, to go on from there; a browser that reconnects sends it as a header."""


class LiveView(View, kw_only=True):
    topic: str


class LiveBatch(View, kw_only=True):
    """Data of one event; its id is where a stream that breaks goes on."""

    items: list[MessageRow]
    times: list[str]
    """When each was stored, in the viewer's time zone."""
    dropped: int
    partial: list[Silent]


@reads("/topics/{topic}/live", Role.READER, "live.html", in_api=False)
async def live(visit: Visit, wanted: LiveInput) -> LiveView:
    """The page of the tail."""
    await visit.admin.route(wanted.topic)
    _conditions(visit, wanted).test()
    return LiveView(topic=wanted.topic)


@reads("/topics/{topic}/tail", Role.READER, page="-", heavy=Heavy.TAIL, audited=True)
async def tail(visit: Visit, wanted: LiveInput) -> Stream:
    """Messages as they arrive. Nothing is consumed; what the viewer cannot take in time is dropped and counted."""
    conditions = _conditions(visit, wanted)
    conditions.test()
    await visit.admin.route(wanted.topic)
    return Stream(_events(visit, wanted.topic, conditions, visit.resume_at or wanted.position))


def _conditions(visit: Visit, wanted: LiveInput) -> Wanted:
    if visit.desk.masks and (wanted.where or wanted.text):
        raise field_problem("where" if wanted.where else "text", visit.look.t("problems.masked"))
    return Wanted(tag=wanted.tag or "*", where=wanted.where, text=wanted.text)


async def _events(visit: Visit, topic: str, conditions: Wanted, position: str) -> AsyncIterator[bytes]:
    try:
        ends_s = SYSTEM_CLOCK.monotonic() + LIFE_S
        yield b"retry: 2000\n\n"
        async with Tail(visit.admin, topic, conditions, position or None, ROOM) as source:
            yield _quiet(source.position)  # what is sent from now on is shown, also after a break
            while SYSTEM_CLOCK.monotonic() < ends_s:
                batch = await source.next_batch(BATCH, EVERY_S)
                yield _event(visit, batch)
        yield b"event: end\ndata: {}\n\n"
    except Exception as error:
        problem = problem_of(error)
        view = msgspec.structs.replace(problem.view, title=visit.look.t(f"problems.{problem.title_key}"))
        yield b"event: problem\ndata: " + msgspec.json.encode(view) + b"\n\n"


def _quiet(position: str) -> bytes:
    return f"id: {position}\nevent: quiet\ndata: {{}}\n\n".encode()


def _event(visit: Visit, batch: TailBatch) -> bytes:
    if not batch.messages and not batch.dropped and not batch.missing:
        return _quiet(batch.position)
    rows = [message_row(visit, message, BODY_BYTES, batch.cut.get(message.offset_id)) for message in batch.messages]
    times = [visit.look.clock(row.stored_ms) for row in rows]
    view = LiveBatch(items=rows, times=times, dropped=batch.dropped, partial=silent(batch.missing))
    return f"id: {batch.position}\nevent: batch\ndata: ".encode() + msgspec.json.encode(view) + b"\n\n"
