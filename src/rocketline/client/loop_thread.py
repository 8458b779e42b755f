"""The background thread of blocking clients: an event loop for all of them, from the first that is opened to the last
that is closed.

`OnLoopThread` wraps an async client: each call is handed to the loop and waited for. Any thread may call it but the
loop's own. A forked child has no such thread; it makes its own with the next client it opens, and a client that was opened
before the fork refuses every call.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from rocketline.client.signals import stop_on_signals
from rocketline.errors import ClientError
from rocketline.system.forks import in_forked_child

T = TypeVar("T")
P = ParamSpec("P")
ClientT = TypeVar("ClientT", bound=AbstractAsyncContextManager[Any])


class LoopThread:
    """An event loop in its own thread, running as long as it has holders."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def hold(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name="rocketline", daemon=True)
                self._thread.start()
            self._holders += 1
            return self._loop

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders or self._loop is None or self._thread is None:
                return
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = None

    def start(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Future[T] | None:
        """Start a coroutine on a loop that was held; None when the loop has ended."""
        # Under the lock: a coroutine handed to a stopped loop would never run.
        with self._lock:
            return asyncio.run_coroutine_threadsafe(work, loop) if loop is self._loop else None

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        # Threads may still wait for these.
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))


_background = LoopThread()
_WRONG_THREAD = "a blocking call on the thread that would have to answer it: hooks and callbacks must not wait"


def _forget_thread() -> None:
    """In a forked child the thread is the parent's, and its lock may have been held."""
    global _background
    _background = LoopThread()


in_forked_child(_forget_thread)


def arguments_of(client: Callable[P, object]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Gives a constructor the parameters of an async client, for type checkers and `help`."""

    def decorated(constructor: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        parameters = inspect.signature(client).parameters.values()
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        constructor.__signature__ = inspect.Signature([own, *parameters])  # type: ignore[attr-defined]
        return constructor

    return decorated


class OnLoopThread(Generic[ClientT]):
    """A context manager around an async client."""

    def __init__(self, make: Callable[[], ClientT]) -> None:
        self._make = make
        self._client: ClientT | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def __enter__(self) -> Self:
        if self._loop is not None and self._pid == os.getpid():
            raise ClientError("this client is already open")
        self._pid = os.getpid()
        self._loop = _background.hold()
        try:
            self._client = self._wait(self._opened())
        except BaseException:
            self._loop = None
            _background.release()
            raise
        return self

    async def _opened(self) -> ClientT:
        client = self._make()
        await client.__aenter__()
        return client

    def __exit__(self, *exc_info: Any) -> None:
        self._check_thread()
        client, self._client = self._client, None
        if client is None or self._pid != os.getpid():
            self._loop = None
            return
        try:
            self._wait(_closed(client, exc_info))
        finally:
            self._loop = None
            _background.release()

    def close(self) -> None:
        self.__exit__(None, None, None)

    @property
    def _open(self) -> ClientT:
        if self._client is None:
            raise ClientError("this client is not open: use it inside 'with'")
        return self._client

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result; Ctrl-C while waiting cancels the work."""
        future = self._start(work)
        try:
            return future.result()
        except CancelledError:
            raise ClientError("this client was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        problem = None
        if self._loop is None:
            problem = "this client is not open: use it inside 'with'"
        elif self._pid != os.getpid():
            problem = f"this client was opened before this process was forked from {self._pid}: open a new one here"
        elif running_loop() is self._loop:
            problem = _WRONG_THREAD
        loop = self._loop
        future = _background.start(work, loop) if problem is None and loop is not None else None
        if future is None:
            work.close()
            raise ClientError(problem or "this client was closed meanwhile")
        return future

    def _each(self, stream: AsyncIterator[T], stop: Callable[[], None]) -> Iterator[T]:
        """What an async stream gives, until it ends; a signal calls `stop`, which ends it."""

        async def following() -> T | None:
            return await anext(stream, None)

        assert self._loop is not None
        with stop_on_signals(stop, self._loop):
            while (item := self._wait(following())) is not None:
                yield item

    def _check_thread(self) -> None:
        if self._loop is not None and running_loop() is self._loop:
            raise ClientError(_WRONG_THREAD)

    def _do(self, work: Callable[[], T]) -> T:
        """Run a plain function on the loop's thread, to which the client belongs."""

        async def run() -> T:
            return work()

        return self._wait(run())


def running_loop() -> asyncio.AbstractEventLoop | None:
    return asyncio._get_running_loop()


async def _closed(client: AbstractAsyncContextManager[Any], exc_info: Sequence[Any]) -> None:
    await client.__aexit__(*exc_info)
