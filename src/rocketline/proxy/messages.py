"""Messages as gRPC clients have them, and as brokers store them; both ways."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import md5
from typing import Any, NamedTuple

from rocketline._impl import compiled_only
from rocketline.broker.grpc_config import GrpcConfig
from rocketline.message import (
    DELAY,
    KEYS,
    SHARDING_KEY,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    MessageView,
)
from rocketline.protocol.numbers import MAX_INT64, read_number
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.record_layout import COMPRESSED, TRANSACTION_PREPARED
from rocketline.protocol.transactions import CHECK_IMMUNITY_S, PGROUP, TRAN_MSG, is_half
from rocketline.proxy.proto import DigestType, Encoding, MessageType, pb
from rocketline.proxy.validation import RESERVED, has_control

BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
RECONSUME_TIME = "RECONSUME_TIME"
TRACE_CONTEXT = "TRACE_CONTEXT"
PRIORITY = "_SYS_MSG_PRIORITY_"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
_DELAYS = (DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS)

NORMAL, FIFO, DELAYED, TRANSACTION, PRIORITIZED = "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY"


class Outgoing(NamedTuple):
    """A message on its way to a broker."""

    message_id: str
    kind: str
    """What it is by its properties: NORMAL, FIFO, DELAY, TRANSACTION or PRIORITY."""
    group: str | None
    priority: int
    properties: str
    sys_flag: int
    born_ms: int
    body: bytes


class PlainSend(NamedTuple):
    """A request to send one message that asks for nothing special, as `to_broker` makes it of a checked one."""

    topic: str
    message_id: str
    group: str | None
    properties: str
    born_ms: int
    body: bytes

    @property
    def outgoing(self) -> Outgoing:
        kind = NORMAL if self.group is None else FIFO
        return Outgoing(self.message_id, kind, self.group, -1, self.properties, 0, self.born_ms, self.body)


_read_plain_send = compiled_only("read_plain_send")


def send_reader(config: GrpcConfig) -> Callable[[bytes], Any]:
    """Reads a SendMessageRequest; of one that is plain and breaks no limit compiled code makes a PlainSend."""
    parse: Callable[[bytes], Any] = pb.SendMessageRequest.FromString
    if _read_plain_send is None:
        return parse
    limits = config.max_body_bytes, config.max_property_bytes, config.max_group_bytes - 1

    def read(data: bytes) -> Any:
        return _read_plain_send(data, PlainSend, *limits) or parse(data)

    return read


def to_broker(message: Any, topic: str, peer: str, now_ms: int) -> Outgoing:
    """A checked message of a client as it is sent to a broker; `peer` is the client's address. One without a time was born
    now: a broker takes no outcome of a transaction that is as old as time."""
    system = message.system_properties
    properties: dict[str, str] = {}
    if message.user_properties:
        properties.update(message.user_properties)
    kind, sys_flag, group, priority = NORMAL, 0, None, -1
    if system.tag:
        properties[TAGS] = system.tag
    if system.keys:
        properties[KEYS] = " ".join(system.keys)
    properties[UNIQ_KEY] = system.message_id
    if system.body_encoding == Encoding.GZIP:
        sys_flag |= COMPRESSED
    if system.HasField("priority"):
        priority = system.priority
        properties[PRIORITY] = str(priority)
        kind = PRIORITIZED
    if system.HasField("message_group"):
        group = properties[SHARDING_KEY] = system.message_group
        kind = FIFO
    if system.HasField("delivery_timestamp"):
        properties[TIMER_DELIVER_MS] = str(max(0, _to_ms(system.delivery_timestamp)))
        kind = DELAYED
    if system.message_type == MessageType.TRANSACTION:
        properties[TRAN_MSG] = "true"
        sys_flag |= TRANSACTION_PREPARED
        kind = TRANSACTION
        if system.HasField("orphaned_transaction_recovery_duration"):
            properties[CHECK_IMMUNITY_S] = str(system.orphaned_transaction_recovery_duration.seconds)
    born_ms = _to_ms(system.born_timestamp) or now_ms
    if not 0 < born_ms <= MAX_INT64:
        born_ms = now_ms
    born_host = system.born_host
    properties[BORN_HOST] = peer if not born_host.strip() or has_control(born_host) else born_host
    properties[BORN_TIMESTAMP] = str(born_ms)
    properties[RECONSUME_TIME] = str(system.delivery_attempt)
    if system.HasField("trace_context"):
        properties[TRACE_CONTEXT] = system.trace_context
    properties[PGROUP] = topic
    text = encode_properties(properties)
    return Outgoing(system.message_id, kind, group, priority, text, sys_flag, born_ms, message.body)


def to_client(message: MessageView, topic: Any, *, receipt_handle: str = "") -> Any:
    """A stored message as a client gets it; `topic` is the resource to name."""
    found = pb.Message()
    fill(found, message, topic, receipt_handle)
    return found


def fill(found: Any, message: MessageView, topic: Any, receipt_handle: str = "") -> None:
    """Fill in the message of an answer: a copy of a ready one would copy its body once more."""
    properties = message.properties
    found.body = message.body
    found.topic.CopyFrom(topic)
    _add_user_properties(found.user_properties, properties)
    system = found.system_properties
    system.message_id = message.message_id
    system.body_digest.type = DigestType.MD5
    system.body_digest.checksum = md5(message.body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = Encoding.GZIP if message.sys_flag & COMPRESSED else Encoding.IDENTITY
    system.message_type = message_type(properties)
    _set_time(system.born_timestamp, message.born_ms)
    system.born_host = properties.get(BORN_HOST) or message.born_host
    _set_time(system.store_timestamp, message.store_ms)
    system.store_host = message.store_host
    system.queue_id = message.queue_id
    system.queue_offset = message.queue_offset
    system.delivery_attempt = message.reconsume_times + 1
    if receipt_handle:
        system.receipt_handle = receipt_handle
    _add_optional(system, properties)


def _add_user_properties(found: Any, properties: dict[str, str]) -> None:
    for name, value in properties.items():
        if name not in RESERVED:
            found[name] = value


def _add_optional(system: Any, properties: dict[str, str]) -> None:
    if tag := properties.get(TAGS):
        system.tag = tag
    if keys := properties.get(KEYS):
        system.keys.extend(keys.split())
    if (deliver_ms := read_number(properties.get(TIMER_DELIVER_MS))) is not None:
        _set_time(system.delivery_timestamp, deliver_ms)
    if (group := properties.get(SHARDING_KEY)) is not None:
        system.message_group = group
    if (context := properties.get(TRACE_CONTEXT)) is not None:
        system.trace_context = context
    if (priority := read_number(properties.get(PRIORITY), highest=(1 << 31) - 1)) is not None:
        system.priority = priority
    origin, origin_id = properties.get(DLQ_ORIGIN_TOPIC), properties.get(DLQ_ORIGIN_MESSAGE_ID)
    if origin and origin_id:
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = origin_id


def message_type(properties: dict[str, str]) -> int:
    """The type of a stored message, by its properties alone."""
    if is_half(properties):
        return int(MessageType.TRANSACTION)
    if any(name in properties for name in _DELAYS):
        return int(MessageType.DELAY)
    return int(MessageType.FIFO if SHARDING_KEY in properties else MessageType.NORMAL)


def _to_ms(timestamp: Any) -> int:
    return int(timestamp.seconds * 1000 + timestamp.nanos // 1_000_000)


def duration_ms(duration: Any) -> int:
    """Milliseconds of a duration."""
    return int(duration.seconds * 1000 + duration.nanos // 1_000_000)


def _set_time(timestamp: Any, ms: int) -> None:
    timestamp.seconds = ms // 1000
    timestamp.nanos = ms % 1000 * 1_000_000
