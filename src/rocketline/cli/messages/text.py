"""Messages and receipts as one line of text or JSON.

Control characters are shown as escapes, so that a body from the network can neither break the line nor move the cursor of a
terminal.
"""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import datetime
from typing import TYPE_CHECKING, Any

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
    when = datetime.fromtimestamp(message.store_ms / 1000).isoformat(" ", "milliseconds")
    parts = [when, f"{message.queue}#{message.queue_offset}"]
    if message.tag:
        parts.append(f"tag={printable(message.tag)}")
    if message.keys:
        parts.append(f"keys={printable(','.join(message.keys))}")
    if message.reconsume_times:
        parts.append(f"retry={message.reconsume_times}")
    return f"{' '.join(parts)}  {body_text(message.body)}"


def message_json(message: MessageView) -> str:
    """One JSON object; the body as text, or as base64 when it is not UTF-8."""
    fields: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "tag": message.tag,
        "keys": message.keys,
        "properties": message.properties,
        "born_ms": message.born_ms,
        "store_ms": message.store_ms,
        "reconsume_times": message.reconsume_times,
    }
    try:
        fields["body"] = message.body.decode("utf-8")
    except UnicodeDecodeError:
        fields["body_base64"] = b64encode(message.body).decode("ascii")
    return json.dumps(fields)


def receipt_line(receipt: SendReceipt) -> str:
    return f"{receipt.status.value} {receipt.queue}#{receipt.queue_offset} {receipt.message_id}"


def receipt_json(receipt: SendReceipt) -> str:
    return json.dumps(
        {
            "status": receipt.status.value,
            "topic": receipt.queue.topic,
            "broker": receipt.queue.broker_name,
            "queue": receipt.queue.queue_id,
            "offset": receipt.queue_offset,
            "message_id": receipt.message_id,
            "offset_id": receipt.offset_id,
        }
    )
