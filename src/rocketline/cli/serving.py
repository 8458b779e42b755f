"""Running until told to stop: event loop, signals and the line that says a server is ready.

SIGTERM and Ctrl-C cancel the work, which is how everything in rocketline is stopped; a second signal ends the process at
once, for those who cannot wait. Standard output belongs to results, logs go to standard error.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(work: Coroutine[Any, Any, T]) -> T | None:
    """Do the work on the fastest loop there is; None when a signal ended it."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(until_signalled(work))


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Whoever read our output has enough (`| head`): the work ends, and that is no failure."""
    try:
        yield
    except* BrokenPipeError:
        # Python flushes standard output once more at the end, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def until_signalled(work: Coroutine[Any, Any, T]) -> T | None:
    """The result of the work, or None when a signal came first and the work wound itself up."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
        task.cancel()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if not stopped:
            raise
        return None
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


async def serve(server: AbstractAsyncContextManager[T], ready_line: Callable[[T], str]) -> None:
    """Start, say so in one line on standard output, and serve until cancelled."""
    allow_many_files()
    async with server as running:
        print(ready_line(running), flush=True)
        await asyncio.get_running_loop().create_future()


def allow_many_files() -> None:
    """Raise the limit of open files as far as this process may: every connection and every mapped file needs one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
