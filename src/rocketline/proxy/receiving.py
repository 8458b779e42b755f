"""ReceiveMessage: pop, with a long poll.

The answer is the status, the messages, and the time of delivery. A message that came too often goes to the dead letters, and
one whose tag only has the same hash is acknowledged; neither is delivered. What could not be delivered, because the client
went away, said goodbye or takes nothing, becomes visible again after a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from rocketline.broker.grpc_config import GrpcConfig
from rocketline.clock import Clock
from rocketline.errors import InvalidReceipt, ProtocolError
from rocketline.grpc.framing import HEAD_BYTES
from rocketline.message import MessageView
from rocketline.protocol.bodies import SubscriptionData, SubscriptionGroupConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import PopMessageHeader, PopMessageResponseHeader
from rocketline.protocol.headers.pop import ANY_QUEUE, INIT_MAX
from rocketline.protocol.pop_info import MAX_POP_MESSAGES, ReceiptHandle
from rocketline.protocol.popped import read_popped
from rocketline.protocol.subscription import text_test
from rocketline.proxy.access import Access, consumes, new_channel
from rocketline.proxy.backend import Backend, Topic
from rocketline.proxy.clients import Client, Clients
from rocketline.proxy.context import Context
from rocketline.proxy.links import BrokerLink, FrontChannel
from rocketline.proxy.messages import duration_ms, fill
from rocketline.proxy.problems import OK, Problem, problem_of, status
from rocketline.proxy.proto import Code, pb
from rocketline.proxy.routes import found_topic
from rocketline.proxy.settling import Settling
from rocketline.proxy.telemetry import subscription_of
from rocketline.proxy.validation import checked_group, checked_resource

log = logging.getLogger(__name__)

EXTRA_S = 3.0
"""How much longer than its poll a pop may take."""
TOLD_APART = (5, 0, 3)
"""Clients before this version are told that a deadline is too short by another code."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Of one answer, and the message that exceeds it. What else was popped is given back."""
_NOTHING = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})


class _Popped(NamedTuple):
    """A message that a pop brought, and its handle."""

    message: MessageView
    handle: ReceiptHandle


class _Asked(NamedTuple):
    """What a call wants, as the broker is asked for it."""

    client_id: str
    channel: FrontChannel
    header: PopMessageHeader
    subscription: SubscriptionData
    max_attempts: int
    """Messages that came more often go to the dead letters."""


class Receiving:
    def __init__(
        self,
        config: GrpcConfig,
        backend: Backend,
        access: Access,
        clients: Clients,
        settling: Settling,
        clock: Clock,
    ) -> None:
        self._config = config
        self._access = access
        self._clients = clients
        self._backend = backend
        self._settling = settling
        self._clock = clock

    async def receive(self, context: Context, request: Any) -> Sequence[Any]:
        """The frames of the answer; a problem is a frame too."""
        try:
            frames = await self._receive(context, request)
        except Problem as problem:
            frames = [pb.ReceiveMessageResponse(status=status(problem.code, problem.text))]
            if problem.code in (Code.UNAUTHORIZED, Code.CLIENT_ID_REQUIRED):
                return frames
        delivered = pb.ReceiveMessageResponse()
        now_ms = self._clock.now_ms()
        delivered.delivery_timestamp.seconds = now_ms // 1000
        delivered.delivery_timestamp.nanos = now_ms % 1000 * 1_000_000
        frames.append(delivered)
        return frames

    async def _receive(self, context: Context, request: Any) -> list[Any]:
        group = checked_group(request.group.name)
        name = checked_resource(request.message_queue.topic)
        self._access.require(context.call, context.channel, consumes(group, name))
        poll_ms = self._poll_ms(context, request)
        invisible_ms = self._invisible_ms(request)
        wanted = subscription_of(name, request.filter_expression)
        _refuse_unread(context)
        topic = await found_topic(self._backend, name)
        if request.batch_size <= 0:
            await _pause(poll_ms)
            raise Problem(Code.MESSAGE_NOT_FOUND, "no new message")
        config = await self._backend.group(group) or SubscriptionGroupConfig(group)
        header = PopMessageHeader(
            group,
            name,
            ANY_QUEUE,
            min(request.batch_size, MAX_POP_MESSAGES),
            invisible_ms,
            poll_ms,
            self._clock.now_ms(),
            INIT_MAX,
            wanted.expression_type,
            wanted.sub_string,
            config.consume_message_orderly,
            request.attempt_id or None,
        )
        link = _chosen(topic, request.message_queue.broker.name)
        asked = _Asked(context.client_id, context.channel, header, wanted, config.retry_max_times + 1)
        popped = await self._pop(link, asked)
        try:
            _refuse_unread(context)  # others of its calls may have been answered meanwhile
            self._refuse_gone(context)
            frames = self._deliver(context, request, asked, popped)
        except Exception:
            self._give_back(asked, [item.handle for item in popped])
            raise
        if not frames:
            raise Problem(Code.MESSAGE_NOT_FOUND, "no match message")
        return [pb.ReceiveMessageResponse(status=OK), *frames]

    def _poll_ms(self, context: Context, request: Any) -> int:
        config = self._config
        remaining_s = context.call.remaining_s()
        remaining_ms = None if remaining_s is None else int(remaining_s * 1000)
        if request.HasField("long_polling_timeout"):
            poll_ms = duration_ms(request.long_polling_timeout)
        elif remaining_ms is not None:
            poll_ms = remaining_ms - _request_timeout_ms(context.client) // 2
        else:
            poll_ms = config.max_poll_ms
        poll_ms = max(config.min_poll_ms, min(poll_ms, config.max_poll_ms))
        if remaining_ms is None or poll_ms <= remaining_ms:
            return poll_ms
        if remaining_ms >= config.min_poll_ms:
            return remaining_ms
        code = Code.ILLEGAL_POLLING_TIME if _tells_apart(context) else Code.BAD_REQUEST
        raise Problem(code, f"the deadline time remaining is not enough for polling, {remaining_ms} ms are left")

    def _invisible_ms(self, request: Any) -> int:
        config = self._config
        if request.auto_renew:
            return config.invisible_ms
        ms = duration_ms(request.invisible_duration)
        if not config.min_invisible_ms <= ms <= config.max_invisible_ms:
            raise Problem(
                Code.ILLEGAL_INVISIBLE_TIME,
                f"the invisibleTime is {ms} ms; it may be {config.min_invisible_ms} to {config.max_invisible_ms}",
            )
        return ms

    async def _pop(self, link: BrokerLink, asked: _Asked) -> list[_Popped]:
        command = Command(RequestCode.POP_MESSAGE, asked.header.encode())
        late = partial(self._late, link.name, asked)
        answer = await link.call(asked.channel, command, asked.header.poll_ms / 1000 + EXTRA_S, late)
        if answer.code in _NOTHING:
            raise Problem(Code.MESSAGE_NOT_FOUND, "no new message")
        if answer.code != ResponseCode.SUCCESS:
            raise problem_of(answer)
        return _popped(answer, asked, link.name)

    def _late(self, broker_name: str, asked: _Asked, answer: Command) -> None:
        """A broker gave messages to a call that was over by then."""
        if answer.code == ResponseCode.SUCCESS:
            try:
                self._give_back(asked, [item.handle for item in _popped(answer, asked, broker_name)])
            except ProtocolError as error:
                log.warning("messages of broker %s come again only when their time is over: %s", broker_name, error)

    def _deliver(self, context: Context, request: Any, asked: _Asked, popped: Sequence[_Popped]) -> list[Any]:
        """The frames of what was popped, without what is put away or would be too much. Until the last line but one
        nothing happens that cannot be undone."""
        is_wanted = text_test(asked.subscription)
        frames: list[Any] = []
        handles: list[ReceiptHandle] = []
        unwanted: list[tuple[ReceiptHandle, str | None]] = []
        too_much: list[ReceiptHandle] = []
        size = 0
        for message, handle in popped:
            if is_wanted is not None and not is_wanted(message.tag):
                unwanted.append((handle, None))
            elif message.reconsume_times >= asked.max_attempts:
                unwanted.append((handle, message.message_id))
            elif size > MAX_ANSWER_BYTES:
                too_much.append(handle)
            else:
                frame = pb.ReceiveMessageResponse()
                fill(frame.message, message, request.message_queue.topic, str(handle))
                size += frame.ByteSize()
                frames.append(frame)
                handles.append(handle)
        if request.auto_renew:
            self._hold(context, asked.header, handles)
        self._watch(context, asked, frames, handles)
        self._give_back(asked, too_much)
        for handle, message_id in unwanted:
            self._settling.put_away(asked.channel, asked.header.consumer_group, asked.header.topic, handle, message_id)
        return frames

    def _give_back(self, asked: _Asked, handles: Sequence[ReceiptHandle]) -> None:
        """Let others have what is not delivered."""
        group, topic = asked.header.consumer_group, asked.header.topic
        for handle in handles:
            if not self._settling.renewals.give_back(asked.client_id, group, str(handle)):
                self._settling.give_back(asked.channel, group, topic, handle)

    def _refuse_gone(self, context: Context) -> None:
        """Have nothing delivered to a client that left while it waited: nobody would settle it, or stop prolonging it."""
        client = self._clients.get(context.client_id)
        is_known = client is not None and client.channel.identity == context.channel.identity
        if not is_known and context.client is not None:
            raise Problem(Code.UNRECOGNIZED_CLIENT_TYPE, "this client said goodbye, or was silent for too long")

    def _hold(self, context: Context, asked: PopMessageHeader, handles: Sequence[ReceiptHandle]) -> None:
        """Keep messages hidden for as long as the client is there."""
        client = self._clients.get(context.client_id)
        if client is None or client.channel.identity != context.channel.identity:
            client = Client(
                context.client_id, new_channel(context.call.channel, context.channel.identity), context.call.channel
            )
            self._clients.add(client)
        for handle in handles:
            self._settling.renewals.add(client, asked.consumer_group, asked.topic, str(handle), handle)

    def _watch(self, context: Context, asked: _Asked, frames: Sequence[Any], handles: Sequence[ReceiptHandle]) -> None:
        """Give back what was not sent when the client goes away."""
        sizes = [frame.ByteSize() + HEAD_BYTES for frame in frames]

        def lost(unsent_bytes: int) -> None:
            undelivered: list[ReceiptHandle] = []
            for size, handle in zip(reversed(sizes), reversed(handles)):
                if unsent_bytes <= 0:
                    break
                undelivered.append(handle)
                unsent_bytes -= size
            self._give_back(asked, undelivered)

        context.call.on_lost = lost


def _refuse_unread(context: Context) -> None:
    """Have nothing more sent to a client that is gone, or takes nothing."""
    if context.call.is_over or context.call.channel.is_behind:
        raise Problem(Code.TOO_MANY_REQUESTS, "this client does not take the messages that it was sent before")


def _popped(answer: Command, asked: _Asked, broker_name: str) -> list[_Popped]:
    """The messages of a broker's answer, with their handles and their places in the log."""
    body = b"".join(answer.chunks) if answer.chunks is not None else answer.body
    fields = PopMessageResponseHeader.decode(answer)
    found = []
    for message in read_popped(body, fields, asked.header, broker_name, inflates=False):
        try:
            handle = ReceiptHandle.parse(message.receipt_handle or "")._replace(log_offset=message.log_offset)
        except InvalidReceipt as error:
            log.error("broker %s gave a message without a handle: %s", broker_name, error)
        else:
            found.append(_Popped(message, handle))
    return found


def _chosen(topic: Topic, broker_name: str) -> BrokerLink:
    link = topic.link(broker_name)
    if link is not None:
        return link
    if not topic.readable:
        raise Problem(Code.FORBIDDEN, f"no readable queue of topic {topic.name}")
    return topic.next_readable()


def _request_timeout_ms(client: Client | None) -> int:
    return 0 if client is None or client.settings is None else duration_ms(client.settings.request_timeout)


def _tells_apart(context: Context) -> bool:
    parts = context.call.header(b"x-mq-client-version").split(".")
    numbers = tuple(int(part) if part.isdecimal() and len(part) < 6 else 0 for part in parts[:3])
    return numbers >= TOLD_APART


async def _pause(ms: int) -> None:
    """Wait without a task of our own."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(ms / 1000, over.set_result, None)
    over.add_done_callback(lambda _: timer.cancel())
    await over
