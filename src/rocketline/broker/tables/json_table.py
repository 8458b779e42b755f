"""Tables stored as JSON files in the store's config folder, in Apache's formats.

A save replaces the file atomically and keeps the version before it as `.bak`. A file that cannot be read falls back to
its backup; when neither can be read the broker refuses to start, or it would overwrite the only copy.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from rocketline.protocol.bodies import decode_file, pretty_json
from rocketline.store.files.disk import Disk, read_with_backup

T = TypeVar("T")


class JsonTable(Generic[T]):
    """One JSON file and the type of what is in it."""

    def __init__(self, disk: Disk, path: Path, kind: type[T]) -> None:
        self._disk = disk
        self._path = path
        self._kind = kind

    def load(self) -> T | None:
        """What was saved last; None when nothing ever was."""
        return read_with_backup(self._disk, self._path, partial(decode_file, self._kind))

    def encode(self, table: T) -> bytes:
        return pretty_json(table)

    def save(self, table: T) -> None:
        self.write(self.encode(table))

    def write(self, data: bytes) -> None:
        """Blocking; any thread."""
        self._disk.write_atomic(self._path, data, keep_backup=True)
