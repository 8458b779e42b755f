"""Creating, changing and deleting topics; each with what will happen first, and what happened on each broker after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from rocketline.admin import AdminBroker
from rocketline.admin.overview import SYSTEM, topic_kind
from rocketline.console.access import Role
from rocketline.console.endpoints import Change, Input, Name, View, changes, reads
from rocketline.console.pages.topics import TopicInput, TopicView, perm_word, topic
from rocketline.console.problems import Problem, field_problem
from rocketline.console.views import Difference, Item, NameInput, NameView, Result, differences, on_each
from rocketline.errors import RocketlineError, RouteNotFound
from rocketline.protocol.bodies import TopicConfig
from rocketline.protocol.names import topic_problem

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

Queues = Annotated[int, msgspec.Meta(ge=1, le=1024)]
TopicKind = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "UNSPECIFIED"]
Perm = Literal["2", "4", "6"]


class NewTopicView(NameView, kw_only=True):
    clusters: list[str]
    kinds: list[str]


@reads("/topics/new", Role.OPERATOR, "topic_new.html", in_api=False)
async def new_topic(visit: Visit, wanted: NameInput) -> NewTopicView:
    """The form for a new topic."""
    kinds = ["NORMAL", "FIFO", "DELAY", "TRANSACTION"]
    return NewTopicView(name=wanted.name, clusters=await visit.admin.clusters(), kinds=kinds)


class NewTopic(Change, kw_only=True):
    name: Name
    cluster: Annotated[str, msgspec.Meta(max_length=255)] = ""
    """RocketMQ's name of the cluster; empty: all of them."""
    queues: Queues = 8
    kind: TopicKind = "NORMAL"


@changes("POST", "/topics", Role.OPERATOR, "/topics/new")
async def create_topic(visit: Visit, wanted: NewTopic) -> Result:
    """Create a topic on all brokers of a cluster."""
    problem = topic_problem(wanted.name)
    if problem:
        raise field_problem("name", problem)
    try:
        visit.admin.forget_route(wanted.name)
        await visit.admin.route(wanted.name)
    except RouteNotFound:
        pass
    else:
        taken = field_problem("name", visit.look.t("topics.exists", name=wanted.name))
        taken.view.status = 409
        raise taken
    config = TopicConfig(wanted.name, wanted.queues, wanted.queues)
    if wanted.kind != "NORMAL":
        config.attributes = {"+message.type": wanted.kind}
    brokers = await visit.admin.brokers(wanted.cluster or None)
    items = await on_each(visit, brokers, lambda broker: broker.put_topic(config))
    visit.changed()
    return Result(title="topic_created", about=wanted.name, items=items, back=f"/topics/{wanted.name}")


class TopicEditInput(Input, kw_only=True):
    topic: Name
    read_queues: Queues | None = None
    write_queues: Queues | None = None
    perm: Perm | None = None


class TopicEdit(Change, kw_only=True):
    topic: Name
    read_queues: Queues
    write_queues: Queues
    perm: Perm = "6"


class LeftBehind(View, kw_only=True):
    """Messages of queues that would not be read any more."""

    broker: str
    queue: int
    messages: int


class TopicEditView(View, kw_only=True):
    topic: str
    read_queues: int
    write_queues: int
    perm: str
    is_preview: bool
    changes: list[Difference]
    left_behind: list[LeftBehind]


@reads("/topics/{topic}/edit", Role.OPERATOR, "topic_edit.html")
async def edit_topic(visit: Visit, wanted: TopicEditInput) -> TopicEditView:
    """What a change of a topic would do."""
    brokers = await visit.admin.brokers_of(wanted.topic)
    configs = (await visit.admin.ask_each(brokers, lambda broker: broker.topic(wanted.topic))).value
    if not configs:
        raise Problem(504, "silent", wanted.topic)
    first = configs[0][1]
    read = wanted.read_queues or first.read_queue_nums
    write = wanted.write_queues or first.write_queue_nums
    perm = wanted.perm or str(first.perm)
    t = visit.look.t
    changed = differences(
        configs,
        lambda config: (
            (t("topics.read_queues"), config.read_queue_nums, read),
            (t("topics.write_queues"), config.write_queue_nums, write),
            (t("topics.perm"), perm_word(config.perm), perm_word(int(perm))),
        ),
    )
    is_preview = wanted.read_queues is not None
    return TopicEditView(
        topic=wanted.topic, read_queues=read, write_queues=write, perm=perm, is_preview=is_preview, changes=changed,
        left_behind=await _left_behind(visit, wanted.topic, read) if is_preview else [],
    )  # fmt: skip


async def _left_behind(visit: Visit, name: str, read_queues: int) -> list[LeftBehind]:
    whole: TopicView = await topic(visit, TopicInput(topic=name))
    return [
        LeftBehind(broker=row.broker, queue=row.queue, messages=row.messages)
        for row in whole.queues
        if row.queue >= read_queues and row.messages
    ]


@changes("PUT", "/topics/{topic}", Role.OPERATOR, "/topics/{topic}/edit")
async def change_topic(visit: Visit, wanted: TopicEdit) -> Result:
    """Change the queues and the permission of a topic on every broker that has it."""
    brokers = await visit.admin.brokers_of(wanted.topic)

    async def change(broker: AdminBroker) -> None:
        config = await broker.topic(wanted.topic)
        config.read_queue_nums, config.write_queue_nums = wanted.read_queues, wanted.write_queues
        config.perm, config.attributes = int(wanted.perm), {}
        await broker.put_topic(config)

    items = await on_each(visit, brokers, change)
    visit.changed()
    return Result(title="topic_changed", about=wanted.topic, items=items, back=f"/topics/{wanted.topic}?tab=settings")


class TopicDelete(Change, kw_only=True):
    topic: Name


class TopicDeleteView(View, kw_only=True):
    topic: str
    messages: int | None
    """None: not all brokers told."""
    groups: list[str]
    members: list[str]
    """Clients that read it now."""


@reads("/topics/{topic}/delete", Role.ADMIN, "topic_delete.html", in_api=False)
async def topic_to_delete(visit: Visit, wanted: TopicInput) -> TopicDeleteView:
    """What the deletion of a topic would take away."""
    whole: TopicView = await topic(visit, TopicInput(topic=wanted.topic))
    groups = [row.group for row in whole.groups]
    members: list[str] = []
    for group in groups[:20]:
        brokers = await visit.admin.brokers_of(wanted.topic)
        online = await visit.admin.ask_each(brokers, lambda broker, it=group: broker.consumers(it))  # type: ignore[misc]
        for _, found in online.value:
            members += [f"{group}: {client.client_id}" for client in found.connection_set]
    return TopicDeleteView(topic=wanted.topic, messages=whole.messages, groups=groups, members=sorted(set(members)))


@changes("DELETE", "/topics/{topic}", Role.ADMIN, "/topics/{topic}/delete")
async def delete_topic(visit: Visit, wanted: TopicDelete) -> Result:
    """Delete a topic from brokers and name servers. Those that the system needs stay."""
    visit.confirm(wanted.confirm, wanted.topic)
    if topic_kind(wanted.topic, await visit.admin.cluster_info()) == SYSTEM:
        raise Problem(422, "system_topic", wanted.topic)
    brokers = await visit.admin.brokers_of(wanted.topic)
    items = await on_each(visit, brokers, lambda broker: broker.delete_topic(wanted.topic))
    clusters = await visit.admin.clusters()
    for server in visit.admin.name_servers:
        try:
            for cluster in clusters:
                await server.delete_topic(wanted.topic, cluster)
            items.append(Item(where=server.address, ok=True))
        except RocketlineError as error:
            items.append(Item(where=server.address, ok=False, problem=str(error)))
    visit.changed()
    return Result(title="topic_deleted", about=wanted.topic, items=items, back="/topics")
