"""Sending one message."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec

from rocketline.client import Producer
from rocketline.console.access import Role
from rocketline.console.bodies import body_text
from rocketline.console.endpoints import Change, Input, Name, View, changes, reads
from rocketline.console.limits import MAX_SEND_BYTES
from rocketline.console.moments import moment_ms
from rocketline.console.pages.message import the_message
from rocketline.console.problems import field_problem
from rocketline.console.views import Item, Result
from rocketline.message import Message

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

PRODUCER_GROUP = "rocketline-console"
MAX_BODY_BYTES = 4 << 20
MAX_LEVEL = 18


class SendInput(Input, kw_only=True):
    topic: Name
    copy_of: Annotated[str, msgspec.Meta(max_length=200)] = ""
    """Id of a message whose content fills the form."""


class SendForm(View, kw_only=True):
    topic: str
    copy_of: str
    tag: str = ""
    keys: str = ""
    properties: str = ""
    body: str = ""


@reads("/topics/{topic}/send", Role.OPERATOR, "send.html", in_api=False)
async def send_form(visit: Visit, wanted: SendInput) -> SendForm:
    """The form of a message."""
    form = SendForm(topic=wanted.topic, copy_of=wanted.copy_of)
    if wanted.copy_of:
        from rocketline.admin.dead_letters import SYSTEM_PROPERTIES

        one = await the_message(visit, wanted.copy_of, wanted.topic)
        visit.desk.masks.apply(one)
        own = {name: value for name, value in one.properties.items() if name not in SYSTEM_PROPERTIES}
        body, is_text = body_text(one.body)
        form.tag, form.keys = one.tag or "", " ".join(one.keys)
        form.properties = "\n".join(f"{name}={value}" for name, value in own.items())
        form.body = body if is_text else ""
    return form


class SendMessage(Change, kw_only=True):
    topic: Name
    body: str = ""
    tag: Annotated[str, msgspec.Meta(max_length=128)] = ""
    keys: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    """Separated by spaces."""
    properties: Annotated[str, msgspec.Meta(max_length=32_000)] = ""
    """One `name=value` per line."""
    sharding_key: Annotated[str, msgspec.Meta(max_length=500)] = ""
    delay_s: Annotated[float, msgspec.Meta(ge=0, le=3 * 86400 * 365)] | None = None
    deliver_at: Annotated[str, msgspec.Meta(max_length=40)] = ""
    delay_level: Annotated[int, msgspec.Meta(ge=0, le=MAX_LEVEL)] = 0


@changes("POST", "/topics/{topic}/messages", Role.OPERATOR, "/topics/{topic}/send", max_bytes=MAX_SEND_BYTES)
async def send_message(visit: Visit, wanted: SendMessage) -> Result:
    """Send a message; the receipt names its ids and its place."""
    visit.desk.limits.count_send(visit.person.name)
    message = _message(visit, wanted)
    await visit.admin.route(wanted.topic)  # a typing error must not create a topic
    async with Producer(visit.admin.namesrv, group=PRODUCER_GROUP, options=visit.admin.client_options) as producer:
        receipt = await producer.send(message)
    where = f"{receipt.queue.broker_name}:{receipt.queue.queue_id} @ {receipt.queue_offset} · {receipt.message_id}"
    link = f"/messages/{receipt.message_id}?topic={wanted.topic}"
    waits = message.delay is not None or message.deliver_at is not None or message.delay_level
    item = Item(where=where, ok=True, link="/delayed" if waits else link)
    title = "message_waits" if waits else "message_sent"
    return Result(title=title, about=wanted.topic, items=[item], back=f"/topics/{wanted.topic}/send")


def _message(visit: Visit, wanted: SendMessage) -> Message:
    body = wanted.body.replace("\r\n", "\n").encode("utf-8", "surrogatepass")
    if len(body) > MAX_BODY_BYTES:
        raise field_problem("body", visit.look.t("send.too_large"))
    deliver_ms = moment_ms(wanted.deliver_at, visit.look, visit.now_ms, "deliverAt")
    if sum((wanted.delay_s is not None, deliver_ms is not None, wanted.delay_level > 0)) > 1:
        raise field_problem("delayS", visit.look.t("send.one_delay"))
    return Message(
        wanted.topic,
        body,
        tag=wanted.tag or None,
        keys=wanted.keys.split(),
        properties=_properties(visit, wanted.properties),
        sharding_key=wanted.sharding_key or None,
        delay=timedelta(seconds=wanted.delay_s) if wanted.delay_s else None,
        deliver_at=datetime.fromtimestamp(deliver_ms / 1000, UTC) if deliver_ms is not None else None,
        delay_level=wanted.delay_level,
    )


def _properties(visit: Visit, text: str) -> dict[str, str]:
    found = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise field_problem("properties", visit.look.t("send.property_line", line=line[:60]))
        found[name.strip()] = value.strip()
    return found
