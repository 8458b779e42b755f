"""Sending one message: a new one, or a copy of one that is stored.

A browser makes one kind of line break of all, and has no fields for bytes that are no text. What a form shows of a message
and nobody edited is therefore taken from the stored message again: a copy has the same bytes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec

from rocketline.admin.dead_letters import copy_of
from rocketline.client import Producer
from rocketline.console.access import Role
from rocketline.console.bodies import body_text
from rocketline.console.endpoints import Change, Input, Name, View, changes, reads
from rocketline.console.limits import MAX_SEND_BYTES
from rocketline.console.moments import moment_ms
from rocketline.console.pages.message import the_message
from rocketline.console.problems import Problem, field_problem
from rocketline.console.views import Item, Result
from rocketline.message import SHARDING_KEY, Message

if TYPE_CHECKING:
    from rocketline.console.visit import Visit

PRODUCER_GROUP = "rocketline-console"
MAX_BODY_BYTES = 4 << 20
MAX_LEVEL = 18

MessageId = Annotated[str, msgspec.Meta(max_length=200)]


class SendInput(Input, kw_only=True):
    topic: Name
    copy_of: MessageId = ""
    """Id of a message whose content fills the form."""


class SendForm(View, kw_only=True):
    topic: str
    copy_of: str
    tag: str = ""
    keys: str = ""
    sharding_key: str = ""
    properties: str = ""
    kept: list[str] = []
    """Properties of the original that no line of the form can hold."""
    body: str = ""
    hidden_bytes: int | None = None
    """Size of a body that is no text, so that it is sent as it is."""


@reads("/topics/{topic}/send", Role.OPERATOR, "send.html", in_api=False)
async def send_form(visit: Visit, wanted: SendInput) -> SendForm:
    """The form of a message."""
    original = await _original(visit, wanted.topic, wanted.copy_of)
    if original is None:
        return SendForm(topic=wanted.topic, copy_of="")
    in_lines, kept = _in_lines(original)
    text = _text(original)
    return SendForm(
        topic=wanted.topic, copy_of=wanted.copy_of, tag=original.tag or "", keys=" ".join(original.keys),
        sharding_key=original.properties.get(SHARDING_KEY, ""), properties=in_lines, kept=sorted(kept),
        body=text or "", hidden_bytes=len(original.body) if text is None else None,
    )  # fmt: skip


class SendMessage(Change, kw_only=True):
    topic: Name
    body: str | None = None
    body_hex: Annotated[str, msgspec.Meta(max_length=2 * MAX_BODY_BYTES)] = ""
    """Instead of `body`, for bytes that are no text."""
    tag: Annotated[str, msgspec.Meta(max_length=128)] = ""
    keys: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    """Separated by spaces."""
    properties: Annotated[str, msgspec.Meta(max_length=32_000)] | dict[str, str] | None = None
    """An object, or text with one `name=value` per line."""
    sharding_key: Annotated[str, msgspec.Meta(max_length=500)] = ""
    delay_s: Annotated[float, msgspec.Meta(ge=0, le=3 * 86400 * 365)] | None = None
    deliver_at: Annotated[str, msgspec.Meta(max_length=40)] = ""
    delay_level: Annotated[int, msgspec.Meta(ge=0, le=MAX_LEVEL)] = 0
    copy_of: MessageId = ""
    """Id of a stored message: what is not given here is as it is there."""


class Receipt(View, kw_only=True):
    """Where a message was stored."""

    id: str
    offset_id: str
    broker: str
    queue: int
    offset: int


class Sent(Result, kw_only=True):
    receipt: Receipt


@changes("POST", "/topics/{topic}/messages", Role.OPERATOR, "/topics/{topic}/send", max_bytes=MAX_SEND_BYTES)
async def send_message(visit: Visit, wanted: SendMessage) -> Sent:
    """Send a message, or a copy of one; the receipt names its ids and its place."""
    visit.desk.limits.count_send(visit.person.name)
    original = await _original(visit, wanted.topic, wanted.copy_of)
    message = _message(visit, wanted, original)
    await visit.admin.route(wanted.topic)  # a typing error must not create a topic
    async with Producer(visit.admin.namesrv, group=PRODUCER_GROUP, options=visit.admin.client_options) as producer:
        stored = await producer.send(message)
    receipt = Receipt(
        id=stored.message_id, offset_id=stored.offset_id, broker=stored.queue.broker_name, queue=stored.queue.queue_id,
        offset=stored.queue_offset,
    )  # fmt: skip
    waits = message.delay is not None or message.deliver_at is not None or message.delay_level
    item = Item(
        where=f"{receipt.broker}:{receipt.queue} @ {receipt.offset} · {receipt.id}", ok=True,
        link="/delayed" if waits else f"/messages/{receipt.id}?topic={wanted.topic}",
    )  # fmt: skip
    return Sent(
        title="message_waits" if waits else "message_sent", about=wanted.topic, items=[item],
        back=f"/topics/{wanted.topic}/send", receipt=receipt,
    )  # fmt: skip


async def _original(visit: Visit, topic: str, message_id: str) -> Message | None:
    """What is to be copied, as it would be sent; a Problem when a part of it is masked."""
    if not message_id:
        return None
    one = await the_message(visit, message_id, topic)
    if visit.desk.masks.apply(one):
        raise Problem(422, "masked_copy", message_id)
    return copy_of(one, topic)


def _message(visit: Visit, wanted: SendMessage, original: Message | None) -> Message:
    body = _body(visit, wanted, original)
    if len(body) > MAX_BODY_BYTES:
        raise field_problem("body", visit.look.t("send.too_large"))
    deliver_ms = moment_ms(wanted.deliver_at, visit.look, visit.now_ms, "deliverAt")
    if sum((wanted.delay_s is not None, deliver_ms is not None, wanted.delay_level > 0)) > 1:
        raise field_problem("delayS", visit.look.t("send.one_delay"))
    if original is not None and not visit.is_page:
        wanted.tag = wanted.tag or original.tag or ""
        wanted.keys = wanted.keys or " ".join(original.keys)
        wanted.sharding_key = wanted.sharding_key or original.properties.get(SHARDING_KEY, "")
    properties = _properties(visit, wanted, original)
    properties.pop(SHARDING_KEY, None)
    return Message(
        wanted.topic,
        body,
        tag=wanted.tag or None,
        keys=wanted.keys.split(),
        properties=properties,
        flag=original.flag if original is not None else 0,
        sharding_key=wanted.sharding_key or None,
        delay=timedelta(seconds=wanted.delay_s) if wanted.delay_s else None,
        deliver_at=datetime.fromtimestamp(deliver_ms / 1000, UTC) if deliver_ms is not None else None,
        delay_level=wanted.delay_level,
    )


def _body(visit: Visit, wanted: SendMessage, original: Message | None) -> bytes:
    if wanted.body_hex:
        try:
            given = bytes.fromhex(wanted.body_hex)
        except ValueError as error:
            raise field_problem("bodyHex", str(error)) from None
        if wanted.body is not None:
            raise field_problem("bodyHex", visit.look.t("send.one_body"))
        return given
    if original is not None and _is_unedited(visit, wanted.body, _text(original)):
        return bytes(original.body)
    text = wanted.body or ""
    return (_unified(text) if visit.is_page else text).encode("utf-8", "surrogatepass")


def _properties(visit: Visit, wanted: SendMessage, original: Message | None) -> dict[str, str]:
    if isinstance(wanted.properties, dict):
        return wanted.properties
    kept: dict[str, str] = {}
    if original is not None:
        in_lines, kept = _in_lines(original)
        if _is_unedited(visit, wanted.properties, in_lines):
            return dict(original.properties)
    found = {}
    for line in filter(None, (line.strip() for line in _unified(wanted.properties or "").split("\n"))):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise field_problem("properties", visit.look.t("send.property_line", line=line[:60]))
        found[name.strip()] = value.strip()
    return kept | found


def _is_unedited(visit: Visit, given: str | None, shown: str | None) -> bool:
    """Whether a field of a copy is as the original filled it. A form has no field for what cannot be `shown`."""
    if not visit.is_page:
        return given is None
    return shown is None or _unified(given or "") == _unified(shown)


def _unified(text: str) -> str:
    """With line breaks as a form has them once it was sent."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _text(message: Message) -> str | None:
    text, is_text = body_text(message.body)
    return text if is_text else None


def _in_lines(message: Message) -> tuple[str, dict[str, str]]:
    """(properties as lines of a form, those that no line can hold)."""
    own = {name: value for name, value in message.properties.items() if name != SHARDING_KEY}
    kept = {
        name: value
        for name, value in own.items()
        if "=" in name or _unified(name + value).count("\n") or name != name.strip() or value != value.strip()
    }
    return "\n".join(f"{name}={value}" for name, value in own.items() if name not in kept), kept
