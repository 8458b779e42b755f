"""Frames from a template are those of the ordinary encoder, byte for byte."""

from __future__ import annotations

import pytest

from rocketline.client.producer import send_headers
from rocketline.client.producer.outgoing import RequestMaker
from rocketline.client.producer.send_options import SendOptions
from rocketline.message import Message, MessageQueue
from rocketline.protocol.connection import frame_bytes

ID = "7F0000010000000000000000000000AA"
OPTIONS = SendOptions(topic_queue_count=8, unit_mode=True)


def maker() -> RequestMaker:
    return RequestMaker("%RETRY%g|1", OPTIONS, lambda _: ID, lambda: 1_700_000_000_123)


def both(message: Message, queue: MessageQueue, maker: RequestMaker, opaque: int = 7) -> tuple[bytes, bytes]:
    outgoing = maker.make(message)
    assert outgoing.is_plain
    framed = outgoing.frame(queue, opaque)
    command = outgoing.command(queue)
    command.opaque = opaque
    return framed, frame_bytes(command)


@pytest.mark.parametrize("broker", ["broker-a", 'room"g":"0"@b', '"i":"?"', "100%d %b", 'ä\\"opaque":0', "\x01\u2028"])
@pytest.mark.parametrize("topic", ["T", "%RETRY%g|1", "%d"])
def test_the_same_bytes(broker: str, topic: str) -> None:
    making, queue = maker(), MessageQueue(topic, broker, 12)
    messages = [
        Message(topic, b"x"),
        Message(topic, b"\x00" * 300, tag='t"%d', keys=["k1", "\\n"], wait_stored=False),
        Message(topic, b"%d", tag="\x7f\t/'"),
        Message(topic, b"x", properties={"ключ": '"%b', "\u2028": "🚀"}, delay_level=3, sharding_key="k"),
    ]
    for opaque, message in enumerate(messages, (1 << 31) - 3):
        made, ordinary = both(message, queue, making, opaque)
        assert made == ordinary


def test_many_queues_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_headers, "MAX_TEMPLATES", 3)
    making = maker()
    for queue_id in [*range(10), 0]:
        made, ordinary = both(Message("T", b"x"), MessageQueue("T", "b", queue_id), making)
        assert made == ordinary
        assert len(making.headers._templates) <= 3
