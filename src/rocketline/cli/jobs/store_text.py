"""Reports and records of a store as text and JSON."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

from rocketline.cli.messages.text import body_text, printable
from rocketline.errors import ProtocolError
from rocketline.message import KEYS, TAGS
from rocketline.protocol.compression import decompress
from rocketline.protocol.message_ids import decode_host
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.record_layout import COMPRESSED
from rocketline.protocol.records import Record
from rocketline.store.recovery.scan import Gap
from rocketline.store.tools.inspection import Verdict, VerifyReport
from rocketline.store.tools.rebuild import RebuildResult

SHOWN_FINDINGS = 50
PAGE_ROWS = 200
COLUMNS = (("log offset", 14), ("size", 7), ("stored", 23), ("queue", 28), ("tag", 12), ("keys", 20), ("body", 48))

RECORD_COLUMNS = (
    "log_offset", "size", "topic", "queue", "offset", "properties", "born_ms", "born_host", "store_ms", "store_host",
    "reconsume_times", "flag", "sys_flag", "prepared_log_offset", "body_problem", "body", "body_base64", "damaged", "next",
)  # fmt: skip
REPORT_COLUMNS = ("verdict", *(item.name for item in fields(VerifyReport)))
REBUILD_COLUMNS = ("store", *(item.name for item in fields(RebuildResult)))

_VERDICTS = {
    Verdict.SOUND: "sound",
    Verdict.RECOVERABLE: "recoverable: it was not stopped cleanly; the next start of a broker repairs it",
    Verdict.DAMAGED: "DAMAGED",
}


def report_lines(report: VerifyReport) -> Iterator[str]:
    """The report as text."""
    state = "in use" if report.is_open else "not stopped cleanly" if report.was_killed else "stopped cleanly"
    yield f"store           {printable(report.store)}, {state}"
    yield (
        f"commit log      {_count(report.log_files, 'file')}, offsets {report.log_min_offset:,} to "
        f"{report.log_next_offset:,}, {_count(report.records, 'record')}"
    )
    yield f"consume queues  {_count(report.queues, 'queue')}, {_count(report.units, 'message')} listed"
    yield f"key index       {_count(report.index_files, 'file')}, {_count(report.index_entries, 'entry', 'entries')}"
    times = ", ".join(f"{name} {_time(ms)}" for name, ms in report.checkpoint_ms.items())
    yield f"checkpoint      {times or 'none'}"
    yield f"config          {_count(report.config_files, 'file')}"
    for note in report.notes:
        yield f"note            {printable(note)}"
    for finding in report.findings[:SHOWN_FINDINGS]:
        yield f"{'will be repaired' if finding.heals else 'DAMAGE'}: {printable(str(finding))}"
    if len(report.findings) > SHOWN_FINDINGS:
        yield f"... and {len(report.findings) - SHOWN_FINDINGS:,} more; --output json shows them"
    counts = ", ".join(f"{count:,} in {part}" for part, count in report.damaged.items())
    yield _VERDICTS[report.verdict] + (f": {counts}" if counts else "")


def report_row(report: VerifyReport) -> tuple[Any, ...]:
    """The values of `REPORT_COLUMNS`."""
    return (report.verdict.value, *asdict(report).values())


def rebuild_row(store: str, result: RebuildResult) -> tuple[Any, ...]:
    """The values of `REBUILD_COLUMNS`."""
    known = asdict(result)
    known["gaps"] = [{"log_offset": start, "next": end, "damaged": reason} for start, end, reason in result.gaps]
    return (store, *known.values())


def rebuild_lines(store: str, result: RebuildResult) -> Iterator[str]:
    speed = result.log_bytes / max(result.seconds, 1e-6) / (1 << 20)
    yield f"{printable(store)}: {_count(result.records, 'record')} in {result.log_bytes / (1 << 20):,.1f} MiB of log"
    yield f"  consume queues  {_count(result.queues, 'queue')}, {_count(result.units, 'message')}"
    yield f"  key index       {_count(result.index_files, 'file')}, {_count(result.index_entries, 'entry', 'entries')}"
    for start, end, reason in result.gaps:
        yield f"  skipped         log offset {start} to {end}: {printable(reason)}"
    yield f"  {result.seconds:.1f} s, {speed:,.0f} MiB/s, {result.records / max(result.seconds, 1e-6):,.0f} records/s"


def record_fields(found: Record | Gap) -> dict[str, Any]:
    """A record for JSON; the body as text, or as base64 when it is not UTF-8."""
    if isinstance(found, Gap):
        return {"damaged": found.reason, "log_offset": found.log_offset, "next": found.next_log_offset}
    body, problem = _inflated(found)
    values: dict[str, Any] = {
        "log_offset": found.log_offset,
        "size": found.size,
        "topic": found.topic,
        "queue": found.queue_id,
        "offset": found.queue_offset,
        "properties": decode_properties(found.properties.decode("utf-8", "replace")),
        "born_ms": found.born_ms,
        "born_host": decode_host(found.born_host),
        "store_ms": found.store_ms,
        "store_host": decode_host(found.store_host),
        "reconsume_times": found.reconsume_times,
        "flag": found.flag,
        "sys_flag": found.sys_flag,
    }
    if found.prepared_log_offset:
        values["prepared_log_offset"] = found.prepared_log_offset
    if problem:
        values["body_problem"] = problem
    try:
        values["body"] = body.decode("utf-8")
    except UnicodeDecodeError:
        values["body_base64"] = b64encode(body).decode("ascii")
    return values


def record_row(record: Record) -> tuple[str, ...]:
    """The cells of a table, in the order of `COLUMNS`."""
    properties = decode_properties(record.properties.decode("utf-8", "replace"))
    body, problem = _inflated(record)
    return (
        str(record.log_offset),
        str(record.size),
        _time(record.store_ms),
        f"{printable(record.topic)}:{record.queue_id}#{record.queue_offset}",
        printable(properties.get(TAGS, "")),
        printable(properties.get(KEYS, "")),
        f"({problem})" if problem else body_text(body[:200]),
    )


def record_line(found: Record | Gap) -> str:
    return gap_line(found) if isinstance(found, Gap) else "\t".join(record_row(found))


def gap_line(gap: Gap) -> str:
    return f"damaged: log offset {gap.log_offset} to {gap.next_log_offset}: {printable(gap.reason)}"


def print_table(found: Iterable[Record | Gap]) -> None:
    """Print tables of `PAGE_ROWS` rows each, all of the same widths: memory stays small however long the log is."""
    from rich.console import Console

    console = Console(highlight=False)
    table = _table()
    for item in found:
        if isinstance(item, Gap):
            table.add_row(
                str(item.log_offset), "damaged", *[""] * (len(COLUMNS) - 3), printable(item.reason), style="red"
            )
        else:
            table.add_row(*record_row(item))
        if table.row_count == PAGE_ROWS:
            console.print(table)
            table = _table()
    if table.row_count:
        console.print(table)


def _table() -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name, width in COLUMNS:
        table.add_column(
            Text(name),
            min_width=min(width, 10),
            max_width=width,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if name in ("log offset", "size") else "left",
        )
    return table


def _inflated(record: Record) -> tuple[bytes, str]:
    """(body, problem): the body as it was sent, or as it is stored when it cannot be inflated."""
    body = bytes(record.body)
    if not record.sys_flag & COMPRESSED:
        return body, ""
    try:
        return decompress(body, record.sys_flag), ""
    except ProtocolError as error:
        return body, str(error)


def _time(ms: int) -> str:
    if ms <= 0:
        return "never"
    try:
        return datetime.fromtimestamp(ms / 1000).isoformat(" ", "milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
