"""The functions that consume messages, plain or async, one message or a list at a time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Executor
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

    async def __call__(self, messages: list[MessageView], executor: Executor) -> None:
        """Run the function to its end; whatever it raises comes out."""
        argument = messages if self._takes_list else messages[0]
        if self._in_thread:
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(executor, _called_in_thread, self._function, argument)
        else:
            result = self._function(argument)
        if inspect.isawaitable(result):
            await result


def _called_in_thread(function: HandlerFunction, argument: MessageView | list[MessageView]) -> Any:
    try:
        return function(argument)
    except StopIteration as error:
        # No future can carry a StopIteration: whoever awaits it would wait for ever.
        raise RuntimeError("the handler raised StopIteration") from error
