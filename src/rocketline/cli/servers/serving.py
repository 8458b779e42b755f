"""Running until told to stop: event loop, signals and the line that says a server is ready.

SIGTERM and Ctrl-C cancel the work, which is how everything in rocketline is stopped; a second signal ends the process at
once, for those who cannot wait. A process that belongs to another one has a lifeline to it, a pipe that the other holds
open: its end cancels the work as well. Standard output belongs to results, logs go to standard error.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(work: Coroutine[Any, Any, T], lifeline: int | None = None) -> T | None:
    """Do the work on the fastest loop there is; None when a signal, or the end of the lifeline, ended it."""
    # What is loaded by now stays: no collection needs to look at it again.
    gc.freeze()
    gc.enable()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(until_signalled(work, lifeline))


@contextmanager
def closed_output_is_fine() -> Iterator[None]:
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


async def until_signalled(work: Coroutine[Any, Any, T], lifeline: int | None = None) -> T | None:
    """The result of the work, or None when a signal or the end of the lifeline came first and the work wound itself up."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    stopped = False

    def stop() -> None:
        # Once only: who is told twice, by a signal to the whole group and by the lifeline, still winds up in peace.
        nonlocal stopped
        if not stopped:
            stopped = True
            task.cancel()

    def signalled() -> None:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
        stop()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, signalled)
    if lifeline is not None:
        _when_cut(lifeline, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if not stopped:
            raise
        return None
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
        if lifeline is not None:
            loop.remove_reader(lifeline)


def _when_cut(lifeline: int, then: Callable[[], None]) -> None:
    """Call `then` when nobody holds the other end any more; what comes before that means nothing."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        try:
            is_cut = not os.read(lifeline, 4096)
        except OSError:
            is_cut = True
        if is_cut:
            loop.remove_reader(lifeline)
            then()

    loop.add_reader(lifeline, readable)


async def _forever(_: object) -> None:
    await asyncio.get_running_loop().create_future()


async def serve(
    server: AbstractAsyncContextManager[T],
    ready_line: Callable[[T], str],
    until: Callable[[T], Awaitable[None]] = _forever,
) -> None:
    """Start, say so in one line on standard output, and serve until cancelled, or for as long as `until` takes."""
    allow_many_files()
    async with server as running:
        print(ready_line(running), flush=True)
        await until(running)


def allow_many_files() -> None:
    """Raise the limit of open files as far as this process may: every connection and every mapped file needs one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
