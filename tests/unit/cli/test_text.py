"""One line per message, whatever is in it."""

from __future__ import annotations

import base64
import json

import pytest

from rocketline.cli.messages.text import message_json, message_line, receipt_json, receipt_line
from rocketline.client.producer.receipts import SendReceipt, SendStatus
from rocketline.message import LogOffset, MessageQueue, MessageView, QueueOffset


def view(body: bytes, **properties: str) -> MessageView:
    return MessageView(
        topic="orders",
        body=body,
        properties=properties,
        queue_id=3,
        queue_offset=QueueOffset(12),
        log_offset=LogOffset(0),
        born_ms=1,
        born_host="127.0.0.1:1",
        store_ms=1_700_000_000_123,
        store_host="127.0.0.1:2",
        broker_name="broker-a",
    )


def test_a_line_says_where_and_what() -> None:
    line = message_line(view("grüße".encode(), TAGS="created", KEYS="42 43"))
    assert line.endswith(" orders@broker-a:3#12 tag=created keys=42,43  grüße")
    assert ".123 " in line


def test_a_redelivery_is_marked() -> None:
    message = view(b"x")
    message.reconsume_times = 2
    assert " retry=2  x" in message_line(message)


@pytest.mark.parametrize("body", [b"two\nlines", b"\x1b[31mred", b"bell\x07", b"\xff\xfe", "right\u202eleft".encode()])
def test_nothing_reaches_the_terminal_raw(body: bytes) -> None:
    line = message_line(view(body, TAGS="a\x1bb"))
    assert line.isprintable()
    assert "\\" in line


def test_json_gives_everything_back() -> None:
    fields = json.loads(message_json(view(b"two\nlines", TAGS="t", KEYS="a b", UNIQ_KEY="ID", colour="red")))
    assert fields["body"] == "two\nlines"
    assert (fields["topic"], fields["broker"], fields["queue"], fields["offset"]) == ("orders", "broker-a", 3, 12)
    assert (fields["tag"], fields["keys"], fields["message_id"]) == ("t", ["a", "b"], "ID")
    assert fields["properties"]["colour"] == "red"


def test_json_keeps_bytes_that_are_not_text() -> None:
    fields = json.loads(message_json(view(b"\xff\x00")))
    assert "body" not in fields
    assert base64.b64decode(fields["body_base64"]) == b"\xff\x00"


def test_receipts() -> None:
    queue = MessageQueue("orders", "broker-a", 3)
    receipt = SendReceipt(SendStatus.OK, "UNIQUE", "OFFSET", queue, QueueOffset(7))
    assert receipt_line(receipt) == "SEND_OK orders@broker-a:3#7 UNIQUE"
    assert json.loads(receipt_json(receipt)) == {
        "status": "SEND_OK",
        "topic": "orders",
        "broker": "broker-a",
        "queue": 3,
        "offset": 7,
        "message_id": "UNIQUE",
        "offset_id": "OFFSET",
    }
