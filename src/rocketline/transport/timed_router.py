"""A router that notes how long requests take, from when they were read to when they are answered.

Sends may come many in a read, and their answers leave together: a send only adds one to a number, and the time is taken once
for a read. Other requests are timed one by one. Times are whole milliseconds, as in Apache, so what is quicker counts as 0.
Requests are called by name; codes that nobody serves share one, as any number can come from a peer.

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
SEND = int(RequestCode.SEND_MESSAGE_V2)
BATCH = int(RequestCode.SEND_BATCH_MESSAGE)


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
        self.began = 0.0
        """When the read that is being served came."""
        self._kept_since = 0.0
        """When the first of the reads came that a lane keeps."""
        self._slow_ms = slow_ms
        self.sends = _cells()
        """Of 310, the send of all clients of today, when its answer is a ready frame."""
        self._answered: dict[tuple[int, int], list[int]] = {}
        """By request and response code, of all others that were answered at once."""
        self._others: dict[RequestKind, Tally] = {}
        self._line_at = 0.0
        self._unsaid = 0

    def serve(self, channel: Channel, request: Command) -> Reply:
        handler = self._handlers.get(request.code)
        if handler is None:
            return self._note_reply(channel, request, super().serve(channel, request), NOT_SUPPORTED)
        try:
            reply = handler(channel, request)
        except Exception as error:
            reply = failure(channel, request, error)
        if not request.flag:
            if type(reply) is bytes:
                if request.code == SEND:
                    self.sends[0] += 1
                else:
                    self._count(channel, request.code, ResponseCode.SUCCESS, self.monotonic() - self.began)
                return reply
            if type(reply) is Command:
                self._count(channel, request.code, reply.code, self.monotonic() - self.began)
                return reply
        return self._note_reply(channel, request, reply, request.code)

    def note_answered(self, channel: Channel, codes: list[tuple[int, int]]) -> None:
        took_s = self.monotonic() - self.began
        for code, response in codes:
            self._count(channel, code, response, took_s)

    def _move_sends(self, channel: Channel, count: int, took_s: float) -> None:
        """The sends of a read were counted as quick, and were not."""
        self.sends[0] -= count
        self._add(channel, SEND, ResponseCode.SUCCESS, self.sends, count, int(took_s * 1000))

    def count_sends(self, channel: Channel, sends: int, batches: int) -> None:
        self.sends[0] += sends
        if batches:
            self._count(channel, BATCH, ResponseCode.SUCCESS, self.monotonic() - self.began, batches)

    def await_answers(self, channel: Channel, sends: int, batches: int) -> Callable[[int], None]:
        return partial(self._count_late, channel, sends, batches, self.began)

    def _count_late(self, channel: Channel, sends: int, batches: int, began: float, response: int) -> None:
        took_s = self.monotonic() - began
        for code, count in ((SEND, sends), (BATCH, batches)):
            if count:
                self._count(channel, code, response, took_s, count)

    def note_held(self, channel: Channel, code: int) -> Callable[[int, str], None]:
        return partial(self._note_let_go, channel, code, self.began)

    def _note_let_go(self, channel: Channel, code: int, began: float, response: int, result: str) -> None:
        self._note(channel, RequestKind(code, response, True, result), began)

    def note_kept(self) -> None:
        self._kept_since = self.began

    def serve_kept(self, channel: Channel, serve: Callable[[], None]) -> None:
        """All that came in a turn of the loop is as old as the first of it: a turn is short, or worth a look."""
        before, self.began = self.sends[0], self._kept_since
        serve()
        self.note_sends(channel, self.sends[0] - before, self._kept_since)

    def note_sends(self, channel: Channel, count: int, began: float) -> None:
        """So many sends of a read were answered, and counted as quick; the time that took is taken once, now."""
        if count and (took_s := self.monotonic() - began) >= QUICK_S:
            self._move_sends(channel, count, took_s)

    def _count(self, channel: Channel, code: int, response: int, took_s: float, count: int = 1) -> None:
        cells = self._answered.get((code, response))
        if cells is None:
            cells = self._answered[code, response] = _cells()
        if took_s < QUICK_S:
            cells[0] += count
        else:
            self._add(channel, code, response, cells, count, int(took_s * 1000))

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
            response = ResponseCode.SUCCESS if isinstance(reply, bytes) else reply.code
            result = "oneway" if request.flag & ONEWAY else SUCCEEDED
            self._note(channel, RequestKind(code, response, False, result), self.began)
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
        sends = {(SEND, int(ResponseCode.SUCCESS)): self.sends} if any(self.sends) else {}
        for (code, response), cells in (*sends.items(), *self._answered.items()):
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
        if self.kept_in:
            self._serve_kept()  # which has a time of its own
        router = self.router
        sends = router.sends
        before = sends[0]
        began = router.began = router.monotonic()
        Channel.data_received(self, data)
        if sends[0] != before:  # mostly a lane keeps them until the turn ends
            router.note_sends(self, sends[0] - before, began)


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
