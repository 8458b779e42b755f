"""What is made of PEM files, and made anew when they have changed: TLS contexts of servers and of clients.

What was made is never changed, because others use it. Files that cannot be used leave it in place; that is logged once for
each change, and counted.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from rocketline.errors import ConfigError

log = logging.getLogger(__name__)

T = TypeVar("T")


class FromFiles(Generic[T]):
    """Raises what `make` raises, but only here."""

    def __init__(self, paths: Iterable[str | os.PathLike[str] | None], make: Callable[[], T]) -> None:
        self._paths = [Path(path) for path in paths if path]
        self._make = make
        self._seen = _digest(self._paths)
        self.made = make()
        self.failures = 0

    def look(self) -> bool:
        """Make it anew if the files are not as they were at the last look, also when they were then of no use; whether it is
        new."""
        seen = _digest(self._paths)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            self.made = self._make()
        except (ConfigError, OSError) as error:
            self.failures += 1
            log.error("changed TLS files are not used, the ones from before are: %s", error)
            return False
        return True

    def current(self) -> T:
        """What belongs to the files as they are now."""
        self.look()
        return self.made


def _digest(paths: list[Path]) -> bytes:
    """What is in the files, in short."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            digest.update(path.read_bytes())
        except OSError as error:
            digest.update(f"{path}: {error}".encode())
    return digest.digest()
