"""What a member of a group does next: a function of what is agreed, who runs, and what it is itself doing now.

The rules that keep everything acknowledged, whatever fails:

* Who is master, and who is in sync, changes in the record first and takes effect here afterwards. Only the set of those who
  must have a message before it is acknowledged grows before: it holds all that are in sync, and all that may be.
* Only a member that is in sync is elected. It has everything acknowledged, because nothing is acknowledged without it.
* A process is elected, not a member: after a restart a master is master only if it is elected again.
* A member joins those in sync when it has everything acknowledged, and nothing more is acknowledged without it.
* A member that may have lost the end of its log in a crash is elected only if the same is true of all who are in sync, all
  of them run, and none has more. That is over when it has copied everything acknowledged from a master.
* A record that is older than this member remembers, or that does not know it, is not obeyed: etcd was replaced or restored.

Nothing here waits or acts: `member.py` does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rocketline.coordination import Agreed, GroupRecord, Live, Member, View
from rocketline.coordination.record import MAX_MEMBERS

RANK_S = 0.1
"""The best candidate proposes itself at once, the next one so much later, and so on."""
LOOK_AGAIN_S = 0.1


@dataclass(frozen=True)
class Leading:
    epoch: int


@dataclass(frozen=True)
class Following:
    epoch: int
    master: Member


@dataclass(frozen=True)
class Fenced:
    """Neither: takes no messages, and confirms none to anybody."""


Part = Leading | Following | Fenced
"""A member's part in an epoch. What its broker is by it, is its role (`roles.py`)."""


@dataclass(frozen=True)
class Situation:
    own: Member
    """Id 0: not a member yet."""
    incarnation: str
    known_epoch: int
    """The highest that this member ever obeyed."""
    last_epoch: int
    """The last one of its log."""
    part: Part
    view: View
    counted: frozenset[int] = frozenset()
    """As master: whose ends limit what is acknowledged."""
    wanted: frozenset[int] = frozenset()
    """As master: who could be in sync, by what they reported."""
    joining: frozenset[int] = frozenset()
    """As master: who could be as soon as they have everything acknowledged; so nothing more is without them."""
    unsettled: int = 0
    """Revision that a proposal with unknown outcome was compared with: it may still be agreed as long as that one stays."""
    without_master_s: float = 0.0
    """How long there has been no master."""
    lease_s: float = 3.0
    has_renewed: bool = False
    """Whether this process had said that it runs before the view was read."""


@dataclass(frozen=True)
class Refuse:
    """Obey nobody; an operator has to look at it."""

    reason: str


@dataclass(frozen=True)
class Adopt:
    """This member has got an id."""

    member: Member


@dataclass(frozen=True)
class Propose:
    """Ask for another record; `count` has to hold before."""

    old: Agreed | None
    new: GroupRecord
    count: frozenset[int] | None = None


@dataclass(frozen=True)
class Elect:
    """Ask to be master; confirm nothing to anybody from now on."""

    new: GroupRecord


@dataclass(frozen=True)
class Lead:
    epoch: int
    in_sync: frozenset[int]


@dataclass(frozen=True)
class Follow:
    epoch: int
    master: Member


@dataclass(frozen=True)
class Retire:
    """Lead and follow nobody for now: somebody else was elected since."""


@dataclass(frozen=True)
class Count:
    in_sync: frozenset[int]


@dataclass(frozen=True)
class Wait:
    """Nothing to do now; `reason` is said once."""

    seconds: float = 1.0
    reason: str = ""


Action = Refuse | Adopt | Propose | Elect | Lead | Follow | Retire | Count | Wait


def decide(now: Situation) -> Action:
    """The next step; after it is done, the question is asked again."""
    agreed = now.view.agreed
    if agreed is None:
        return _without_record(now)
    record = agreed.record
    if (action := _membership(now, agreed)) is not None:
        return action
    if record.master == now.own.id and record.incarnation == now.incarnation:
        return _as_master(now, agreed)
    if now.view.has_master:
        master = record.members[record.master]
        return Wait() if now.part == Following(record.epoch, master) else Follow(record.epoch, master)
    return _without_master(now, record)


def _without_record(now: Situation) -> Action:
    if now.own.id:
        return Refuse(
            f"there is no record of this group, and this folder is its member {now.own.id} and has seen epoch "
            f"{now.known_epoch}: was etcd emptied? Restore it; or stop all members, remove their files rocketline.member, "
            "and start the one first that was master last"
        )
    return Propose(None, GroupRecord().with_member(replace(now.own, id=1)))


def _membership(now: Situation, agreed: Agreed) -> Action | None:
    """What is to be done before this member is one; None: nothing."""
    record, own = agreed.record, now.own
    known = record.member_with(own.token)
    if not own.id:
        if known is not None:
            return Adopt(known)
        if len(record.members) >= MAX_MEMBERS:
            return Refuse(
                f"the record of this group has {MAX_MEMBERS} members, the limit: have it forget those that are gone, with "
                "`rocketline admin removeMember`"
            )
        return Propose(agreed, record.with_member(replace(own, id=record.next_id)))
    if known is None or known.id != own.id:
        return Refuse(
            f"the record of this group does not know this folder, its member {own.id}: is it another etcd, or was it "
            "removed? A member that was removed joins again with an empty folder"
        )
    if record.epoch < now.known_epoch:
        return Refuse(
            f"the record of this group is of epoch {record.epoch}, and this member has seen epoch {now.known_epoch}: "
            "was etcd restored from a backup?"
        )
    living = now.view.live.get(own.id)
    if now.has_renewed and living is not None and living.incarnation != now.incarnation:
        return Refuse(
            f"another process runs as member {own.id} of this group too: was its folder copied, with rocketline.member? "
            "Stop one of them, and start it with an empty folder"
        )
    return Propose(agreed, record.with_member(own)) if known != own else None


def _as_master(now: Situation, agreed: Agreed) -> Action:
    record = agreed.record
    if now.part != Leading(record.epoch):
        if now.known_epoch < record.epoch:
            return Lead(record.epoch, record.in_sync)
        # This process led already and gave up. An epoch begins once: it asks for another one.
        return Propose(agreed, _elected(now, record))
    wanted = now.wanted | {now.own.id}
    is_unsettled = now.unsettled == agreed.revision
    if wanted != record.in_sync or is_unsettled:
        # What was proposed before may still be agreed, so it counts until the record has changed.
        return Propose(agreed, record.with_in_sync(wanted), now.counted | record.in_sync | wanted)
    counted = record.in_sync | now.joining
    return Count(counted) if now.counted != counted else Wait()


def _without_master(now: Situation, record: GroupRecord) -> Action:
    if not isinstance(now.part, Fenced) and now.part.epoch != record.epoch:
        return Retire()
    ranking = candidates(now.view, record)
    if now.own.id not in ranking:
        missing = sorted(record.in_sync - now.view.live.keys())
        reason = f"there is no master, and members {missing} that have everything do not run" if missing else ""
        return Wait(LOOK_AGAIN_S, reason if not ranking else "")
    # Where it matters who has the most, all have said it anew since there is no master.
    may_lack = now.view.live[now.own.id].may_lack
    turn_s = now.lease_s if may_lack else ranking.index(now.own.id) * RANK_S
    if now.view.live[now.own.id].incarnation != now.incarnation or now.without_master_s < turn_s:
        return Wait(max(0.01, turn_s - now.without_master_s))
    return Elect(_elected(now, record))


def _elected(now: Situation, record: GroupRecord) -> GroupRecord:
    """With this member as master. Its log may know more epochs than a record that had to be made anew."""
    return record.with_master(now.own.id, now.incarnation, max(now.last_epoch, now.known_epoch))


def candidates(view: View, record: GroupRecord) -> list[int]:
    """Who can be elected now, the one with the most first. The first master of a group can be anybody."""
    able = record.in_sync if record.epoch else record.members.keys()
    running = able & view.live.keys()
    whole = {member_id for member_id in running if not view.live[member_id].may_lack}

    def rank(member_id: int) -> tuple[bool, int, int, int]:
        live: Live = view.live[member_id]
        return live.is_broken, -live.last_epoch, -live.log_end, member_id

    if whole:
        return sorted(whole, key=rank)
    # All of them may have lost something: only the one with the most will do, and who does not run may have more.
    return sorted(running, key=rank)[:1] if running == able else []
