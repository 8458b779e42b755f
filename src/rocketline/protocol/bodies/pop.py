"""Bodies of pop mode: many acknowledgements at once, and who reads which queues in which way (200151, 400, 401, 402)."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Iterable

from msgspec import field

from rocketline.errors import RemoteProtocolError
from rocketline.protocol.bodies.json_body import Body, Int32, Int64, QueueBody

PULL = "PULL"
POP = "POP"

MAX_BITS = 1 << 16
"""Offsets of one check point are close together; a longer bit set is invalid."""


class BatchAck(Body):
    """Acknowledged messages of one check point, with the short names that Java writes; it reads the long ones too."""

    consumer_group: str = field(name="c")
    topic: str = field(name="t")
    """The popped topic, also when its messages are on a retry topic, which `retry` says."""
    retry: str = field(name="r")
    start_offset: Int64 = field(name="so")
    queue_id: Int32 = field(name="q")
    revive_queue_id: Int32 = field(name="rq")
    pop_ms: Int64 = field(name="pt")
    invisible_ms: Int64 = field(name="it")
    bits: str = field(name="b")

    @property
    def offsets(self) -> list[int]:
        """The queue offsets that are acknowledged."""
        return [self.start_offset + bit for bit in decode_bits(self.bits)]


class BatchAckMessageRequestBody(Body):
    """200151."""

    broker_name: str
    acks: list[BatchAck] = field(default_factory=list)


class QueryAssignmentRequestBody(Body):
    """400: ask which queues a client reads, and how."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: str = "CLUSTERING"


class MessageQueueAssignment(Body):
    message_queue: QueueBody | None = None
    mode: str = PULL


class QueryAssignmentResponseBody(Body):
    """None: the broker does not know, the client keeps its queues. An empty list: the client has no queues."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class SetMessageRequestModeRequestBody(Body):
    """401: how a group reads a topic from now on."""

    topic: str
    consumer_group: str
    mode: str = PULL
    pop_share_queue_num: Int32 = 0


class MessageRequestModeTable(Body):
    """402: by topic and group."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(default_factory=dict)


def encode_bits(bits: Iterable[int]) -> str:
    """A bit set as Java's BitSet writes it, in base64.

    >>> encode_bits([0, 9])
    'AQI='
    """
    number = 0
    for bit in bits:
        number |= 1 << bit
    return b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little")).decode()


def decode_bits(text: str) -> list[int]:
    """The positions of the bits that are set.

    >>> decode_bits("AQI=")
    [0, 9]
    """
    try:
        data = b64decode(text, validate=True)
    except (BadBase64, ValueError) as error:
        raise RemoteProtocolError(f"the bit set {text[:40]!r} is not base64: {error}") from error
    if len(data) * 8 > MAX_BITS:
        raise RemoteProtocolError(f"a bit set of {len(data)} bytes: at most {MAX_BITS // 8} expected")
    number = int.from_bytes(data, "little")
    return [bit for bit in range(number.bit_length()) if number >> bit & 1]
