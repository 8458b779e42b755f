"""What the revive log holds, as JSON in Apache's shapes: check points, acknowledgements, and several of those at once.

Names are short because there is a record for nearly every message that is popped. A check point says which offsets were
handed out as differences from the first; without them message i lies at start + i. Bit i of its bit map is set when
message i is acknowledged; Java keeps that map in 32 signed bits.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType, field

from rocketline.errors import ProtocolError, RemoteProtocolError
from rocketline.protocol.bodies.json_body import Body, Int32, Int64, decode_body

CHECKPOINT_TAG = "ck"
ACK_TAG = "ack"
BATCH_ACK_TAG = "bAck"

MAX_COUNT = 127
_BITS = 0xFFFFFFFF
_SIGN = 1 << 31

_encode = msgspec.json.Encoder().encode


class PopKey(NamedTuple):
    """What check points and their acknowledgements are matched by."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_ms: int
    broker_name: str


class PopCheckpoint(Body, gc=False):
    """Messages of one queue handed out by one pop; members in Java's order."""

    bm: Int32
    broker_name: str = field(name="bn")
    group: str = field(name="c")
    differences: list[Int32] | UnsetType = field(name="d", default=UNSET)
    invisible_ms: Int64 = field(name="it", default=0)
    count: Int32 = field(name="n", default=0)
    pop_ms: Int64 = field(name="pt", default=0)
    queue_id: Int32 = field(name="q", default=0)
    java_revive_ms: Int64 = field(name="reviveTime", default=0)
    revive_offset: Int64 = field(name="ro", default=0)
    put_again: str | UnsetType = field(name="rp", default=UNSET)
    start_offset: Int64 = field(name="so", default=0)
    topic: str = field(name="t", default="")

    @property
    def revive_ms(self) -> int:
        """When the invisible time ends."""
        return self.pop_ms + self.invisible_ms

    @property
    def key(self) -> PopKey:
        return PopKey(self.topic, self.group, self.queue_id, self.start_offset, self.pop_ms, self.broker_name)

    @property
    def offsets(self) -> list[int]:
        """Queue offsets of its messages."""
        start, differences = self.start_offset, self.differences
        if not differences:
            return list(range(start, start + self.count))
        return [start + difference for difference in differences]

    @property
    def acked(self) -> int:
        """Its bit map, without Java's sign."""
        return self.bm & _BITS

    def bit_of(self, queue_offset: int) -> int:
        """The bit of a message in the bit map; 0 when it is not one of these."""
        difference = queue_offset - self.start_offset
        if not self.differences:
            return 1 << difference if 0 <= difference < self.count else 0
        try:
            return 1 << self.differences.index(difference)
        except ValueError:
            return 0

    def encode(self, acked: int = 0) -> bytes:
        bits = acked & _BITS
        self.bm = bits - (1 << 32) if bits & _SIGN else bits
        return _encode(self)

    @property
    def unique_id(self) -> str:
        return (
            f"{self.topic}@{self.queue_id}@{self.start_offset}@{self.group}@{self.pop_ms}@{self.broker_name}"
            f"@{CHECKPOINT_TAG}"
        )


def new_checkpoint(
    group: str, topic: str, queue_id: int, offsets: list[int], pop_ms: int, invisible_ms: int, broker_name: str
) -> PopCheckpoint:
    start = offsets[0]
    return PopCheckpoint(
        bm=0,
        broker_name=broker_name,
        group=group,
        differences=[offset - start for offset in offsets],
        invisible_ms=invisible_ms,
        count=len(offsets),
        pop_ms=pop_ms,
        queue_id=queue_id,
        java_revive_ms=pop_ms + invisible_ms,
        start_offset=start,
        topic=topic,
    )


class PopAck(Body, gc=False):
    """Acknowledged messages of one check point: one, or a list."""

    queue_offset: Int64 = field(name="ao", default=-1)
    several: list[Int64] | UnsetType = field(name="aol", default=UNSET)
    broker_name: str = field(name="bn", default="")
    group: str = field(name="c", default="")
    pop_ms: Int64 = field(name="pt", default=0)
    queue_id: Int32 = field(name="q", default=0)
    start_offset: Int64 = field(name="so", default=0)
    topic: str = field(name="t", default="")

    @property
    def key(self) -> PopKey:
        return PopKey(self.topic, self.group, self.queue_id, self.start_offset, self.pop_ms, self.broker_name)

    @property
    def offsets(self) -> list[int]:
        return self.several if isinstance(self.several, list) else [self.queue_offset]

    @property
    def tag(self) -> str:
        return BATCH_ACK_TAG if isinstance(self.several, list) else ACK_TAG

    @property
    def unique_id(self) -> str:
        # Apache's brokers also write "ack" at the end of a batch's id.
        return (
            f"{self.topic}@{self.queue_id}@{self.queue_offset}@{self.group}@{self.pop_ms}@{self.broker_name}@{ACK_TAG}"
        )

    def encode(self) -> bytes:
        return _encode(self)


class _LongAck(Body):
    """The same as older brokers wrote it."""

    ack_offset: Int64
    start_offset: Int64
    consumer_group: str
    topic: str
    queue_id: Int32
    pop_time: Int64
    broker_name: str = ""
    ack_offset_list: list[Int64] | UnsetType = UNSET


def new_ack(key: PopKey, offsets: list[int], *, batch: bool = False) -> PopAck:
    return PopAck(
        queue_offset=-1 if batch else offsets[0],
        several=offsets if batch else UNSET,
        broker_name=key.broker_name,
        group=key.group,
        pop_ms=key.pop_ms,
        queue_id=key.queue_id,
        start_offset=key.start_offset,
        topic=key.topic,
    )


def decode_checkpoint(body: bytes) -> PopCheckpoint:
    """RemoteProtocolError for what is none, or what speaks of more messages than a pop can give."""
    checkpoint = decode_body(PopCheckpoint, body)
    differences = checkpoint.differences or []
    if not (checkpoint.topic and checkpoint.group and 0 <= checkpoint.count <= MAX_COUNT and checkpoint.queue_id >= 0):
        raise RemoteProtocolError(f"check point without topic or group, or of {checkpoint.count} messages")
    if len(differences) > MAX_COUNT or checkpoint.start_offset < 0 or min(differences, default=0) < 0:
        raise RemoteProtocolError(f"check point whose offsets cannot be: {checkpoint.start_offset}, {differences}")
    return checkpoint


def decode_ack(body: bytes) -> PopAck:
    """RemoteProtocolError for what is none."""
    ack = decode_body(PopAck, body)
    if not ack.topic or not ack.group:
        old = decode_body(_LongAck, body)
        return PopAck(
            old.ack_offset,
            old.ack_offset_list,
            old.broker_name,
            old.consumer_group,
            old.pop_time,
            old.queue_id,
            old.start_offset,
            old.topic,
        )
    return ack


def decode_either(tag: str | None, body: bytes) -> PopCheckpoint | PopAck | None:
    """A record of the revive log by its tag; None for what is no such record."""
    try:
        if tag == CHECKPOINT_TAG:
            return decode_checkpoint(body)
        if tag in (ACK_TAG, BATCH_ACK_TAG):
            return decode_ack(body)
    except ProtocolError:
        return None
    return None
