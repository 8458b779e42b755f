"""Running a command until it is stopped: event loop, signals, and the line that says that a server is ready.

SIGTERM and Ctrl-C cancel the work; a second signal ends the process at once. A process that belongs to another one has a
lifeline to it, a pipe that the other holds open: when that is closed, the work is cancelled as well. Standard output is for
results, logs go to standard error.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

from rocketline.cli.failures import discard_output
from rocketline.system.event_loop import loop_factory, on_end_of_pipe, on_signals
from rocketline.system.processes import allow_many_files

T = TypeVar("T")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(work: Coroutine[Any, Any, T], lifeline: int | None = None) -> T | None:
    """Run the work, on uvloop if it is installed; None when a signal or the end of the lifeline stopped it."""
    # What is loaded by now stays for ever: no garbage collection needs to look at it again.
    gc.freeze()
    gc.enable()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(until_signalled(work, lifeline))


@contextmanager
def stop_at_closed_output() -> Iterator[None]:
    """End the work without a failure when whoever read our output has left (`| head`)."""
    try:
        yield
    except* BrokenPipeError:
        discard_output()


async def until_signalled(work: Coroutine[Any, Any, T], lifeline: int | None = None) -> T | None:
    """The result of the work, or None when a signal or the end of the lifeline came first and the work was cancelled."""
    task = asyncio.create_task(work)
    stopped = False

    def stop() -> None:
        # Once only: a signal to the process group often comes together with the end of the lifeline.
        nonlocal stopped
        if not stopped:
            stopped = True
            task.cancel()

    def signalled() -> None:
        give_back_signals()
        stop()

    give_back_signals = on_signals(STOP_SIGNALS, signalled)
    stop_watching = on_end_of_pipe(lifeline, stop) if lifeline is not None else None
    try:
        return await task
    except asyncio.CancelledError:
        if not stopped:
            raise
        return None
    finally:
        give_back_signals()
        if stop_watching is not None:
            stop_watching()


async def forever(_: object) -> None:
    await asyncio.get_running_loop().create_future()


async def serve(
    server: AbstractAsyncContextManager[T],
    ready_line: Callable[[T], str],
    until: Callable[[T], Awaitable[None]] = forever,
) -> None:
    """Start a server, print its ready line, and serve until cancelled, or until `until` returns."""
    allow_many_files()
    async with server as running:
        print(ready_line(running), flush=True)
        await until(running)
