"""Recall handles, with which a producer cancels a timer message: URL-safe base64 of five words.

The words are the version `v1`, the topic, the broker's name, the delivery time in milliseconds plus one, and the unique id.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from rocketline.errors import ProtocolError
from rocketline.protocol.numbers import read_number

_VERSION = "v1"


class RecallHandle(NamedTuple):
    """Names one timer message.

    >>> RecallHandle.decode(RecallHandle("orders", "broker-a", 1700000000001, "7F00").encode()).unique_id
    '7F00'
    """

    topic: str
    broker_name: str
    deliver_ms: int
    unique_id: str

    def encode(self) -> str:
        text = f"{_VERSION} {self.topic} {self.broker_name} {self.deliver_ms} {self.unique_id}"
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, handle: str) -> RecallHandle:
        """The handle of a text; ProtocolError when it is none. A time that is no number becomes -1, which brokers refuse."""
        try:
            padded = handle.encode() + b"=" * (-len(handle) % 4)
            words = base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ProtocolError("recall handle is invalid") from error
        if len(words) < 5 or words[0] != _VERSION:
            raise ProtocolError("recall handle is invalid")
        _, topic, broker_name, deliver_ms, unique_id = words[:5]
        number = read_number(deliver_ms)
        return cls(topic, broker_name, -1 if number is None else number, unique_id)
