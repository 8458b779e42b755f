"""One message: body, properties, which groups have passed it; its download, and handing it to a consumer."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import msgspec

from rocketline.admin.messages import consumed_by, find_message
from rocketline.admin.partial import Partial
from rocketline.console.access import Role
from rocketline.console.bodies import (
    SHOWN_BYTES,
    MessageRow,
    TreeNode,
    body_text,
    hex_lines,
    json_tree,
    message_row,
)
from rocketline.console.endpoints import Change, Download, Input, Name, View, changes, reads
from rocketline.console.problems import Problem
from rocketline.console.views import Item, Result
from rocketline.errors import RocketlineError
from rocketline.message import MessageView

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

MessageId = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
CHUNK_BYTES = 64 << 10


async def find_by_id(visit: Visit, message_id: str, topic: str) -> Partial[list[MessageView]]:
    """A message and its copies, by a unique id (which needs its topic) or by a broker's offset id."""
    return await find_message(visit.admin, message_id, topic)


async def the_messages(visit: Visit, message_id: str, topic: str) -> list[MessageView]:
    """At least one message, or a problem: that there is none only if every broker said so."""
    found = await find_by_id(visit, message_id, topic)
    if not found.some():
        where = visit.look.t("message.looked_in" if topic else "message.looked_nowhere", topic=topic)
        raise Problem(404, "no_message", where)
    return found.value


async def the_message(visit: Visit, message_id: str, topic: str) -> MessageView:
    return (await the_messages(visit, message_id, topic))[0]


class MessageInput(Input, kw_only=True):
    id: MessageId
    topic: Annotated[str, msgspec.Meta(max_length=255)] = ""
    view: Annotated[str, msgspec.Meta(max_length=16)] = ""
    """`tree`, `text` or `hex`."""


class PassedBy(View, kw_only=True):
    group: str
    state: str


class MessageDetail(View, kw_only=True):
    message: MessageRow
    born_host: str
    store_host: str
    log_offset: int
    crc: int | None
    """Of the body; None where a part of it is masked."""
    text: str
    is_text: bool
    is_cut: bool
    tree: list[TreeNode]
    hex: list[str]
    view: str
    sha256: str
    passed: list[PassedBy]
    passed_problem: str = ""
    copies: int = 1


@reads("/messages/{id}", Role.READER, "message.html", audited=True)
async def message(visit: Visit, wanted: MessageInput) -> MessageDetail:
    """One message with everything that is known of it."""
    found = await the_messages(visit, wanted.id, wanted.topic)
    one = found[0]
    body = one.body
    row = message_row(visit, one)
    tree = json_tree(one.body)
    text, is_text = body_text(one.body[:SHOWN_BYTES], is_cut=len(one.body) > SHOWN_BYTES)
    shown = (
        wanted.view if wanted.view in ("tree", "text", "hex") else ("tree" if tree else "text" if is_text else "hex")
    )
    detail = MessageDetail(
        message=row, born_host=one.born_host, store_host=one.store_host, log_offset=one.log_offset,
        crc=one.body_crc if one.body is body else None,
        text=text if shown == "text" and is_text else "", is_text=is_text, is_cut=len(one.body) > SHOWN_BYTES,
        tree=tree if shown == "tree" else [], hex=hex_lines(one.body) if shown == "hex" or not is_text else [],
        view=shown if shown != "tree" or tree else "text", sha256=hashlib.sha256(one.body).hexdigest(), passed=[],
        copies=len(found),
    )  # fmt: skip
    try:
        detail.passed = [PassedBy(group=group, state=state) for group, state in await consumed_by(visit.admin, one)]
    except RocketlineError as error:
        detail.passed_problem = str(error)
    return detail


@reads("/messages/{id}/body", Role.READER, audited=True, page="-")
async def message_body(visit: Visit, wanted: MessageInput) -> Download:
    """The body of a message, byte for byte."""
    one = await the_message(visit, wanted.id, wanted.topic)
    visit.desk.masks.apply(one)
    return Download(f"{one.message_id}.bin", _chunks(one.body))


async def _chunks(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), CHUNK_BYTES):
        yield body[start : start + CHUNK_BYTES]


class HandOver(Change, kw_only=True):
    id: MessageId
    topic: Annotated[str, msgspec.Meta(max_length=255)] = ""
    group: Name
    client: Name


class HandOverInput(Input, kw_only=True):
    id: MessageId
    topic: Annotated[str, msgspec.Meta(max_length=255)] = ""


class Member(View, kw_only=True):
    group: str
    client: str


class HandOverView(View, kw_only=True):
    id: str
    topic: str
    members: list[Member]


@reads("/messages/{id}/hand-over", Role.OPERATOR, "hand_over.html", in_api=False)
async def hand_over_form(visit: Visit, wanted: HandOverInput) -> HandOverView:
    """The consumers that could handle a message now."""
    one = await the_message(visit, wanted.id, wanted.topic)
    broker = await visit.admin.master(one.broker_name)
    members = []
    for group in (await broker.groups_of_topic(one.topic))[:50]:
        try:
            online = await broker.consumers(group)
        except RocketlineError:
            continue
        members += [Member(group=group, client=item.client_id) for item in online.connection_set]
    return HandOverView(id=wanted.id, topic=wanted.topic, members=members)


@changes("POST", "/messages/{id}/hand-over", Role.OPERATOR, "/messages/{id}/hand-over")
async def hand_over(visit: Visit, wanted: HandOver) -> Result:
    """Let one consumer handle one message now; no offset changes."""
    one = await the_message(visit, wanted.id, wanted.topic)
    broker = await visit.admin.master(one.broker_name)
    done = await broker.consume_directly(wanted.group, wanted.client, one.offset_id)
    ok = done.consume_result == "CR_SUCCESS"
    item = Item(
        where=f"{wanted.client}: {done.consume_result}", ok=ok, problem="" if ok else done.remark or done.consume_result
    )
    return Result(
        title="handed_over", about=wanted.id, items=[item], back=f"/messages/{wanted.id}?topic={wanted.topic}"
    )
