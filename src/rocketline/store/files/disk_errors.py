"""What a failed system call is to the store: an error of its own that names what was tried, the path and the reason."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocketline.errors import DiskFull, StoreError


def store_error(error: OSError, doing: str, path: Path) -> StoreError:
    """The store's own error for a failed system call."""
    kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
    return kind(f"cannot {doing} {path}: {error.strerror or error}")


@contextmanager
def as_store_error(doing: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise store_error(error, doing, path) from error
