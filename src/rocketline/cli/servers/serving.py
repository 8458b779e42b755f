"""Running a command until it is stopped: event loop, signals, and the line that says that a server is ready.

SIGTERM and Ctrl-C cancel the work; a second signal ends the process at once. A process that belongs to another one has a
lifeline to it, a pipe that the other holds open: when that is closed, the work is cancelled as well. Standard output is for
results, logs go to standard error.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

from rocketline.cli.failures import discard_output

T = TypeVar("T")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(work: Coroutine[Any, Any, T], lifeline: int | None = None) -> T | None:
    """Run the work, on uvloop if it is installed; None when a signal or the end of the lifeline stopped it."""
    # What is loaded by now stays for ever: no garbage collection needs to look at it again.
    gc.freeze()
    gc.enable()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(until_signalled(work, lifeline))


@contextmanager
def stop_at_closed_output() -> Iterator[None]:
    """End the work without a failure when whoever read our output has left (`| head`)."""
    try:
        yield
    except* BrokenPipeError:
        discard_output()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def until_signalled(work: Coroutine[Any, Any, T], lifeline: int | None = None) -> T | None:
    """The result of the work, or None when a signal or the end of the lifeline came first and the work was cancelled."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    stopped = False

    def stop() -> None:
        # Once only: a signal to the process group often comes together with the end of the lifeline.
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
    """Call `then` when nobody holds the other end of the pipe any more; bytes that come before are ignored."""
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
    """Start a server, print its ready line, and serve until cancelled, or until `until` returns."""
    allow_many_files()
    async with server as running:
        print(ready_line(running), flush=True)
        await until(running)


def allow_many_files() -> None:
    """Raise this process's limit of open files as far as allowed: every connection and every mapped file needs one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
