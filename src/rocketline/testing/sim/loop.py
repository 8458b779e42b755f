"""An event loop on virtual time: it jumps to the next timer instead of waiting, and knows which process owns what it runs.

Code that sleeps, times out or uses the network through asyncio works unchanged; a day takes seconds:

    with asyncio.Runner(loop_factory=SimLoop) as runner:
        runner.run(scenario())

Tasks, timers and connections belong to simulated processes: those made inside `with belongs_to("m1#2")`, and all that
they make, belong to the second process on host m1. A process can be

* frozen, as by SIGSTOP: nothing of it runs until it is thawed, then everything that is due runs at once
* killed, as by SIGKILL. Its coroutines are cancelled, because nothing else would end them; what they do while they end
has no
  effect, because network and file threads accept nothing from a dead process

Rules: nothing waits in real time (functions for a thread run at once, in the loop) and no real socket is read. Where asyncio
leaves the order open (timers of the same time, sets of tasks), it is the order of creation, so that a run can be repeated.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from itertools import count
from typing import Any

from rocketline.clock import ManualClock
from rocketline.testing.sim.network import Network, SimListener, SimServer

_owner: ContextVar[str] = ContextVar("owner", default="")


@contextmanager
def belongs_to(process: str) -> Iterator[None]:
    """Make tasks, timers and connections that belong to a process."""
    token = _owner.set(process)
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


class _VirtualSelector(selectors.DefaultSelector):
    """A selector that neither waits nor looks at sockets; it moves the virtual time instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("the simulation is stuck: no timer and no callback is left")
        if timeout > 0:
            self.now += timeout
        return []


class _Handle(asyncio.Handle):
    __slots__ = ()
    _loop: SimLoop

    def _run(self) -> None:
        if not (self._loop.frozen and self._loop.puts_off(self)):
            super()._run()


class _TimerHandle(asyncio.TimerHandle):
    """A timer; of two for the same time the one that was created first runs first."""

    __slots__ = ("_number",)
    _loop: SimLoop
    _numbers = count()
    _when: float

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._number = next(self._numbers)

    def __lt__(self, other: Any) -> bool:
        if self._when != other._when:
            return bool(self._when < other._when)
        return bool(self._number < other._number)

    def _run(self) -> None:
        if not (self._loop.frozen and self._loop.puts_off(self)):
            super()._run()


class _Future(asyncio.Future[Any]):
    """A future hashed by its number, so that sets of futures have the same order in every run."""

    _numbers = count()

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = next(self._numbers)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class _Task(asyncio.Task[Any]):
    """A task hashed by its number; asyncio puts tasks into a set while they are constructed."""

    _numbers = count()
    _number: int

    def __new__(cls, *_: Any, **__: Any) -> _Task:
        task = super().__new__(cls)
        task._number = next(cls._numbers)
        return task

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimLoop(asyncio.SelectorEventLoop):
    """One loop for all processes of a simulation, with its clock and its network."""

    def __init__(self, seed: int = 0) -> None:
        self._selector_clock = _VirtualSelector()
        self.frozen: dict[str, list[asyncio.Handle]] = {}
        """Frozen processes, and the callbacks to run when they are thawed."""
        super().__init__(self._selector_clock)
        self.clock = LoopClock(self)
        self.network = Network(self, seed)
        self._tasks_of: dict[str, set[asyncio.Task[Any]]] = {}
        self.set_task_factory(self._owned_task)

    def time(self) -> float:
        return self._selector_clock.now

    def block(self, seconds: float) -> None:
        """Let time pass without running anything, as a function that blocks the loop does."""
        self._selector_clock.now += seconds

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def _call_soon(self, callback: Any, args: Any, context: Context | None) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, handle)  # type: ignore[attr-defined]
        handle._scheduled = True  # type: ignore[attr-defined]
        return handle

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function at once, in the loop: a thread would not know the virtual time."""
        done: asyncio.Future[Any] = self.create_future()
        if self.network.is_dead(_owner.get()):
            done.cancel()
            return done
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    def listening_socket(self, family: int, address: tuple[Any, ...]) -> SimListener:
        return self.network.listen(_owner.get(), (address[0], address[1]))

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], *_: Any, sock: Any, **__: Any
    ) -> Any:
        return SimServer(sock, protocol_factory)

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return await self.network.connect(_owner.get(), protocol_factory, (host, port))

    def _owned_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task = _Task(work, loop=loop, **options)
        owner = _owner.get()
        tasks = self._tasks_of.setdefault(owner, set())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def tasks_of(self, process: str) -> list[asyncio.Task[Any]]:
        return sorted(self._tasks_of.get(process, ()), key=hash)

    # Processes

    def puts_off(self, handle: asyncio.Handle) -> bool:
        """Whether this belongs to a frozen process; it is then kept for later."""
        owner: str = handle._context.get(_owner, "")  # type: ignore[attr-defined]
        later = self.frozen.get(owner)
        if later is None:
            return False
        later.append(handle)
        return True

    def freeze(self, process: str) -> None:
        self.frozen.setdefault(process, [])

    def thaw(self, process: str) -> None:
        self._ready.extend(self.frozen.pop(process, ()))  # type: ignore[attr-defined]

    def kill(self, process: str, *, silently: bool = False) -> None:
        """Kill a process; its peers see their connections closed or, with `silently`, nothing."""
        self.network.died(process, silently)
        self.thaw(process)
        for handle in list(self._scheduled):  # type: ignore[attr-defined]
            if handle._context.get(_owner, "") == process:
                handle.cancel()
        for task in self.tasks_of(process):
            task.cancel()

    async def gone(self, *processes: str) -> None:
        """Wait until nothing of killed processes is left."""
        while tasks := [task for process in processes for task in self.tasks_of(process)]:
            await asyncio.wait(tasks)


__all__ = ["LoopClock", "SimLoop", "belongs_to"]
