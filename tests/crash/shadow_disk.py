"""What a power cut would leave of a folder: only what was flushed, plus an arbitrary part of what was not.

In the broker's process a `Shadow` is told of every fsync and fdatasync. A flushed file has its bytes copied aside, a flushed
folder its list of names, which is how POSIX puts it: the name of a new file, a rename or a removal is durable when the
folder was flushed, and not before. Files are known by inode, so a name and its content are durable independently.

After the process was killed, `cut` builds the folder anew in the harness: per folder the names as last flushed or as they
are now, per file the flushed bytes and some of the later 512-byte sectors. Everything random comes from one seed.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

SECTOR_BYTES = 512
_CHUNK_BYTES = 64 << 10
_LOCK = "lock"
"""Never opened here: closing any descriptor of it would give the broker's lock away."""

Names = dict[str, int]
"""Entries of a folder: inode of each file, 0 for a folder."""


class Shadow:
    """The broker's side: copies what is flushed. Everything there at the start counts as durable."""

    def __init__(self, root: Path, shadow: Path) -> None:
        self._root = root
        self._shadow = shadow
        self._held: dict[str, list[int]] = {}
        self._kept: dict[int, int] = {}
        self._folders = threading.Lock()
        shutil.rmtree(shadow, ignore_errors=True)
        (shadow / "files").mkdir(parents=True)
        (shadow / "folders").mkdir()
        root.mkdir(parents=True, exist_ok=True)
        for folder, _, names in os.walk(root):
            for name in names:
                if name != _LOCK:
                    self._copy_whole(Path(folder) / name)
            self._folder_synced(Path(folder))

    def synced(self, fd: int, path: str, started: float) -> None:
        """A flush has happened as far as this process can tell."""
        target = Path(path)
        if self._root not in (target, *target.parents):
            return
        if target.is_dir():
            # Several threads flush one folder; each would close what the other holds.
            with self._folders:
                self._folder_synced(target)
            return
        self._file_synced(fd)
        if target.parent.name == "commitlog":
            with open(self._shadow / "log-syncs", "a") as lines:
                lines.write(f"{target.name} {started}\n")

    def _copy_whole(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            self._file_synced(fd)
        finally:
            os.close(fd)

    def _file_synced(self, fd: int) -> None:
        status = os.fstat(fd)
        if status.st_ino not in self._kept:
            # A number is never given to another file in this life: what was flushed under it would pass for that one's.
            self._kept[status.st_ino] = os.dup(fd)
        copy = os.open(self._shadow / "files" / str(status.st_ino), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if os.fstat(copy).st_size != status.st_size:
                os.ftruncate(copy, status.st_size)
            # A fresh descriptor: one that was opened for writing only cannot be read.
            source = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
            try:
                _copy_changes(source, copy, status.st_size)
            finally:
                os.close(source)
        finally:
            os.close(copy)

    def _folder_synced(self, folder: Path) -> None:
        names: Names = {}
        held: list[int] = []
        with os.scandir(folder) as found:
            for item in found:
                if not item.is_dir() and item.name != _LOCK:
                    # An inode in use is not given to another file, so its number keeps its meaning.
                    try:
                        held.append(os.open(item.path, os.O_RDONLY | os.O_CLOEXEC))
                    except FileNotFoundError:
                        continue  # another thread has just renamed or removed it
                names[item.name] = 0 if item.is_dir() else item.inode()
        listing = self._shadow / "folders" / _key(folder.relative_to(self._root))
        temporary = listing.with_name(listing.name + ".new")
        temporary.write_text(json.dumps(names))
        os.replace(temporary, listing)
        for fd in self._held.get(str(folder), []):
            os.close(fd)
        self._held[str(folder)] = held


def _copy_changes(source: int, copy: int, size: int) -> None:
    """Whole chunks by `pwrite`, which a kill can stop only between pages: no sector is ever half written."""
    for start in range(0, size, _CHUNK_BYTES):
        chunk = os.pread(source, _CHUNK_BYTES, start)
        if chunk != os.pread(copy, len(chunk), start):
            os.pwrite(copy, chunk, start)


def _key(relative: Path) -> str:
    return "root" if relative == Path() else "root|" + "|".join(relative.parts)


@dataclass
class Remains:
    """What a cut left, in numbers."""

    files: int = 0
    files_gone: int = 0
    sectors_kept: int = 0
    sectors_lost: int = 0
    last_log_syncs: dict[str, float] = field(default_factory=dict)
    """By log file: when its last completed flush began, on the machine's monotonic clock."""


def cut(root: Path, shadow: Path, seed: int) -> Remains:
    """Replace `root` by what a power cut leaves of it. The broker's process must be dead."""
    random = Random(seed)
    remains = Remains(last_log_syncs=_log_syncs(shadow))
    now: dict[int, Path] = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            now[path.stat().st_ino] = path
    after = root.with_name(root.name + ".after")
    shutil.rmtree(after, ignore_errors=True)
    _rebuild(root, shadow, Path(), after, now, random, remains)
    shutil.rmtree(root)
    os.replace(after, root)
    return remains


def _log_syncs(shadow: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    try:
        lines = (shadow / "log-syncs").read_text().split("\n")[:-1]
    except FileNotFoundError:
        return found
    for line in lines:
        name, started = line.split()
        found[name] = max(found.get(name, 0.0), float(started))
    return found


def _rebuild(
    root: Path, shadow: Path, relative: Path, after: Path, now: dict[int, Path], random: Random, remains: Remains
) -> None:
    (after / relative).mkdir(parents=True)
    for name, inode in sorted(_names(root, shadow, relative, random).items()):
        path = relative / name
        if inode == 0:
            _rebuild(root, shadow, path, after, now, random, remains)
        elif name == _LOCK:
            (after / path).write_bytes(b"lock")
        else:
            _survive(shadow / "files" / str(inode), now.get(inode), after / path, random, remains)


def _names(root: Path, shadow: Path, relative: Path, random: Random) -> Names:
    """The entries of a folder as last flushed, or, by chance, as they are now."""
    listing = shadow / "folders" / _key(relative)
    durable: Names = json.loads(listing.read_text()) if listing.exists() else {}
    keeps_later = random.random() < 0.5
    if not keeps_later or not (root / relative).is_dir():
        return durable
    with os.scandir(root / relative) as found:
        return {item.name: 0 if item.is_dir() else item.inode() for item in found}


def _survive(durable: Path, current: Path | None, target: Path, random: Random, remains: Remains) -> None:
    """Write what is left of one file: its flushed bytes and some of the sectors written since."""
    remains.files += 1
    flushed = durable.read_bytes() if durable.exists() else None
    written = current.read_bytes() if current is not None else flushed or b""
    if flushed is None and random.random() < 0.5:
        remains.files_gone += 1
        target.write_bytes(b"")  # the name came through, its content did not
        return
    survived = bytearray(flushed or b"")
    if len(survived) < len(written):
        survived.extend(bytes(len(written) - len(survived)))
    share = random.choice((0.0, 0.0, 0.5, 0.9, 1.0))
    for start in _changed_sectors(survived, written):
        if random.random() < share:
            survived[start : start + SECTOR_BYTES] = written[start : start + SECTOR_BYTES]
            remains.sectors_kept += 1
        else:
            remains.sectors_lost += 1
    target.write_bytes(survived)


def _changed_sectors(survived: bytearray, written: bytes) -> list[int]:
    changed: list[int] = []
    for chunk in range(0, len(written), _CHUNK_BYTES):
        end = min(chunk + _CHUNK_BYTES, len(written))
        if survived[chunk:end] == written[chunk:end]:
            continue
        for start in range(chunk, end, SECTOR_BYTES):
            if survived[start : start + SECTOR_BYTES] != written[start : start + SECTOR_BYTES]:
                changed.append(start)
    return changed
