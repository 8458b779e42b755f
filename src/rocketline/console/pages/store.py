"""The files of a store on this machine: only the folder that the console was started with, and only read."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from rocketline.console.access import Role
from rocketline.console.bodies import MessageRow, message_row
from rocketline.console.endpoints import Count, Input, View, reads
from rocketline.console.limits import Heavy
from rocketline.console.problems import Problem
from rocketline.errors import StoreError
from rocketline.message import MessageView
from rocketline.protocol.compression import decompress
from rocketline.protocol.message_ids import decode_host
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.record_layout import COMPRESSED
from rocketline.protocol.records import Record
from rocketline.store.tools.folder import StoreFolder, chain_files, find_stores, segments_of
from rocketline.store.tools.inspection import VerifyReport, log_end, verify
from rocketline.store.tools.read_only import ReadOnlyDisk
from rocketline.store.tools.selection import RecordSelection, select

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

MOST_FILES = 200
MAX_BODY_BYTES = 16 << 20
CHECKPOINT_TIMES = struct.Struct(">qqq")
"""Of log, consume queues and key index, at the beginning of the file."""


class StoreInput(Input, kw_only=True):
    verify: bool = False
    offset: Count | None = None


class FileRow(View, kw_only=True):
    part: str
    name: str
    size: int
    changed_ms: int


class Safe(View, kw_only=True):
    """Up to which store time the parts of one store are on disk, as its checkpoint says."""

    store: str
    log_ms: int | None
    """Flushed."""
    queues_ms: int | None
    """Dispatched: the units of all messages up to then are on disk too."""
    index_ms: int | None
    log_begin: int | None
    log_end: int | None


class StoreReport(View, kw_only=True):
    store: str
    verdict: str
    is_open: bool
    records: int
    log_begin: int
    log_end: int
    queues: int
    findings: list[str]


class StoreView(View, kw_only=True):
    folder: str
    files: list[FileRow]
    count: int
    """Of all files; `files` has only the first of them."""
    size: int
    safe: list[Safe]
    reports: list[StoreReport]
    record: MessageRow | None = None


@reads("/store", Role.ADMIN, "store.html", of_console=True, heavy=Heavy.SCAN, audited=True)
async def store(visit: Visit, wanted: StoreInput) -> StoreView:
    """Files of the store, a check of all of it, or the record at a log offset."""
    folder = visit.desk.config.store
    if folder is None:
        raise Problem(404, "no_page")
    stores = await asyncio.to_thread(find_stores, ReadOnlyDisk(), folder.absolute())
    files = await asyncio.to_thread(_files, stores)
    view = StoreView(
        folder=str(folder), files=files[:MOST_FILES], count=len(files), size=sum(row.size for row in files), reports=[],
        safe=await asyncio.to_thread(lambda: [_safe(one) for one in stores]),
    )  # fmt: skip
    if wanted.verify:
        reports = [await asyncio.to_thread(verify, one) for one in stores]
        view.reports = [_report(report) for report in reports]
    if wanted.offset is not None:
        view.record = await asyncio.to_thread(_record, visit, stores, wanted.offset)
    return view


def _files(stores: list[StoreFolder]) -> list[FileRow]:
    rows = []
    for one in stores:
        root = one.root or one.log
        for path in sorted(Path(root).rglob("*")):
            try:
                status = path.stat()
            except OSError:  # deleted meanwhile
                continue
            if path.is_file():
                place = path.relative_to(root)
                rows.append(
                    FileRow(
                        part=place.parts[0] if len(place.parts) > 1 else "",
                        name=str(Path(root.name) / place),
                        size=status.st_size,
                        changed_ms=int(status.st_mtime * 1000),
                    )
                )
    return rows


def _safe(one: StoreFolder) -> Safe:
    raw = None if one.root is None else ReadOnlyDisk().read(one.root / "checkpoint")
    times = CHECKPOINT_TIMES.unpack_from(raw) if raw is not None and len(raw) >= CHECKPOINT_TIMES.size else (0, 0, 0)
    log_ms, queues_ms, index_ms = (time_ms if time_ms > 0 else None for time_ms in times)
    files = chain_files(ReadOnlyDisk(), one.log) if one.log.exists() else []
    segments = segments_of(ReadOnlyDisk(), files)
    try:
        end = log_end(segments)
    finally:
        for segment in segments:
            segment.close()
    return Safe(
        store=one.name.name, log_ms=log_ms, queues_ms=queues_ms, index_ms=index_ms,
        log_begin=files[0].base if files else None, log_end=end,
    )  # fmt: skip


def _report(report: VerifyReport) -> StoreReport:
    return StoreReport(
        store=report.store, verdict=report.verdict.value, is_open=report.is_open, records=report.records,
        log_begin=report.log_min_offset, log_end=report.log_next_offset, queues=report.queues,
        findings=[str(finding) for finding in report.findings[:100]] + report.notes[:20],
    )  # fmt: skip


def _record(visit: Visit, stores: list[StoreFolder], offset: int) -> MessageRow:
    failure: StoreError | None = None
    for one in stores:
        try:
            for record in select(one, RecordSelection(log_offset=offset), ReadOnlyDisk()):
                if isinstance(record, Record):
                    return message_row(visit, _view(record))
        except StoreError as error:
            failure = error
    raise Problem(404, "not_found", str(failure or offset))


def _view(record: Record) -> MessageView:
    body = bytes(record.body)
    if record.sys_flag & COMPRESSED:
        body = decompress(body, record.sys_flag, MAX_BODY_BYTES)
    properties = decode_properties(bytes(record.properties).decode("utf-8", "replace"))
    return MessageView(
        record.topic, body, properties, record.queue_id, record.queue_offset, record.log_offset, record.born_ms,
        decode_host(record.born_host), record.store_ms, decode_host(record.store_host), record.reconsume_times,
    )  # fmt: skip
