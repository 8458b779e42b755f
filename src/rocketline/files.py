"""Replacing a small file as a whole, so that a crash leaves the old content or the new one and never a mix.

The steps are: write a file beside it, flush, rename, flush the folder. Until the folder is flushed, a power cut may
bring the old content back. Callers turn the OSError of a failed step into an error of their own.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rocketline.system.files import sync_folder

__all__ = ["ANYBODY", "OWNER_ONLY", "backup_of", "replace_file", "sync_folder"]


ANYBODY = 0o666
OWNER_ONLY = 0o600
"""Modes of new files, less the umask."""


def backup_of(path: Path) -> Path:
    """The path of the backup, which has the content before the last replacement."""
    return path.with_name(path.name + ".bak")


def replace_file(path: Path, data: bytes, *, keep_backup: bool = False, mode: int = ANYBODY) -> None:
    """Replace the content of `path`; with `keep_backup` the old file becomes the backup. Then call `sync_folder`.

    `mode` says who may read and write the new file, less the umask."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if keep_backup:
            # Between the two renames only the backup exists; readers fall back to it.
            with suppress(FileNotFoundError):
                os.replace(path, backup_of(path))
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):  # frees space on a full disk; the first error is the one to report
            temporary.unlink()
        raise
