"""Copies of files of an object store on the disk of a worker, for tasks that read them: named by their SHA-256, and bounded.

A task has a lock on its copy while it reads, and another task of this machine that wants the same file uses that copy. When
there is more than the limit, copies that nobody uses are removed, those unused for longest first. What is in use stays, so
the cache can be larger than its limit by what is being read at that moment.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rocketline.errors import CorruptRecord, StoreError
from rocketline.spark.log.object_store import ObjectStore
from rocketline.system.files import belongs_to_another, own_user, shared_lock, sole_lock

DEFAULT_BYTES = 10 << 30


@dataclass(frozen=True)
class FileCache:
    """Where copies are kept; can be pickled."""

    most_bytes: int = DEFAULT_BYTES
    folder: Path | None = None
    """None: a folder of this user's own in the machine's folder for temporary files."""

    @contextmanager
    def copy_of(self, address: str, name: str, sha256: str, size: int) -> Iterator[Path]:
        """The path of a copy that is complete and has this sum, while the context lasts."""
        folder = self._own_folder()
        path, lock = folder / sha256, folder / f"{sha256}.lock"
        while True:
            if not path.exists():
                with sole_lock(lock):
                    if not path.exists():
                        self._make_room(folder, size)
                        _download(address, name, sha256, size, path)
            with shared_lock(lock):
                if path.exists():  # it may have been removed in between
                    os.utime(path)
                    yield path
                    return

    def _own_folder(self) -> Path:
        folder = self.folder or Path(tempfile.gettempdir()) / f"rocketline-log-cache-{own_user()}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            about = folder.stat()
        except OSError as error:
            raise StoreError(f"{folder} cannot be used for copies of log files: {error.strerror}") from error
        if belongs_to_another(about):
            raise StoreError(f"{folder} belongs to another user: name a folder of yours with the option cacheDir")
        return folder

    def _make_room(self, folder: Path, size: int) -> None:
        """Remove copies that nobody uses until a file of this size fits, and what killed tasks left."""
        copies = [path for path in folder.iterdir() if path.suffix != ".lock"]
        ages = {path: path.stat() for path in copies if path.exists()}
        used = sum(about.st_size for about in ages.values())
        for path in sorted(ages, key=lambda path: (path.suffix != ".part", ages[path].st_mtime)):
            if used + size <= self.most_bytes and path.suffix != ".part":
                return
            with suppress(BlockingIOError, FileNotFoundError), sole_lock(path.with_suffix(".lock"), wait=False):
                path.unlink()
                used -= ages[path].st_size


def _download(address: str, name: str, sha256: str, size: int, path: Path) -> None:
    part = path.with_suffix(".part")
    found = ObjectStore(address).download(name, part)
    if found != sha256 or part.stat().st_size != size:
        part.unlink()
        raise CorruptRecord(
            f"{address}: {name} is damaged: its SHA-256 is {found}, the manifest says {sha256}. Offload that file again to "
            "another place, from the store or a replica"
        )
    part.replace(path)
