"""What a broker is among the copies of its log: the master, a replica of one, or neither; and how that changes.

With fixed roles the settings say so, until an operator changes it. In a group with elections a coordinator decides, and
calls `fence`, `become_master`, `follow` and `count`. All of it runs on the event loop; `fence` takes effect at once.

What follows from a role:

    master     takes messages; sends its log to replicas; delivers delays, timers, redeliveries; checks transactions
    replica    takes none; copies log and tables; may be read, if the settings say so
    fenced     neither: nothing is taken, acknowledged, given out or copied
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from enum import Enum
from functools import partial
from typing import Any

from rocketline.async_table import OffLoop
from rocketline.broker.durability import FAR, Durability
from rocketline.broker.replication.acks import Acks, Replica, connected_members
from rocketline.broker.replication.config import BrokerRole, ReplicationConfig
from rocketline.broker.replication.disk_watch import DiskWatch
from rocketline.broker.replication.epochs import Epochs
from rocketline.broker.replication.finding import ha_context
from rocketline.broker.replication.follower import Follower, FollowerParts, MasterPlace, cancelled
from rocketline.broker.replication.giving import Giving
from rocketline.broker.replication.role_work import RoleWork, nothing
from rocketline.broker.replication.source import ReplicationSource, SourceParts
from rocketline.broker.replication.tickets import Tickets
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.coordination import Member
from rocketline.errors import RequestRejected, RocketlineError, StoreError
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.replication_frames import Dialect, Epoch
from rocketline.store.message_store import AppendStatus, MessageStore
from rocketline.transport.access import Access

log = logging.getLogger(__name__)

MASTER_ID = 0
SETTLE_S = 1.0
"""How long a master that stops waits for its replicas."""
NOT_MASTER = "this broker is not the master of its group"
TOO_FEW = "in-sync replicas not enough"


class Role(Enum):
    MASTER = "master"
    REPLICA = "replica"
    FENCED = "fenced"


@wired
class RoleParts:
    store: MessageStore
    config: ReplicationConfig
    broker_id: int
    is_coordinated: bool
    durability: Durability
    epochs: Epochs
    clock: Clock
    off_loop: OffLoop | None
    access: Access
    work: RoleWork
    find_master: Callable[[], Coroutine[Any, Any, MasterPlace | None]]
    """With fixed roles: where the master is, asked before each connection."""
    compare: Callable[[str], Coroutine[Any, Any, None]]
    """LogDiverged when the master at an address does not have the last record of this log."""


class Roles:
    def __init__(self, parts: RoleParts) -> None:
        self._parts = parts
        self._config = parts.config
        self._store = parts.store
        self.is_coordinated = parts.is_coordinated
        self.role = self._first_role()
        self.own_id = parts.broker_id
        self.epoch = 0
        """Of this broker's mastership; 0 with fixed roles."""
        self.known_epoch = 0
        """The highest epoch that anybody told us of."""
        self.confirmed_as_replica = self._store.copies.confirmed if self.is_coordinated else 0
        self.fenced_writes = 0
        """Sends that failed because this broker was no master any more."""
        self.on_change: Callable[[], None] = nothing
        """Set by a coordinator: a replica came, went, or caught up for the first time since it came."""
        waits = self._config.role is BrokerRole.SYNC_MASTER and not self.is_coordinated
        self.acks = Acks(self._config.in_sync - 1 if waits else 0)
        self.tickets = Tickets(parts.clock.monotonic)
        self.source: ReplicationSource | None = None
        self.follower: Follower | None = None
        self._following: asyncio.Task[None] | None = None
        self._place: MasterPlace | None = None
        self._token = ""
        self.turn = 0
        """Grows with each change of role: one that was overtaken by another does not take effect."""
        self._announcing: asyncio.Task[None] | None = None
        self._must_announce = False
        self._in_sync: frozenset[int] = frozenset()
        self._giving = Giving(parts.clock.monotonic, lambda: self.confirm_offset, needs_lease=parts.is_coordinated)
        self._disk = DiskWatch()
        self._refuse_by_role()

    def _first_role(self) -> Role:
        if self.is_coordinated:
            return Role.FENCED
        is_slave = self._config.role is BrokerRole.SLAVE or self._parts.broker_id != MASTER_ID
        return Role.REPLICA if is_slave else Role.MASTER

    # State

    @property
    def dialect(self) -> Dialect:
        return Dialect.EPOCHS if self.is_coordinated else Dialect.CLASSIC

    @property
    def is_master(self) -> bool:
        return self.role is Role.MASTER

    @property
    def registered_id(self) -> int:
        """The number that name servers know this broker by."""
        return MASTER_ID if self.is_master else self.own_id

    @property
    def has_master(self) -> bool:
        """As a replica: whether the master is there."""
        return self.follower is not None and self.follower.is_connected

    @property
    def problem(self) -> str:
        """Why this replica never will follow its master; empty when it may."""
        return self.follower.problem if self.follower is not None and self.follower.diverged else ""

    @property
    def is_broken(self) -> bool:
        """Whether the disk failed, or answers wait for a flush that does not end."""
        if not self._store.config.flush.is_sync:
            return self._store.has_failed
        now = self._parts.clock.monotonic()
        return self._disk.is_stuck(now, self._store.flushed_offset, self.log_end) or self._store.has_failed

    @property
    def has_all_confirmed(self) -> bool:
        """As replica: whether it has everything that was confirmed before it connected to its master."""
        connection = self.follower.connection if self.follower is not None else None
        return connection is not None and connection.has_all_confirmed

    @property
    def log_end(self) -> int:
        """End of the last whole record."""
        return self._store.log_next_offset

    @property
    def last_epoch(self) -> int:
        return self._parts.epochs.last_number

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        return self._parts.epochs.entries

    @property
    def may_wait(self) -> bool:
        """Whether answers may have to wait for replicas."""
        return self.is_coordinated or self.acks.waits

    @property
    def confirm_offset(self) -> int:
        """Everything below may be read by consumers and is never cut off."""
        if self.role is not Role.MASTER:
            return min(self.confirmed_as_replica, self.log_end)
        own = self._store.copies.counted_end
        return min(self.acks.limit, own) if self.acks.waits and self.is_coordinated else own

    @property
    def in_sync(self) -> frozenset[int]:
        """As master of a group with elections: who must have what is acknowledged, itself included."""
        return self._in_sync

    def replicas(self) -> Mapping[int, Replica]:
        """Members that are connected and proved who they are."""
        return connected_members(self.acks.replicas)

    @property
    def gives_out(self) -> bool:
        """Whether consumers may get messages now. As replica: what it made readable before a restart may be more than is
        confirmed."""
        if self.role is Role.MASTER:
            return not self._giving.why_not
        if self.role is not Role.REPLICA:
            return False
        return not self.is_coordinated or self.confirmed_as_replica >= self._store.dispatched_offset

    def require_giving(self) -> None:
        """RequestRejected unless it may."""
        if not self.gives_out:
            why = self._giving.why_not if self.role is Role.MASTER else NOT_MASTER
            raise RequestRejected(ResponseCode.SERVICE_NOT_AVAILABLE, why)

    # Parts

    def source_parts(self, *, serves_stranger: Callable[[str], bool]) -> SourceParts:
        return SourceParts(
            store=self._store,
            config=self._config,
            dialect=self.dialect,
            epochs=self._parts.epochs,
            acks=self.acks,
            tickets=self.tickets,
            serves_stranger=serves_stranger,
            confirmed=lambda: self.confirm_offset,
            reported=self._acknowledged,
            changed=lambda: self.on_change(),
            monotonic=self._parts.clock.monotonic,
        )

    def _follower_parts(self) -> FollowerParts:
        return FollowerParts(
            store=self._store,
            config=self._config,
            dialect=self.dialect,
            epochs=self._parts.epochs,
            own_id=lambda: self.own_id,
            confirmed=lambda: self.confirm_offset,
            confirm=self._confirmed_by_master,
            stored=self._parts.work.stored,
            cut=self._cut,
            prepare=self._parts.work.copy_tables,
            clock=self._parts.clock,
        )

    # Start and stop

    def start(self) -> None:
        """Take up the configured role, on an open store."""
        if self.role is Role.REPLICA:
            self._start_following(self._parts.find_master)
        elif self.role is Role.MASTER:
            self._serve_replicas()

    async def settle(self) -> None:
        """Before a stop or a hand-over: take nothing more, and wait until connected replicas have everything for a while."""
        self.turn += 1
        if self.role is not Role.MASTER or not self.acks.replicas:
            return
        self._store.refuse_messages(AppendStatus.NOT_AVAILABLE, "this broker stops being the master")
        deadline = self._parts.clock.monotonic() + SETTLE_S
        while self._parts.clock.monotonic() < deadline:
            if self.all_have_everything:
                return
            self.moved()
            await asyncio.sleep(0.01)

    @property
    def all_have_everything(self) -> bool:
        """As master: whether no connected replica lacks anything."""
        return all(replica.end >= self.log_end for replica in self.acks.replicas.values())

    def has_successor(self, member: int | None) -> bool:
        """As master: whether this replica is connected and has everything, so that it can lead. None: any. One that does not
        say who it is, as Apache's, is believed only where no other is connected."""
        connections = self.source.connections if self.source is not None else ()
        known = [found for found in connections if found.is_ours]
        able = [found for found in known if member in (None, found.key)] if known else connections
        return any(found.next_offset is not None and found.end >= self.log_end for found in able)

    def take_up_again(self) -> None:
        """After `settle`: take messages again, because the hand-over does not happen."""
        self._refuse_by_role()

    async def close(self) -> None:
        await self._stop_following()
        if self.source is not None:
            await self.source.close()

    # Changes of role

    def be(self, member: int, token: str) -> None:
        """Which member of its group this broker is."""
        self.own_id, self._token = member, token

    def know(self, members: Mapping[int, Member]) -> None:
        """All members of the group: who shows the token of one is that one."""
        tokens = {member: found.token for member, found in members.items()}
        self.tickets.know(tokens, {member: found.address for member, found in members.items()})

    def hold_lease(self, until: float) -> None:
        """Until this monotonic time, what needs no replica's word may be given out."""
        self._giving.hold_lease(until)

    def fence(self) -> None:
        """Take nothing, promise nothing and copy nothing from now on."""
        self.turn += 1
        self.confirmed_as_replica = self.confirm_offset
        self._note_confirmed(self.confirmed_as_replica)
        self._giving.end_lease()
        was_master, self.role = self.is_master, Role.FENCED
        if was_master:
            self.fenced_writes += self._parts.durability.waiting
        self._refuse_by_role()
        self._parts.durability.fail(StoreError(NOT_MASTER))
        if self.source is not None:
            self.source.stop_serving()
        if self._following is not None:
            self._following.cancel()
        if self.follower is not None and self.follower.connection is not None:
            self.follower.connection.close()
        if was_master:
            log.warning("not the master any more, at log offset %d", self.log_end)
            self._parts.work.rest()
        self._parts.work.serve_by_role()

    async def become_master(self, epoch: int, in_sync: frozenset[int] = frozenset()) -> None:
        """Lead the group: the epoch is on disk before the first message of it."""
        self.turn += 1
        turn = self.turn
        await self._stop_following()
        await self._make_all_readable()
        self.known_epoch = max(self.known_epoch, epoch)
        if self.is_coordinated:
            epochs = self._parts.epochs
            await self._off_loop(partial(epochs.save, epochs.with_epoch(Epoch(epoch, self.log_end))))
        if turn != self.turn:
            return
        self.epoch = epoch
        self.acks.start_over()
        if others := in_sync - {self.own_id}:
            # After a hand-over: what they have of the end of this log they say themselves.
            self.acks.count_members(others)
            self.acks.confirm(min(self.confirmed_as_replica, self.log_end))
        else:
            self.acks.confirm(self.log_end)
        self._giving.inherit(self.log_end)
        self._parts.durability.wait_for_replicas(FAR)
        self._store.copies.number_queues()
        await self._parts.work.lead()
        if turn != self.turn:
            self._parts.work.rest()
            return
        self.role = Role.MASTER
        if self.is_coordinated:
            self.count(in_sync or frozenset({self.own_id}))
        self._serve_replicas()
        self._refuse_by_role()
        self._parts.work.serve_by_role()
        log.warning("master from log offset %d on%s", self.log_end, f", epoch {epoch}" if epoch else "")
        self._announce()

    async def _make_all_readable(self) -> None:
        """Let the queues know all of the log: the next message of each gets the number behind its last one."""
        self._store.copies.limit_reads(None)
        self._store.dispatch()
        if self._store.dispatched_offset < self.log_end:
            await self._off_loop(self._store.mark_now)  # with SYNC_FLUSH it is readable when it is on disk
            self._store.dispatch()

    async def follow(self, epoch: int, master: Member) -> None:
        """Copy the log of this member; returns soon."""
        self.turn += 1
        await self._stop_following()
        if self.is_master:
            self.fence()
        self.known_epoch = max(self.known_epoch, epoch)
        hello = self.own_id, self._token.encode()
        self.master_address = master.address
        self.role = Role.REPLICA
        self._refuse_by_role()

        async def find() -> MasterPlace:
            if self.log_end and not self.epochs:
                await self._parts.compare(master.address)  # it is older than the elections
            tls = ha_context(self._parts.access, has_tls=master.ha_tls)
            return MasterPlace(master.ha_address, hello, tls, epoch)

        self._start_following(find)
        self._parts.work.serve_by_role()
        self._announce()

    async def follow_found(self) -> None:
        """With fixed roles: copy the log of the master that name servers know."""
        self.turn += 1
        await self._stop_following()
        if self.is_master:
            self.fence()
        self.role = Role.REPLICA
        self._refuse_by_role()
        self._start_following(self._parts.find_master)
        self._parts.work.serve_by_role()
        self._announce()

    def _announce(self) -> None:
        """Tell the name servers, in a task of its own: one that is silent does not hold up an election."""
        self._must_announce = True
        if self._announcing is None or self._announcing.done():
            self._announcing = asyncio.get_running_loop().create_task(self._announce_all(), name="announcing")

    async def _announce_all(self) -> None:
        while self._must_announce:
            self._must_announce = False
            try:
                await self._parts.work.announce()
            except (RocketlineError, OSError) as error:
                log.warning("name servers could not be told of the role of this broker: %s", error)

    async def stop_announcing(self) -> None:
        """Before a stop: nothing is told from now on."""
        self._must_announce = False
        if self._announcing is not None:
            await cancelled(self._announcing)

    master_address = ""
    """With elections: where the master's clients connect."""

    def count(self, in_sync: frozenset[int]) -> None:
        """Let only what all of these have be acknowledged and read from now on."""
        others = in_sync - {self.own_id}
        if not self.acks.waits:
            # So far this broker alone decided. What waits for its disk waits for the newcomers too.
            self.acks.confirm(self._store.copies.counted_end)
        self._in_sync = in_sync
        self.acks.count_members(others)
        self._acknowledged()
        self._refuse_by_role()

    def _refuse_by_role(self) -> None:
        store = self._store
        if self.role is not Role.MASTER:
            store.refuse_messages(AppendStatus.NOT_AVAILABLE, NOT_MASTER)
        elif self.is_coordinated and len(self._in_sync) < self._config.min_in_sync:
            store.refuse_messages(AppendStatus.TOO_FEW_REPLICAS, TOO_FEW)
        else:
            store.take_messages()

    def _serve_replicas(self) -> None:
        self._acknowledged()
        if self.source is not None:
            self.source.serve()

    def _start_following(self, find: Callable[[], Coroutine[Any, Any, MasterPlace | None]]) -> None:
        self.follower = Follower(self._follower_parts(), find)
        self._following = asyncio.get_running_loop().create_task(self.follower.run(), name="replication")
        if self.is_coordinated:
            self._store.copies.limit_reads(self.confirm_offset)

    async def _stop_following(self) -> None:
        task, self._following = self._following, None
        if task is not None:
            await cancelled(task)
        self.follower = None

    async def _off_loop(self, work: Callable[[], None]) -> None:
        if self._parts.off_loop is None:
            work()
        else:
            await self._parts.off_loop(work)

    # What moves

    def moved(self) -> None:
        """Something was appended, flushed or dispatched; called often."""
        if self.role is Role.MASTER:
            if self.is_coordinated:
                self._note_confirmed(self.confirm_offset)
            if self.source is not None and self.source.connections:
                self.source.wake()
        elif self.follower is not None:
            self.follower.report()

    def _acknowledged(self) -> None:
        """Replicas may have more than before."""
        acks, durability = self.acks, self._parts.durability
        if self.role is not Role.MASTER:
            return
        durability.wait_for_replicas(acks.limit if acks.waits else FAR)
        if self.is_coordinated:
            self._note_confirmed(self.confirm_offset)
            self._store.copies.limit_reads(acks.limit if acks.waits else None)
            self._parts.work.stored()

    def _note_confirmed(self, log_offset: int) -> None:
        """Remember it over a restart: what was confirmed once is never cut off."""
        if self.is_coordinated:
            self._store.copies.confirmed = log_offset

    def _confirmed_by_master(self, log_offset: int) -> None:
        self.confirmed_as_replica = max(self.confirmed_as_replica, min(log_offset, self.log_end))
        self._note_confirmed(self.confirmed_as_replica)
        self._store.copies.limit_reads(self.confirmed_as_replica)
        self._parts.work.stored()

    async def _cut(self, log_offset: int) -> None:
        """Cut the end off the log, and off what was made from it."""
        self._store.copies.cut(log_offset)
        self._parts.durability.log_cut(log_offset)
        epochs = self._parts.epochs
        await self._off_loop(partial(epochs.save, epochs.below(log_offset)))
        self._parts.work.log_cut()
        await self._off_loop(self._store.mark_now)
