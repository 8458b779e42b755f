"""Request and reply: how a reply finds the client that sent the request.

A request is a message like any other, with a correlation id and the id of the client. The consumer that handles it sends its
reply as a message to the reply topic of the cluster; the broker hands that to the client over its connection. So the broker
must know the client before the request is sent, and the reply goes to the broker the request came from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import uuid4

import msgspec

from rocketline.client.producer.outgoing import RequestMaker, SendRequest, check_message
from rocketline.client.producer.receipts import SendReceipt
from rocketline.client.producer.send_options import Retries, SendOptions
from rocketline.client.producer.sender import Sender
from rocketline.client.session import ClientSession
from rocketline.errors import InvalidMessage, NoReply
from rocketline.message import Message, MessageQueue, MessageView
from rocketline.protocol.bodies import MASTER_ID
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.replies import CLUSTER, CORRELATION_ID, MSG_TYPE, REPLY, REPLY_TO_CLIENT, TTL, reply_topic

_REPLY_OPTIONS = SendOptions(retries=Retries(0))
"""Only the broker the request came from certainly knows the client; it stores a reply even when no client takes it."""


def request_message(message: Message, client_id: str, timeout_s: float) -> Message:
    """The message with the properties by which its reply finds this client."""
    marks = {CORRELATION_ID: str(uuid4()), REPLY_TO_CLIENT: client_id, TTL: str(round(timeout_s * 1000))}
    return msgspec.structs.replace(message, properties={**message.properties, **marks})


async def ask(
    session: ClientSession,
    request: Message,
    outgoing: SendRequest,
    send: Callable[[], Awaitable[object]],
    queue_count: int,
    timeout_s: float,
) -> MessageView:
    """Send a request and wait for its reply; NoReply when none comes in time."""
    with session.requests.reply_to(request.properties[CORRELATION_ID]) as reply:
        try:
            async with asyncio.timeout(timeout_s) as limit:
                await _introduce(session, outgoing.topic, queue_count)
                await send()
                return await reply
        except TimeoutError as error:
            if not limit.expired():
                raise
            if (missing := session.routes.why_not_writable(outgoing.topic)) is not None:
                raise missing from error
            raise NoReply(
                f"no reply to message {outgoing.message_id} of topic {request.topic!r} within {timeout_s:g} s: does a "
                "consumer of the topic run, and does it reply?"
            ) from error


async def _introduce(session: ClientSession, topic: str, queue_count: int) -> None:
    """Send heartbeats first: a reply comes through a broker, which must know this client by then."""
    route = await session.routes.await_writable(topic, queue_count)
    await session.introduce(ids[MASTER_ID] for ids in route.brokers.values() if MASTER_ID in ids)


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
    """Send a reply to the client that asked; SendFailed when the broker could not deliver it."""
    reply = _REPLY_OPTIONS.with_bytes(reply_message(request, body, properties))
    check_message(reply, _REPLY_OPTIONS.max_message_bytes)
    maker = RequestMaker(group, _REPLY_OPTIONS, session.unique_ids.next, session.clock.now_ms)
    outgoing = maker.pack(reply)
    outgoing.code, outgoing.is_plain = RequestCode.SEND_REPLY_MESSAGE_V2, False

    def same_broker(queues: Sequence[MessageQueue]) -> MessageQueue:
        return next((queue for queue in queues if queue.broker_name == request.broker_name), queues[0])

    return await Sender(session, _REPLY_OPTIONS).send(outgoing, timeout_s, same_broker)
