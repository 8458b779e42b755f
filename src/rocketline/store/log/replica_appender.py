"""Appends the bytes of another broker's log, which come in pieces that are cut anywhere.

Only whole records are appended, each after a look at its place and its checksum. An incomplete one is kept in memory, and a
replica never says that it has it. A blank fills a file; its bytes are written as they come, and count when all are there.

What does not fit is never written: LogDiverged says why. It is final, because the same bytes would come again.
"""

from __future__ import annotations

from rocketline.errors import CorruptRecord, LogDiverged
from rocketline.protocol.record_layout import BLANK_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from rocketline.protocol.records import Buffer, decode_record, is_sound_record, log_entry, read_start
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.recovery.record_runs import SECTOR_BYTES, FastLogReader, Row

MAX_RECORD_BYTES = 256 << 20
"""The largest record that is waited for."""


class ReplicaAppender:
    """Owner thread only. A new one is made for each connection to a master."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._reader = FastLogReader(check_crc=True, parse_properties=None)
        self._tail = bytearray()
        """Of a record that is not complete."""
        self._needed = 0
        """How long the tail must be before it is looked at again."""
        self._blank_done = 0
        """How much of a blank was written; 0: we are in none."""

    @property
    def next_offset(self) -> int:
        """Log offset of the next byte that must come."""
        return self._log.wrote + len(self._tail) + self._blank_done

    def append(self, log_offset: int, data: Buffer) -> int:
        """Take the bytes from `log_offset` on; returns how many records were completed."""
        log = self._log
        if not log.wrote and not len(log.file) and not self._tail:
            self._begin(log_offset)
        if log_offset != self.next_offset:
            raise LogDiverged(f"the master goes on at log offset {log_offset}, this log ends at {self.next_offset}")
        count = 0
        rest = memoryview(data)
        while rest:
            if self._blank_done:
                rest = rest[self._take_blank(rest) :]
                continue
            room = self._file_end - self.next_offset
            if room <= 0:
                raise LogDiverged(f"the master's file ends before log offset {self._file_end} without a blank")
            self._tail += rest[:room]
            rest = rest[room:]
            if len(self._tail) >= self._needed:
                count += self._take_records()
        return count

    def _begin(self, log_offset: int) -> None:
        if log_offset % self._log.file.segment_bytes:
            raise LogDiverged(
                f"the master's log begins at {log_offset}, where no file of {self._log.file.segment_bytes} bytes begins; "
                "set mappedFileSizeCommitLog as on the master"
            )
        self._log.set_end(log_offset, 0)

    @property
    def _file_end(self) -> int:
        size = self._log.file.segment_bytes
        return (self._log.wrote // size + 1) * size

    def _take_records(self) -> int:
        """Append the whole records of the tail; what is left is part of one."""
        log = self._log
        start = log.wrote
        # The reader wants to begin with a sector.
        before = start % SECTOR_BYTES
        chunk = bytes(before) + self._tail
        rows: list[Row] = []
        end = self._read(chunk, before, start - before, rows)
        if rows:
            log.append_records(memoryview(chunk)[before:end], {row[2] for row in rows}, max(row[6] for row in rows))
        self._tail = bytearray(chunk[end:])
        if not self._starts_blank():
            return len(rows)
        blank, self._tail, self._needed = self._tail, bytearray(), 0
        if (size := read_start(blank, 0)[0]) != self._file_end - log.wrote:
            raise LogDiverged(
                f"the master's file ends at {log.wrote + size}, here a file of {log.file.segment_bytes} bytes ends at "
                f"{self._file_end}; set mappedFileSizeCommitLog as on the master"
            )
        self._take_blank(blank)
        return len(rows)

    def _read(self, chunk: bytes, position: int, chunk_at: int, rows: list[Row]) -> int:
        """Add the sound records from `position` on; returns where the first begins that is not complete, or a blank."""
        while True:
            position = self._reader.read(chunk, position, chunk_at, rows)
            left = len(chunk) - position
            self._needed = BLANK_BYTES
            if left < BLANK_BYTES:
                return position
            size, magic = read_start(chunk, position)
            if magic == MAGIC_BLANK:
                return position
            log_offset = chunk_at + position
            self._require_possible(log_offset, size, magic)
            if left < size:
                self._needed = size
                return position
            rows.append(_checked(chunk, position, size, log_offset))
            position += size

    def _require_possible(self, log_offset: int, size: int, magic: int) -> None:
        if magic not in (MAGIC_V1, MAGIC_V2) or not MIN_RECORD_BYTES <= size <= MAX_RECORD_BYTES:
            raise LogDiverged(
                f"what the master has at log offset {log_offset} is no record: this log holds records that the master's "
                "does not hold"
            )
        if log_offset + size > self._file_end - BLANK_BYTES:
            raise LogDiverged(
                f"the master's record at log offset {log_offset} crosses a file of {self._log.file.segment_bytes} bytes; "
                "set mappedFileSizeCommitLog as on the master"
            )

    def _starts_blank(self) -> bool:
        return len(self._tail) >= BLANK_BYTES and read_start(self._tail, 0)[1] == MAGIC_BLANK

    def _take_blank(self, data: Buffer) -> int:
        """Write what the blank has of these bytes, and return how many; after the last of them the next file begins."""
        log = self._log
        start = log.wrote + self._blank_done
        taken = min(len(data), self._file_end - start)
        piece = bytes(data[:taken])
        # Behind the end a file has zeros, and mostly a blank has nothing else.
        if piece.count(0) != taken:
            log.write_blank(start, piece)
        self._blank_done += taken
        if start + taken == self._file_end:
            log.pass_blank()
            self._blank_done = 0
        return taken


def _checked(chunk: bytes, position: int, size: int, log_offset: int) -> Row:
    if not is_sound_record(chunk, position, size, log_offset):
        raise LogDiverged(
            f"the master's record at log offset {log_offset} does not match its checksum or its place: it is damaged there, "
            "or this log holds records that the master's does not hold"
        )
    try:
        return log_entry(decode_record(chunk, position, position + size))
    except CorruptRecord as error:
        raise LogDiverged(f"the master's record at log offset {log_offset}: {error}") from error
