"""The functions that consume messages, plain or async, one message or a list at a time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Executor
from enum import Enum
from typing import Any

from rocketline.message import MessageView

HandlerFunction = Callable[..., Any]


class RetryLater(Exception):
    """Raise it in a handler to get the message again later; any other exception means the same, with a log line.

    `delay_level` 0 lets the broker decide (10 s, 30 s, 1 min, ...), 1 to 18 picks a level, -1 sends the message
    straight to the dead letters.
    """

    def __init__(self, reason: str = "later", *, delay_level: int = 0) -> None:
        self.delay_level = delay_level
        super().__init__(reason)


class SuspendQueue(Exception):
    """Raise it in a handler of an ordered consumer: nothing of the queue comes before this message does again.

    `seconds` of pause are brought between 0.01 and 30; None is the consumer's own pause. Any other exception means the
    same, with a log line.
    """

    def __init__(self, seconds: float | None = None, reason: str = "later") -> None:
        self.seconds = seconds
        super().__init__(reason)


class Rollback(SuspendQueue):
    """Raise it in a handler of an ordered consumer without auto-commit: all messages since its last commit come again."""


class OrderedResult(Enum):
    """What a handler of an ordered consumer without auto-commit may return instead of None."""

    COMMIT = "COMMIT"
    """All messages that the handler got of this queue, this one included, are consumed."""


class NotDone(Exception):
    """Raised by our own handlers that end without an outcome: the message stays where it is and is not committed."""


class Handler:
    """A function and how to call it."""

    __slots__ = ("_function", "_in_thread", "_takes_list")

    def __init__(self, function: HandlerFunction, *, takes_list: bool, in_thread: bool | None = None) -> None:
        """Plain functions run in a thread unless `in_thread` is False; async ones always on the event loop."""
        if not callable(function):
            raise TypeError(f"a handler must be a function, not {function!r}")
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 (asked whether it is async, not whether it is there)
        )
        self._function = function
        self._takes_list = takes_list
        self._in_thread = in_thread is not False and not is_async

    async def __call__(self, messages: list[MessageView], executor: Executor) -> Any:
        """Run the function to its end; whatever it returns or raises comes out."""
        argument = messages if self._takes_list else messages[0]
        if self._in_thread:
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(executor, _called_in_thread, self._function, argument)
        else:
            result = self._function(argument)
        return await result if inspect.isawaitable(result) else result


def _called_in_thread(function: HandlerFunction, argument: MessageView | list[MessageView]) -> Any:
    try:
        return function(argument)
    except StopIteration as error:
        # No future can carry a StopIteration: whoever awaits it would wait for ever.
        raise RuntimeError("the handler raised StopIteration") from error
