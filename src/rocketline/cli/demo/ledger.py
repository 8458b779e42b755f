"""The ledger of a journey: which messages were sent, where they were stored, and how often they arrived.

Messages are numbered. The body of each contains a random id of the journey, so a message that was changed, or that nobody
sent, is noticed when it arrives.
"""

from __future__ import annotations

import secrets
from array import array
from struct import Struct

from rocketline.message import MessageQueue

_HEAD = Struct(">8sQ")
MIN_BODY_BYTES = _HEAD.size

_FILLERS = tuple(bytes([value]) for value in range(256))


class Ledger:
    """Sends, acknowledgements and arrivals of the messages of one journey."""

    def __init__(self, messages: int, body_bytes: int = 128) -> None:
        self.messages = messages
        self.sent = 0
        self.acknowledged = 0
        self.consumed = 0
        """Different messages consumed; each counts once."""
        self.duplicates = 0
        self.retried = 0
        self.invented = 0
        self._filler_bytes = max(body_bytes, MIN_BODY_BYTES) - MIN_BODY_BYTES
        self._run = secrets.token_bytes(8)
        self._places: list[tuple[MessageQueue, int] | None] = [None] * messages
        self._sent = bytearray(messages)
        self._arrivals = array("L", bytes(array("L").itemsize * messages))

    def body(self, number: int) -> bytes:
        """The one body of a message."""
        return _HEAD.pack(self._run, number) + _FILLERS[number & 0xFF] * self._filler_bytes

    def number_of(self, body: bytes) -> int | None:
        """The number of the message with this body; None when it was changed or is not of this journey."""
        if len(body) < MIN_BODY_BYTES:
            return None
        run, number = _HEAD.unpack_from(body)
        known = run == self._run and number < self.messages and self._sent[number]
        return number if known and body == self.body(number) else None

    def send(self, number: int) -> bytes:
        """Record that a message is sent; returns its body."""
        self._sent[number] = 1
        self.sent += 1
        return self.body(number)

    def acknowledge(self, number: int, queue: MessageQueue, queue_offset: int) -> None:
        if self._places[number] is None:
            self.acknowledged += 1
        self._places[number] = (queue, queue_offset)

    def arrive(self, body: bytes) -> int | None:
        """Record that a message was consumed; returns its number, or None for one that nobody sent."""
        number = self.number_of(body)
        if number is None:
            self.invented += 1
            return None
        if self._arrivals[number]:
            self.duplicates += 1
        else:
            self.consumed += 1
        self._arrivals[number] += 1
        return number

    def place_of(self, number: int) -> tuple[MessageQueue, int] | None:
        """(queue, offset) in the acknowledgement; None without one."""
        return self._places[number]

    def lost(self) -> list[int]:
        """Messages that were acknowledged and never arrived."""
        return [number for number, place in enumerate(self._places) if place is not None and not self._arrivals[number]]

    @property
    def all_arrived(self) -> bool:
        """Whether all acknowledged messages arrived; exact once all sends have ended."""
        return self.consumed >= self.acknowledged
