"""Which function serves which request code, and what a failure inside one becomes.

A handler is a plain function called straight from the socket's read. It returns

* a `Command`: the answer, written at once together with the other answers of that read;
* an `AtReadEnd`: the answer is made after the last request of that read, so that requests of one read can share work;
* an awaitable of one: only for a request that must wait (long poll, sync flush, relay); it is answered when done;
* None: no answer, ever (one-way work).

Raising RequestRejected answers with its code and remark. Anything else that escapes is our bug or hostile input: it is
logged and answered with SYSTEM_ERROR, and no other request or connection notices.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from rocketline.errors import ProtocolError, RequestRejected
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.command import Command
from rocketline.transport.fast_path import FastPath
from rocketline.transport.guard import Guard

if TYPE_CHECKING:
    from rocketline.transport.channel import Channel

log = logging.getLogger(__name__)

SUCCEEDED, FAILED, CANCELLED = "success", "process_request_failed", "cancelled"
"""How requests end, as metrics call it."""


class AtReadEnd:
    """A reply that is made when everything that came with its request has been served."""

    __slots__ = ()

    def finish(self) -> Command | Awaitable[Command | None]:
        """The answer; raises what the handler could have raised."""
        raise NotImplementedError


Reply = Command | AtReadEnd | Awaitable[Command | None] | None
Handler = Callable[["Channel", Command], Reply]


class Router:
    """A table of handlers by request code."""

    def __init__(self, handlers: dict[int, Handler] | None = None) -> None:
        self._handlers: dict[int, Handler] = dict(handlers or {})
        self.fast_path: FastPath | None = None
        """Is shown every read first; None: every request is decoded and given to its handler."""
        self.guard: Guard | None = None
        """Is asked before every request; None: everybody may do everything."""
        self.began = 0.0
        """When the read came that is being served, where somebody takes times."""

    def add(self, code: int, handler: Handler) -> None:
        self._handlers[code] = handler

    def change(self, code: int, change: Callable[[Handler], Handler]) -> None:
        """Put something around the handler of a code."""
        self._handlers[code] = change(self._handlers[code])

    def take(self, other: Router) -> None:
        """Serve what another router serves too."""
        self._handlers.update(other._handlers)

    def note_served(self, channel: Channel, code: int, response: int, count: int, began: float) -> None:
        """Told of requests that the fast path answered; `began` is when they came."""

    def note_held(self, channel: Channel, code: int, response: int, result: str, began: float) -> None:
        """Told of one that the fast path held, and how it ended."""

    def serves(self, code: int) -> bool:
        return code in self._handlers

    @property
    def codes(self) -> frozenset[int]:
        return frozenset(self._handlers)

    def serve(self, channel: Channel, request: Command) -> Reply:
        """The handler's reply, or the answer its failure stands for."""
        try:
            if self.guard is not None and (refusal := self.guard.refusal(channel, request)) is not None:
                return refusal
            handler = self._handlers.get(request.code)
            if handler is None:
                return request.reply(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f"request type {request.code} not supported"
                )
            return handler(channel, request)
        except Exception as error:
            return failure(channel, request, error)


def failure(channel: Channel, request: Command, error: BaseException) -> Command:
    """The answer to a request whose handler raised."""
    if isinstance(error, RequestRejected):
        return request.reply(error.code, remark=error.remark)
    if isinstance(error, ProtocolError):
        log.warning("request %d from %s is malformed: %s", request.code, channel.remote, error)
        return request.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
    log.error("request %d from %s failed", request.code, channel.remote, exc_info=error)
    return request.reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
