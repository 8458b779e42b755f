"""Messages on a detour: stored under a topic of the broker's own until they may go where they belong.

Delayed messages, timer messages and half messages take one. Their real topic and queue travel along in their properties, and
so does what is added later, when they are moved or delivered. Whoever sends one is refused when there is no room for that:
taken, it could never arrive.
"""

from __future__ import annotations

from rocketline.errors import RequestRejected
from rocketline.message import REAL_QID, REAL_TOPIC
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.numbers import MAX_INT32, read_number
from rocketline.protocol.properties import MAX_PROPERTIES_BYTES, encode_properties
from rocketline.store.message_store import StoreMessage


def send_on_detour(message: StoreMessage, topic: str, queue_id: int, added_later_bytes: int) -> None:
    """Redirect a message; RequestRejected when its properties leave no room for what will be added to them."""
    properties = message.properties
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QID] = str(message.queue_id)
    message.properties_raw = encode_properties(properties).encode()
    limit = MAX_PROPERTIES_BYTES - added_later_bytes
    if len(message.properties_raw) > limit:
        raise RequestRejected(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the properties of a message for {topic} may have {limit} bytes, with those the broker adds they have "
            f"{len(message.properties_raw)}",
        )
    message.topic = topic
    message.queue_id = queue_id


def real_place(properties: dict[str, str]) -> tuple[str, int]:
    """Real topic and queue of a message on a detour; ValueError when it names none. Whether they can be, the store says."""
    topic, queue_id = properties.get(REAL_TOPIC), read_number(properties.get(REAL_QID), highest=MAX_INT32)
    if topic is None or queue_id is None:
        raise ValueError(f"{REAL_TOPIC} and {REAL_QID} name no topic and queue it could go to")
    return topic, queue_id
