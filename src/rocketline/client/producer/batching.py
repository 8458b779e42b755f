"""Several messages of one topic in one request.

Pure. RocketMQ's rules for a batch: one topic, no retry topic, no delay, the same wait for storage, everything within
the size limit of one message. Each message keeps its own unique id and properties; the broker stores each as its own
record, in one queue, with consecutive offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rocketline.client.producer.outgoing import (
    RequestMaker,
    SendRequest,
    check_message,
    joined_properties,
    message_properties,
)
from rocketline.client.producer.send_options import MAX_MESSAGE_BYTES, SendOptions
from rocketline.errors import InvalidMessage, MessageTooLarge
from rocketline.message import SHARDING_KEY, UNIQ_KEY, WAIT, Message
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.names import is_derived
from rocketline.protocol.records import BatchItem, encode_batch

ITEM_BYTES = 22
"""What a message costs in a batch besides its body and properties."""

ADDED_PROPERTIES_BYTES = 90
"""At most what the unique id and the wait flag add to a message's own properties."""


def outgoing_batch(messages: Sequence[Message], maker: RequestMaker) -> tuple[SendRequest, list[str]]:
    """(the request, the unique ids of its messages in order)."""
    first = _check_batch(messages, maker.options)
    items = [batch_item(message, maker.next_id(maker.now_ms())) for message in messages]
    batch = outgoing_items(first, [item for item, _ in items], maker)
    return batch, [message_id for _, message_id in items]


def batch_item(message: Message, unique_id: str) -> tuple[BatchItem, str]:
    """(a message as it travels in a batch, its unique id)."""
    properties = message_properties(message, unique_id)
    return BatchItem(message.flag, message.body, joined_properties(properties).encode()), properties[UNIQ_KEY]


def item_bytes(item: BatchItem) -> int:
    return ITEM_BYTES + len(item.body) + len(item.properties)


def outgoing_items(first: Message, items: Sequence[BatchItem], maker: RequestMaker) -> SendRequest:
    """The request for messages that were made ready and checked; `first` is one of them."""
    body, limit = encode_batch(items), maker.options.max_message_bytes
    if len(body) > limit:
        raise MessageTooLarge(
            f"a batch of {len(items)} messages for topic {first.topic!r} has {len(body)} bytes, the limit is "
            f"{limit}: send it in parts (see split_batch)"
        )
    return batch_request(first.topic, body, maker, first.wait_stored)


def batch_request(topic: str, body: bytes, maker: RequestMaker, wait_stored: bool = True) -> SendRequest:
    """The request for encoded messages that fit."""
    batch_id = maker.next_id(maker.now_ms())
    own = joined_properties({UNIQ_KEY: batch_id, WAIT: "true" if wait_stored else "false"})
    outgoing = SendRequest(maker.headers, topic, batch_id, maker.now_ms(), own, body)
    outgoing.code = RequestCode.SEND_BATCH_MESSAGE
    outgoing.ext["m"] = "true"
    return outgoing


def is_batchable(message: Message) -> bool:
    """Whether a message may be part of a batch."""
    timed = message.delay_level or message.delay is not None or message.deliver_at is not None
    return not timed and not is_derived(message.topic)


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
    if message.sharding_key:
        texts += [SHARDING_KEY, message.sharding_key]
    return ITEM_BYTES + len(message.body) + ADDED_PROPERTIES_BYTES + sum(len(text.encode()) + 2 for text in texts) + 16
