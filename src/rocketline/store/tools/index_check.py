"""Comparing the key index with the log, in the same walk over the log.

Entries are in the order of the records, so the walk finds the entries of each key next to each other; a key without its
entry there is looked up through the slots, as a broker does. Entries that match no record must be duplicates from a
restart, or of deleted log files. The links of slots and entries are checked by computing them again and comparing.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rocketline.errors import CorruptRecord
from rocketline.message import TAGS
from rocketline.protocol.hashing import index_key_hash
from rocketline.protocol.record_layout import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rocketline.protocol.records import LogEntry, index_keys, log_entry
from rocketline.store.tools.findings import INDEX, Findings
from rocketline.store.tools.queue_check import CheckLimits, LogRecords

_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_HASH_AND_OFFSET = struct.Struct(">iq8x")
_HASH_AND_PREVIOUS = struct.Struct(">i12xi")
_STEP = 65536

AreLinked = Callable[[memoryview, int, int], bool]
"""A fast check that the links of a file are right: (file, number of slots, number of entries plus one)."""


class IndexContent:
    """One index file, for reading."""

    def __init__(self, name: str, view: memoryview, slots: int, entries: int) -> None:
        self.name = name
        self._view = view
        self._slots = slots
        self._entries_at = _HEADER.size + slots * 4
        self.begin_ms, self.end_ms, self.begin_log_offset, self.end_log_offset, self.slots_used, count = (
            _HEADER.unpack_from(view, 0)
        )
        self.count = min(max(count, 1), entries)
        self.header_problem = (
            "" if 0 <= count <= entries else f"counts {count} entries, {entries} is the most there can be"
        )

    def number_at(self, log_offset: int) -> int:
        """The number of the first entry of a record at or after a log offset, if they ascend as they should."""
        low, high = 1, self.count
        while low < high:
            middle = (low + high) // 2
            if self.pairs(middle, middle + 1)[0][1] < log_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def pairs(self, number: int, end: int) -> list[tuple[int, int]]:
        """(key hash, log offset) of the entries from `number` to `end`."""
        return list(_HASH_AND_OFFSET.iter_unpack(self._slice(number, min(end, self.count))))

    def _slice(self, number: int, end: int) -> memoryview:
        return self._view[self._entries_at + number * 20 : self._entries_at + max(number, end) * 20]

    def find(self, key_hash: int, log_offset: int) -> int:
        """The entry of a key and a record, found as a broker finds it; 0 when there is none."""
        (number,) = struct.unpack_from(">i", self._view, 40 + key_hash % self._slots * 4)
        bound = self.count
        while 0 < number < bound:
            entry_hash, offset, _, previous = _ENTRY.unpack_from(self._view, self._entries_at + number * 20)
            if (entry_hash, offset) == (key_hash, log_offset):
                return int(number)
            bound, number = number, previous
        return 0

    def check_links(self, limits: CheckLimits, findings: Findings, are_linked: AreLinked | None = None) -> None:
        if self.header_problem:
            findings.add(INDEX, f"{self.name} header", self.header_problem)
        if are_linked is not None and are_linked(self._view, self._slots, self.count):
            return
        for place, problem in self.link_problems():
            findings.add(INDEX, f"{self.name} {place}", problem, limits.heals(self.end_log_offset))

    def link_problems(self) -> Iterator[tuple[str, str]]:
        """(place, problem) of each entry and slot with a wrong link."""
        newest = array("i", bytes(self._slots * 4))
        slots = self._slots
        for start in range(1, self.count, _STEP):
            entries = self._slice(start, min(start + _STEP, self.count))
            for number, (key_hash, previous) in enumerate(_HASH_AND_PREVIOUS.iter_unpack(entries), start):
                slot = key_hash % slots
                if previous != newest[slot]:
                    yield f"entry {number}", f"is linked to entry {previous}, entry {newest[slot]} comes before it"
                newest[slot] = number
        yield from self._slot_problems(newest)

    def _slot_problems(self, newest: array[int]) -> Iterator[tuple[str, str]]:
        present = array("i", bytes(self._view[_HEADER.size : self._entries_at]))
        if sys.byteorder == "little":
            present.byteswap()
        # A running broker may have added entries after those the header counts; slots may point to them.
        if present != newest:
            for slot, (number, wanted) in enumerate(zip(present, newest)):
                if number != wanted and number < self.count:
                    yield f"slot {slot}", f"leads to entry {number}, entry {wanted} is the newest of it"


class IndexTotals(NamedTuple):
    """How many records of a range are not in the index, or not completely."""

    behind: int = 0
    """Records after the last one that is indexed."""
    behind_from: int = -1
    untagged: int = 0
    """Records indexed without their tag, as RocketMQ before 5.4 does it."""
    with_tag: int = 0

    def plus(self, later: IndexTotals) -> IndexTotals:
        start = later.behind_from if self.behind_from < 0 else self.behind_from
        return IndexTotals(
            self.behind + later.behind, start, self.untagged + later.untagged, self.with_tag + later.with_tag
        )


class IndexCheck:
    """Compares the index with the log, batch by batch."""

    def __init__(
        self,
        files: Sequence[IndexContent],
        log: LogRecords,
        limits: CheckLimits,
        findings: Findings,
    ) -> None:
        self._behind = 0
        self._behind_from = -1
        self._untagged = 0
        self._with_tag = 0
        self._files = list(files)
        self._log = log
        self._limits = limits
        self._findings = findings
        self._file = 0
        self._number = 1
        self._last = max((file.end_log_offset for file in files if file.count > 1), default=-1)
        self._stop: tuple[int, int] | None = None

    def limit_to(self, start: int | None, end: int | None) -> None:
        """Check only entries of records between two log offsets; adjacent ranges leave out no entry."""
        if start is not None:
            self._file, self._number = self._place(start)
        self._stop = None if end is None else self._place(end)

    def _place(self, log_offset: int) -> tuple[int, int]:
        for at, file in enumerate(self._files):
            number = file.number_at(log_offset)
            if number < file.count:
                return at, number
        return len(self._files), 1

    @property
    def totals(self) -> IndexTotals:
        return IndexTotals(self._behind, self._behind_from, self._untagged, self._with_tag)

    def follow(self, entries: Sequence[LogEntry]) -> None:
        records = [(entry.log_offset, _keys_of(entry)) for entry in entries if _is_indexed(entry) and entry.properties]
        self._with_tag += sum(TAGS in entry.properties for entry in entries)
        hashes = [index_key_hash(*key) for _, keys in records for key in keys]
        offsets: list[int] = [log_offset for log_offset, keys in records for _ in keys]
        if self._has_next(list(zip(hashes, offsets))):
            return
        start = 0
        for log_offset, keys in records:
            self._follow_one(log_offset, hashes[start : start + len(keys)], keys)
            start += len(keys)

    def _has_next(self, wanted: list[tuple[int, int]]) -> bool:
        """Skip the next entries if they are the wanted ones."""
        left, file, number = len(wanted), self._file, self._number
        found: list[tuple[int, int]] = []
        while left and file < len(self._files):
            pairs = self._files[file].pairs(number, number + left)
            found += pairs
            left -= len(pairs)
            number += len(pairs)
            if left:
                file, number = file + 1, 1
        if found != wanted:
            return False
        self._file, self._number = file, number
        return True

    def _next_entry(self) -> tuple[int, int] | None:
        while self._file < len(self._files):
            pairs = self._files[self._file].pairs(self._number, self._number + 1)
            if pairs:
                return pairs[0]
            self._file, self._number = self._file + 1, 1
        return None

    def _follow_one(self, log_offset: int, hashes: list[int], keys: list[tuple[str, str]]) -> None:
        while (entry := self._next_entry()) is not None and entry[1] < log_offset:
            self._check_entry(*entry)
        found = set()
        while (entry := self._next_entry()) is not None and entry[1] == log_offset:
            if entry[0] in hashes:
                found.add(entry[0])
                self._number += 1
            else:
                self._check_entry(*entry)
        missing = [
            (of, key) for of, (_, key) in zip(hashes, keys) if of not in found and not self._jump_to(of, log_offset)
        ]
        if not missing:
            return
        if log_offset > self._last:
            self._behind += 1
            self._behind_from = log_offset if self._behind_from < 0 else self._behind_from
        elif all(key.startswith("T#") for _, key in missing):
            self._untagged += 1
        else:
            problem = f"is not found by {', '.join(repr(key[:80]) for _, key in missing[:3])}"
            self._findings.add(INDEX, f"record at log offset {log_offset}", problem, self._limits.heals(log_offset))

    def _jump_to(self, key_hash: int, log_offset: int) -> bool:
        """Whether the entry is elsewhere; if it is further on, the entries before it are checked first."""
        for at, file in enumerate(self._files):
            number = file.find(key_hash, log_offset)
            if not number:
                continue
            if at == self._file and number >= self._number:
                while self._number < number and (entry := self._next_entry()) is not None:
                    self._check_entry(*entry)
                self._number = number + 1
            return True
        return False

    def _check_entry(self, key_hash: int, log_offset: int) -> None:
        """Check the next entry, which matches no record of the walk, and skip it."""
        number, file = self._number, self._files[self._file]
        self._number += 1
        if log_offset < self._log.min_offset or (self._limits.end is not None and log_offset >= self._limits.end):
            return
        try:
            keys = _keys_of(log_entry(self._log.at(log_offset)))
            if any(index_key_hash(*key) == key_hash for key in keys):
                return
            problem = f"lists a key that the record at log offset {log_offset} does not have"
        except CorruptRecord as error:
            problem = f"points at log offset {log_offset}, where no sound record is: {error}"
        self._findings.add(INDEX, f"{file.name} entry {number}", problem, self._limits.heals(log_offset))

    def check_rest(self) -> None:
        """Check the entries that are left."""
        while (entry := self._next_entry()) is not None:
            if self._stop is not None and (self._file, self._number) >= self._stop:
                return
            self._check_entry(*entry)


def sum_up(totals: IndexTotals, limits: CheckLimits, findings: Findings, listed_end: int) -> None:
    """Add the findings that need the totals of the whole log; queues list what is below `listed_end`."""
    if 0 < totals.untagged < totals.with_tag - totals.behind:
        findings.add(INDEX, "tags", f"{totals.untagged} records are not found by their tag")
    if totals.behind and limits.end is None and totals.behind_from < listed_end:
        place = f"records from log offset {totals.behind_from} on"
        problem = f"{totals.behind} are in queues but not in the index"
        findings.add(INDEX, place, problem, limits.heals(totals.behind_from))


def _keys_of(entry: LogEntry) -> list[tuple[str, str]]:
    """(topic, key) of each index entry of a record, in order."""
    topic = entry.topic
    return [(topic, key) for key in index_keys(entry.properties)]


def _is_indexed(entry: LogEntry) -> bool:
    return entry.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK
