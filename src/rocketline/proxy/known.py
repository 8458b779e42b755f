"""What a cluster said, kept for a while.

An answer is used for `FRESH_S`. Then it is still used, and asked for again meanwhile; after `KEEP_S` without a new one it is
gone. That there is nothing of a name is remembered too, for a second: who asks for names that nobody has must not make us
ask each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

log = logging.getLogger(__name__)

FRESH_S = 20.0
KEEP_S = 300.0
DOUBT_S = 1.0
NOTHING_S = 1.0
MAX_KNOWN = 50_000

T = TypeVar("T")
V = TypeVar("V")


class Known(Generic[T]):
    """What was asked for, by name; those who want the same at the same time share one question."""

    def __init__(self, ask: Callable[[str], Coroutine[Any, Any, T | None]], now: Callable[[], float]) -> None:
        self._ask = ask
        self._now = now
        self._found: dict[str, tuple[float, T]] = {}
        self._nothing: dict[str, float] = {}
        self._asking: dict[str, asyncio.Task[T | None]] = {}
        self._doubted_at = 0.0

    def get(self, name: str) -> T | None:
        """What is known; when it is old, it is asked for again."""
        found = self._found.get(name)
        if found is None:
            return None
        age_s = self._now() - found[0]
        if age_s > KEEP_S:
            del self._found[name]
            return None
        if age_s > FRESH_S:
            self._start(name)
        return found[1]

    async def find(self, name: str) -> T | None:
        """What is known, or the answer to a question; None when there is nothing of that name."""
        found = self.get(name)
        if found is not None or self._is_nothing(name):
            return found
        return await asyncio.shield(self._start(name))

    def _is_nothing(self, name: str) -> bool:
        """Whether there was nothing a moment ago."""
        since = self._nothing.get(name)
        if since is None:
            return False
        if self._now() - since < NOTHING_S:
            return True
        del self._nothing[name]
        return False

    def doubt(self) -> None:
        """Ask again for whatever is wanted next, at most once a second."""
        now = self._now()
        if now - self._doubted_at < DOUBT_S:
            return
        self._doubted_at = now
        old = now - FRESH_S - DOUBT_S
        self._found = {name: (min(at, old), value) for name, (at, value) in self._found.items()}

    def _start(self, name: str) -> asyncio.Task[T | None]:
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.get_running_loop().create_task(self._ask(name))
            task.add_done_callback(partial(self._asked, name))
        return task

    def _asked(self, name: str, task: asyncio.Task[T | None]) -> None:
        self._asking.pop(name, None)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log.info("%s could not be looked up: %s", name, error)
            return
        value = task.result()
        if value is None:
            self._found.pop(name, None)
            _note(self._nothing, name, self._now())
        else:
            _note(self._found, name, (self._now(), value))

    def close(self) -> None:
        for task in self._asking.values():
            task.cancel()


def _note(table: dict[str, V], name: str, value: V) -> None:
    if len(table) >= MAX_KNOWN and name not in table:
        table.pop(next(iter(table)))
    table[name] = value
