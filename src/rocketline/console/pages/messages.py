"""Messages of a topic: by time with conditions, by key, by id, by queue and offset; and their export."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from rocketline.admin.cursors import MAX_CHARS as MAX_CURSOR_CHARS
from rocketline.admin.messages import FOREVER_MS, read_queue
from rocketline.admin.partial import Missing, Partial
from rocketline.admin.search import Budget, Page, Wanted, newest
from rocketline.console.access import Role
from rocketline.console.bodies import LISTED_BYTES, MessageRow, body_text, found_row, message_row
from rocketline.console.endpoints import Count, Download, Input, Name, PartialView, Text, reads
from rocketline.console.limits import Heavy
from rocketline.console.moments import moment_ms
from rocketline.console.pages.message import find_by_id
from rocketline.console.problems import field_problem
from rocketline.console.views import silent
from rocketline.errors import RocketlineError
from rocketline.message import MessageQueue, MessageView

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

MOST_BY_KEY = 64
"""A broker finds no more under one key."""
SCAN_STEP = 10_000
EXPORT_MESSAGES = 100_000
EXPORT_BYTES = 256 << 20
EXPORT_BUDGET = Budget(200, SCAN_STEP, 64 << 10)
FORMULA = ("=", "+", "-", "@", "\t", "\r")


class MessagesInput(Input, kw_only=True):
    topic: Name
    begin: Annotated[str, msgspec.Meta(max_length=40)] = ""
    end: Annotated[str, msgspec.Meta(max_length=40)] = ""
    key: Annotated[str, msgspec.Meta(max_length=500)] = ""
    id: Annotated[str, msgspec.Meta(max_length=200)] = ""
    tag: Annotated[str, msgspec.Meta(max_length=500)] = ""
    where: Text = ""
    """SQL92 over properties, `body.a.b` and `size`."""
    text: Annotated[str, msgspec.Meta(max_length=500)] = ""
    """Only messages whose body contains this."""
    broker: Annotated[str, msgspec.Meta(max_length=255)] = ""
    queue: Annotated[int, msgspec.Meta(ge=0, le=100_000)] | None = None
    offset: Count | None = None
    most: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50
    cursor: Annotated[str, msgspec.Meta(max_length=MAX_CURSOR_CHARS)] = ""
    lines: bool = False
    """Show JSON lines instead of a table."""


class Messages(PartialView, kw_only=True):
    topic: str
    mode: str
    items: list[MessageRow]
    next: str | None = None
    scanned: int = 0
    reached_ms: int | None = None
    oldest_offset: int | None = None
    """Of the queue, where an offset before it was asked for."""
    end_offset: int | None = None
    limited: bool = False
    brokers: list[str] = []


@reads("/topics/{topic}/messages", Role.READER, "messages.html", heavy=Heavy.SCAN, audited=True)
async def messages(visit: Visit, wanted: MessagesInput) -> Messages:
    """Messages, the newest first. A search looks at some thousand messages and says where it stopped; `next` goes on."""
    if wanted.id:
        found = await find_by_id(visit, wanted.id, wanted.topic)
        items = [message_row(visit, message) for message in found.value]
        view = Messages(topic=wanted.topic, mode="id", items=items, partial=silent(found.missing))
    elif wanted.key:
        view = await _by_key(visit, wanted)
    elif wanted.offset is not None:
        view = await _by_offset(visit, wanted)
    else:
        page = await search(visit, wanted, Budget(wanted.most, SCAN_STEP, LISTED_BYTES))
        view = Messages(
            topic=wanted.topic, mode="time", items=[found_row(visit, page, message) for message in page.messages],
            next=page.next, scanned=page.scanned, reached_ms=page.reached_ms, complete=page.complete,
            partial=silent(page.missing),
        )  # fmt: skip
    view.brokers = sorted({broker.name for broker in await visit.admin.brokers_of(wanted.topic)})
    return view


async def search(visit: Visit, wanted: MessagesInput, budget: Budget) -> Page:
    if visit.desk.masks and (wanted.where or wanted.text):
        raise field_problem("where" if wanted.where else "text", visit.look.t("problems.masked"))
    begin_ms = moment_ms(wanted.begin, visit.look, visit.now_ms, "begin")
    end_ms = moment_ms(wanted.end, visit.look, visit.now_ms, "end")
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise field_problem("end", visit.look.t("messages.ends_first"))
    await _check_queue(visit, wanted)
    conditions = Wanted(
        begin_ms=begin_ms, end_ms=end_ms,
        tag=wanted.tag or "*", where=wanted.where, text=wanted.text,
        broker_name=wanted.broker or None, queue_id=wanted.queue,
    )  # fmt: skip
    return await newest(visit.admin, wanted.topic, conditions, budget, wanted.cursor or None)


async def _by_key(visit: Visit, wanted: MessagesInput) -> Messages:
    """All messages with a key, as far as brokers tell: each at most 64."""
    admin = visit.admin
    answers = await admin.ask_each(
        await admin.brokers_of(wanted.topic),
        lambda broker: broker.find(wanted.topic, wanted.key, MOST_BY_KEY, 0, FOREVER_MS, unique=False),
    )
    found = [message for _, some in answers.value for message in some if wanted.key in message.keys]
    found.sort(key=lambda message: -message.store_ms)
    return Messages(
        topic=wanted.topic, mode="key", items=[message_row(visit, message) for message in found],
        limited=any(len(some) >= MOST_BY_KEY for _, some in answers.value), partial=silent(answers.missing),
        complete=answers.complete,
    )  # fmt: skip


async def _by_offset(visit: Visit, wanted: MessagesInput) -> Messages:
    """Messages of one queue from an offset on, in their order there."""
    assert wanted.offset is not None
    brokers = {broker.name: broker for broker in await visit.admin.brokers_of(wanted.topic)}
    name = wanted.broker or (next(iter(brokers)) if len(brokers) == 1 else "")
    if name not in brokers:
        raise field_problem("broker", visit.look.t("messages.which_broker", brokers=", ".join(sorted(brokers))))
    if wanted.queue is None:
        raise field_problem("queue", visit.look.t("messages.which_queue"))
    queue = MessageQueue(wanted.topic, name, wanted.queue)
    oldest, end = await brokers[name].min_offset(queue), await brokers[name].max_offset(queue)
    if end == 0:  # queues that were closed still have their messages
        await _check_queue(visit, wanted)
    view = Messages(topic=wanted.topic, mode="offset", items=[], oldest_offset=oldest, end_offset=end)
    if wanted.offset >= oldest:
        last = min(end, wanted.offset + wanted.most)
        async for message in read_queue(brokers[name], queue, wanted.offset, last):
            view.items.append(message_row(visit, message))
    return view


async def _check_queue(visit: Visit, wanted: MessagesInput) -> None:
    """Problem at the field when the topic has no such queue."""
    route = await visit.admin.route(wanted.topic)
    counts = [
        max(item.read_queue_nums, item.write_queue_nums)
        for item in route.queue_datas
        if wanted.broker in ("", item.broker_name)
    ]
    if wanted.queue is not None and counts and wanted.queue >= max(counts):
        raise field_problem("queue", visit.look.t("messages.no_queue", last=max(counts) - 1))


class FindInput(Input, kw_only=True):
    id: Annotated[str, msgspec.Meta(max_length=200)] = ""
    topic: Annotated[str, msgspec.Meta(max_length=255)] = ""


class FindView(PartialView, kw_only=True):
    id: str
    topic: str
    items: list[MessageRow]


@reads("/messages", Role.READER, "find.html", audited=True)
async def find_message(visit: Visit, wanted: FindInput) -> FindView:
    """A message by its id, or the messages of a topic."""
    found = await find_by_id(visit, wanted.id, wanted.topic) if wanted.id else Partial[list[MessageView]]([])
    items = [message_row(visit, message) for message in found.value]
    return FindView(id=wanted.id, topic=wanted.topic, items=items, partial=silent(found.missing))


class ExportInput(MessagesInput, kw_only=True):
    form: Literal["jsonl", "csv"] = "jsonl"


@reads("/topics/{topic}/export", Role.READER, heavy=Heavy.SCAN, audited=True, page="-")
async def export_messages(visit: Visit, wanted: ExportInput) -> Download:
    """The messages of a search as a file: JSON lines or CSV."""
    wanted.cursor = ""
    first = await search(visit, wanted, EXPORT_BUDGET)
    return Download(f"{wanted.topic}.{wanted.form}", exported(visit, wanted, first, wanted.form))


async def exported(visit: Visit, wanted: MessagesInput, page: Page, form: str) -> AsyncIterator[bytes]:
    """The lines of an export, as they are found. If it is not whole, a last line says why."""
    count = size = 0
    problem = ""
    missing: dict[str, Missing] = {}
    if form == "csv":
        yield csv_line(visit.look.t(f"export.{name}") for name in CSV_COLUMNS)
    while not problem:
        missing |= {item.where: item for item in page.missing}
        try:
            for message in page.messages:
                line = export_line(visit, await _whole(visit, page, message), form)
                count, size = count + 1, size + len(line)
                yield line
            if page.next is None:
                break
            wanted.cursor = page.next
            if count >= EXPORT_MESSAGES or size >= EXPORT_BYTES:
                problem = visit.look.t("export.limited", count=count)
            else:
                page = await search(visit, wanted, EXPORT_BUDGET)
        except RocketlineError as error:
            problem = str(error)
    if problem or missing:
        yield incomplete_line(problem, list(missing.values()), page.next, form)


async def _whole(visit: Visit, page: Page, message: MessageView) -> MessageView:
    """A search keeps only the beginning of long bodies, so that few of them are in memory at a time."""
    if message.offset_id not in page.cut:
        return message
    return await (await visit.admin.master(message.broker_name)).message_at(message.log_offset)


def incomplete_line(problem: str, missing: list[Missing], next_cursor: str | None, form: str) -> bytes:
    """The last line of an export that is not whole: an object of its own kind, or a row with one cell."""
    reasons = [*([problem] if problem else []), *(f"{item.where}: {item.problem}" for item in missing)]
    if form == "csv":
        return csv_line([f"# incomplete: {'; '.join(reasons)}"])
    return msgspec.json.encode({"incomplete": reasons, "next": next_cursor}) + b"\n"


CSV_COLUMNS = ("id", "topic", "broker", "queue", "offset", "stored", "tag", "keys", "properties", "body")


def export_line(visit: Visit, message: MessageView, form: str) -> bytes:
    row = message_row(visit, message)
    body, is_text = body_text(message.body)
    if not is_text:
        body = message.body.hex()
    if form == "csv":
        return csv_line(
            (
                row.id,
                row.topic,
                row.broker,
                row.queue,
                row.offset,
                visit.look.clock(row.stored_ms),
                row.tag,
                " ".join(row.keys),
                msgspec.json.encode(row.properties).decode(),
                body,
            )
        )
    content = {**msgspec.to_builtins(row), "body" if is_text else "bodyHex": body}
    content.pop("preview")
    return msgspec.json.encode(content) + b"\n"


def csv_line(values: object) -> bytes:
    """A line of CSV in which no cell is a formula."""
    out = io.StringIO()
    csv.writer(out).writerow([safe_cell(str(value)) for value in values])  # type: ignore[attr-defined]
    return out.getvalue().encode("utf-8", "backslashreplace")


def safe_cell(text: str) -> str:
    """
    >>> safe_cell("=HYPERLINK(1)"), safe_cell("plain")
    ("'=HYPERLINK(1)", 'plain')
    """
    return "'" + text if text.startswith(FORMULA) else text
