"""Topics: the list with rates, groups and lag; one topic with its queues, groups and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from rocketline.admin import AdminBroker
from rocketline.admin.overview import USER, TopicSummary, all_producers, topic_ends, topic_kind, topic_summaries
from rocketline.admin.partial import Missing, Partial, merged
from rocketline.admin.progress import GroupProgress, all_progress
from rocketline.admin.search import Budget, Wanted, newest
from rocketline.console.access import Role
from rocketline.console.endpoints import Input, Name, PartialView, View, reads
from rocketline.console.problems import Problem
from rocketline.console.views import ListInput, ListView, listed, matches, silent
from rocketline.errors import RouteNotFound
from rocketline.protocol.bodies import TopicConfig, TopicStatsTable, parse_queue_key

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

NEWEST_LOOKED_AT = 200


class TopicsInput(ListInput, kw_only=True):
    all: bool = False
    """Topics of the system, of retries and of dead letters too."""


class TopicRow(View, kw_only=True):
    name: str
    kind: str
    message_type: str
    brokers: list[str]
    read_queues: int
    write_queues: int
    groups: int
    lag: int | None
    messages: int | None = None
    rate: float | None = None
    last_ms: int | None = None


class Topics(ListView, kw_only=True):
    items: list[TopicRow]
    hidden: int
    """Topics that are not shown because they are not of users."""


@reads("/topics", Role.VIEWER, "topics.html", live=True)
async def topics(visit: Visit, wanted: TopicsInput) -> Topics:
    """All topics; one page of them with counts and rates."""
    found = await visit.kept(topic_summaries)
    named = [item for item in found.value if matches(item.name, wanted.q)]
    shown = [item for item in named if wanted.all or item.kind == USER]
    rows, total, pages = listed(
        [_row(item) for item in shown],
        wanted,
        {
            "name": lambda row: row.name,
            "lag": lambda row: row.lag,
            "groups": lambda row: row.groups,
            "queues": lambda row: row.read_queues,
        },
        "name",
    )
    on_page = {row.name for row in rows}
    ends = await topic_ends(visit.admin, [item for item in shown if item.name in on_page])
    for row in rows:
        end = ends.value.get(row.name)
        if end is not None:
            row.messages, row.last_ms = end.kept, end.last_ms or None
            row.rate = visit.desk.rate_of(visit.cluster, row.name, end.end)
    return Topics(
        items=rows, total=total, page=min(wanted.page, pages), pages=pages, hidden=len(named) - len(shown),
        partial=silent(merged(found, ends)),
    )  # fmt: skip


def _row(item: TopicSummary) -> TopicRow:
    return TopicRow(
        name=item.name, kind=item.kind, message_type=item.message_type, brokers=sorted(item.brokers),
        read_queues=item.read_queues, write_queues=item.write_queues, groups=len(item.groups), lag=item.lag,
    )  # fmt: skip


class TopicInput(Input, kw_only=True):
    topic: Name
    tab: Annotated[str, msgspec.Meta(max_length=32)] = "queues"


class QueueRow(View, kw_only=True):
    broker: str
    queue: int
    oldest: int
    end: int
    messages: int
    last_ms: int | None


class TopicGroupRow(View, kw_only=True):
    group: str
    lag: int | None
    in_flight: int | None
    rate: float | None


class TopicOnBroker(View, kw_only=True):
    broker: str
    read_queues: int
    write_queues: int
    perm: str
    order: bool
    attributes: dict[str, str]


class SenderRow(View, kw_only=True):
    """Somebody who sent some of the newest messages."""

    address: str
    client: str
    """Empty: not connected any more, or behind a proxy."""
    groups: list[str]
    language: str
    messages: int
    last_ms: int


class TopicView(PartialView, kw_only=True):
    name: str
    tab: str
    messages: int | None
    rate: float | None
    queues: list[QueueRow]
    groups: list[TopicGroupRow]
    settings: list[TopicOnBroker]
    senders: list[SenderRow] = []
    looked_at: int = 0
    """So many messages, the newest, were asked for their senders."""
    is_system: bool


@reads("/topics/{topic}", Role.VIEWER, "topic.html", live=True)
async def topic(visit: Visit, wanted: TopicInput) -> TopicView:
    """One topic: queues, groups, who sent the newest messages, settings."""
    admin = visit.admin
    stats = await _stats(visit, wanted.topic)
    configs = await admin.ask_each(await _brokers_of(visit, wanted.topic), lambda broker: broker.topic(wanted.topic))
    queues = _queues(stats.value)
    groups = await _groups(visit, wanted.topic)
    senders, looked_at, lost = await _senders(visit, wanted.topic) if wanted.tab == "producers" else ([], 0, ())
    total = sum(row.end for row in queues)
    return TopicView(
        name=wanted.topic,
        tab=wanted.tab,
        messages=sum(row.messages for row in queues) if queues or stats.complete else None,
        rate=visit.desk.rate_of(visit.cluster, wanted.topic, total) if stats.complete else None,
        queues=queues,
        groups=groups.value,
        settings=[_on_broker(broker.name, config) for broker, config in configs.value],
        senders=senders,
        looked_at=looked_at,
        is_system=topic_kind(wanted.topic, await admin.cluster_info()) != USER,
        partial=silent(merged(stats, configs, groups, Partial(None, lost))),
    )


async def _brokers_of(visit: Visit, name: str) -> list[AdminBroker]:
    try:
        return await visit.admin.brokers_of(name)
    except RouteNotFound as error:
        raise Problem(404, "no_topic", str(error)) from error


async def _stats(visit: Visit, name: str) -> Partial[list[tuple[AdminBroker, TopicStatsTable]]]:
    return await visit.admin.ask_each(await _brokers_of(visit, name), lambda broker: broker.topic_stats(name))


def _queues(found: list[tuple[AdminBroker, TopicStatsTable]]) -> list[QueueRow]:
    rows = [
        QueueRow(
            broker=queue.broker_name, queue=queue.queue_id, oldest=item.min_offset, end=item.max_offset,
            messages=item.max_offset - item.min_offset, last_ms=item.last_update_timestamp or None,
        )
        for _, table in found
        for queue, item in ((parse_queue_key(key), item) for key, item in table.offset_table.items())
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (row.broker, row.queue))


async def _groups(visit: Visit, name: str) -> Partial[list[TopicGroupRow]]:
    """The groups that have read it: one request per broker, however many groups there are."""
    progress = await visit.kept(all_progress)
    found: list[GroupProgress] = [item.in_topic(name) for item in progress.value]
    rows = [
        TopicGroupRow(group=item.group, lag=item.lag, in_flight=item.in_flight, rate=item.rate)
        for item in found
        if item.queues
    ]
    return Partial(sorted(rows, key=lambda row: -(row.lag or 0)), progress.missing)


async def _senders(visit: Visit, name: str) -> tuple[list[SenderRow], int, tuple[Missing, ...]]:
    """Who sent the newest messages: brokers do not know the topics of a producer, but messages have the sender's address."""
    page = await newest(visit.admin, name, Wanted(), Budget(NEWEST_LOOKED_AT, NEWEST_LOOKED_AT, body_bytes=0))
    online = await all_producers(visit.admin)
    rows: dict[str, SenderRow] = {}
    for message in page.messages:
        row = rows.setdefault(
            message.born_host,
            SenderRow(address=message.born_host, client="", groups=[], language="", messages=0, last_ms=0),
        )
        row.messages, row.last_ms = row.messages + 1, max(row.last_ms, message.store_ms)
    for item in online.value:
        sender = rows.get(item.address)
        if sender is not None:
            sender.client, sender.language = item.client, item.language
            sender.groups = sorted({*sender.groups, item.group})
    found = sorted(rows.values(), key=lambda row: -row.last_ms)
    return found, len(page.messages), merged(Partial(None, page.missing), online)


def _on_broker(name: str, config: TopicConfig) -> TopicOnBroker:
    return TopicOnBroker(
        broker=name, read_queues=config.read_queue_nums, write_queues=config.write_queue_nums,
        perm=perm_word(config.perm), order=config.order, attributes=dict(config.attributes),
    )  # fmt: skip


def perm_word(perm: int) -> str:
    """
    >>> perm_word(6), perm_word(4)
    ('RW', 'R')
    """
    return "".join(letter for bit, letter in ((4, "R"), (2, "W"), (1, "X")) if perm & bit) or "-"


class TopicPart(Input, kw_only=True):
    topic: Name


class TopicQueues(PartialView, kw_only=True):
    items: list[QueueRow]


class TopicGroups(PartialView, kw_only=True):
    items: list[TopicGroupRow]


@reads("/topics/{topic}/queues", Role.VIEWER)
async def topic_queues(visit: Visit, wanted: TopicPart) -> TopicQueues:
    """The queues of a topic with their offsets."""
    stats = await _stats(visit, wanted.topic)
    return TopicQueues(items=_queues(stats.some()), partial=silent(stats.missing))


@reads("/topics/{topic}/groups", Role.VIEWER)
async def topic_groups(visit: Visit, wanted: TopicPart) -> TopicGroups:
    """The groups that have read a topic, with their lag."""
    await _brokers_of(visit, wanted.topic)
    found = await _groups(visit, wanted.topic)
    return TopicGroups(items=found.value, partial=silent(found.missing))
