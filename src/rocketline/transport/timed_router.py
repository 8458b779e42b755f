"""A router that notes how long requests take, from when they were read to when they are answered.

Requests of the fast path are timed together, others one by one. Times are whole milliseconds, as in Apache, so what is
quicker counts as 0. Requests are called by name; codes that nobody serves share one, as any number can come from a peer.

With a limit, what took longer is also logged, a line a second at most. A held request is not slow.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import NamedTuple

from rocketline.metrics.families import Distribution, Tally
from rocketline.protocol.codes import RequestCode, ResponseCode, code_name
from rocketline.protocol.command import ONEWAY, Command
from rocketline.transport.channel import Channel
from rocketline.transport.router import CANCELLED, FAILED, SUCCEEDED, AtReadEnd, Reply, Router, failure

log = logging.getLogger("rocketline.slow")

TIME_BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
QUICK_S = 0.001
LINE_EVERY_S = 1.0
HELD = frozenset(
    {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION}
)
NOT_SUPPORTED = -1


class RequestKind(NamedTuple):
    """What requests are told apart by."""

    code: int
    response: int
    is_held: bool
    result: str

    @property
    def request_name(self) -> str:
        return code_name(RequestCode, self.code) if self.code != NOT_SUPPORTED else "unsupported"

    @property
    def response_name(self) -> str:
        return code_name(ResponseCode, self.response)


class TimedRouter(Router):
    def __init__(self, monotonic: Callable[[], float], slow_ms: int = 0) -> None:
        super().__init__()
        self.monotonic = monotonic
        self._slow_ms = slow_ms
        self._answered: dict[tuple[int, int], list[int]] = {}
        """By request and response code, of all that were answered at once."""
        self._others: dict[RequestKind, Tally] = {}
        self._line_at = 0.0
        self._unsaid = 0

    def serve(self, channel: Channel, request: Command) -> Reply:
        reply = super().serve(channel, request)
        code = request.code if request.code in self._handlers else NOT_SUPPORTED
        if not request.flag and type(reply) is Command and code != NOT_SUPPORTED:
            self.note_served(channel, code, reply.code, 1, self.began)
            return reply
        return self._note_reply(channel, request, reply, code)

    def note_served(self, channel: Channel, code: int, response: int, count: int, began: float) -> None:
        cells = self._answered.get((code, response))
        if cells is None:
            cells = self._answered[code, response] = _cells()
        took_s = self.monotonic() - began
        if took_s < QUICK_S:
            cells[0] += count
        else:
            self._add(channel, code, response, cells, count, int(took_s * 1000))

    def note_held(self, channel: Channel, code: int, response: int, result: str, began: float) -> None:
        self._note(channel, RequestKind(code, response, True, result), began)

    def _add(self, channel: Channel, code: int, response: int, cells: list[int], count: int, took_ms: int) -> None:
        cells[bisect_left(TIME_BOUNDS_MS, took_ms)] += count
        cells[-1] += took_ms * count
        if self._slow_ms and took_ms >= self._slow_ms:
            self._say_slow(channel, RequestKind(code, response, False, SUCCEEDED), took_ms)

    def _note_reply(self, channel: Channel, request: Command, reply: Reply, code: int) -> Reply:
        if isinstance(reply, AtReadEnd):
            return _TimedAtReadEnd(self, channel, request, reply)
        if isinstance(reply, Awaitable):
            return self._note_later(channel, request, reply)
        if reply is not None:
            result = "oneway" if request.flag & ONEWAY else SUCCEEDED
            self._note(channel, RequestKind(code, reply.code, False, result), self.began)
        return reply

    def note_finished(
        self, channel: Channel, request: Command, reply: Command | Awaitable[Command | None]
    ) -> Command | Awaitable[Command | None]:
        """An answer that was made at the end of its read."""
        if not isinstance(reply, Command):
            return self._note_later(channel, request, reply)
        self._note_reply(channel, request, reply, request.code)
        return reply

    def _note_later(
        self, channel: Channel, request: Command, reply: Awaitable[Command | None]
    ) -> Awaitable[Command | None]:
        future = asyncio.ensure_future(reply)
        future.add_done_callback(partial(self._note_answer, channel, request, self.began))
        return future

    def _note_answer(
        self, channel: Channel, request: Command, began: float, future: asyncio.Future[Command | None]
    ) -> None:
        response, result = int(ResponseCode.SYSTEM_ERROR), FAILED
        if future.cancelled():
            result = CANCELLED
        elif (error := future.exception()) is not None:
            response = getattr(error, "code", response)
        else:
            reply = future.result()
            response = int(ResponseCode.SUCCESS) if reply is None else reply.code
            result = "oneway" if request.flag & ONEWAY else SUCCEEDED
        self._note(channel, RequestKind(request.code, response, request.code in HELD, result), began)

    def _note(self, channel: Channel, kind: RequestKind, began: float) -> None:
        took_ms = max(0, int((self.monotonic() - began) * 1000))
        tally = self._others.get(kind)
        if tally is None:
            tally = self._others[kind] = Tally(TIME_BOUNDS_MS)
        tally.note(took_ms)
        if self._slow_ms and took_ms >= self._slow_ms and not kind.is_held:
            self._say_slow(channel, kind, took_ms)

    def _say_slow(self, channel: Channel, kind: RequestKind, took_ms: int) -> None:
        now = self.monotonic()
        if now < self._line_at:
            self._unsaid += 1
            return
        more = f"; {self._unsaid} more since the last such line" if self._unsaid else ""
        self._line_at, self._unsaid = now + LINE_EVERY_S, 0
        log.warning("%s from %s took %d ms: %s%s", kind.request_name, channel.remote, took_ms, kind.response_name, more)

    def times(self) -> Iterator[tuple[RequestKind, Distribution]]:
        """How many requests of each kind took how long, since the start."""
        found = {kind: tally.distribution for kind, tally in self._others.items()}
        for (code, response), cells in self._answered.items():
            kind = RequestKind(code, response, False, SUCCEEDED)
            distribution = Distribution(tuple(cells[:-1]), cells[-1])
            found[kind] = distribution if kind not in found else found[kind].plus(distribution)
        return iter(found.items())


def _cells() -> list[int]:
    """How many took how long, and milliseconds in all."""
    return [0] * (len(TIME_BOUNDS_MS) + 2)


class TimedChannel(Channel):
    """A connection of a timed router: it takes the time of a whole read."""

    __slots__ = ()

    router: TimedRouter

    def data_received(self, data: bytes) -> None:
        router = self.router
        router.began = router.monotonic()
        Channel.data_received(self, data)


class _TimedAtReadEnd(AtReadEnd):
    __slots__ = ("_channel", "_later", "_request", "_router")

    def __init__(self, router: TimedRouter, channel: Channel, request: Command, later: AtReadEnd) -> None:
        self._router = router
        self._channel = channel
        self._request = request
        self._later = later

    def finish(self) -> Command | Awaitable[Command | None]:
        try:
            reply = self._later.finish()
        except Exception as error:
            reply = failure(self._channel, self._request, error)
        return self._router.note_finished(self._channel, self._request, reply)
