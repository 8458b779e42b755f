"""ReceiveMessage: pop, with a long poll.

The answer is the status, the messages, and the time of delivery. A message that came too often goes to the dead letters, and
one whose tag only has the same hash is acknowledged; neither is delivered. What could not be delivered, because the client
went away, becomes visible again after a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from rocketline.broker.grpc_config import GrpcConfig
from rocketline.clock import Clock
from rocketline.errors import InvalidReceipt, RocketlineError
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
from rocketline.proxy.renewal import GIVE_BACK_MS
from rocketline.proxy.routes import found_topic
from rocketline.proxy.settling import Settling
from rocketline.proxy.telemetry import subscription_of
from rocketline.proxy.validation import checked_group, checked_topic

log = logging.getLogger(__name__)

EXTRA_S = 3.0
"""How much longer than its poll a pop may take."""
TOLD_APART = (5, 0, 3)
"""Clients before this version are told that a deadline is too short by another code."""
_NOTHING = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})


class _Popped(NamedTuple):
    """What a pop brought."""

    messages: list[MessageView]
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
        self._tasks: set[asyncio.Task[None]] = set()

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
        name = checked_topic(request.message_queue.topic.name)
        self._access.require(context.channel, consumes(group, name))
        poll_ms = self._poll_ms(context, request)
        invisible_ms = self._invisible_ms(request)
        wanted = subscription_of(name, request.filter_expression)
        if context.call.channel.is_behind:
            raise Problem(Code.TOO_MANY_REQUESTS, "this client does not take the messages that it was sent before")
        topic = await found_topic(self._backend, name)
        if request.batch_size <= 0:
            await _pause(poll_ms)
            raise Problem(Code.MESSAGE_NOT_FOUND, "no new message")
        config = await self._backend.group(group) or SubscriptionGroupConfig(group)
        asked = PopMessageHeader(
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
        messages = await self._pop(context, link, asked)
        return self._deliver(context, request, wanted, asked, _Popped(messages, config.retry_max_times + 1))

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

    async def _pop(self, context: Context, link: BrokerLink, asked: PopMessageHeader) -> list[MessageView]:
        command = Command(RequestCode.POP_MESSAGE, asked.encode())
        answer = await link.call(context.channel, command, asked.poll_ms / 1000 + EXTRA_S)
        if answer.code in _NOTHING:
            raise Problem(Code.MESSAGE_NOT_FOUND, "no new message")
        if answer.code != ResponseCode.SUCCESS:
            raise problem_of(answer)
        body = b"".join(answer.chunks) if answer.chunks is not None else answer.body
        fields = PopMessageResponseHeader.decode(answer)
        messages = read_popped(body, fields, asked, link.name, inflates=False)
        if context.call.is_over:
            self._start(self._give_back(context.channel, asked, [_handle_of(message) for message in messages]))
        return messages

    def _deliver(
        self, context: Context, request: Any, wanted: SubscriptionData, asked: PopMessageHeader, popped: _Popped
    ) -> list[Any]:
        """The frames of what was popped, without what is put away."""
        is_wanted = text_test(wanted)
        frames = [pb.ReceiveMessageResponse(status=OK)]
        handles: list[ReceiptHandle] = []
        for message in popped.messages:
            handle = _handle_of(message)
            if is_wanted is not None and not is_wanted(message.tag):
                self._start(self._put_away(context.channel, asked, handle, None))
            elif message.reconsume_times >= popped.max_attempts:
                self._start(self._put_away(context.channel, asked, handle, message.message_id))
            else:
                frame = pb.ReceiveMessageResponse()
                fill(frame.message, message, request.message_queue.topic, str(handle))
                frames.append(frame)
                handles.append(handle)
        if not handles:
            raise Problem(Code.MESSAGE_NOT_FOUND, "no match message")
        if request.auto_renew and not context.call.is_over:
            self._hold(context, asked, handles)
        self._watch(context, asked, frames, handles)
        return frames

    def _hold(self, context: Context, asked: PopMessageHeader, handles: Sequence[ReceiptHandle]) -> None:
        """Keep messages hidden for as long as the client is there."""
        client = context.client
        if client is None:
            client = Client.without_settings(
                context.client_id, new_channel(context.call.channel, context.channel.identity)
            )
            self._clients.add(client)
        for handle in handles:
            self._settling.renewals.add(client, asked.consumer_group, asked.topic, str(handle), handle)

    def _watch(
        self, context: Context, asked: PopMessageHeader, frames: Sequence[Any], handles: Sequence[ReceiptHandle]
    ) -> None:
        """Give back what was not sent when the client goes away."""
        sizes = [frame.ByteSize() for frame in frames[1:]]

        def lost(unsent_bytes: int) -> None:
            undelivered: list[ReceiptHandle] = []
            for size, handle in zip(reversed(sizes), reversed(handles)):
                if unsent_bytes <= 0:
                    break
                undelivered.append(handle)
                unsent_bytes -= size
            for handle in undelivered:
                self._settling.renewals.settled(context.client_id, asked.consumer_group, str(handle))
            self._start(self._give_back(context.channel, asked, undelivered))

        context.call.on_lost = lost

    # Beside the answer

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _give_back(
        self, channel: FrontChannel, asked: PopMessageHeader, handles: Sequence[ReceiptHandle]
    ) -> None:
        for handle in handles:
            try:
                await self._settling.change_invisible(channel, asked.consumer_group, asked.topic, handle, GIVE_BACK_MS)
            except RocketlineError as error:
                log.info("a message of %s comes again only when its time is over: %s", asked.topic, error)

    async def _put_away(
        self, channel: FrontChannel, asked: PopMessageHeader, handle: ReceiptHandle, message_id: str | None
    ) -> None:
        """Acknowledge a message that is not delivered; with an id, after it went to the dead letters."""
        try:
            group, topic = asked.consumer_group, asked.topic
            if message_id is None:
                await self._settling.acknowledge(channel, group, topic, handle)
            else:
                await self._settling.to_dead_letters(channel, group, topic, handle, message_id)
        except RocketlineError as error:
            log.warning("a message of %s could not be put away and comes again: %s", asked.topic, error)


def _handle_of(message: MessageView) -> ReceiptHandle:
    """The handle of a popped message, with its place in the log."""
    try:
        return ReceiptHandle.parse(message.receipt_handle or "")._replace(log_offset=message.log_offset)
    except InvalidReceipt as error:
        raise Problem(Code.INTERNAL_SERVER_ERROR, f"a broker gave a message without a handle: {error}") from error


def _chosen(topic: Topic, broker_name: str) -> BrokerLink:
    link = topic.link(broker_name)
    if link is not None:
        return link
    if not topic.readable:
        raise Problem(Code.FORBIDDEN, f"no readable queue of topic {topic.name}")
    topic.turn += 1
    return topic.readable[topic.turn % len(topic.readable)]


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
