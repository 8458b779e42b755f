"""Refusing folders that must not be opened as a store, before anything in them is changed."""

from __future__ import annotations

from rocketline.errors import CorruptRecord, StoreError
from rocketline.protocol.record_layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from rocketline.protocol.records import decode_record, read_start
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.store.recovery.scan import LogScan


def refuse_unknown(commit_log: CommitLog, queues: ConsumeQueues) -> None:
    """Raise StoreError, with nothing changed, for a folder that does not hold a complete store of ours."""
    first = commit_log.file.first
    if first is None:
        if any(len(queue.file) for queue in queues):
            # The log may be on a disk that is not mounted: a new log must not be started in its place.
            raise StoreError(
                f"{commit_log.file.folder} has no log files, but there are consume queues beside it: bring the log back "
                "(is its disk mounted?), or remove the consumequeue and index folders to start empty"
            )
        return
    _refuse_shuffled(commit_log)
    size, magic = read_start(first.open(), 0)
    if magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK) or (size, magic) == (0, 0):
        return
    if LogScan(commit_log.file, first.base).find_record(first.base) is None:
        raise StoreError(
            f"{first.path} does not begin with a message (magic {magic & 0xFFFFFFFF:#010x}): it is no commit log, or one of "
            "a version this program does not know; nothing was changed"
        )


def _refuse_shuffled(commit_log: CommitLog) -> None:
    """Refuse a log whose files have wrong names: its records would look like damage, and be cut off."""
    for segment in commit_log.file:
        try:
            record = decode_record(segment.open(), 0, segment.size, check_crc=True)
        except CorruptRecord:
            continue
        if record.log_offset != segment.base:
            raise StoreError(
                f"{segment.path} begins with the message of log offset {record.log_offset}: the files of "
                f"{commit_log.file.folder} have wrong names; rename them back, nothing was changed"
            )
