"""A group's record in the memory of one process: for simulations, where members can be cut off from it one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field

from rocketline.clock import Clock
from rocketline.coordination.coordinator import Agreed, Live, View
from rocketline.coordination.record import GroupRecord
from rocketline.errors import CoordinationFailed


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

    def __post_init__(self) -> None:
        self.agreed: Agreed | None = None
        self._revision = 0
        self._leases: dict[int, _Lease] = {}
        self._changed: set[asyncio.Event] = set()

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
        await self._travel()
        view = self._group.view()
        await self._travel()
        return view

    async def propose(self, old: Agreed | None, new: GroupRecord) -> bool:
        await self._travel()
        done = self._group.agreed == old
        if done:
            self._group.put(new)
        await self._travel()
        return done

    async def elect(self, view: View, new: GroupRecord) -> bool:
        if view.agreed is None or view.has_master:
            return False
        await self._travel()
        now, master = self._group.view(), view.agreed.record.master
        done = now.agreed == view.agreed and now.revisions.get(master) == view.revisions.get(master)
        if done:
            self._group.put(new)
        await self._travel()
        return done

    async def renew(self, member_id: int, live: Live) -> None:
        await self._travel()
        self._members.add(member_id)
        self._group.lease(member_id, live)
        await self._travel()

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

    async def _travel(self) -> None:
        await asyncio.sleep(self._group.latency_s)
        if self._name in self._group.cut_off:
            await asyncio.sleep(self._group.lease_s / 3)
            raise CoordinationFailed("the record of the group is out of reach: cut off")
