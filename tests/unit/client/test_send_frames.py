"""Frames from a template are those of the ordinary encoder, byte for byte."""

from __future__ import annotations

import pytest

from rocketline.client.producer import send_frames
from rocketline.client.producer.outgoing import SendOptions, outgoing_message, tag_and_keys
from rocketline.client.producer.send_frames import SendFrames
from rocketline.client.producer.sender import send_command
from rocketline.message import Message, MessageQueue
from rocketline.protocol.connection import frame_bytes

ID = "7F0000010000000000000000000000AA"
OPTIONS = SendOptions(topic_queue_count=8, unit_mode=True)


def both(message: Message, queue: MessageQueue, frames: SendFrames, opaque: int = 7) -> tuple[bytes, bytes]:
    properties = tag_and_keys(message, ID)
    assert properties is not None
    made = frames.frame(queue, opaque, 1_700_000_000_123, properties, message.body)
    outgoing = outgoing_message(message, "%RETRY%g|1", ID, 1_700_000_000_123, OPTIONS, message.body, 0)
    command = send_command(outgoing, queue)
    command.opaque = opaque
    return made, frame_bytes(command)


@pytest.mark.parametrize("broker", ["broker-a", 'room"g":"0"@b', '"i":"?"', "100%d %b", 'ä\\"opaque":0', "\x01\u2028"])
@pytest.mark.parametrize("topic", ["T", "%RETRY%g|1", "%d"])
def test_the_same_bytes(broker: str, topic: str) -> None:
    frames, queue = SendFrames("%RETRY%g|1", OPTIONS), MessageQueue(topic, broker, 12)
    messages = [
        Message(topic, b"x"),
        Message(topic, b"\x00" * 300, tag='t"%d', keys=["k1", "\\n"], wait_stored=False),
        Message(topic, b"%d", tag="\x7f\t/'"),
    ]
    for opaque, message in enumerate(messages, (1 << 31) - 3):
        made, ordinary = both(message, queue, frames, opaque)
        assert made == ordinary


def test_many_queues_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_frames, "MAX_TEMPLATES", 3)
    frames = SendFrames("%RETRY%g|1", OPTIONS)
    for queue_id in [*range(10), 0]:
        made, ordinary = both(Message("T", b"x"), MessageQueue("T", "b", queue_id), frames)
        assert made == ordinary
        assert len(frames._templates) <= 3
