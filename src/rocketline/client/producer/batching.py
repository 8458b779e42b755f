"""Several messages of one topic in one request.

Pure. RocketMQ's rules for a batch: one topic, no retry topic, no delay, the same wait for storage, everything within
the size limit of one message. Each message keeps its own unique id and properties; the broker stores each as its own
record, in one queue, with consecutive offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from rocketline.client.producer.outgoing import (
    MAX_MESSAGE_BYTES,
    Outgoing,
    SendOptions,
    check_message,
    joined_properties,
    message_properties,
    send_fields,
)
from rocketline.errors import InvalidMessage, MessageTooLarge
from rocketline.message import UNIQ_KEY, WAIT, Message
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.names import is_derived
from rocketline.protocol.records import BatchItem, encode_batch

ITEM_BYTES = 22
"""What a message costs in a batch besides its body and properties."""

ADDED_PROPERTIES_BYTES = 90
"""At most what the unique id and the wait flag add to a message's own properties."""


def outgoing_batch(
    messages: Sequence[Message], group: str, unique_id: Callable[[], str], now_ms: int, options: SendOptions
) -> tuple[Outgoing, list[str]]:
    """(the request, the unique ids of its messages in order)."""
    first = _check_batch(messages, options)
    items, ids = [], []
    for message in messages:
        properties = message_properties(message, unique_id())
        ids.append(properties[UNIQ_KEY])
        items.append(BatchItem(message.flag, message.body, joined_properties(properties).encode()))
    body = encode_batch(items)
    if len(body) > options.max_message_bytes:
        raise MessageTooLarge(
            f"a batch of {len(messages)} messages for topic {first.topic!r} has {len(body)} bytes, the limit is "
            f"{options.max_message_bytes}: send it in parts (see split_batch)"
        )
    batch_id = unique_id()
    own = joined_properties({UNIQ_KEY: batch_id, WAIT: "true" if first.wait_stored else "false"})
    ext = send_fields(group, first.topic, own, now_ms, options, batch=True)
    return Outgoing(first.topic, batch_id, RequestCode.SEND_BATCH_MESSAGE, ext, body), ids


def _check_batch(messages: Sequence[Message], options: SendOptions) -> Message:
    if not messages:
        raise InvalidMessage("the batch is empty")
    first = messages[0]
    if is_derived(first.topic):
        raise InvalidMessage(f"topic {first.topic!r} takes no batches")
    for position, message in enumerate(messages):
        check_message(message, options.max_message_bytes)
        if message.topic != first.topic:
            raise InvalidMessage(
                f"a batch has one topic: message {position} is for {message.topic!r}, not {first.topic!r}"
            )
        if message.delay_level or message.delay is not None or message.deliver_at is not None:
            raise InvalidMessage(f"message {position} of the batch is delayed, which batches cannot carry")
        if message.wait_stored != first.wait_stored:
            raise InvalidMessage(f"message {position} of the batch differs from the first in wait_stored")
    return first


def split_batch(messages: Iterable[Message], max_bytes: int = MAX_MESSAGE_BYTES // 4) -> Iterator[list[Message]]:
    """Lists of messages, in order, each small enough for one batch; a message larger than `max_bytes` gets its own.

    >>> [len(part) for part in split_batch([Message("T", b"x" * 500)] * 5, max_bytes=1500)]
    [2, 2, 1]
    """
    part: list[Message] = []
    part_bytes = 0
    for message in messages:
        size = _upper_bound(message)
        if part and part_bytes + size > max_bytes:
            yield part
            part, part_bytes = [], 0
        part.append(message)
        part_bytes += size
    if part:
        yield part


def _upper_bound(message: Message) -> int:
    texts = [*message.properties.keys(), *message.properties.values(), *message.keys, message.tag or ""]
    return ITEM_BYTES + len(message.body) + ADDED_PROPERTIES_BYTES + sum(len(text.encode()) + 2 for text in texts) + 16
