"""The C library, for calls that Python does not offer; Windows has none that is found like this."""

from __future__ import annotations

import ctypes
import os


def _load() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None, use_errno=True)
    except (TypeError, OSError):
        return None


LIBC = _load()
"""None where there is none."""


def last_error() -> OSError:
    """The reason why the last call failed."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
