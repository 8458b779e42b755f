"""Runs a coroutine from inside a callback, without a task.

Most calls never wait: their coroutine ends in its first step, and costs no task and no turn of the loop. A coroutine that
does wait may await two things: a future, and with `at_read_end` an answer that is made after the last request of its read.
Anything that needs a task (asyncio.timeout, locks) has one of its own behind a future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from rocketline.protocol.command import Command
from rocketline.transport.router import AtReadEnd, Reply


class _ReadEnd:
    """Yielded by a coroutine that wants to go on at the end of the read."""

    def __await__(self) -> Generator[_ReadEnd, None, None]:
        yield self


_READ_END = _ReadEnd()
_stepping: list[None] = []
"""Not empty while a step runs: in a task there is no read to wait for the end of."""


async def answered(reply: Reply) -> Command | None:
    """The answer that a reply of a router stands for."""
    if isinstance(reply, AtReadEnd):
        if _stepping:
            await _READ_END
        reply = reply.finish()
    if reply is None or isinstance(reply, Command):
        return reply
    return await asyncio.ensure_future(reply)


class Steps:
    """A coroutine on its way; `done` is told whose it is, and its result or what it raised."""

    __slots__ = ("_coroutine", "_done", "_owner", "_waits_for")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        done: Callable[[Any, Any, BaseException | None], None],
        owner: Any = None,
    ) -> None:
        self._coroutine = coroutine
        self._done = done
        self._owner = owner
        self._waits_for: asyncio.Future[Any] | None = None

    def run(self, at_read_end: list[Steps]) -> bool:
        """Go on until it waits for something; False: it is done. `at_read_end` takes those that wait for that."""
        self._waits_for = None
        _stepping.append(None)
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration as ended:
            self._done(self._owner, ended.value, None)
            return False
        except BaseException as error:
            self._done(self._owner, None, error)
            return False
        finally:
            _stepping.pop()
        if isinstance(waits_for, _ReadEnd):
            at_read_end.append(self)
        else:
            waits_for._asyncio_future_blocking = False
            self._waits_for = waits_for
            waits_for.add_done_callback(self._woken)
        return True

    def _woken(self, _: asyncio.Future[Any]) -> None:
        at_read_end: list[Steps] = []
        self.run(at_read_end)
        for steps in at_read_end:  # there is no read: nobody else comes
            steps._woken(_)

    def cancel(self) -> None:
        """Have it end with CancelledError, unless what it waits for does not let itself be cancelled."""
        if self._waits_for is not None:
            self._waits_for.cancel()
