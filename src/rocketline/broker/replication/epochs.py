"""The epoch file: which master wrote which span of the log.

    count, newline; CRC-32 of the lines below, newline; then `epoch-start` in a line each

The file is Apache's. An entry is on disk before the first record of its epoch is appended. An epoch in which nothing was
written is replaced by the next one: two logs that name the same epoch and start have the same bytes there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

from rocketline.errors import LogDiverged, StoreError
from rocketline.protocol.numbers import read_number
from rocketline.protocol.replication_frames import Epoch
from rocketline.store.files.disk import Disk

log = logging.getLogger(__name__)

FILE_NAME = "epochFileCheckpoint"
_MAX = (1 << 63) - 1
_MAX_EPOCH = (1 << 31) - 1


class Epochs:
    """The epochs of one log, oldest first. `save` blocks; the rest does not."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self.entries: tuple[Epoch, ...] = ()
        self._disk = disk
        self._path = root / FILE_NAME

    def load(self) -> None:
        """Read the file, or its former version if it is damaged. StoreError when both are."""
        backup = self._path.with_name(FILE_NAME + ".bak")
        raw = self._disk.read(self._path), self._disk.read(backup)
        for data in raw:
            entries = _decode(data) if data else None
            if entries:
                self.entries = entries
                return
        if any(raw):
            raise StoreError(
                f"{self._path} is damaged, and so is its .bak; bring back a copy, or start with an empty folder"
            )

    @property
    def last(self) -> Epoch | None:
        return self.entries[-1] if self.entries else None

    @property
    def last_number(self) -> int:
        return self.entries[-1].number if self.entries else 0

    def with_epoch(self, epoch: Epoch) -> tuple[Epoch, ...]:
        """The entries with one more. Epochs that wrote nothing are left out. StoreError for an epoch that is not new."""
        if self.last == epoch:
            return self.entries
        if epoch.number <= self.last_number:
            raise StoreError(f"epoch {epoch.number} cannot begin: epoch {self.last_number} is known here already")
        kept = [entry for entry in self.entries if entry.start < epoch.start]
        return (*kept, epoch)

    def below(self, log_offset: int) -> tuple[Epoch, ...]:
        """The entries without those that begin at or after a log offset: the log is cut there."""
        return tuple(entry for entry in self.entries if entry.start < log_offset)

    def shared(self, log_offset: int, others: Sequence[Epoch]) -> tuple[Epoch, ...]:
        """The entries of a log that is the same as another one up to a log offset: what begins from there on is as there."""
        return tuple(entry for entry in self.entries if entry.start < log_offset or entry in others)

    def save(self, entries: tuple[Epoch, ...]) -> None:
        """Write the file, durably; blocks. Afterwards these are the entries."""
        if entries == self.entries:
            return
        if entries:
            self._disk.write_atomic(self._path, _encode(entries), keep_backup=True)
        else:
            for path in (self._path, self._path.with_name(FILE_NAME + ".bak")):
                if self._disk.exists(path):
                    self._disk.remove(path)
        self.entries = entries

    def at(self, log_offset: int) -> Epoch:
        """The epoch that wrote at a log offset; what is older than all of them counts as the first one's."""
        for entry in reversed(self.entries):
            if entry.start <= log_offset:
                return entry
        return self.entries[0] if self.entries else Epoch(0, 0)

    def end_of(self, epoch: Epoch, log_end: int) -> int:
        """Where the next epoch begins, or the log ends."""
        following = [entry.start for entry in self.entries if entry.start > epoch.start]
        return min(following, default=log_end)


def common_end(own: Epochs, own_end: int, others: Sequence[Epoch], others_end: int) -> int:
    """Up to where two logs have the same bytes. LogDiverged when no epoch of ours is known to the other."""
    if not own_end:
        return 0
    if not own.entries:
        first = others[0].start if others else others_end
        if own_end <= max(first, 0) or not others:
            return min(own_end, others_end)
        raise LogDiverged(
            f"this log ends at {own_end} and knows no epochs, the master's first one begins at {first}: nobody can tell "
            "which of its records the master has. Start this replica with an empty folder"
        )
    known = dict(others)
    for entry in reversed(own.entries):
        if known.get(entry.number) == entry.start:
            following = [other.start for other in others if other.start > entry.start]
            return min(own.end_of(entry, own_end), min(following, default=others_end))
    if others and own.entries[0].start == others[0].start:
        return own.entries[0].start  # different epochs begin there, with what was there before there were epochs
    raise LogDiverged(
        f"no epoch of this log ({_spans(own.entries)}) is one of the master's ({_spans(others)}): they have no common "
        "point. Start this replica with an empty folder"
    )


def _spans(entries: Sequence[Epoch]) -> str:
    return ", ".join(f"{number} from {start}" for number, start in entries[-5:]) or "none"


def _encode(entries: Sequence[Epoch]) -> bytes:
    lines = "".join(f"{number}-{start}\n" for number, start in entries).encode()
    return b"%d\n%d\n%s" % (len(entries), crc32(lines) & 0x7FFFFFFF, lines)


def _decode(data: bytes) -> tuple[Epoch, ...] | None:
    """None for a file that is not whole."""
    count, _, rest = data.partition(b"\n")
    crc, _, lines = rest.partition(b"\n")
    if crc != b"0" and crc != b"%d" % (crc32(lines) & 0x7FFFFFFF):
        return None
    entries = []
    for line in lines.decode("ascii", "replace").splitlines():
        number, _, start = line.partition("-")
        epoch = read_number(number, highest=_MAX_EPOCH), read_number(start, highest=_MAX)
        if epoch[0] is None or epoch[1] is None:
            return None
        entries.append(Epoch(epoch[0], epoch[1]))
    return tuple(entries) if count == b"%d" % len(entries) else None
