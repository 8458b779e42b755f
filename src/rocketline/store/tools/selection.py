"""Selecting records of a log, which is read from front to back in bounded memory; damage is reported and skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rocketline.errors import CorruptRecord, StoreError
from rocketline.protocol.record_layout import MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from rocketline.protocol.records import LogEntry, Record, index_keys, read_start
from rocketline.store.files.disk import Disk
from rocketline.store.files.segment import Segment
from rocketline.store.log.commit_log import record_store_ms
from rocketline.store.recovery.scan import Gap, LogScan
from rocketline.store.tools.folder import StoreFolder, chain_files, segments_of
from rocketline.store.tools.queue_check import LogRecords


@dataclass(frozen=True)
class RecordSelection:
    """Which records are wanted; a condition that is None is not checked."""

    log_offset: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    key: str | None = None
    """A unique id or one of the keys."""
    since_ms: int | None = None
    until_ms: int | None = None

    def test(self) -> Callable[[LogEntry], bool]:
        """A test for the conditions other than log offsets."""
        wanted = [
            (position, value)
            for position, value in ((2, self.topic), (3, self.queue_id), (4, self.queue_offset))
            if value is not None
        ]
        key, since, until = self.key, self.since_ms, self.until_ms

        def is_wanted(entry: LogEntry) -> bool:
            for position, value in wanted:
                if entry[position] != value:
                    return False
            if (since is not None and entry.store_ms < since) or (until is not None and entry.store_ms > until):
                return False
            return key is None or key in index_keys(entry.properties)

        return is_wanted


def select(folder: StoreFolder, selection: RecordSelection, disk: Disk) -> Iterator[Record | Gap]:
    """The selected records, and the gaps met, in the order of the log."""
    segments = segments_of(disk, chain_files(disk, folder.log))
    if not segments:
        return
    records = LogRecords(segments)
    if selection.log_offset is not None:
        try:
            yield records.at(selection.log_offset)
        except CorruptRecord as error:
            raise StoreError(
                f"{folder.log} has no sound record at log offset {selection.log_offset}: {error}"
            ) from error
        return
    scan = LogScan(segments, _start(segments, selection))
    is_wanted, start, end = selection.test(), selection.from_offset or 0, selection.to_offset
    while True:
        for batch in scan:
            for entry in batch:
                if end is not None and entry.log_offset >= end:
                    return
                if entry.log_offset >= start and is_wanted(entry):
                    yield records.at(entry.log_offset)
        gap = scan.skip()
        if gap is None:
            return
        if (end is None or gap.log_offset < end) and gap.next_log_offset > start:
            yield gap


def _start(segments: Sequence[Segment], selection: RecordSelection) -> int:
    """Start of the last file that begins before the selected records; times and offsets ascend."""
    start = segments[0].base
    for segment in segments:
        if selection.from_offset is not None and segment.base <= selection.from_offset:
            start = segment.base
        if selection.since_ms is not None and 0 < _first_ms(segment) < selection.since_ms:
            start = segment.base
    return start


def _first_ms(segment: Segment) -> int:
    view = segment.open()
    if segment.size < MIN_RECORD_BYTES or read_start(view, 0)[1] not in (MAGIC_V1, MAGIC_V2):
        return 0
    return record_store_ms(view, 0)
