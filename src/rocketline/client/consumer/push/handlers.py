"""The functions that consume messages, plain or async, one message or a list at a time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextvars import copy_context
from enum import Enum
from typing import Any, TypeVar

from rocketline.client.serializers import Deserializer, decoder
from rocketline.errors import UnreadableBody
from rocketline.message import MessageView

T = TypeVar("T")
HandlerFunction = Callable[[MessageView], object] | Callable[[list[MessageView]], object]
"""Plain or async; takes a list when the consumer's `batch_size` is above 1."""
ObjectHandler = Callable[[T, MessageView], object] | Callable[[list[T], list[MessageView]], object]
"""The same with a deserializer: the objects come first, then their messages."""

NEVER_AGAIN = -1
"""The delay level that sends a message straight to the dead letters."""


class RetryLater(Exception):
    """Raise it in a handler to get the message again later; any other exception means the same, with a log line.

    `delay_level` 0 lets the broker decide (10 s, 30 s, 1 min, ...), 1 to 18 picks a level, -1 sends the message
    straight to the dead letters. A handler of lists may name the `messages` that failed: the others of its list are
    consumed. Without them, and for an ordered consumer, the whole list comes again.
    """

    def __init__(
        self, reason: str = "later", *, delay_level: int = 0, messages: Iterable[MessageView] | None = None
    ) -> None:
        self.delay_level = delay_level
        self.messages = None if messages is None else tuple(messages)
        for message in self.messages or ():
            if not isinstance(message, MessageView):
                raise TypeError(f"messages of a RetryLater are those the handler got, not {message!r}")
        super().__init__(reason)

    def failed_of(self, batch: list[MessageView]) -> list[MessageView] | None:
        """Which messages of a batch come again; None when some were named that are not in it."""
        if self.messages is None:
            return batch
        named = {(message.queue, message.queue_offset) for message in self.messages}
        failed = [message for message in batch if (message.queue, message.queue_offset) in named]
        return failed if len(failed) == len(named) else None


class UnreadableMessages(RetryLater):
    """Raised by our own code after the others of a list were handled."""


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

    __slots__ = ("_decode", "_function", "_in_order", "_in_thread", "_takes_list", "name")

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        takes_list: bool,
        in_thread: bool | None = None,
        deserializer: Deserializer[Any] | None = None,
        in_order: bool = False,
    ) -> None:
        """Plain functions run in a thread unless `in_thread` is False; async ones always on the event loop. With a
        deserializer the function gets objects, and then their messages. `in_order`: nothing of a list is handled before
        all of it can be read."""
        if not callable(function):
            raise TypeError(f"a handler must be a function, not {function!r}")
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 (asked whether it is async, not whether it is there)
        )
        self._function = function
        self.name = getattr(function, "__qualname__", None) or repr(function)
        given = ("message",) if deserializer is None else ("object", "message")
        _check_arguments(function, self.name, [f"{what}s" if takes_list else what for what in given])
        self._takes_list = takes_list
        self._in_thread = in_thread is not False and not is_async
        self._decode = None if deserializer is None else decoder(deserializer)
        self._in_order = in_order

    @property
    def on_loop(self) -> bool:
        """Whether the function runs on the event loop, where it must not block."""
        return not self._in_thread

    async def __call__(self, messages: list[MessageView], executor: Executor) -> Any:
        """Run the function to its end; whatever it returns or raises comes out."""
        if self._decode is None:
            return await self._run(executor, self._function, messages if self._takes_list else messages[0])
        if not self._takes_list:
            return await self._run(executor, self._function_of_object, messages[0])
        return await self._handle_list(messages, executor)

    async def _run(self, executor: Executor, function: Callable[..., Any], *arguments: Any) -> Any:
        if self._in_thread:
            loop = asyncio.get_running_loop()
            context = copy_context()  # with what hooks have set
            result = await loop.run_in_executor(executor, context.run, _called_in_thread, function, *arguments)
        else:
            result = function(*arguments)
        return await result if inspect.isawaitable(result) else result

    def _function_of_object(self, message: MessageView) -> Any:
        assert self._decode is not None
        return self._function(self._decode(message), message)

    async def _handle_list(self, messages: list[MessageView], executor: Executor) -> Any:
        """Messages that cannot be read fail alone, unless order matters."""
        found = await self._run(executor, self._objects_of, messages)
        failed = {position: error for position, error in enumerate(found) if isinstance(error, UnreadableBody)}
        if failed and (self._in_order or len(failed) == len(messages)):
            raise next(iter(failed.values()))
        good = [position for position in range(len(messages)) if position not in failed]
        objects, read = [found[position] for position in good], [messages[position] for position in good]
        unread = [messages[position] for position in failed]
        try:
            result = await self._run(executor, self._function, objects, read)
        except RetryLater as later:
            if not unread or later.messages is None:
                raise
            # Not the one that was raised: it may be raised again for another list.
            both = [*later.messages, *unread]
            raise RetryLater(str(later), delay_level=later.delay_level, messages=both) from later
        if failed:
            raise UnreadableMessages("; ".join(map(str, failed.values())), messages=unread)
        return result

    def _objects_of(self, messages: list[MessageView]) -> list[Any]:
        """The objects, with errors in the places of those that cannot be read."""
        assert self._decode is not None
        objects: list[Any] = []
        for message in messages:
            try:
                objects.append(self._decode(message))
            except UnreadableBody as error:
                objects.append(error)
        return objects


def _check_arguments(function: Callable[..., Any], name: str, given: list[str]) -> None:
    """TypeError for a function that would fail for every message."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # of some functions in C nobody knows it
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        raise TypeError(f"the handler {name} cannot be called with ({', '.join(given)}): {error}") from None


def _called_in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except StopIteration as error:
        # No future can carry a StopIteration: whoever awaits it would wait for ever.
        raise RuntimeError("the handler raised StopIteration") from error
