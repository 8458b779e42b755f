"""Tables in memory whose files are written off the event loop: a stalling disk delays no request.

There are two kinds of change. What is created automatically (a topic by its first message, a group by its first member)
is in force at once and saved soon; a crash in between loses nothing, because it is created again, or found by its queues
(`Topics.adopt`). What an operator orders is saved before it is in force, and answered after that: a change that the disk
refuses is not made.

A table is written once at a time, always with its latest content: versions reach the disk in order, and a hundred changes
during one slow write cost one more write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial, reduce
from typing import Generic, Protocol, TypeVar

from rocketline.protocol.command import Command
from rocketline.transport import Reply

log = logging.getLogger(__name__)

T = TypeVar("T")
Content = TypeVar("Content", contravariant=True)


class TableFile(Protocol[Content]):
    """Where a table is kept."""

    def save(self, table: Content, /) -> None:
        """Write all of it, durably. Blocking; any thread."""


class OffLoop:
    """Runs blocking work in threads, and knows what still runs: a thread cannot be cancelled, only waited for."""

    def __init__(self) -> None:
        self._running: set[asyncio.Future[None]] = set()

    def __call__(self, work: Callable[[], None]) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().run_in_executor(None, work)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    async def finish(self) -> None:
        """Return when no work runs any more, whether it failed or not."""
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)


Saving = asyncio.Future[None] | None
"""Settled when something is saved; None when it is already."""


def when_saved(saving: Iterable[Saving], answer: Callable[[], Reply]) -> Reply:
    """The reply of `answer` once everything is saved, which may be now; a failure to save is raised instead."""
    left = [future for future in saving if future is not None]
    return _later(left, answer) if left else answer()


async def _later(saving: list[asyncio.Future[None]], answer: Callable[[], Reply]) -> Command | None:
    await asyncio.gather(*saving)
    reply = answer()
    made = await reply if isinstance(reply, Awaitable) else reply
    assert made is None or isinstance(made, Command)
    return made


Edit = Callable[[T], T]
_Order = tuple[Edit[T], Callable[[], None] | None, "asyncio.Future[None]"]


class AsyncTable(Generic[T]):
    """A table and its file. Contents are never changed in place: an edit makes a new one from the former."""

    def __init__(self, file: TableFile[T], empty: T, use: Callable[[T], None], off_loop: OffLoop | None) -> None:
        """`use` is called with each content that is in force from then on. Without `off_loop` every change is saved at once,
        which blocks."""
        self._file = file
        self._use = use
        self._off_loop = off_loop
        self._content = empty
        self._orders: list[_Order[T]] = []
        self._is_writing = False
        self._is_dirty = False

    def begin(self, content: T, *, is_saved: bool) -> None:
        """Start with what was loaded. Blocks when the file has something else: no request is served yet."""
        if not is_saved:
            self._file.save(content)
        self._take(content)

    def change(self, edit: Edit[T]) -> None:
        """Make a change that is in force at once and saved soon."""
        content = edit(self._content)
        if self._off_loop is None:
            self._file.save(content)
            self._take(content)
            return
        self._take(content)
        self._is_dirty = True
        self._write()

    def change_saved(self, edit: Edit[T], then: Callable[[], None] | None = None) -> Saving:
        """Make a change that is saved before it is in force; on a StoreError it is not made.

        `edit` may be called twice: the second time with what was created automatically while the first result was written.
        `then` is called when the change is in force, before any request can see it.
        """
        if self._off_loop is None:
            self.change(edit)
            if then is not None:
                then()
            return None
        done = asyncio.get_running_loop().create_future()
        self._orders.append((edit, then, done))
        self._write()
        return done

    def save_again(self) -> None:
        """Try once more to save what the disk refused."""
        if self._is_dirty:
            self._write()

    def save_rest(self) -> None:
        """Save what is not saved yet. Blocks: for a stop, when no write runs any more."""
        if self._is_dirty:
            self._file.save(self._content)
            self._is_dirty = False

    def _take(self, content: T) -> None:
        self._content = content
        self._use(content)

    def _write(self) -> None:
        if self._is_writing:
            return  # the running write looks again at its end
        assert self._off_loop is not None
        orders, self._orders = self._orders, []
        before = self._content
        content = _edited(before, orders)
        was_dirty, self._is_dirty = self._is_dirty, False
        self._is_writing = True
        writing = self._off_loop(partial(self._file.save, content))
        writing.add_done_callback(partial(self._wrote, before, content, orders, was_dirty))

    def _wrote(
        self, before: T, content: T, orders: list[_Order[T]], was_dirty: bool, writing: asyncio.Future[None]
    ) -> None:
        self._is_writing = False
        if writing.cancelled():
            return  # the process is dying
        error = writing.exception()
        if error is not None:
            self._is_dirty |= was_dirty
            log.error("a table is not saved, what was created automatically stays in force: %s", error)
        elif orders:
            # Mostly nothing else changed meanwhile, and what was written is in force now.
            self._take(content if self._content is before else _edited(self._content, orders))
        for _, then, done in orders:
            _settle(done, error, then)
        if self._orders or (self._is_dirty and error is None):
            self._write()


def _settle(done: asyncio.Future[None], error: BaseException | None, then: Callable[[], None] | None) -> None:
    if error is None and then is not None:
        try:
            then()
        except Exception as failure:
            error = failure
    if done.done():
        return  # the client that asked has gone
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _edited(content: T, orders: list[_Order[T]]) -> T:
    return reduce(lambda former, item: item[0](former), orders, content)
