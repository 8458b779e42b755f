"""What a broker does when its role changes, as `roles.py` asks its owner to."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from rocketline.broker.wiring import wired


@wired
class RoleWork:
    """What the broker does when its role changes."""

    lead: Callable[[], Coroutine[Any, Any, None]]
    """Builds anew what only a master does, and starts it."""
    rest: Callable[[], None]
    """Stops that, at once."""
    serve_by_role: Callable[[], None]
    """Has requests served as the role wants it."""
    announce: Callable[[], Coroutine[Any, Any, None]]
    """Tells the name servers."""
    log_cut: Callable[[], None]
    """Called when the end of the log was cut off."""
    stored: Callable[[], None]
    """Called when something was appended."""
    copy_tables: Callable[[], Coroutine[Any, Any, int]]
    """Copies the master's tables, and tells where its log begins; RocketlineError when they could not be."""


async def nothing_to_do() -> None:
    pass


def nothing() -> None:
    pass


async def no_tables() -> int:
    return 0


NO_WORK = RoleWork(
    lead=nothing_to_do,
    rest=nothing,
    serve_by_role=nothing,
    announce=nothing_to_do,
    log_cut=nothing,
    stored=nothing,
    copy_tables=no_tables,
)
"""Of an owner whose broker has one role for ever."""
