"""A group's record in the memory of one process: for simulations, where members can be cut off from it one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TypeVar

from rocketline.clock import Clock
from rocketline.coordination.coordinator import Agreed, Live, View
from rocketline.coordination.record import GroupRecord
from rocketline.errors import CoordinationFailed

T = TypeVar("T")


@dataclass
class _Lease:
    live: Live
    ends: float
    revision: int


@dataclass
class MemoryGroup:
    """What etcd would hold for one group."""

    clock: Clock
    lease_s: float = 3.0
    latency_s: float = 0.002
    history: list[GroupRecord] = field(default_factory=list)
    """Every record that was agreed, oldest first."""
    cut_off: set[str] = field(default_factory=set)
    """Names of those whose requests and answers are lost."""
    lateness: Callable[[], float | None] = lambda: None
    """Of a lost request: after how many seconds it is carried out all the same; None: never."""

    def __post_init__(self) -> None:
        self.agreed: Agreed | None = None
        self._revision = 0
        self._leases: dict[int, _Lease] = {}
        self._changed: set[asyncio.Event] = set()
        self._context = copy_context()

    def coordinator(self, name: str) -> MemoryCoordinator:
        return MemoryCoordinator(self, name)

    def view(self) -> View:
        now = self.clock.monotonic()
        self._leases = {key: lease for key, lease in self._leases.items() if lease.ends > now}
        return View(
            self.agreed,
            {key: lease.live for key, lease in self._leases.items()},
            {key: lease.revision for key, lease in self._leases.items()},
        )

    def put(self, record: GroupRecord) -> None:
        self._revision += 1
        self.agreed = Agreed(record, self._revision)
        self.history.append(record)
        self._tell()

    def lease(self, member_id: int, live: Live) -> None:
        self._revision += 1
        known = self._leases.get(member_id)
        self._leases[member_id] = _Lease(live, self.clock.monotonic() + self.lease_s, self._revision)
        if known is None or known.live.incarnation != live.incarnation:
            self._tell()

    def end(self, member_ids: Iterable[int]) -> None:
        for member_id in member_ids:
            self._leases.pop(member_id, None)
        self._tell()

    def listen(self) -> asyncio.Event:
        event = asyncio.Event()
        self._changed.add(event)
        return event

    def forget(self, event: asyncio.Event) -> None:
        self._changed.discard(event)

    def replace(self, old: Agreed | None, new: GroupRecord) -> bool:
        done = self.agreed == old
        if done:
            self.put(new)
        return done

    def elect(self, view: View, new: GroupRecord) -> bool:
        assert view.agreed is not None
        master = view.agreed.record.master
        as_seen = self.view().revisions.get(master) == view.revisions.get(master)
        return as_seen and self.replace(view.agreed, new)

    def carry_out_late(self, request: Callable[[], object]) -> None:
        """A request was lost, or only held up: whoever sent it has given up, or is dead by then."""
        late_s = self.lateness()
        if late_s is not None:
            asyncio.get_running_loop().call_later(late_s, request, context=self._context)

    def _tell(self) -> None:
        for event in self._changed:
            event.set()


class MemoryCoordinator:
    """One member's way to a `MemoryGroup`."""

    def __init__(self, group: MemoryGroup, name: str) -> None:
        self._group, self._name = group, name
        self._members: set[int] = set()

    @property
    def lease_s(self) -> float:
        return self._group.lease_s

    async def read(self) -> View:
        return await self._ask(self._group.view)

    async def propose(self, old: Agreed | None, new: GroupRecord) -> bool:
        return await self._ask(lambda: self._group.replace(old, new))

    async def elect(self, view: View, new: GroupRecord) -> bool:
        if view.agreed is None or view.has_master:
            return False
        return await self._ask(lambda: self._group.elect(view, new))

    async def renew(self, member_id: int, live: Live) -> None:
        self._members.add(member_id)
        await self._ask(lambda: self._group.lease(member_id, live))

    async def resign(self) -> None:
        await self._travel()
        self._group.end(self._members)

    async def changes(self) -> AsyncGenerator[None, None]:
        event = self._group.listen()
        try:
            while True:
                await event.wait()
                event.clear()
                await asyncio.sleep(self._group.latency_s)
                if self._name not in self._group.cut_off:
                    yield None
        finally:
            self._group.forget(event)

    async def close(self) -> None:
        """There is nothing to close."""

    async def _ask(self, request: Callable[[], T]) -> T:
        await self._travel(request)
        answer = request()
        await self._travel()
        return answer

    async def _travel(self, request: Callable[[], object] | None = None) -> None:
        await asyncio.sleep(self._group.latency_s)
        if self._name in self._group.cut_off:
            if request is not None:
                self._group.carry_out_late(request)
            await asyncio.sleep(self._group.lease_s / 3)
            raise CoordinationFailed("the record of the group is out of reach: cut off")
