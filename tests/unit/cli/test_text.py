"""One line per message, whatever is in it."""

from __future__ import annotations

import base64

import pytest

from rocketline.cli.messages.text import message_line, message_record, message_template, receipt_line, receipt_record
from rocketline.client.producer.receipts import SendReceipt, SendStatus
from rocketline.errors import ConfigError
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
    fields = message_record(view(b"two\nlines", TAGS="t", KEYS="a b", UNIQ_KEY="ID", colour="red"))
    assert fields["body"] == "two\nlines"
    assert (fields["topic"], fields["broker"], fields["queue"], fields["offset"]) == ("orders", "broker-a", 3, 12)
    assert (fields["tag"], fields["keys"], fields["message_id"]) == ("t", ["a", "b"], "ID")
    assert fields["properties"]["colour"] == "red"


def test_json_keeps_bytes_that_are_not_text() -> None:
    fields = message_record(view(b"\xff\x00"))
    assert "body" not in fields
    assert base64.b64decode(fields["body_base64"]) == b"\xff\x00"


def test_receipts() -> None:
    queue = MessageQueue("orders", "broker-a", 3)
    receipt = SendReceipt(SendStatus.OK, "UNIQUE", "OFFSET", queue, QueueOffset(7))
    assert receipt_line(receipt) == "SEND_OK orders@broker-a:3#7 UNIQUE"
    assert receipt_record(receipt) == {
        "status": "SEND_OK",
        "topic": "orders",
        "broker": "broker-a",
        "queue": 3,
        "offset": 7,
        "message_id": "UNIQUE",
        "offset_id": "OFFSET",
    }


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{queue}#{offset} {body}", "3#12 two\\nlines"),
        (r"{tag}\t{keys}\n", "t\ta,b\n"),
        ("{properties.colour}{properties.none}", "red"),
        ("{{{topic}}}", "{orders}"),
    ],
)
def test_a_template_is_filled_in(template: str, line: str) -> None:
    message = view(b"two\nlines", TAGS="t", KEYS="a b", UNIQ_KEY="ID", colour="red")
    assert message_template(template)(message) == line


@pytest.mark.parametrize("template", ["{nothing}", "{body", "}", "{}", "{body.__class__}", "{properties.}"])
def test_a_template_with_an_unknown_field_is_refused(template: str) -> None:
    with pytest.raises(ConfigError, match="fields are topic, broker"):
        message_template(template)


@pytest.mark.parametrize("template", ["json", "", "%s", "{{body}}"])
def test_a_template_without_any_field_would_show_each_message_alike(template: str) -> None:
    with pytest.raises(ConfigError, match=r"names no field.*--output json"):
        message_template(template)
