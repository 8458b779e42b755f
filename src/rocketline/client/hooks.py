"""Hooks: functions called before and after each send and each handler call; traces are written by hooks too.

A hook is a pair of functions, one called before and one after, each with the context of one send or one run of a
handler. Both may be async; plain ones run on the event loop and must not block it. What a hook raises is logged and
changes nothing else. Context variables that a plain function sets before a handler runs are seen by the handler.

A producer's hook may have a third function, `prepare`, which may change messages: it is a plain one, called with each
message before anything is made of it, with the context variables of the caller.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rocketline.message import Message, MessageQueue, MessageView

if TYPE_CHECKING:  # the producer's package imports this module
    from rocketline.client.producer.receipts import SendReceipt

log = logging.getLogger(__name__)

ContextT = TypeVar("ContextT")
HookFunction = Callable[[ContextT], Awaitable[None] | None]
PrepareFunction = Callable[[Message], Message]


class ConsumeOutcome(IntEnum):
    """How a handler call ended; the numbers are those in traces."""

    SUCCESS = 0
    TIME_OUT = 1
    """It came to a result, but took longer than `ClientTiming.consume_timeout_s`."""
    EXCEPTION = 2
    RETURNNULL = 3
    """It ended without a result."""
    FAILED = 4
    """It asked for the messages later."""


@dataclass(slots=True)
class ConsumeContext:
    """One handler call. Everything below `messages` is known only after it."""

    group: str
    namespace: str
    queue: MessageQueue
    messages: Sequence[MessageView]
    success: bool = False
    outcome: ConsumeOutcome | None = None
    error: BaseException | None = None
    duration_s: float = 0.0
    props: dict[str, Any] = field(default_factory=dict)
    """Free for hooks: values from the call before for the call after."""

    @property
    def status(self) -> str | None:
        """The result by Java's name."""
        if self.outcome is None:
            return None
        return "CONSUME_SUCCESS" if self.success else "RECONSUME_LATER"


@dataclass(slots=True)
class SendContext:
    """One send of a message or a batch. Without receipts and without error it was sent one-way."""

    group: str
    namespace: str
    messages: Sequence[Message]
    receipts: Sequence[SendReceipt] = ()
    error: BaseException | None = None
    duration_s: float = 0.0
    props: dict[str, Any] = field(default_factory=dict)


class Hooks(Generic[ContextT]):
    """The hooks of one client, run in the order they were added; false when there are none."""

    def __init__(self) -> None:
        self._before: list[HookFunction[ContextT]] = []
        self._after: list[HookFunction[ContextT]] = []

    def __bool__(self) -> bool:
        return bool(self._before or self._after)

    def add(self, before: HookFunction[ContextT] | None = None, after: HookFunction[ContextT] | None = None) -> None:
        for function, chain in ((before, self._before), (after, self._after)):
            if function is not None:
                if not callable(function):
                    raise TypeError(f"a hook must be a function, not {function!r}")
                chain.append(function)

    def remove(self, before: HookFunction[ContextT], after: HookFunction[ContextT]) -> None:
        self._before.remove(before)
        self._after.remove(after)

    async def before(self, context: ContextT) -> None:
        await _call_all(self._before, context)

    async def after(self, context: ContextT) -> None:
        await _call_all(self._after, context)


async def _call_all(functions: list[HookFunction[ContextT]], context: ContextT) -> None:
    for function in functions:
        try:
            result = function(context)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            log.warning("hook %r cancelled itself", function)
        except Exception:
            log.exception("hook %r failed", function)


async def send_with_hooks(
    hooks: Hooks[SendContext],
    context: SendContext,
    send: Callable[[], Awaitable[list[SendReceipt]]],
    monotonic: Callable[[], float],
) -> list[SendReceipt]:
    """The receipts of `send`, with the hooks called before and after it."""
    await hooks.before(context)
    started = monotonic()
    try:
        context.receipts = receipts = await send()
    except BaseException as error:
        context.error = error
        raise
    finally:
        context.duration_s = monotonic() - started
        await hooks.after(context)
    return receipts
