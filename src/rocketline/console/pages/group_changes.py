"""Creating, changing and deleting consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from rocketline.admin import AdminBroker
from rocketline.console.access import Role
from rocketline.console.endpoints import Change, Input, Name, View, changes, reads
from rocketline.console.pages.groups import GroupInput, check_known, group_view
from rocketline.console.problems import field_problem
from rocketline.console.views import Difference, NameInput, NameView, Result, differences, on_each
from rocketline.protocol.bodies import SubscriptionGroupConfig
from rocketline.protocol.names import dlq_topic, group_problem, retry_topic

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

Retries = Annotated[int, msgspec.Meta(ge=0, le=10_000)]


@reads("/groups/new", Role.OPERATOR, "group_new.html", in_api=False)
async def new_group(visit: Visit, wanted: NameInput) -> NameView:
    """The form for a new group."""
    return NameView(name=wanted.name)


class NewGroup(Change, kw_only=True):
    name: Name
    retries: Retries = 16
    ordered: bool = False
    broadcast: bool = True
    from_oldest: bool = True


@changes("POST", "/groups", Role.OPERATOR, "/groups/new")
async def create_group(visit: Visit, wanted: NewGroup) -> Result:
    """Create a group on all brokers; one that exists is changed with PUT."""
    if problem := group_problem(wanted.name):
        raise field_problem("name", problem)
    known = await visit.admin.ask_each(await visit.admin.brokers(), lambda broker: broker.groups())
    if any(wanted.name in groups for _, groups in known.value):
        taken = field_problem("name", visit.look.t("groups.exists", name=wanted.name))
        taken.view.status = 409
        raise taken
    config = SubscriptionGroupConfig(
        wanted.name, retry_max_times=wanted.retries, consume_message_orderly=wanted.ordered,
        consume_broadcast_enable=wanted.broadcast, consume_from_min_enable=wanted.from_oldest,
    )  # fmt: skip
    items = await on_each(visit, await visit.admin.brokers(), lambda broker: broker.put_group(config))
    visit.changed()
    return Result(title="group_created", about=wanted.name, items=items, back=f"/groups/{wanted.name}")


class GroupEditInput(Input, kw_only=True):
    group: Name
    retries: Retries | None = None
    enabled: bool | None = None


class GroupEditView(View, kw_only=True):
    group: str
    retries: int
    enabled: bool
    is_preview: bool
    changes: list[Difference]


@reads("/groups/{group}/edit", Role.OPERATOR, "group_edit.html")
async def edit_group(visit: Visit, wanted: GroupEditInput) -> GroupEditView:
    """What a change of a group's settings would do."""
    await check_known(visit, wanted.group)
    configs = await visit.admin.ask_brokers(await visit.admin.brokers(), lambda broker: broker.group(wanted.group))
    first = configs[0][1]
    retries = first.retry_max_times if wanted.retries is None else wanted.retries
    enabled = first.consume_enable if wanted.enabled is None else wanted.enabled
    t = visit.look.t
    changed = differences(
        configs,
        lambda config: (
            (t("groups.retries"), config.retry_max_times, retries),
            (t("groups.enabled"), t(_yes(config.consume_enable)), t(_yes(enabled))),
        ),
    )
    is_preview = wanted.retries is not None
    return GroupEditView(group=wanted.group, retries=retries, enabled=enabled, is_preview=is_preview, changes=changed)


def _yes(value: bool) -> str:
    return "common.yes" if value else "common.no"


class GroupEdit(Change, kw_only=True):
    group: Name
    retries: Retries
    enabled: bool


@changes("PUT", "/groups/{group}", Role.OPERATOR, "/groups/{group}/edit")
async def change_group(visit: Visit, wanted: GroupEdit) -> Result:
    """Change how often a group retries, and whether it may consume."""
    await check_known(visit, wanted.group)

    async def change(broker: AdminBroker) -> None:
        config = await broker.group(wanted.group)
        config.retry_max_times, config.consume_enable = wanted.retries, wanted.enabled
        await broker.put_group(config)

    items = await on_each(visit, await visit.admin.brokers(), change)
    visit.changed()
    return Result(title="group_changed", about=wanted.group, items=items, back=f"/groups/{wanted.group}?tab=settings")


class GroupDelete(Change, kw_only=True):
    group: Name
    with_offsets: bool = True


class GroupDeleteView(View, kw_only=True):
    group: str
    lag: int | None
    members: list[str]
    topics: list[str]


@reads("/groups/{group}/delete", Role.ADMIN, "group_delete.html", in_api=False)
async def group_to_delete(visit: Visit, wanted: GroupInput) -> GroupDeleteView:
    """What the deletion of a group would take away."""
    whole = await group_view(visit, wanted.group)
    return GroupDeleteView(
        group=wanted.group, lag=whole.lag, members=[row.client for row in whole.members],
        topics=sorted({row.topic for row in whole.queues}),
    )  # fmt: skip


@changes("DELETE", "/groups/{group}", Role.ADMIN, "/groups/{group}/delete")
async def delete_group(visit: Visit, wanted: GroupDelete) -> Result:
    """Delete a group, with its retry topic and its dead letters."""
    visit.confirm(wanted.confirm, wanted.group)

    async def delete(broker: AdminBroker) -> None:
        await broker.delete_group(wanted.group, with_offsets=wanted.with_offsets)
        for topic in (retry_topic(wanted.group), dlq_topic(wanted.group)):
            await broker.delete_topic(topic)

    items = await on_each(visit, await visit.admin.brokers(), delete)
    visit.changed()
    return Result(title="group_deleted", about=wanted.group, items=items, back="/groups")
