"""An event loop whose time jumps to the next timer instead of waiting, with a network of its own.

Everything that sleeps, times out or is asked over the network by asyncio works unchanged, hours in a moment:

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scenario())

Servers are routers in `loop.servers` by (host, port). Tasks know who they belong to: what is started inside
`with belongs_to(name)` can be cut off from the network (`hold_back`, `let_through`) or killed as a process would be.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any

from rocketline.clock import ManualClock
from rocketline.transport import Channel, Limits, Router

LATENCY_S = 0.001
LONG_S = 365 * 24 * 3600.0

_owner: ContextVar[str] = ContextVar("owner", default="")


@contextmanager
def belongs_to(name: str) -> Iterator[None]:
    """Whose tasks and connections are made here."""
    token = _owner.set(name)
    try:
        yield
    finally:
        _owner.reset(token)


class LoopClock(ManualClock):
    """The clock of a virtual loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ms: int = 1_700_000_000_000) -> None:
        super().__init__(now_ms)
        self._loop = loop
        self._start_ms = now_ms

    def now_ms(self) -> int:
        return self._start_ms + round(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


class _Jumping(selectors.DefaultSelector):
    """Never waits: says how much time passed instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        events: list[Any] = super().select(0)
        if not events:
            if timeout is None:
                raise RuntimeError("nothing is left that could ever happen")
            self.now += max(timeout, 0.0)
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)
        self.servers: dict[tuple[str, int], Router] = {}
        self._pipes: list[_Pipe] = []
        self._held_back: set[str] = set()
        self._killed: set[str] = set()
        self._tasks_of: dict[str, set[asyncio.Task[Any]]] = {}
        self._ports = 40_000
        self.set_task_factory(self._owned_task)

    def time(self) -> float:
        return self._jumping.now

    def block(self, seconds: float) -> None:
        """Let time pass while nothing else can happen, as a function does that does not give the loop back."""
        self._jumping.now += seconds

    def _owned_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        tasks = self._tasks_of.setdefault(_owner.get(), set())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def create_connection(self, factory: Callable[[], Any], host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]
        """A pipe to one of `servers`."""
        owner = _owner.get()
        await asyncio.sleep(LONG_S if self._is_cut(owner) else LATENCY_S)
        router = self.servers.get((host, port))
        if router is None:
            raise ConnectionRefusedError(111, f"nobody listens at {host}:{port}")
        self._ports += 1
        with belongs_to(""):  # a server's own tasks are not the client's
            pipe = _Pipe(self, owner, factory(), Channel(router, Limits()), (host, port), ("127.0.0.1", self._ports))
        self._pipes.append(pipe)
        return pipe.ends[0], pipe.protocols[0]

    def _is_cut(self, owner: str) -> bool:
        return owner in self._held_back or owner in self._killed

    def hold_back(self, owner: str) -> None:
        """Nothing gets through to or from somebody's connections, until `let_through`; nothing is lost either."""
        self._held_back.add(owner)

    def let_through(self, owner: str) -> None:
        self._held_back.discard(owner)
        for pipe in self._pipes:
            if pipe.owner == owner:
                pipe.flush()

    def cut_all(self) -> None:
        """End every connection there is, as a network does that fails for a moment."""
        pipes, self._pipes = self._pipes, []
        for pipe in pipes:
            pipe.cut()

    async def kill(self, owner: str) -> None:
        """End somebody as kill -9 does: no word to anybody, but the system closes the connections."""
        self._killed.add(owner)
        tasks = list(self._tasks_of.get(owner, ()))
        for task in tasks:
            task.cancel()
        for pipe in self._pipes:
            if pipe.owner == owner:
                pipe.cut()
        while any(not task.done() for task in tasks):
            await asyncio.sleep(LATENCY_S)


class _Pipe:
    """Two ends; what one writes the other reads a little later, in order."""

    def __init__(
        self, loop: VirtualLoop, owner: str, client: Any, server: Any, at: tuple[str, int], port: tuple[str, int]
    ) -> None:
        self.loop, self.owner = loop, owner
        self.protocols = (client, server)
        self.ends = (_End(self, 0, port, at), _End(self, 1, at, port))
        self.under_way: tuple[deque[bytes | None], deque[bytes | None]] = (deque(), deque())
        self.is_cut = False
        for protocol, end in zip(self.protocols, self.ends):
            protocol.connection_made(end)

    def send(self, to: int, data: bytes | None) -> None:
        self.under_way[to].append(data)
        self.loop.call_later(LATENCY_S, self._arrive, to, context=copy_context())

    def _arrive(self, to: int) -> None:
        if self.loop._is_cut(self.owner) or not self.under_way[to] or self.is_cut:
            return
        data = self.under_way[to].popleft()
        if data is None:
            self.cut()
        else:
            self.protocols[to].data_received(data)

    def flush(self) -> None:
        for to in (0, 1):
            for _ in range(len(self.under_way[to])):
                self._arrive(to)

    def cut(self) -> None:
        if not self.is_cut:
            self.is_cut = True
            for end, protocol in zip(self.ends, self.protocols):
                end.closing = True
                protocol.connection_lost(None)


class _End(asyncio.Transport):
    def __init__(self, pipe: _Pipe, number: int, own: tuple[str, int], peer: tuple[str, int]) -> None:
        super().__init__({"sockname": own, "peername": peer})
        self._pipe, self._to = pipe, 1 - number
        self.closing = False

    def write(self, data: Any) -> None:
        self._pipe.send(self._to, bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing piles up here."""

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self._pipe.send(self._to, None)

    abort = close


__all__ = ["LoopClock", "VirtualLoop", "belongs_to"]
