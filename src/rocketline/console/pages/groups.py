"""Consumer groups: the list with lag, and one group with its queues, members, subscriptions and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from rocketline.admin.overview import GroupSummary, group_summaries, is_system_group, proxies
from rocketline.admin.partial import Partial, merged
from rocketline.admin.progress import GroupProgress
from rocketline.console.access import Role
from rocketline.console.endpoints import Input, Name, PartialView, View, reads
from rocketline.console.problems import Problem
from rocketline.console.views import ListInput, ListView, listed, matches, silent
from rocketline.errors import RocketlineError
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import parse_queue_key

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

MAX_MEMBERS_ASKED = 50
"""Each member is asked which queues it has, so of a large group only some are."""


class GroupsInput(ListInput, kw_only=True):
    all: bool = False
    """Groups of the system too."""


class GroupRow(View, kw_only=True):
    name: str
    topics: list[str]
    lag: int | None
    """None: it never committed an offset."""
    in_flight: int | None
    rate: float | None
    last_ms: int | None
    """Store time of the newest message that it has consumed."""
    enabled: bool


class Groups(ListView, kw_only=True):
    items: list[GroupRow]
    hidden: int


@reads("/groups", Role.VIEWER, "groups.html", live=True)
async def groups(visit: Visit, wanted: GroupsInput) -> Groups:
    """All groups with their lag."""
    found = await visit.kept(group_summaries)
    named = [item for item in found.value if matches(item.name, wanted.q)]
    shown = [item for item in named if wanted.all or not is_system_group(item.name)]
    keys: dict[str, Any] = {
        "name": lambda row: row.name,
        "lag": lambda row: row.lag,
        "rate": lambda row: row.rate,
        "last": lambda row: row.last_ms,
    }
    rows, total, pages = listed([_row(item) for item in shown], wanted, keys, "-lag")
    return Groups(
        items=rows, total=total, page=min(wanted.page, pages), pages=pages, hidden=len(named) - len(shown),
        partial=silent(found.missing),
    )  # fmt: skip


def _row(item: GroupSummary) -> GroupRow:
    progress = item.progress if item.progress is not None and item.progress.queues else None
    last = max((offset.last_timestamp for offset in progress.queues.values()), default=0) if progress else 0
    return GroupRow(
        name=item.name,
        topics=[topic for topic in progress.topics if not topic.startswith("%")] if progress else [],
        lag=progress.lag if progress else None,
        in_flight=progress.in_flight if progress else None,
        rate=progress.rate if progress else None,
        last_ms=last or None,
        enabled=all(config.consume_enable for config in item.brokers.values()),
    )


class GroupInput(Input, kw_only=True):
    group: Name
    tab: Annotated[str, msgspec.Meta(max_length=32)] = "queues"


class GroupQueueRow(View, kw_only=True):
    topic: str
    broker: str
    queue: int
    end: int
    consumed: int
    lag: int
    in_flight: int
    last_ms: int | None
    member: str = ""


class MemberRow(View, kw_only=True):
    client: str
    address: str
    language: str
    version: int
    queues: int | None = None
    problem: str = ""


class SubscriptionRow(View, kw_only=True):
    topic: str
    kind: str
    expression: str
    differs: bool = False
    """Members do not agree."""


class GroupOnBroker(View, kw_only=True):
    broker: str
    settings: dict[str, str]


class GroupView(PartialView, kw_only=True):
    name: str
    tab: str
    lag: int | None
    rate: float | None
    queues: list[GroupQueueRow]
    members: list[MemberRow]
    members_problem: str = ""
    """Why nothing is known of members; empty when it is."""
    consumes: str = ""
    model: str = ""
    starts: str = ""
    subscriptions: list[SubscriptionRow] = []
    settings: list[GroupOnBroker] = []
    is_system: bool = False


@reads("/groups/{group}", Role.VIEWER, "group.html", live=True)
async def group(visit: Visit, wanted: GroupInput) -> GroupView:
    """One group: progress, members, subscriptions, settings."""
    # Up to 50 members are asked which queues they have: not again for the numbers that change in place.
    return await group_view(visit, wanted.group, wanted.tab, with_owners=not visit.is_refresh)


async def group_view(visit: Visit, name: str, tab: str = "queues", *, with_owners: bool = False) -> GroupView:
    wanted = GroupInput(group=name, tab=tab)
    admin = visit.admin
    brokers = await admin.brokers()
    stats = await admin.ask_each(brokers, lambda broker: broker.consume_stats(wanted.group))
    if not any(table.offset_table for _, table in stats.value):
        await check_known(visit, wanted.group)
    configs = await admin.ask_each(brokers, lambda broker: broker.group(wanted.group))
    if not configs.value and not stats.value:
        if any(item.code is None for item in configs.missing):
            raise Problem(504, "silent", "; ".join(item.problem for item in configs.missing))
        raise Problem(404, "no_group", wanted.group)
    progress = GroupProgress(wanted.group)
    for _, table in stats.value:
        progress.rate += table.consume_tps
        progress.queues.update((parse_queue_key(key), item) for key, item in table.offset_table.items())
    silent_ones = Partial(None, tuple(item for item in merged(stats, configs) if item.code is None))
    view = GroupView(
        name=wanted.group, tab=wanted.tab, lag=progress.lag if progress.queues else None,
        rate=progress.rate if progress.queues else None, queues=_queues(progress), members=[],
        settings=[GroupOnBroker(broker=broker.name, settings=_settings(config)) for broker, config in configs.value],
        is_system=is_system_group(wanted.group), partial=silent(silent_ones.missing),
    )  # fmt: skip
    await fill_members(visit, view, with_owners=with_owners)
    return view


async def check_known(visit: Visit, name: str) -> None:
    """Problem when no broker has the group: asked for one that does not exist, brokers create it."""
    found = await visit.kept(group_summaries)
    if name not in {item.name for item in found.value}:
        found = await group_summaries(visit.admin)  # it may be younger than what is kept
    if name not in {item.name for item in found.value}:
        if not found.answered:
            raise Problem(504, "silent", "; ".join(item.problem for item in found.missing))
        raise Problem(404, "no_group", name)


def _queues(progress: GroupProgress) -> list[GroupQueueRow]:
    return [
        GroupQueueRow(
            topic=queue.topic, broker=queue.broker_name, queue=queue.queue_id, end=item.broker_offset,
            consumed=item.consumer_offset, lag=max(0, item.broker_offset - item.consumer_offset),
            in_flight=max(0, item.pull_offset - item.consumer_offset), last_ms=item.last_timestamp or None,
        )
        for queue, item in sorted(progress.queues.items(), key=lambda pair: (pair[0].topic.startswith("%"), pair[0]))
    ]  # fmt: skip


def _settings(config: Any) -> dict[str, str]:
    return {name: msgspec.json.encode(value).decode().strip('"') for name, value in msgspec.to_builtins(config).items()}


async def fill_members(visit: Visit, view: GroupView, *, with_owners: bool) -> None:
    """Who is online, what they subscribe to, and who has which queue."""
    brokers = await visit.admin.brokers()
    answers = await visit.admin.ask_each(brokers, lambda broker: broker.consumers(view.name))
    if not answers.value:
        # 206 is what a broker says of a group without members; anything else is no knowledge.
        unknown = [item for item in answers.missing if item.code not in (206, 1)]
        view.members_problem = unknown[0].problem if unknown else await _behind_proxies(visit)
        return
    clients: dict[str, MemberRow] = {}
    where: dict[str, Any] = {}
    kinds: dict[str, set[tuple[str, str]]] = {}
    for broker, online in answers.value:
        view.consumes = online.consume_type or view.consumes
        view.model = online.message_model or view.model
        view.starts = online.consume_from_where or view.starts
        for item in online.connection_set:
            clients[item.client_id] = MemberRow(
                client=item.client_id, address=item.client_addr, language=item.language, version=item.version
            )
            where[item.client_id] = broker
        for topic, data in online.subscription_table.items():
            kinds.setdefault(topic, set()).add((data.expression_type or "TAG", data.sub_string or "*"))
    view.subscriptions = [
        SubscriptionRow(topic=topic, kind=kind, expression=text, differs=len(found) > 1)
        for topic, found in sorted(kinds.items())
        for kind, text in sorted(found)
    ]
    view.members = [clients[name] for name in sorted(clients)]
    if with_owners:
        await _fill_owners(visit, view, where)


async def _behind_proxies(visit: Visit) -> str:
    """Why no members is no knowledge: clients of Apache's proxy are known to it alone."""
    found = await visit.kept(proxies)
    return visit.look.t("groups.behind_proxies", proxies=", ".join(found)) if found else ""


async def _fill_owners(visit: Visit, view: GroupView, where: dict[str, Any]) -> None:
    asked = view.members[:MAX_MEMBERS_ASKED]
    answers = await visit.admin.gather_or_errors(
        where[member.client].running_info(view.name, member.client) for member in asked
    )
    owners: dict[str, str] = {}
    subscribed: dict[str, set[str]] = {}
    for member, info in zip(asked, answers):
        if isinstance(info, RocketlineError):
            member.problem = str(info)
            continue
        member.queues = len(info.mq_table)
        owners.update((str(parse_queue_key(key)), member.client) for key in info.mq_table)
        for data in info.subscription_set:
            if not data.topic.startswith("%"):
                subscribed.setdefault(data.topic, set()).add(data.sub_string or "*")
    for row in view.queues:
        row.member = owners.get(f"{row.topic}@{row.broker}:{row.queue}", "")
    for item in view.subscriptions:
        item.differs = item.differs or len(subscribed.get(item.topic, ())) > 1


class MemberInput(Input, kw_only=True):
    group: Name
    client: Name
    stacks: bool = False


class HeldQueue(View, kw_only=True):
    """A queue as a member holds it."""

    topic: str
    broker: str
    queue: int
    committed: int
    cached: int
    """Messages that it has read and not finished."""
    locked: bool
    pulled_ms: int | None
    consumed_ms: int | None


class MemberRate(View, kw_only=True):
    """What a member does in one topic, a second; by its own count."""

    topic: str
    pulled: float
    consumed: float
    failed: float
    took_ms: float


class MemberView(View, kw_only=True):
    group: str
    client: str
    properties: dict[str, str]
    queues: list[HeldQueue]
    rates: list[MemberRate]
    stacks: str = ""


@reads("/groups/{group}/member", Role.VIEWER, "member.html", api="/groups/{group}/members/{client}")
async def member(visit: Visit, wanted: MemberInput) -> MemberView:
    """What one member says of itself; with `stacks`, of its threads too."""
    brokers = await visit.admin.brokers()
    answers = await visit.admin.ask_each(
        brokers, lambda broker: broker.running_info(wanted.group, wanted.client, stacks=wanted.stacks)
    )
    if not answers.value:
        raise Problem(404, "no_member", "; ".join(item.problem for item in answers.missing))
    info = answers.value[0][1]
    queues = [_held(parse_queue_key(key), item) for key, item in info.mq_table.items()]
    rates = [
        MemberRate(
            topic=topic, pulled=item.pull_tps, consumed=item.consume_ok_tps, failed=item.consume_failed_tps,
            took_ms=item.consume_rt,
        )
        for topic, item in sorted(info.status_table.items())
    ]  # fmt: skip
    queues.sort(key=lambda row: (row.topic, row.broker, row.queue))
    return MemberView(
        group=wanted.group, client=wanted.client, properties=dict(sorted(info.properties.items())), queues=queues,
        rates=rates, stacks=info.jstack or "",
    )  # fmt: skip


def _held(queue: MessageQueue, item: Any) -> HeldQueue:
    return HeldQueue(
        topic=queue.topic, broker=queue.broker_name, queue=queue.queue_id, committed=item.commit_offset,
        cached=item.cached_msg_count, locked=item.locked, pulled_ms=item.last_pull_timestamp or None,
        consumed_ms=item.last_consume_timestamp or None,
    )  # fmt: skip


class MembersInput(Input, kw_only=True):
    group: Name


class Members(PartialView, kw_only=True):
    items: list[MemberRow]
    problem: str
    """Why nothing is known of members; empty when it is."""
    subscriptions: list[SubscriptionRow]


@reads("/groups/{group}/members", Role.VIEWER)
async def group_members(visit: Visit, wanted: MembersInput) -> Members:
    """Who of a group is online, and how many queues each has."""
    found = await group_view(visit, wanted.group, with_owners=True)
    return Members(
        items=found.members, problem=found.members_problem, subscriptions=found.subscriptions, partial=found.partial,
        complete=not found.members_problem and len(found.members) <= MAX_MEMBERS_ASKED,
    )  # fmt: skip
