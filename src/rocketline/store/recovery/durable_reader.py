"""Reading a log during recovery: damage to bytes that once were on disk is skipped, any other damage is the end of the log.

Bytes that were on disk once were acknowledged and are never cut off. Bytes that may never have reached the disk are a write
that was not finished when the power failed.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketline.errors import CorruptRecord
from rocketline.protocol.records import LogEntry, log_entry
from rocketline.store.flush.checkpoint import Checkpoint
from rocketline.store.log.commit_log import record_store_ms
from rocketline.store.recovery.record_runs import ParseProperties, Row
from rocketline.store.recovery.scan import LogScan, sound_record
from rocketline.store.store_parts import StoreParts


class DurableLogReader:
    """Reads the records of a log up to its end, which it finds."""

    def __init__(self, parts: StoreParts, checkpoint: Checkpoint, parse_properties: ParseProperties | None) -> None:
        self.durable_end = 0
        """The log below this offset was on disk once; 0: not known."""
        self.uses_checkpoint = True
        """Whether only the checkpoint's time says what was on disk, because there is no mark."""
        self.last_store_ms = 0
        """The newest store time that recovery knows of."""
        self._log = parts.log
        self._damage = parts.damage
        self._check_crc = parts.config.check_crc
        self._checkpoint = checkpoint
        self._parse_properties = parse_properties

    def scan(self, start: int) -> LogScan:
        """A scan of the log from `start`, to be read with `batches`."""
        return LogScan(self._log.file, start, check_crc=self._check_crc, parse_properties=self._parse_properties)

    def batches(self, scan: LogScan) -> Iterator[list[Row]]:
        """All records up to the end of the log; damage on the way is reported."""
        while True:
            yield from scan.rows()
            damaged = self._with_damaged_body(scan)
            if damaged is not None:
                yield [damaged]
            elif not self._skip_damage(scan):
                return

    def _with_damaged_body(self, scan: LogScan) -> LogEntry | None:
        """The record at which the scan stopped, if only its body is damaged and it was on disk once.

        It keeps its place in its queue, and is not served.
        """
        offset = scan.next_log_offset
        segment = self._log.file.segment_at(offset)
        if segment is None or offset >= self.durable_end:
            return None
        try:
            record = sound_record(segment, offset - segment.base, segment.size, check_crc=False)
        except CorruptRecord:
            return None
        self._damage.record_at(offset, "its body does not match its checksum")
        scan.next_log_offset = offset + record.size
        return log_entry(record)

    def _skip_damage(self, scan: LogScan) -> bool:
        """Go on after bytes that were on disk once; False when they never were, and the log ends here."""
        offset = scan.next_log_offset
        assert scan.stop is not None
        if offset < self.durable_end:
            self._damage.record_at(offset, scan.stop.reason)
            if scan.skip() is None:
                scan.next_log_offset = self.durable_end
            return True
        if not self.uses_checkpoint or self.last_store_ms >= self._checkpoint.log_ms:
            return False
        # By the checkpoint, records with later store times were on disk.
        reason = scan.stop.reason
        following = scan.find_record(offset + 1)
        segment = self._log.file.segment_at(following) if following is not None else None
        if following is None or segment is None:
            return False
        if record_store_ms(segment.open(), following - segment.base) >= self._checkpoint.log_ms:
            return False
        self._damage.record_at(offset, reason)
        scan.next_log_offset = following
        return True
