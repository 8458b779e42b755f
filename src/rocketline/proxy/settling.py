"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue.

A handle names its broker, queue and offset. A handle that the server prolonged stands for the latest one. Unlike RocketMQ's
proxy we keep the place in the log in the handle when its time is changed, so a message is still found by it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from rocketline.broker.grpc_config import GrpcConfig
from rocketline.clock import Clock
from rocketline.errors import InvalidReceipt, RocketlineError
from rocketline.protocol.bodies import BatchAckMessageRequestBody, encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    AckMessageHeader,
    ChangeInvisibleTimeHeader,
    ChangeInvisibleTimeResponseHeader,
    ConsumerSendMsgBackHeader,
)
from rocketline.protocol.pop_info import ReceiptHandle, real_topic
from rocketline.protocol.popped import batch_acks
from rocketline.proxy.access import Access, consumes
from rocketline.proxy.backend import Backend
from rocketline.proxy.background import Background
from rocketline.proxy.context import Context
from rocketline.proxy.links import BrokerLink, FrontChannel
from rocketline.proxy.messages import duration_ms
from rocketline.proxy.problems import OK, Problem, problem_from, problem_of, status
from rocketline.proxy.proto import Code, pb
from rocketline.proxy.renewal import GIVE_BACK_MS, Held, Renewals
from rocketline.proxy.validation import checked_group, checked_topic

log = logging.getLogger(__name__)

CALL_S = 3.0
MAX_ENTRIES = 1024
"""Of one call."""
MAX_SPREAD = 4096
"""Offsets between a message and the first of its batch, above which it is acknowledged by itself: who makes handles up must
not make us build a long list of bits."""
_BAD_HANDLE = frozenset({ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_MESSAGE})


@dataclass(slots=True, eq=False)
class _Entry:
    """A message of a call that acknowledges several."""

    result: Any
    """Its part of the answer."""
    held: Held | None


class Settling:
    def __init__(self, config: GrpcConfig, backend: Backend, access: Access, clock: Clock) -> None:
        self._config = config
        self._access = access
        self._backend = backend
        self._clock = clock
        self.background = Background()
        self.renewals = Renewals(config, clock, self.change_invisible, self.background)

    # AckMessage

    async def ack(self, context: Context, request: Any) -> Any:
        group, topic = checked_group(request.group.name), checked_topic(request.topic.name)
        self._access.require(context.call, context.channel, consumes(group, topic))
        if not 0 < len(request.entries) <= MAX_ENTRIES:
            raise Problem(Code.BAD_REQUEST, f"{len(request.entries)} entries: from 1 to {MAX_ENTRIES} are expected")
        answer = pb.AckMessageResponse()
        entries: list[_Entry] = []
        for asked in request.entries:
            result = answer.entries.add(message_id=asked.message_id, receipt_handle=asked.receipt_handle)
            entries.append(_Entry(result, self.renewals.claim(context.client_id, group, asked.receipt_handle)))
        try:
            await self._ack_all(context, group, topic, entries)
        finally:
            for entry in entries:
                if entry.held is not None:
                    self.renewals.release(entry.held)
        codes = {entry.status.code for entry in answer.entries}
        answer.status.CopyFrom(answer.entries[0].status if len(codes) == 1 else status(Code.MULTIPLE_RESULTS))
        return answer

    async def _ack_all(self, context: Context, group: str, topic: str, entries: Sequence[_Entry]) -> None:
        valid: list[tuple[_Entry, ReceiptHandle]] = []
        for entry in entries:
            try:
                valid.append((entry, await self._handle(entry.held, entry.result.receipt_handle)))
            except Problem as problem:
                entry.result.status.CopyFrom(status(problem.code, problem.text))
        if len(valid) < 2 or not await self._ack_together(context, group, topic, valid):
            for entry, handle in valid:
                await self._ack(context, group, topic, entry, handle)

    async def _ack_together(
        self, context: Context, group: str, topic: str, valid: Sequence[tuple[_Entry, ReceiptHandle]]
    ) -> bool:
        """Acknowledge messages of one broker with one request; False: it takes them one by one, or none of them."""
        if not all(0 <= handle.queue_offset - handle.ck_start_offset < MAX_SPREAD for _, handle in valid):
            return False
        names = {handle.broker_name for _, handle in valid}
        link = await self._backend.link(names.pop()) if len(names) == 1 else None
        if link is None:
            return False
        acks = batch_acks(group, ((topic, handle) for _, handle in valid))
        body = encode_body(BatchAckMessageRequestBody(link.name, acks))
        command = Command(RequestCode.BATCH_ACK_MESSAGE, {}, body)
        if (await link.call(context.channel, command, CALL_S)).code != ResponseCode.SUCCESS:
            return False
        for entry, _ in valid:
            self._acknowledged(entry)
        return True

    async def _ack(self, context: Context, group: str, topic: str, entry: _Entry, handle: ReceiptHandle) -> None:
        try:
            await self.acknowledge(context.channel, group, topic, handle)
        except RocketlineError as error:
            problem = problem_from(error)
            entry.result.status.CopyFrom(status(problem.code, problem.text))
        else:
            self._acknowledged(entry)

    def _acknowledged(self, entry: _Entry) -> None:
        entry.result.status.CopyFrom(OK)
        if entry.held is not None:
            self.renewals.settled(entry.held)

    async def acknowledge(self, channel: FrontChannel, group: str, topic: str, handle: ReceiptHandle) -> None:
        """Tell the broker that a message is done."""
        place = real_topic(group, topic, handle.flag)
        header = AckMessageHeader(
            group, place, handle.queue_id, _for_broker(handle), handle.queue_offset, handle.broker_name
        )
        await self._ask(channel, handle, RequestCode.ACK_MESSAGE, header.encode())

    # ChangeInvisibleDuration

    async def change(self, context: Context, request: Any) -> Any:
        group, topic = checked_group(request.group.name), checked_topic(request.topic.name)
        self._access.require(context.call, context.channel, consumes(group, topic))
        ms = duration_ms(request.invisible_duration)
        if not 0 <= ms <= self._config.max_invisible_ms:
            raise Problem(
                Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {self._config.max_invisible_ms}"
            )
        text = request.receipt_handle
        with self._claimed(context.client_id, group, text) as held:
            handle = await self._handle(held, text)
            changed = await self.change_invisible(context.channel, group, topic, handle, ms)
            if held is not None:  # from here on the client deals with it: a prolongation would undo what it asked for
                self.renewals.settled(held)
        answer = pb.ChangeInvisibleDurationResponse(status=OK)
        answer.receipt_handle = text if changed is None else str(changed)
        return answer

    async def change_invisible(
        self, channel: FrontChannel, group: str, topic: str, handle: ReceiptHandle, ms: int
    ) -> ReceiptHandle | None:
        """Hide a message for so long from now; None when it was settled before."""
        place = real_topic(group, topic, handle.flag)
        header = ChangeInvisibleTimeHeader(
            group, place, handle.queue_id, _for_broker(handle), handle.queue_offset, ms, handle.broker_name
        )
        answer = await self._ask(channel, handle, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.encode())
        fields = ChangeInvisibleTimeResponseHeader.decode(answer)
        if not fields.pop_ms:
            return None
        return handle.changed(fields.pop_ms, fields.invisible_ms, fields.revive_queue_id)

    # ForwardMessageToDeadLetterQueue

    async def forward(self, context: Context, request: Any) -> Any:
        group, topic = checked_group(request.group.name), checked_topic(request.topic.name)
        self._access.require(context.call, context.channel, consumes(group, topic))
        text = request.receipt_handle
        with self._claimed(context.client_id, group, text) as held:
            handle = await self._handle(held, text)
            await self.to_dead_letters(context.channel, group, topic, handle, request.message_id)
            if held is not None:
                self.renewals.settled(held)
        return pb.ForwardMessageToDeadLetterQueueResponse(status=status(Code.OK, "0"))

    async def to_dead_letters(
        self, channel: FrontChannel, group: str, topic: str, handle: ReceiptHandle, message_id: str
    ) -> None:
        """Copy a message to the dead letters of its group, then acknowledge it."""
        if handle.log_offset is None:
            raise Problem(
                Code.INVALID_RECEIPT_HANDLE, "the receipt handle does not say where its message is in the log"
            )
        place = real_topic(group, topic, handle.flag)
        if not await (await self._link(handle)).is_there(
            handle.log_offset, place, handle.queue_id, handle.queue_offset
        ):
            raise Problem(Code.INVALID_RECEIPT_HANDLE, "the message of the receipt handle is another one")
        header = ConsumerSendMsgBackHeader(
            handle.log_offset,
            group,
            -1,
            message_id or None,
            topic,
            max_reconsume_times=0,
            broker_name=handle.broker_name,
        )
        await self._ask(channel, handle, RequestCode.CONSUMER_SEND_MSG_BACK, header.encode())
        await self.acknowledge(channel, group, topic, handle)

    # What no call waits for

    def give_back(self, channel: FrontChannel, group: str, topic: str, handle: ReceiptHandle) -> None:
        """Let others have a message that was not delivered."""

        async def work() -> None:
            try:
                await self.change_invisible(channel, group, topic, handle, GIVE_BACK_MS)
            except RocketlineError as error:
                log.info("a message of %s comes again only when its time is over: %s", topic, error)

        self.background.start(handle.broker_name, work)

    def put_away(
        self, channel: FrontChannel, group: str, topic: str, handle: ReceiptHandle, message_id: str | None
    ) -> None:
        """Acknowledge a message that is not delivered; with an id, after it went to the dead letters."""
        if message_id is None:
            work = partial(self.acknowledge, channel, group, topic, handle)
        else:
            work = partial(self.to_dead_letters, channel, group, topic, handle, message_id)

        async def put() -> None:
            try:
                await work()
            except RocketlineError as error:
                log.warning("a message of %s could not be put away and comes again: %s", topic, error)

        self.background.start(handle.broker_name, put)

    # Handles

    @contextmanager
    def _claimed(self, client_id: str, group: str, text: str) -> Iterator[Held | None]:
        """Have nothing else happen meanwhile to the message of a handle; None: it is not prolonged anyway."""
        held = self.renewals.claim(client_id, group, text)
        try:
            yield held
        finally:
            if held is not None:
                self.renewals.release(held)

    async def _handle(self, held: Held | None, text: str) -> ReceiptHandle:
        """The handle that counts for one that a client knows; Problem when it is none, or not valid any more."""
        if held is not None:
            await self.renewals.until_renewed(held)
            handle = held.handle
        else:
            try:
                handle = ReceiptHandle.parse(text)
            except InvalidReceipt as error:
                raise Problem(Code.INVALID_RECEIPT_HANDLE, str(error)) from error
        if handle.next_visible_ms <= self._clock.now_ms():
            raise Problem(Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
        return handle

    async def _link(self, handle: ReceiptHandle) -> BrokerLink:
        link = await self._backend.link(handle.broker_name)
        if link is None:
            raise Problem(Code.INVALID_RECEIPT_HANDLE, f"there is no broker {handle.broker_name[:80]!r}")
        return link

    async def _ask(
        self, channel: FrontChannel, handle: ReceiptHandle, code: RequestCode, ext: dict[str, str]
    ) -> Command:
        answer = await (await self._link(handle)).call(channel, Command(code, ext), CALL_S)
        if answer.code in _BAD_HANDLE:
            raise Problem(Code.INVALID_RECEIPT_HANDLE, answer.remark or "receipt handle is not valid")
        if answer.code != ResponseCode.SUCCESS:
            raise problem_of(answer)
        return answer


def _for_broker(handle: ReceiptHandle) -> str:
    """The handle as brokers know it: the place in the log is for us."""
    return str(handle._replace(log_offset=None))
