"""A broker's part in the election of its group: it renews its lease, watches the record, and does what `rules.py` decides.

Three tasks: one renews the lease, one waits for changes of the record, one reads the record and acts on it, a step at a
time. The lease of a master counts from the moment its renewal was *sent*, on the monotonic clock, and only if a record that
was read after the renewal still names this process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any, Protocol

from rocketline.broker.replication import rules
from rocketline.broker.replication.identity import Identity, IdentityFile
from rocketline.broker.replication.in_sync import InSyncJudge, Judged, Reported
from rocketline.clock import Clock
from rocketline.coordination import Agreed, Coordinator, GroupRecord, Live, Member, View
from rocketline.errors import CoordinationFailed, RocketlineError

log = logging.getLogger(__name__)

RENEWALS = 3
"""Renewals in the time of one lease."""
MARGIN = 0.1
"""Share of a lease that a master does not use: clocks may differ by so much."""
LOOK_S = 0.25
"""How often a master looks at how far the others are."""
AFTER_FAILURE_S = 1.0
COPY_S = 1.0
"""How long a hand-over waits for the next master to copy tables."""
LEAVE_S = 3.0
"""How long a stopping master waits for another one to lead."""
NO_LEASE = float("-inf")


class Roles(Protocol):
    """What a broker can be told to be."""

    on_change: Callable[[], None]

    @property
    def problem(self) -> str: ...
    @property
    def log_end(self) -> int: ...
    @property
    def last_epoch(self) -> int: ...
    @property
    def confirm_offset(self) -> int: ...
    @property
    def is_broken(self) -> bool: ...
    @property
    def has_all_confirmed(self) -> bool: ...
    def be(self, member_id: int, token: str) -> None: ...
    def fence(self) -> None: ...
    async def become_master(self, epoch: int, in_sync: frozenset[int]) -> None: ...
    async def follow(self, epoch: int, master: Member) -> None: ...
    def count(self, in_sync: frozenset[int]) -> None: ...
    def know(self, members: Mapping[int, Member]) -> None: ...
    def hold_lease(self, until: float) -> None: ...
    def replicas(self) -> Mapping[int, Reported]: ...
    async def settle(self) -> None: ...


@dataclass
class ElectionCounts:
    """For metrics."""

    won: int = 0
    followed: int = 0
    retired: int = 0
    in_sync_changes: int = 0
    failures: int = 0


class GroupMember:
    """Runs as long as the broker does; `run` never ends by itself."""

    def __init__(
        self,
        roles: Roles,
        coordinator: Coordinator,
        identity_file: IdentityFile,
        identity: Identity,
        addresses: tuple[str, str],
        *,
        clock: Clock,
        max_behind_s: float = 5.0,
        ha_tls: bool = False,
        have_copied: Callable[[str], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """`addresses` are those for clients and for followers; `ha_tls`: followers need TLS. `have_copied` has the member at
        an address copy the tables of this master."""
        self.incarnation = token_hex(8)
        self.counts = ElectionCounts()
        self._roles, self._coordinator, self._clock = roles, coordinator, clock
        self._file, self._identity = identity_file, identity
        self._own = Member(identity.member_id, *addresses, identity.token, ha_tls)
        self._have_copied = have_copied
        self._judge = InSyncJudge(max_behind_s)
        self._part: rules.Part = rules.Fenced()
        self._view = View(None)
        self._counted: frozenset[int] = frozenset()
        self._unsettled = 0
        self._offered = 0
        """Revision of the record in which this master tried to name another one: it has no lease while that one stays."""
        self._leads_since = 0.0
        self._lease_until = NO_LEASE
        self._no_master_since: float | None = None
        self._renewed_at: float | None = None
        self._had_renewed = False
        self._wake = asyncio.Event()
        self._said = self._refused = ""
        self.problem = ""
        """Why this member could not take its part when it last tried; empty when it could."""
        self._next: tuple[int, asyncio.Future[int]] | None = None
        """Whom an operator wants to lead, 0 for anybody, and who is to be told what came of it."""
        if identity.member_id:
            roles.be(identity.member_id, identity.token)
        roles.on_change = self._wake.set

    @property
    def view(self) -> View:
        """What was read last."""
        return self._view

    @property
    def member_id(self) -> int:
        return self._own.id

    @property
    def leads(self) -> bool:
        return isinstance(self._part, rules.Leading)

    @property
    def record(self) -> GroupRecord | None:
        return self._view.agreed.record if self._view.agreed else None

    async def hand_over(self, to: int = 0) -> int:
        """Have another member lead, `to` or the one with the most; returns its id. CoordinationFailed: this one still
        leads, or nobody knows yet."""
        if not self.leads:
            raise CoordinationFailed("this broker is not the master: ask the one that is")
        if self._next is None:
            self._next = to, asyncio.get_running_loop().create_future()
            self._wake.set()
        return await asyncio.shield(self._next[1])

    async def remove(self, member_id: int) -> None:
        """Have the record forget a member that does not run. CoordinationFailed: it was not forgotten, or nobody knows."""
        view = await self._coordinator.read()
        agreed = view.agreed
        if agreed is None or member_id not in agreed.record.members:
            raise CoordinationFailed(f"the group has no member {member_id}")
        if member_id in view.live:
            raise CoordinationFailed(f"member {member_id} runs: stop it first")
        if agreed.record.in_sync == {member_id}:
            raise CoordinationFailed(
                f"only member {member_id} has everything that was acknowledged: start it, or have another one lead without "
                "that, with `rocketline admin electMaster --unclean`"
            )
        await self._change(agreed, agreed.record.without_member(member_id))
        log.warning("member %d was removed from group %s by an operator", member_id, self._identity.group)

    async def lead_unclean(self) -> int:
        """Lead though this member may lack what was acknowledged, because nobody who has it runs; returns the epoch."""
        view = await self._coordinator.read()
        agreed = view.agreed
        if agreed is None or not self._own.id:
            raise CoordinationFailed("this broker is no member of a group yet")
        if view.has_master or (able := rules.candidates(view, agreed.record)):
            raise CoordinationFailed(
                "the group has a master"
                if view.has_master
                else f"members {able} have everything, one of them is going to lead"
            )
        new = agreed.record.with_master(self._own.id, self.incarnation, self._roles.last_epoch)
        log.warning(
            "this broker leads by an operator's order, without all that members %s have", sorted(agreed.record.in_sync)
        )
        if not await self._coordinator.elect(view, new):
            raise CoordinationFailed("the record changed meanwhile: try again")
        self._wake.set()
        return new.epoch

    async def _change(self, agreed: Agreed, new: GroupRecord) -> None:
        if not await self._coordinator.propose(agreed, new):
            raise CoordinationFailed("the record changed meanwhile: try again")
        self._wake.set()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._renew_for_ever())
                tasks.create_task(self._listen())
                tasks.create_task(self._steer())
        finally:
            self._fence()

    async def leave(self) -> None:
        """Before a stop, while the tasks still run: have another member lead, if one can."""
        if self.leads:
            try:
                async with asyncio.timeout(LEAVE_S):
                    log.info("member %d leads from now on", await self.hand_over())
            except (CoordinationFailed, TimeoutError) as error:
                log.info("nobody could take over before the stop: %s", error or "not in time")

    async def close(self) -> None:
        """Let another one lead at once. The tasks have ended before."""
        self._fence()
        with suppress(CoordinationFailed):
            await self._coordinator.resign()
        await self._coordinator.close()

    async def _renew_for_ever(self) -> None:
        pause_s = self._coordinator.lease_s / RENEWALS
        while True:
            if self._own.id:
                await self._renew()
            await asyncio.sleep(pause_s if self._own.id else rules.LOOK_AGAIN_S)

    async def _renew(self) -> None:
        sent_at = self._clock.monotonic()
        roles = self._roles
        live = Live(
            self.incarnation,
            roles.last_epoch,
            roles.log_end,
            may_lack=self._identity.may_lack,
            is_broken=roles.is_broken,
        )
        try:
            await self._coordinator.renew(self._own.id, live)
        except CoordinationFailed as error:
            self._say(f"the lease could not be renewed: {error}")
        else:
            self._renewed_at = sent_at
            self._wake.set()

    async def _listen(self) -> None:
        async with aclosing(self._coordinator.changes()) as changes:
            async for _ in changes:
                self._wake.set()

    async def _steer(self) -> None:
        pause_s = 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._look()
                if self._next is None and self.leads and self._roles.is_broken:
                    self._leave_to_sound_disks()
                if self._next is not None:
                    await self._hand_over_now()
                pause_s = await self._act()
                self.problem = self._refused or self._roles.problem
            except CoordinationFailed as error:
                self._say(str(error))
                self.problem = str(error)
                pause_s = AFTER_FAILURE_S
            except (RocketlineError, OSError) as error:
                self.counts.failures += 1
                self.problem = str(error)
                log.error("this member could not do its part and leaves it to others: %s", error)
                await self._give_up()
                pause_s = AFTER_FAILURE_S

    async def _look(self) -> None:
        renewed_at = self._renewed_at
        self._had_renewed = renewed_at is not None
        self._view = view = await self._coordinator.read()
        now = self._clock.monotonic()
        if view.agreed is None or view.has_master:
            self._no_master_since = None
        elif self._no_master_since is None:
            self._no_master_since = now
        record = self.record
        if record is None:
            return
        self._roles.know(record.members)
        if self._identity.may_lack and self._roles.has_all_confirmed:
            self._lacks_nothing()
        is_master = record.master == self._own.id and record.incarnation == self.incarnation
        if not is_master or renewed_at is None or (view.agreed and view.agreed.revision == self._offered):
            return
        self._lease_until = renewed_at + self._coordinator.lease_s * (1 - MARGIN)
        if self.leads:
            self._roles.hold_lease(self._lease_until)

    async def _act(self) -> float:
        """Take the next step; for how long to wait then."""
        action = rules.decide(self._situation())
        self._refused = action.reason if isinstance(action, rules.Refuse | rules.Wait) else ""
        match action:
            case rules.Wait():
                if action.reason:
                    self._say(action.reason)
                return min(action.seconds, LOOK_S) if self.leads else action.seconds
            case rules.Refuse():
                self._say(action.reason)
                self._fence()
                return AFTER_FAILURE_S
            case rules.Adopt():
                self._adopt(action.member)
            case rules.Count():
                self._count(action.in_sync)
            case rules.Propose():
                await self._propose(action)
            case rules.Elect():
                self._fence()
                await self._coordinator.elect(self._view, action.new)
            case rules.Lead():
                await self._lead(action)
            case rules.Follow():
                await self._follow(action)
            case rules.Retire():
                self.counts.retired += 1
                self._fence()
        return 0.0

    def _situation(self) -> rules.Situation:
        now, record, roles = self._clock.monotonic(), self.record, self._roles
        judged = Judged(frozenset(), frozenset())
        if self.leads and record is not None:
            ends = roles.log_end, roles.confirm_offset
            judged = self._judge.judge(self._view, record, roles.replicas(), ends, now, self._leads_since)
        return rules.Situation(
            own=self._own,
            incarnation=self.incarnation,
            known_epoch=self._identity.epoch,
            last_epoch=roles.last_epoch,
            part=self._part,
            view=self._view,
            counted=self._counted,
            wanted=judged.wanted,
            joining=judged.joining,
            unsettled=self._unsettled,
            without_master_s=now - self._no_master_since if self._no_master_since is not None else 0.0,
            lease_s=self._coordinator.lease_s,
            has_renewed=self._had_renewed,
        )

    def _leave_to_sound_disks(self) -> None:
        """The disk of this master failed: hand over, if another one can go on."""
        if self._successors():
            self._say("the disk of this master fails or hangs: another member is to lead")
            self._next = 0, asyncio.get_running_loop().create_future()
            self._next[1].add_done_callback(lambda told: told.exception())  # nobody waits for it

    def _successors(self) -> list[int]:
        """Who could lead instead of this master, the best first."""
        view = self._view
        able = rules.candidates(view, view.agreed.record) if view.agreed is not None else []
        return [each for each in able if each != self._own.id and not view.live[each].is_broken]

    async def _hand_over_now(self) -> None:
        assert self._next is not None
        to, told = self._next
        try:
            found = await self._give_away(to)
        except CoordinationFailed as error:
            self._roles.count(self._counted)  # takes messages again
            told.set_exception(error)
        except BaseException as error:
            told.set_exception(CoordinationFailed(f"this broker failed to hand over: {error!r}"))
            raise
        else:
            told.set_result(found)
        finally:
            self._next = None

    async def _give_away(self, to: int) -> int:
        """Nothing is taken any more; as soon as the other one has everything, the record names it."""
        agreed, view = self._view.agreed, self._view
        if agreed is None or not self.leads:
            raise CoordinationFailed("this broker does not lead any more")
        able = self._successors()
        if not able or (to and to not in able):
            raise CoordinationFailed(
                f"no other member that runs and is in sync can lead: in sync {sorted(agreed.record.in_sync)}"
            )
        await self._roles.settle()
        replicas, end = self._roles.replicas(), self._roles.log_end
        complete = [each for each in able if each in replicas and replicas[each].end >= end]
        if not complete or (to and to not in complete):
            raise CoordinationFailed(f"members {[to] if to else able} do not have everything yet")
        chosen = to or complete[0]
        living = view.live[chosen]
        new = agreed.record.with_master(chosen, living.incarnation, living.last_epoch, frozenset(complete))
        # Whatever comes of it: from here on the other one may give out what needs no replica's word. And no offset is
        # committed here that it has not copied.
        self._roles.hold_lease(NO_LEASE)
        await self._have_tables_copied(agreed.record.members[chosen])
        self._unsettled = self._offered = agreed.revision
        await self._change(agreed, new)
        self._fence()
        return chosen

    async def _have_tables_copied(self, successor: Member) -> None:
        """Without its tables it can lead too: some messages come again then."""
        if self._have_copied is None:
            return
        try:
            async with asyncio.timeout(COPY_S):
                await self._have_copied(successor.address)
        except (RocketlineError, TimeoutError) as error:
            log.warning("member %d takes over without the latest tables: %s", successor.id, error or "not in time")

    def _adopt(self, member: Member) -> None:
        self._own = replace(self._own, id=member.id)
        self._identity = replace(self._identity, member_id=member.id)
        self._file.save(self._identity)
        self._roles.be(member.id, self._own.token)
        log.info("this broker is member %d of group %s", member.id, self._identity.group)

    async def _propose(self, action: rules.Propose) -> None:
        if action.count is not None:
            # Before anybody can agree: who may be in sync from now on has to confirm what is acknowledged from now on.
            self._count(action.count)
            assert action.old is not None
            self._unsettled = action.old.revision
        if await self._coordinator.propose(action.old, action.new) and action.count is not None:
            self.counts.in_sync_changes += 1
            log.info("in sync: %s (epoch %d)", sorted(action.new.in_sync), action.new.epoch)

    def _count(self, in_sync: frozenset[int]) -> None:
        if in_sync != self._counted:
            self._counted = in_sync
            self._roles.count(in_sync)

    async def _lead(self, action: rules.Lead) -> None:
        self._fence()
        self._obey(action.epoch)
        self._roles.hold_lease(self._lease_until)
        await self._roles.become_master(action.epoch, action.in_sync)
        self._lacks_nothing()
        self._part, self._counted, self._unsettled = rules.Leading(action.epoch), action.in_sync, 0
        self._leads_since = self._clock.monotonic()
        self.counts.won += 1
        log.info("this broker is master in epoch %d", action.epoch)

    async def _follow(self, action: rules.Follow) -> None:
        self._fence()
        self._obey(action.epoch)
        await self._roles.follow(action.epoch, action.master)
        self._part = rules.Following(action.epoch, action.master)
        self.counts.followed += 1
        log.info(
            "this broker follows member %d at %s in epoch %d", action.master.id, action.master.ha_address, action.epoch
        )

    def _obey(self, epoch: int) -> None:
        """Remember the epoch before it takes effect."""
        if epoch > self._identity.epoch:
            self._identity = replace(self._identity, epoch=epoch)
            self._file.save(self._identity)

    def _lacks_nothing(self) -> None:
        if self._identity.may_lack:
            self._identity = replace(self._identity, may_lack=False)
            self._file.save(self._identity)

    async def _give_up(self) -> None:
        self._fence()
        self._renewed_at = None
        with suppress(CoordinationFailed):
            await self._coordinator.resign()

    def _fence(self) -> None:
        self._roles.fence()
        self._part, self._counted = rules.Fenced(), frozenset()

    def _say(self, text: str) -> None:
        if text != self._said:
            log.warning("%s", text)
            self._said = text
