"""Copies of messages that a group could not handle: for another attempt, or for its dead letters.

Whoever has one made, a consumer that hands a message back or a popped message whose time is over, gets it here. A copy
keeps the body and all properties, and counts one more attempt. The broker adds properties of its own, for which those of the
message may leave no room: better a message that says less than none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rocketline.message import ORIGIN_MESSAGE_ID, RETRY_TOPIC
from rocketline.protocol.message_ids import offset_id
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, decode_properties, with_what_fits
from rocketline.protocol.records import Record, tried_once_more
from rocketline.store.message_store import StoreMessage, copy_of


def own_properties(record: Record) -> dict[str, str]:
    return decode_properties(record.properties.decode("utf-8", "replace"))


def origin(record: Record, topic: str) -> dict[str, str]:
    """Where a message came from before its first copy was made; `topic` is where, if this is the first."""
    properties = own_properties(record)
    return {
        RETRY_TOPIC: properties.get(RETRY_TOPIC) or topic,
        ORIGIN_MESSAGE_ID: properties.get(ORIGIN_MESSAGE_ID) or offset_id(record.store_host, record.log_offset),
    }


def retry_copies(
    record: Record, topic: str, queue_id: int, needed: Mapping[str, str], useful: Mapping[str, str]
) -> Iterator[StoreMessage]:
    """Copies for another attempt, the one that says most first: the first that fits is meant. If none does, what the next
    attempt needs to know has no room, and the message is dead."""
    properties = own_properties(record)
    for added in ({**needed, **useful}, needed):
        yield _one_more(record, copy_of(record, topic, queue_id, {**properties, **added}))


def dead_copy(record: Record, topic: str, queue_id: int, useful: Mapping[str, str]) -> StoreMessage:
    """A copy for the dead letters, with what fits: of its own properties every byte."""
    properties = with_what_fits(own_properties(record), useful)
    copy = copy_of(record, topic, queue_id, properties)
    if len(copy.properties_raw) > MAX_PROPERTIES_BYTES:
        copy.properties_raw = record.properties  # no text, and larger when that is mended
    return _one_more(record, copy)


def _one_more(record: Record, copy: StoreMessage) -> StoreMessage:
    copy.reconsume_times = tried_once_more(record.reconsume_times)
    copy.prepared_log_offset = 0
    return copy
