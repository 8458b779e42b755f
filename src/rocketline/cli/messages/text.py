"""Messages and receipts as one line of text or JSON.

Control characters are shown as escapes, so that a body from the network can neither break the line nor move the cursor of a
terminal.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rocketline.errors import ConfigError

if TYPE_CHECKING:
    from rocketline.client.producer.receipts import SendReceipt
    from rocketline.message import MessageView


def printable(text: str) -> str:
    r"""The text, with characters that are not printable as escapes.

    >>> printable("a\x1b[31mb\n")
    'a\\x1b[31mb\\n'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def body_text(body: bytes) -> str:
    r"""A body on one line, with bytes that are not UTF-8 as escapes.

    >>> body_text(b"gr\xc3\xbc\xc3\x9fe\xff")
    'grüße\\xff'
    """
    return printable(body.decode("utf-8", "backslashreplace"))


def message_line(message: MessageView) -> str:
    """Store time, queue and offset, tag, keys and retries if any, and the body."""
    parts = [store_time(message), f"{message.queue}#{message.queue_offset}"]
    if message.tag:
        parts.append(f"tag={printable(message.tag)}")
    if message.keys:
        parts.append(f"keys={printable(','.join(message.keys))}")
    if message.reconsume_times:
        parts.append(f"retry={message.reconsume_times}")
    return f"{' '.join(parts)}  {body_text(message.body)}"


MESSAGE_COLUMNS = (
    "topic", "broker", "queue", "offset", "message_id", "tag", "keys", "properties", "born_ms", "store_ms",
    "reconsume_times", "body", "body_base64",
)  # fmt: skip
RECEIPT_COLUMNS = ("status", "topic", "broker", "queue", "offset", "message_id", "offset_id")


def message_record(message: MessageView) -> dict[str, Any]:
    """A message for JSON; the body as text, or as base64 when it is not UTF-8."""
    fields: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "born_ms": message.born_ms,
        "store_ms": message.store_ms,
        "reconsume_times": message.reconsume_times,
    }
    try:
        fields["body"] = message.body.decode("utf-8")
    except UnicodeDecodeError:
        fields["body_base64"] = b64encode(message.body).decode("ascii")
    return fields


TEMPLATE_FIELDS = (*MESSAGE_COLUMNS[:-1], "time")
_TEMPLATE = re.compile(r"\\(.)|\{\{|\}\}|\{([^{}]*)\}|[{}]")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}
_PROPERTY = "properties."


def message_template(text: str) -> Callable[[MessageView], str]:
    r"""A function that fills `{topic}`, `{body}` and other fields in; ConfigError for no field, or one that does not exist.

    `{properties.NAME}` is one property, `{time}` the store time, `\n` and `\t` are a line end and a tab, `{{` is a brace.
    """
    names = 0
    for found in _TEMPLATE.finditer(text):
        name = found[2]
        if found[0] in ("{", "}") or (name is not None and not _is_field(name)):
            raise ConfigError(
                f"{found[0]!r} in {text!r}: fields are {', '.join(TEMPLATE_FIELDS)} and {_PROPERTY}NAME; "
                "{{ and }} stand for braces"
            )
        names += name is not None
    if not names:
        raise ConfigError(
            f"{text!r} names no field, as '{{offset}} {{body}}' does; for JSON and CSV there is --output json"
        )
    return lambda message: _TEMPLATE.sub(lambda found: _filled(found, message), text)


def _is_field(name: str) -> bool:
    return name in TEMPLATE_FIELDS or (len(name) > len(_PROPERTY) and name.startswith(_PROPERTY))


def _filled(found: re.Match[str], message: MessageView) -> str:
    escaped, name = found[1], found[2]
    if escaped is not None:
        return _ESCAPES.get(escaped, found[0])
    if name is None:
        return found[0][0]
    if name == "time":
        return store_time(message)
    if name == "body":
        return body_text(message.body)
    if name.startswith(_PROPERTY):
        return printable(message.properties.get(name.removeprefix(_PROPERTY), ""))
    value = message_record(message)[name]
    if isinstance(value, list):
        return printable(",".join(value))
    return printable("" if value is None else json.dumps(value) if isinstance(value, dict) else str(value))


def store_time(message: MessageView) -> str:
    return datetime.fromtimestamp(message.store_ms / 1000).isoformat(" ", "milliseconds")


def receipt_line(receipt: SendReceipt) -> str:
    return f"{receipt.status.value} {receipt.queue}#{receipt.queue_offset} {receipt.message_id}"


def receipt_record(receipt: SendReceipt) -> dict[str, Any]:
    return {
        "status": receipt.status.value,
        "topic": receipt.queue.topic,
        "broker": receipt.queue.broker_name,
        "queue": receipt.queue.queue_id,
        "offset": receipt.queue_offset,
        "message_id": receipt.message_id,
        "offset_id": receipt.offset_id,
    }
