"""Which function serves which request code, and what a failure inside one becomes.

A handler is a plain function called straight from the socket's read. It returns

* a `Command`: the answer, written at once together with the other answers of that read;
* bytes: the same, already a frame;
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
from rocketline.protocol.records import Buffer
from rocketline.transport.lane import Lane

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


Reply = Command | bytes | AtReadEnd | Awaitable[Command | None] | None
Handler = Callable[["Channel", Command], Reply]

QuickReads = Callable[["Channel", bytes], tuple[list[Buffer], int, list[tuple[int, int]]] | None]
"""The same for pulls: their answers in order, where the rest begins, and the codes of requests and answers."""


class Router:
    """A table of handlers by request code."""

    def __init__(self, handlers: dict[int, Handler] | None = None) -> None:
        self._handlers: dict[int, Handler] = dict(handlers or {})
        self.lane: Lane | None = None
        self.quick_reads: QuickReads | None = None
        self.sends = [0]
        """Sends that were answered at once; a router that takes times has more to say about them."""

    def add(self, code: int, handler: Handler) -> None:
        self._handlers[code] = handler

    def change(self, code: int, change: Callable[[Handler], Handler]) -> None:
        """Put something around the handler of a code."""
        self._handlers[code] = change(self._handlers[code])

    def take(self, other: Router) -> None:
        """Serve what another router serves too."""
        self._handlers.update(other._handlers)
        self.lane = other.lane or self.lane
        self.quick_reads = other.quick_reads or self.quick_reads

    def note_answered(self, channel: Channel, codes: list[tuple[int, int]]) -> None:
        """Told of requests that were answered on a quick road, by their codes and those of the answers."""

    def count_sends(self, channel: Channel, sends: int, batches: int) -> None:
        """So many sends (310) and batches (320) were served in the lane and are answered now."""
        self.sends[0] += sends

    def await_answers(self, channel: Channel, sends: int, batches: int) -> Callable[[int], None]:
        """The same for those whose answers wait for something; what to call with the code of these answers."""
        self.sends[0] += sends
        return _ignore

    def note_held(self, channel: Channel, code: int) -> Callable[[int, str], None]:
        """A request is held on a quick road; what to call in the end with the code of its answer, and how it ended."""
        return _forget_it

    def note_kept(self) -> None:
        """Told when a lane begins to keep reads."""

    def serve_kept(self, channel: Channel, serve: Callable[[], None]) -> None:
        """Have served what a lane kept since."""
        serve()

    @property
    def codes(self) -> frozenset[int]:
        return frozenset(self._handlers)

    def serve(self, channel: Channel, request: Command) -> Reply:
        """The handler's reply, or the answer its failure stands for."""
        handler = self._handlers.get(request.code)
        if handler is None:
            return request.reply(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f"request type {request.code} not supported"
            )
        try:
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


def _ignore(_: int) -> None:
    pass


def _forget_it(code: int, result: str) -> None:
    pass
