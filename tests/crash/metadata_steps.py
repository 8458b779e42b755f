"""A process that kills itself inside the replacement of a small file, at a step of one's choice.

The steps are those of `rocketline.files`: a half-written temporary file, its flush, two renames, the flush of the folder.
"""

from __future__ import annotations

import builtins
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketline import files
from rocketline.store.files import disk

WRITE, FLUSH, KEEP_BACKUP, TAKE_NAME, FLUSH_FOLDER, DONE = (
    "write", "flush", "keep backup", "take name", "flush folder", "done",
)  # fmt: skip
STEPS = (WRITE, FLUSH, KEEP_BACKUP, TAKE_NAME, FLUSH_FOLDER, DONE)


def die_inside(name: str, step: str, nth: int) -> None:
    """Kill this process just before `step` of the nth replacement of the file called `name`."""
    if step not in STEPS:
        raise ValueError(f"{step!r} is none of {STEPS}")
    watched = _Replacements(name, step, nth)
    # There is no `open` of its own to be replaced: this one hides the builtin.
    for module, attribute, value in (
        (files, "open", watched.open),
        (files, "os", _Os(watched)),
        (disk, "replace_file", watched.replace_file),
        (disk, "sync_folder", watched.sync_folder),
    ):
        setattr(module, attribute, value)


def contents_of(path: Path) -> tuple[bytes | None, bytes | None]:
    """(before, after) of the replacement the process died in; (None, None) when it lived."""
    before, after = _notes(path)
    return (
        before.read_bytes() if before.exists() else None,
        after.read_bytes() if after.exists() else None,
    )


def _note(path: Path, data: bytes) -> None:
    before, after = _notes(path)
    if path.exists():
        before.write_bytes(path.read_bytes())
    after.write_bytes(data)


def _notes(path: Path) -> tuple[Path, Path]:
    """Kept beside the store, where no power cut reaches."""
    store = path.parent.parent
    return tuple(store.with_name(f"{path.name}.{word}") for word in ("before", "after"))  # type: ignore[return-value]


class _Replacements:
    def __init__(self, name: str, step: str, nth: int) -> None:
        self.name = name
        self._step = step
        self._left = nth
        self._replace_file: Callable[..., None] = vars(disk)["replace_file"]  # with a planted fault, the faulty one
        self._sync_folder: Callable[[Path], None] = vars(disk)["sync_folder"]
        self._thread = 0  # the one that replaces the file the nth time: others replace other files meanwhile

    @property
    def is_meant(self) -> bool:
        return threading.get_ident() == self._thread

    def replace_file(self, path: Path, data: bytes, *, keep_backup: bool = False, mode: int = files.ANYBODY) -> None:
        if path.name == self.name:
            self._left -= 1
            self._thread = 0
            if self._left == 0:
                _note(path, data)
                self._thread = threading.get_ident()
        self._replace_file(path, data, keep_backup=keep_backup, mode=mode)

    def sync_folder(self, folder: Path) -> None:
        self.reached(FLUSH_FOLDER)
        self._sync_folder(folder)
        self.reached(DONE)

    def reached(self, step: str, meant: bool = True) -> None:
        if self.is_meant and meant and step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)

    def open(self, path: Path, mode: str, opener: Callable[[str, int], int] | None = None) -> Any:
        file = builtins.open(path, mode, opener=opener)  # noqa: SIM115 (whoever asked for it closes it)
        if self.is_meant and self._step == WRITE:
            return _HalfWritten(self, file)
        return file


class _HalfWritten:
    """A file whose writer dies in the middle."""

    def __init__(self, watched: _Replacements, file: Any) -> None:
        self._watched = watched
        self._file = file

    def __enter__(self) -> _HalfWritten:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        self._file.write(data[: len(data) // 2])
        self._file.flush()
        self._watched.reached(WRITE)


class _Os:
    """The `os` of `rocketline.files`, stopping at its steps."""

    def __init__(self, watched: _Replacements) -> None:
        self._watched = watched

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, fd: int) -> None:
        is_folder = os.path.isdir(f"/proc/self/fd/{fd}")
        self._watched.reached(FLUSH_FOLDER if is_folder else FLUSH)
        os.fsync(fd)
        if is_folder:
            self._watched.reached(DONE)

    def replace(self, source: Path, target: Path) -> None:
        is_backup = Path(target).name.endswith(".bak")
        self._watched.reached(KEEP_BACKUP if is_backup else TAKE_NAME)
        os.replace(source, target)
