"""Requests that brokers send to clients over the clients' own connections.

Served: the outcome of a transaction (39), rebalance now (40), reset offsets (220), report positions (221), report running
info (307), consume one message directly (309), a reply (326). Any other request is answered with "not supported" by the
router, unless it is one-way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from rocketline.client.consumer_info import ConsumeDirectlyResult, ConsumerRunningInfo, stacks
from rocketline.client.pending import PendingRequests
from rocketline.clock import Clock
from rocketline.errors import CorruptRecord, RequestRejected
from rocketline.message import ConsumerOffset, LogOffset, MessageQueue, MessageView, QueueOffset
from rocketline.protocol.bodies import (
    ConsumerData,
    ConsumerStatus,
    decode_reset_offsets,
    encode_body,
    parse_queue_key,
    queue_key,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.compression import decompress
from rocketline.protocol.headers import (
    CheckTransactionStateHeader,
    ConsumeMessageDirectlyHeader,
    GetConsumerRunningInfoHeader,
    GetConsumerStatusHeader,
    NotifyConsumerIdsChangedHeader,
    PushReplyHeader,
    ResetOffsetHeader,
)
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.record_layout import COMPRESSED
from rocketline.protocol.records import decode_message
from rocketline.protocol.replies import ARRIVE_TIME
from rocketline.protocol.transactions import PGROUP
from rocketline.transport import Channel, Router

log = logging.getLogger(__name__)

CheckBack = Callable[[Channel, CheckTransactionStateHeader, MessageView], None]
"""Finds out how a transaction ended and answers over the channel."""


class ConsumerMember(Protocol):
    """A consumer as the session and the brokers see it."""

    @property
    def group(self) -> str: ...

    @property
    def topics(self) -> set[str]:
        """Topics whose routes it needs."""

    def consumer_data(self) -> ConsumerData:
        """Its part of a heartbeat."""

    def route_changed(self, topic: str) -> None: ...

    def members_changed(self) -> None: ...

    async def persist_offsets(self) -> None: ...

    async def reset_offsets(self, offsets: Mapping[MessageQueue, ConsumerOffset]) -> None: ...

    def positions(self, topic: str) -> Mapping[MessageQueue, ConsumerOffset]: ...

    def running_info(self) -> ConsumerRunningInfo: ...

    async def consume_directly(self, message: MessageView) -> ConsumeDirectlyResult: ...


def broker_requests(
    consumers: Mapping[str, ConsumerMember], checks: Mapping[str, CheckBack], requests: PendingRequests, clock: Clock
) -> Router:
    """A router for the requests of brokers, answered by the clients of a session by group."""
    served = _BrokerRequests(consumers)
    to_producers = _ProducerRequests(checks, requests, clock)
    return Router(
        {
            RequestCode.CHECK_TRANSACTION_STATE: to_producers.check_transaction,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: to_producers.take_reply,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: served.members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: served.reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: served.positions,
            RequestCode.GET_CONSUMER_RUNNING_INFO: served.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: served.consume_directly,
        }
    )


class _BrokerRequests:
    def __init__(self, consumers: Mapping[str, ConsumerMember]) -> None:
        self._consumers = consumers

    def _consumer(self, group: str) -> ConsumerMember:
        consumer = self._consumers.get(group)
        if consumer is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"group {group!r} has no consumer in this client")
        return consumer

    def members_changed(self, _: Channel, request: Command) -> None:
        consumer = self._consumers.get(NotifyConsumerIdsChangedHeader.decode(request).consumer_group)
        if consumer is not None:
            consumer.members_changed()

    def reset_offsets(self, _: Channel, request: Command) -> Coroutine[Any, Any, Command]:
        consumer = self._consumer(ResetOffsetHeader.decode(request).group)
        table = decode_reset_offsets(request.body).offset_table
        offsets = {parse_queue_key(key): ConsumerOffset(offset) for key, offset in table.items()}

        async def reset() -> Command:
            await consumer.reset_offsets(offsets)
            return request.reply(ResponseCode.SUCCESS)

        return reset()

    def positions(self, _: Channel, request: Command) -> Command:
        header = GetConsumerStatusHeader.decode(request)
        positions = self._consumer(header.group).positions(header.topic)
        table = {queue_key(queue): int(offset) for queue, offset in positions.items()}
        return request.reply(ResponseCode.SUCCESS, body=encode_body(ConsumerStatus(message_queue_table=table)))

    def running_info(self, _: Channel, request: Command) -> Command:
        header = GetConsumerRunningInfoHeader.decode(request)
        info = self._consumer(header.consumer_group).running_info()
        if header.jstack_enable:
            info.jstack = stacks()
        return request.reply(ResponseCode.SUCCESS, body=encode_body(info))

    def consume_directly(self, _: Channel, request: Command) -> Coroutine[Any, Any, Command]:
        header = ConsumeMessageDirectlyHeader.decode(request)
        consumer = self._consumer(header.consumer_group)
        try:
            message = decode_message(request.body, 0, len(request.body))
        except CorruptRecord as error:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"the message cannot be read: {error}") from error
        message.broker_name = header.broker_name or ""

        async def consume() -> Command:
            result = await consumer.consume_directly(message)
            return request.reply(ResponseCode.SUCCESS, body=encode_body(result))

        return consume()


class _ProducerRequests:
    def __init__(self, checks: Mapping[str, CheckBack], requests: PendingRequests, clock: Clock) -> None:
        self._checks = checks
        self._requests = requests
        self._clock = clock

    def check_transaction(self, channel: Channel, request: Command) -> None:
        header = CheckTransactionStateHeader.decode(request)
        try:
            message = decode_message(request.body, 0, len(request.body))
        except CorruptRecord as error:
            log.warning("%s asks about a transaction whose message cannot be read: %s", channel.remote, error)
            return
        check = self._checks.get(message.properties.get(PGROUP, ""))
        if check is None:
            log.warning("%s asks about a transaction of group %r: no transactional producer of it runs here",
                        channel.remote, message.properties.get(PGROUP))  # fmt: skip
            return
        check(channel, header, message)

    def take_reply(self, _: Channel, request: Command) -> Command:
        header = PushReplyHeader.decode(request)
        body, sys_flag = request.body, header.sys_flag
        if sys_flag & COMPRESSED:
            body, sys_flag = decompress(body, sys_flag), sys_flag & ~COMPRESSED
        reply = MessageView(
            topic=header.topic,
            body=body,
            properties={**decode_properties(header.properties), ARRIVE_TIME: str(self._clock.now_ms())},
            queue_id=header.queue_id,
            queue_offset=QueueOffset(0),
            log_offset=LogOffset(0),
            born_ms=header.born_ms,
            born_host=header.born_host,
            store_ms=header.store_ms,
            store_host=header.store_host,
            reconsume_times=header.reconsume_times,
            flag=header.flag,
            sys_flag=sys_flag,
        )
        self._requests.take(reply)
        return request.reply(ResponseCode.SUCCESS)
