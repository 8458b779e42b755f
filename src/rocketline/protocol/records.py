"""Stored records: written, read and checked. One layout (`record_layout.py`) in the commit log and in answers to clients."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32 as zlib_crc32

from rocketline._impl import compiled
from rocketline.errors import CorruptRecord, ProtocolError, RemoteProtocolError
from rocketline.message import KEYS, TAGS, UNIQ_KEY, UNREAD, LogOffset, MessageView, QueueOffset
from rocketline.protocol.compression import decompress
from rocketline.protocol.hashing import tag_hash
from rocketline.protocol.message_parts import NO_CHANGES, decode_part, topic_text
from rocketline.protocol.numbers import MAX_INT32
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.record_layout import (
    BODY_AT,
    COMPRESSED,
    HEADS,
    HOSTS_MASK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    SYS_FLAG_AT,
)

Buffer = bytes | bytearray | memoryview

_HEAD_V4 = HEADS[0]
_START = struct.Struct(">ii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_unpack_short = _SHORT.unpack_from

START_BYTES = _START.size

crc32: Callable[[Buffer], int] = compiled(zlib_crc32)


class Record(NamedTuple):
    """The fields of a stored message; body and properties still as they lie in the buffer."""

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: QueueOffset
    log_offset: LogOffset
    sys_flag: int
    born_ms: int
    born_host: bytes
    store_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_log_offset: int
    topic: str
    body: Buffer
    properties: bytes


class LogEntry(NamedTuple):
    """What the indexes need to know of a record: one is made by each append, or read back from the log."""

    log_offset: LogOffset
    size: int
    topic: str
    queue_id: int
    queue_offset: QueueOffset
    tags_code: int
    store_ms: int
    sys_flag: int
    properties: dict[str, str]


def index_keys(properties: Mapping[str, str]) -> list[str]:
    """Keys under which the key index files a message, in Apache's order: its unique id, its keys, its tag."""
    keys = [unique] if (unique := properties.get(UNIQ_KEY)) else []
    if words := properties.get(KEYS):
        keys += words.split()
    if tags := properties.get(TAGS):
        keys.append(f"T#{tags}")
    return keys


def tried_once_more(reconsume_times: int) -> int:
    """The count of attempts after another one. Producers may send any number as the first; a record has 32 signed bits.

    >>> tried_once_more(0), tried_once_more(-5), tried_once_more((1 << 31) - 1)
    (1, 1, 2147483647)
    """
    return min(max(0, reconsume_times) + 1, MAX_INT32)


def topic_part(topic: str) -> tuple[int, bytes]:
    """(magic, length-prefixed topic bytes): v2 only when the length does not fit v1's signed byte."""
    raw = topic.encode()
    if len(raw) <= 127:
        return MAGIC_V1, bytes((len(raw),)) + raw
    return MAGIC_V2, _SHORT.pack(len(raw)) + raw


def record_size(body_bytes: int, topic_bytes: int, properties_bytes: int, sys_flag: int = 0) -> int:
    """Size of a record; `topic_bytes` includes the length prefix."""
    return HEADS[sys_flag & HOSTS_MASK].size + body_bytes + topic_bytes + 2 + properties_bytes


class RecordHead(NamedTuple):
    """Everything of a record but its body and properties, with `magic` and `topic` from `topic_part`.

    Hosts come from `encode_host` and agree with `sys_flag`.
    """

    magic: int
    topic: bytes
    queue_id: int
    queue_offset: int
    log_offset: int
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    store_ms: int
    store_host: bytes
    reconsume_times: int = 0
    prepared_log_offset: int = 0


def record_head(record: Record, topic: str) -> RecordHead:
    """The head of a record as it was read back, under a topic of the caller's choice."""
    magic, topic_bytes = topic_part(topic)
    return RecordHead(
        magic,
        topic_bytes,
        record.queue_id,
        record.queue_offset,
        record.log_offset,
        record.flag,
        record.sys_flag,
        record.born_ms,
        record.born_host,
        record.store_ms,
        record.store_host,
        record.reconsume_times,
        record.prepared_log_offset,
    )


def encode_record(head: RecordHead, body: Buffer, properties: bytes) -> bytes:
    (
        magic, topic, queue_id, queue_offset, log_offset, flag, sys_flag, born_ms, born_host, store_ms, store_host, times,
        prepared,
    ) = head  # fmt: skip
    layout = HEADS[sys_flag & HOSTS_MASK]
    body_bytes = len(body)
    size = layout.size + body_bytes + len(topic) + 2 + len(properties)
    start = layout.pack(
        size, magic, crc32(body) & 0x7FFFFFFF, queue_id, flag, queue_offset, log_offset, sys_flag, born_ms, born_host,
        store_ms, store_host, times, prepared, body_bytes,
    )  # fmt: skip
    return b"".join((start, body, topic, _SHORT.pack(len(properties)), properties))


@compiled
def write_record(view: memoryview, position: int, head: RecordHead, body: Buffer, properties: bytes) -> int:
    """Write one record at its place; returns its size."""
    record = encode_record(head, body, properties)
    size = len(record)
    view[position : position + size] = record
    return size


def encode_blank(size: int) -> bytes:
    """The marker at the end of a log file; what follows it there is undefined."""
    return _START.pack(size, MAGIC_BLANK)


def read_start(buffer: Buffer, position: int) -> tuple[int, int]:
    """(total size, magic) at a position; the caller has made sure that eight bytes are there."""
    return _START.unpack_from(buffer, position)


def decode_record(buffer: Buffer, position: int, limit: int, check_crc: bool = False) -> Record:
    """The record at `position`; CorruptRecord when the bytes up to `limit` hold no valid one."""
    if limit - position < MIN_RECORD_BYTES:
        raise CorruptRecord(f"{limit - position} bytes are too few for a record")
    sys_flag = _INT.unpack_from(buffer, position + SYS_FLAG_AT)[0]
    head = HEADS[sys_flag & HOSTS_MASK]
    if limit - position < head.size + 3:
        raise CorruptRecord(f"{limit - position} bytes are too few for a record")
    (
        size, magic, body_crc, queue_id, flag, queue_offset, log_offset, _, born_ms, born_host, store_ms, store_host,
        reconsume_times, prepared, body_bytes,
    ) = head.unpack_from(buffer, position)  # fmt: skip
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise CorruptRecord(f"magic {magic & 0xFFFFFFFF:#010x} is not a message's")
    end = position + size
    body_at = position + head.size
    topic_at = body_at + body_bytes
    if size < head.size + 3 or end > limit or body_bytes < 0 or topic_at + 3 > end:
        raise CorruptRecord(f"its sizes do not fit: total {size}, body {body_bytes}")
    if magic == MAGIC_V1:
        topic_bytes, topic_at = buffer[topic_at], topic_at + 1
    else:
        topic_bytes, topic_at = _SHORT.unpack_from(buffer, topic_at)[0], topic_at + 2
    properties_at = topic_at + topic_bytes + 2
    if topic_bytes < 0 or properties_at > end:
        raise CorruptRecord(f"its topic length {topic_bytes} does not fit")
    if _SHORT.unpack_from(buffer, properties_at - 2)[0] != end - properties_at:
        raise CorruptRecord("its properties length does not fit")
    body = buffer[body_at : body_at + body_bytes]
    if check_crc and crc32(body) & 0x7FFFFFFF != body_crc:
        raise CorruptRecord("its body does not match its CRC")
    try:
        topic = bytes(buffer[topic_at : topic_at + topic_bytes]).decode()
    except UnicodeDecodeError as error:
        raise CorruptRecord("its topic is not UTF-8") from error
    return _new_record(
        Record,
        (
            size, body_crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_ms, born_host, store_ms, store_host,
            reconsume_times, prepared, topic, body, bytes(buffer[properties_at:end]),
        ),
    )  # fmt: skip


_new_record = tuple.__new__

_CHECKED_V4 = struct.Struct(">iiii4xqqi44xi")


@compiled
def is_sound_record(
    buffer: Buffer, position: int, size: int, log_offset: int, queue_id: int | None = None, queue_offset: int = 0
) -> bool:
    """Whether the `size` bytes at `position` are a record that names this log offset and whose body matches its CRC; and
    with a `queue_id`, that names its place in a queue.

    For every message that is read: it looks at nothing else, and makes no objects.
    """
    if size < MIN_RECORD_BYTES:
        return False
    total, magic, body_crc, own_queue, own_number, own_offset, sys_flag, body_bytes = _CHECKED_V4.unpack_from(
        buffer, position
    )
    if total != size or own_offset != log_offset or (magic != MAGIC_V1 and magic != MAGIC_V2):
        return False
    if queue_id is not None and (own_queue != queue_id or own_number != queue_offset):
        return False
    body_at = position + BODY_AT
    if sys_flag & HOSTS_MASK:
        head_bytes = HEADS[sys_flag & HOSTS_MASK].size
        if size < head_bytes + 3:
            return False
        body_at = position + head_bytes
        body_bytes = _INT.unpack_from(buffer, body_at - 4)[0]
    end, limit = body_at + body_bytes, position + size
    if body_bytes < 0 or end + 4 > limit:
        return False
    # Clients go from record to record by these lengths: a wrong one would cost them the neighbours too.
    properties_at = end + 3 + buffer[end] if magic == MAGIC_V1 else end + 4 + (buffer[end] << 8 | buffer[end + 1])
    if properties_at > limit or properties_at + (buffer[properties_at - 2] << 8 | buffer[properties_at - 1]) != limit:
        return False
    matches: bool = crc32(buffer[body_at:end]) & 0x7FFFFFFF == body_crc
    return matches


_PARTS_V4 = struct.Struct(">7xB28xi44xi")
_V1_END = MAGIC_V1 & 0xFF


def properties_part(record: Buffer) -> str:
    """The encoded properties of a whole record, without decoding anything else: for every message that SQL looks at."""
    try:
        version, sys_flag, body_bytes = _PARTS_V4.unpack_from(record)
        topic_at = BODY_AT + body_bytes
        if sys_flag & HOSTS_MASK:
            body_at = HEADS[sys_flag & HOSTS_MASK].size
            topic_at = body_at + _INT.unpack_from(record, body_at - 4)[0]
        if version == _V1_END:
            return str(record[topic_at + 3 + record[topic_at] :], "utf-8", "replace")
        return str(record[topic_at + 4 + _SHORT.unpack_from(record, topic_at)[0] :], "utf-8", "replace")
    except (struct.error, IndexError) as error:
        raise CorruptRecord("its sizes do not fit") from error


def log_entry(record: Record) -> LogEntry:
    """What the indexes need of a record read back from the log."""
    properties = decode_properties(record.properties.decode("utf-8", "replace"))
    tags = properties.get(TAGS)
    return LogEntry(
        record.log_offset,
        record.size,
        record.topic,
        record.queue_id,
        record.queue_offset,
        tag_hash(tags) if tags else 0,
        record.store_ms,
        record.sys_flag,
        properties,
    )


def decode_message(
    buffer: Buffer,
    position: int,
    limit: int,
    max_body_bytes: int | None = None,
    changes: Mapping[str, str | None] = NO_CHANGES,
    *,
    inflates: bool = True,
) -> MessageView:
    """The record at `position` as a consumer sees it: CRC checked, body inflated up to the cap, unless it is to stay as it
    is. A body that cannot be inflated is its sender's fault and costs no other message: it stays packed, and
    `body_problem` says why. CorruptRecord for everything that leaves in doubt where the record ends or what it holds.

    `changes` are made to its properties: names to set, or with None to take out. Like all that is seldom looked at they
    wait until somebody does; nothing of that can fail any more.
    """
    (
        size, body_crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_ms, born_host, store_ms, store_host,
        reconsume_times, prepared, topic, body, properties,
    ) = _plain_record(buffer, position, limit) or decode_record(buffer, position, limit, check_crc=True)  # fmt: skip
    problem = None
    if sys_flag & COMPRESSED and inflates:
        try:
            body = decompress(bytes(body), sys_flag, max_body_bytes)
            sys_flag &= ~COMPRESSED
        except RemoteProtocolError as error:
            problem = str(error)
    message: Any = _new_message(MessageView)  # the type checker knows only the slots of its fields
    message._record = [decode_part, properties, changes, born_host, store_host, log_offset]
    message._properties = message._born_host = message._store_host = message._offset_id = UNREAD
    message.topic = topic
    message.body = body if body.__class__ is bytes else bytes(body)
    message.queue_id = queue_id
    message.queue_offset = queue_offset
    message.log_offset = log_offset
    message.born_ms = born_ms
    message.store_ms = store_ms
    message.reconsume_times = reconsume_times
    message.flag = flag
    message.sys_flag = sys_flag
    message.body_crc = body_crc
    message.prepared_log_offset = prepared
    message.stored_bytes = size
    message.broker_name = ""
    message.body_problem = problem
    view: MessageView = message
    return view


_new_message = object.__new__
_unpack_v4 = _HEAD_V4.unpack_from


def _plain_record(buffer: Buffer, position: int, limit: int) -> tuple[Any, ...] | None:
    """What `decode_record` gives for a sound record of the usual kind; None for it to look at all others."""
    if limit - position < MIN_RECORD_BYTES:
        return None
    (
        size, magic, body_crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_ms, born_host, store_ms, store_host,
        reconsume_times, prepared, body_bytes,
    ) = _unpack_v4(buffer, position)  # fmt: skip
    end = position + size
    body_at = position + BODY_AT
    topic_at = body_at + body_bytes
    if magic != MAGIC_V1 or sys_flag & HOSTS_MASK or body_bytes < 0 or end > limit or topic_at + 3 > end:
        return None
    properties_at = topic_at + 3 + buffer[topic_at]
    if properties_at > end or _unpack_short(buffer, properties_at - 2)[0] != end - properties_at:
        return None
    body: Any = buffer[body_at:topic_at]
    topic: Any = buffer[topic_at + 1 : properties_at - 2]
    properties: Any = buffer[properties_at:end]
    if buffer.__class__ is not bytes:
        body, topic, properties = bytes(body), bytes(topic), bytes(properties)
    if crc32(body) & 0x7FFFFFFF != body_crc:
        return None
    try:
        text = topic_text(topic)
    except UnicodeDecodeError:
        return None
    return (
        size, body_crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_ms, born_host, store_ms, store_host,
        reconsume_times, prepared, text, body, properties,
    )  # fmt: skip


def decode_messages(body: Buffer, max_body_bytes: int | None = None) -> list[MessageView]:
    """All records of a pull, pop or query answer, laid back to back."""
    messages = []
    position, limit = 0, len(body)
    while position < limit:
        message = decode_message(body, position, limit, max_body_bytes)
        messages.append(message)
        position += message.stored_bytes
    return messages


_BATCH_HEAD = struct.Struct(">iiiii")
_new_item = tuple.__new__


class BatchItem(NamedTuple):
    """One message inside a batch send: what differs from its neighbours."""

    flag: int
    body: Buffer
    properties: bytes


def encode_batch(items: Sequence[BatchItem]) -> bytes:
    """The body of a batch send: total 4, magic 4 (0), crc 4 (0), flag 4, body 4 + n, properties 2 + n; repeated."""
    parts: list[Buffer] = []
    for flag, body, properties in items:
        size = _BATCH_HEAD.size + len(body) + 2 + len(properties)
        parts += (_BATCH_HEAD.pack(size, 0, 0, flag, len(body)), body, _SHORT.pack(len(properties)), properties)
    return b"".join(parts)


@compiled
def split_batch(buffer: Buffer, item_type: type[BatchItem]) -> list[BatchItem] | None:
    """The messages of a batch send; None: the caller splits it. Compiled code gives None for lengths that do not add up."""
    return None


def decode_batch(buffer: Buffer) -> list[BatchItem]:
    """The messages of a batch send; ProtocolError when the lengths do not add up."""
    if (split := split_batch(buffer, BatchItem)) is not None:
        return split
    items: list[BatchItem] = []
    position, limit = 0, len(buffer)
    head_bytes = _BATCH_HEAD.size
    while position < limit:
        if limit - position < head_bytes + 2:
            raise ProtocolError(f"batch ends inside the head of message {len(items)}")
        size, _, _, flag, body_bytes = _BATCH_HEAD.unpack_from(buffer, position)
        end = position + size
        body_at = position + head_bytes
        properties_at = body_at + body_bytes + 2
        if body_bytes < 0 or properties_at > end or end > limit:
            raise ProtocolError(f"batch message {len(items)} has sizes that do not fit")
        if _SHORT.unpack_from(buffer, properties_at - 2)[0] != end - properties_at:
            raise ProtocolError(f"batch message {len(items)} has a properties length that does not fit")
        body = buffer[body_at : body_at + body_bytes]
        items.append(_new_item(BatchItem, (flag, body, bytes(buffer[properties_at:end]))))
        position = end
    return items
