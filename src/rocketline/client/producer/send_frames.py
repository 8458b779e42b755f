"""Frames of plain sends, made from a template: what all messages to a queue have in common is encoded once.

The template is cut out of what the ordinary encoder writes, so both give the same bytes.
"""

from __future__ import annotations

import struct

import msgspec

from rocketline.client.producer.outgoing import SendOptions, send_fields
from rocketline.message import MessageQueue
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.header_codec import encode_header

MAX_TEMPLATES = 4096
"""More queues than that, and all are made anew: a producer that goes through many topics must not keep them all."""

_PREFIX = struct.Struct(">II")
_text = msgspec.json.Encoder().encode
_TIME, _PROPERTIES, _OPAQUE = b'"g":"0"', b'"i":"?"', b'"opaque":0'
"""Members of a header as they are in a template. A quote inside a value is escaped, so no value looks like one."""


class SendFrames:
    """The frames of one producer: messages without flags, with properties that are joined already."""

    def __init__(self, group: str, options: SendOptions) -> None:
        self._group = group
        self._options = options
        self._templates: dict[MessageQueue, bytes] = {}

    def frame(self, queue: MessageQueue, opaque: int, now_ms: int, properties: str, body: bytes) -> bytes:
        """The whole frame of one send."""
        template = self._templates.get(queue) or self._made(queue)
        header = template % (now_ms, _text(properties), opaque)
        size = len(header)
        return b"".join((_PREFIX.pack(4 + size + len(body), size), header, body))

    def _made(self, queue: MessageQueue) -> bytes:
        fields = send_fields(self._group, queue.topic, "?", 0, self._options)
        fields["e"], fields["n"] = str(queue.queue_id), queue.broker_name
        header = encode_header(Command(RequestCode.SEND_MESSAGE_V2, fields)).replace(b"%", b"%%")
        for constant, variable in ((_TIME, b'"g":"%d"'), (_PROPERTIES, b'"i":%b'), (_OPAQUE, b'"opaque":%d')):
            header = header.replace(constant, variable)
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        self._templates[queue] = header
        return header
