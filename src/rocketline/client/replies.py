"""Replies to requests, and how they find whoever asked.

A request is a message like any other, with an id and the client to tell. The consumer that handles it sends its reply as a
message to the reply topic of the cluster; the broker hands that to the client over its connection. So whoever asks must be
known to the broker before the request leaves, and the reply goes to the broker the request came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketline.client.producer.outgoing import SendOptions, check_message, compressed, outgoing_message
from rocketline.client.producer.receipts import SendReceipt
from rocketline.client.producer.sender import Sender
from rocketline.client.session import ClientSession
from rocketline.errors import InvalidMessage
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.replies import CLUSTER, CORRELATION_ID, MSG_TYPE, REPLY, REPLY_TO_CLIENT, TTL, reply_topic

_REPLY_OPTIONS = SendOptions(retries=0)
"""Only the broker the request came from surely knows who asked, and it stores a reply even when nobody takes it."""


def reply_message(request: MessageView, body: bytes, properties: Mapping[str, str] | None = None) -> Message:
    """The reply to a request; InvalidMessage when nobody waits for one."""
    needed = (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT)
    missing = [name for name in needed if name not in request.properties]
    if missing:
        raise InvalidMessage(
            f"message {request.message_id} of topic {request.topic!r} is no request, nobody waits for a reply: it has no "
            f"{', '.join(missing)}"
        )
    kept = {
        name: request.properties[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL) if name in request.properties
    }
    return Message(
        reply_topic(request.properties[CLUSTER]), body, properties={**(properties or {}), **kept, MSG_TYPE: REPLY}
    )


async def send_reply(
    session: ClientSession,
    group: str,
    request: MessageView,
    body: bytes,
    properties: Mapping[str, str] | None,
    timeout_s: float,
) -> SendReceipt:
    """Hand a reply to whoever asked; SendFailed when the broker could not."""
    reply, options = reply_message(request, body, properties), _REPLY_OPTIONS
    check_message(reply, options.max_message_bytes)
    sent, sys_flag = compressed(body, options) if len(body) >= options.compress_over_bytes else (body, 0)
    now_ms = session.clock.now_ms()
    outgoing = outgoing_message(reply, group, session.unique_ids.next(), now_ms, options, sent, sys_flag)
    outgoing.code = RequestCode.SEND_REPLY_MESSAGE_V2

    def where_it_came_from(queues: Sequence[MessageQueue]) -> MessageQueue:
        return next((queue for queue in queues if queue.broker_name == request.broker_name), queues[0])

    return await Sender(session, options).send(outgoing, timeout_s, selector=where_it_came_from)
