"""SIGINT and SIGTERM end a `run`, and a loop over `messages`, as a call of `stop` does: handlers finish, offsets are
committed, the group is left.

Only signals that nobody else handles are taken: a web server or a program with handlers of its own keeps them and calls
`stop` itself. Python allows this in the main thread only; elsewhere nothing is done. After one signal the handlers are as
before, so a second Ctrl-C ends a program that takes too long to close.

`signal.signal` is used rather than the loop's `add_signal_handler`, which not every event loop has.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_stops: list[Callable[[], object]] = []
"""Of all that run now: one signal ends them all."""
_before: dict[signal.Signals, Any] = {}
"""The handlers that ours have replaced."""


@contextmanager
def stop_on_signals(stop: Callable[[], object], loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Have `stop` called on the loop when a signal asks this process to end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop_on_loop() -> None:
        loop.call_soon_threadsafe(stop)

    _take()
    _stops.append(stop_on_loop)
    try:
        yield
    finally:
        _stops.remove(stop_on_loop)
        if not _stops:
            _give_back()


def _take() -> None:
    for number in _SIGNALS:
        before = signal.getsignal(number)
        if _is_unhandled(before):
            signal.signal(number, _on_signal)
            _before[number] = before


def _give_back() -> None:
    while _before:  # another signal may come meanwhile, and does the same
        number, before = _before.popitem()
        if signal.getsignal(number) is _on_signal:
            signal.signal(number, before)


def _is_unhandled(handler: Any) -> bool:
    """Whether nobody but Python itself, or `asyncio.run`, has set it."""
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    return isinstance(getattr(getattr(handler, "func", None), "__self__", None), asyncio.Runner)


def _on_signal(number: int, frame: FrameType | None) -> None:
    _give_back()
    log.info("%s: consumers stop", signal.Signals(number).name)
    for stop in list(_stops):
        stop()
