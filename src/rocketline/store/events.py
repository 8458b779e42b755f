"""What an open store reports to its owner."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rocketline.errors import StoreError
from rocketline.store.queue.dispatcher import OnArrivals, OnLeftOut


def _ignore(*_: object) -> None:
    pass


class StoreEvents(NamedTuple):
    """Callbacks of an open store, given once to `MessageStore.open`; what nobody needs is ignored."""

    arrived: OnArrivals = _ignore
    """Called by `dispatch` with the messages that have just become readable, all of them at once."""
    left_out: OnLeftOut = _ignore
    """Called by `dispatch` with the log offset of a record that could not be filed, and the reason."""
    flushed: Callable[[int], None] = _ignore
    """Called from the flusher thread with the next log offset that is not yet on disk."""
    committed: Callable[[int], None] = _ignore
    """Called from the committer thread, with a transient pool: the next log offset that cannot be dispatched yet."""
    flush_failed: Callable[[StoreError], None] = _ignore
    """Called once, from the flusher thread: the disk failed and the store is read-only now."""


NO_EVENTS = StoreEvents()
