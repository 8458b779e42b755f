"""Failed system calls as errors of the store, which name what was tried, the path and the reason."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocketline.errors import DiskFull, StoreError


def store_error(error: OSError, doing: str, path: Path) -> StoreError:
    """The store's error for a failed system call."""
    kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
    return kind(f"cannot {doing} {path}: {error.strerror or error}")


@contextmanager
def as_store_error(doing: str, path: Path) -> Iterator[None]:
    """Raise a StoreError for any OSError of the block."""
    try:
        yield
    except OSError as error:
        raise store_error(error, doing, path) from error
