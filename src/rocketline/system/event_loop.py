"""The event loop of servers and commands, signals that stop them, and pipes that end.

uvloop is used where it is installed. The event loop of Windows knows neither signals nor pipes: a signal then comes from
Python's own handler, and a thread reads the pipe.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
PIPE_BYTES = 4096


def loop_factory() -> LoopFactory | None:
    """Makes the fastest event loop there is; None: asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: LoopFactory = uvloop.new_event_loop
    return factory


def on_signals(numbers: Sequence[int], then: Callable[[], None]) -> Callable[[], None]:
    """Call `then` in the running loop when a signal comes; returns a function that gives the signals back."""
    loop = asyncio.get_running_loop()
    try:
        for number in numbers:
            loop.add_signal_handler(number, then)
    except NotImplementedError:
        return _on_python_signals(loop, numbers, then)

    def give_back() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    return give_back


def _on_python_signals(
    loop: asyncio.AbstractEventLoop, numbers: Sequence[int], then: Callable[[], None]
) -> Callable[[], None]:
    def signalled(*_: object) -> None:
        loop.call_soon_threadsafe(then)

    before: dict[int, Any] = {number: signal.signal(number, signalled) for number in numbers}

    def give_back() -> None:
        while before:
            signal.signal(*before.popitem())

    return give_back


def on_end_of_pipe(pipe: int, then: Callable[[], None]) -> Callable[[], None]:
    """Call `then` in the running loop when nobody holds the other end of a pipe any more; bytes that come are ignored.

    Returns a function that stops the watch.
    """
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if _has_ended(pipe):
            loop.remove_reader(pipe)
            then()

    try:
        loop.add_reader(pipe, readable)
    except NotImplementedError:
        return _watch_in_thread(pipe, loop, then)

    def stop() -> None:
        loop.remove_reader(pipe)

    return stop


def _watch_in_thread(pipe: int, loop: asyncio.AbstractEventLoop, then: Callable[[], None]) -> Callable[[], None]:
    watched = True

    def watch() -> None:
        while not _has_ended(pipe):
            pass
        if watched:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(then)

    def stop() -> None:
        nonlocal watched
        watched = False

    Thread(target=watch, name="rocketline-lifeline", daemon=True).start()
    return stop


def _has_ended(pipe: int) -> bool:
    try:
        return not os.read(pipe, PIPE_BYTES)
    except OSError:
        return True
