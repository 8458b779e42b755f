"""Dead letters: counts by group, the letters of one group, sending them again, exporting them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from rocketline.admin.cursors import MAX_CHARS as MAX_CURSOR_CHARS
from rocketline.admin.dead_letters import (
    DeadLetterCount,
    count_dead_letters,
    origin_id,
    origin_topic,
    resend_by_id,
)
from rocketline.admin.search import Budget, Wanted, newest
from rocketline.console.access import Role
from rocketline.console.bodies import LISTED_BYTES, MessageRow, found_row
from rocketline.console.endpoints import Change, Download, Input, Name, PartialView, View, changes, reads
from rocketline.console.limits import Heavy
from rocketline.console.moments import moment_ms
from rocketline.console.pages.messages import EXPORT_BUDGET, SCAN_STEP, MessagesInput, exported, search
from rocketline.console.problems import field_problem
from rocketline.console.views import Item, Result, silent
from rocketline.errors import RouteNotFound
from rocketline.protocol.names import dlq_topic

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

MOST_AT_ONCE = 1000
PAGE_LETTERS = 100


class LetterCount(View, kw_only=True):
    group: str
    count: int
    last_ms: int | None


class LetterCounts(PartialView, kw_only=True):
    items: list[LetterCount]
    total: int


@reads("/dead-letters", Role.VIEWER, "dead_letters.html")
async def dead_letters(visit: Visit, wanted: Input) -> LetterCounts:
    """Groups that have dead letters."""
    found = await visit.kept(count_dead_letters)
    items = letter_counts(found.value)
    return LetterCounts(
        items=items, total=sum(item.count for item in items), partial=silent(found.missing), complete=found.complete
    )


def letter_counts(found: list[DeadLetterCount]) -> list[LetterCount]:
    """The group of the newest letter first."""
    items = [LetterCount(group=item.group, count=item.count, last_ms=item.last_ms or None) for item in found]
    return sorted(items, key=lambda item: -(item.last_ms or 0))


class LettersInput(Input, kw_only=True):
    group: Name
    begin: Annotated[str, msgspec.Meta(max_length=40)] = ""
    end: Annotated[str, msgspec.Meta(max_length=40)] = ""
    text: Annotated[str, msgspec.Meta(max_length=500)] = ""
    cursor: Annotated[str, msgspec.Meta(max_length=MAX_CURSOR_CHARS)] = ""


class Letter(View, kw_only=True):
    message: MessageRow
    topic: str
    """The topic it was sent to."""
    first_id: str


class Letters(PartialView, kw_only=True):
    group: str
    items: list[Letter]
    next: str | None
    scanned: int


@reads("/dead-letters/{group}", Role.READER, "letters.html", heavy=Heavy.SCAN, audited=True)
async def letters(visit: Visit, wanted: LettersInput) -> Letters:
    """The dead letters of a group, the newest first."""
    if visit.desk.masks and wanted.text:
        raise field_problem("text", visit.look.t("problems.masked"))
    conditions = Wanted(
        begin_ms=moment_ms(wanted.begin, visit.look, visit.now_ms, "begin"),
        end_ms=moment_ms(wanted.end, visit.look, visit.now_ms, "end"),
        text=wanted.text,
    )
    try:
        page = await newest(
            visit.admin, dlq_topic(wanted.group), conditions, Budget(PAGE_LETTERS, SCAN_STEP, LISTED_BYTES),
            wanted.cursor or None,
        )  # fmt: skip
    except RouteNotFound:
        return Letters(group=wanted.group, items=[], next=None, scanned=0)
    items = [
        Letter(message=found_row(visit, page, letter), topic=origin_topic(letter), first_id=origin_id(letter))
        for letter in page.messages
    ]
    return Letters(
        group=wanted.group, items=items, next=page.next, scanned=page.scanned, partial=silent(page.missing),
        complete=page.complete,
    )  # fmt: skip


class Resend(Change, kw_only=True):
    group: Name
    ids: Annotated[list[Annotated[str, msgspec.Meta(max_length=64)]], msgspec.Meta(max_length=MOST_AT_ONCE)] = []
    """Offset ids of the letters."""
    topic: Annotated[str, msgspec.Meta(max_length=255)] = ""
    """Send them to this topic instead of their own."""


@changes("POST", "/dead-letters/{group}/resend", Role.OPERATOR, "/dead-letters/{group}")
async def resend_letters(visit: Visit, wanted: Resend) -> Result:
    """Send dead letters to their topic again; the outcome of each. They stay among the dead letters."""
    if not wanted.ids:
        raise field_problem("ids", visit.look.t("letters.none_selected"))
    sent = await resend_by_id(visit.admin, wanted.group, wanted.ids, wanted.topic or None)
    items = [
        Item(
            where=f"{item.letter_id or item.offset_id} → {item.topic or '?'}",
            ok=item.ok,
            problem=item.problem or "",
            link=f"/messages/{item.receipt.message_id}?topic={item.topic}" if item.receipt is not None else "",
        )
        for item in sent
    ]
    return Result(title="letters_sent", about=wanted.group, items=items, back=f"/dead-letters/{wanted.group}")


class LettersExport(Input, kw_only=True):
    group: Name
    form: Literal["jsonl", "csv"] = "jsonl"


@reads("/dead-letters/{group}/export", Role.READER, heavy=Heavy.SCAN, audited=True, page="-")
async def export_letters(visit: Visit, wanted: LettersExport) -> Download:
    """All dead letters of a group as a file."""
    every = MessagesInput(topic=dlq_topic(wanted.group))
    first = await search(visit, every, EXPORT_BUDGET)
    return Download(f"dead-letters-{wanted.group}.{wanted.form}", exported(visit, every, first, wanted.form))
