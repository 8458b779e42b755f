"""Replacing a small file as a whole, so that a crash leaves the old content or the new one and never a mix.

The steps are: write beside it, flush, take its name, flush the folder. Until the folder is flushed a power cut may bring
the old content back. Callers turn the OSError of a failed step into their own words.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def backup_of(path: Path) -> Path:
    """Where the content before the last replacement is kept."""
    return path.with_name(path.name + ".bak")


def replace_file(path: Path, data: bytes, *, keep_backup: bool = False) -> None:
    """Give `path` a new content; with `keep_backup` the former one becomes its backup. Flush the folder afterwards."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if keep_backup:
            # Between the two renames only the backup exists, which is what readers then fall back to.
            with suppress(FileNotFoundError):
                os.replace(path, backup_of(path))
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):  # a full disk needs the space, and the first failure is the one to tell of
            temporary.unlink()
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
