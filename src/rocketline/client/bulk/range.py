"""One range of a queue being read by a bulk reader: what is asked for next, and what each answer leads to.

Pulls are sent ahead while a reply is being processed, as many as fit into 4 MiB of replies. Their offsets are guessed
from the size of the last reply; a wrong guess is pulled again.
"""

from __future__ import annotations

import logging
import struct
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from rocketline.client.bulk.channel import BulkAnswer, BulkChannel
from rocketline.client.bulk.cluster import PAUSE_S
from rocketline.client.consumer.group.subscription import Sql
from rocketline.client.remote_broker import PullStatus
from rocketline.errors import (
    BrokerError,
    RangeNotAvailable,
    RemoteProtocolError,
    RocketlineError,
    RouteNotFound,
    TransportError,
)
from rocketline.message import ConsumerOffset, MessageQueue, MessageView, QueueOffset
from rocketline.protocol.bodies import SQL92, TAG
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import PullMessageHeader, PullMessageResponseHeader
from rocketline.protocol.headers.read import SUBSCRIPTION
from rocketline.protocol.record_layout import MIN_RECORD_BYTES
from rocketline.protocol.records import decode_message
from rocketline.protocol.subscription import build_subscription

log = logging.getLogger(__name__)

AHEAD_BYTES = 4 << 20
MAX_AHEAD = 8
ASK_FOR_ALL_EVERY = 64
"""Pulls after which the broker's limit is tried out again: a short reply may have been short for another reason."""

_PULL_STATUSES = {status.value: status for status in PullStatus}
_SIZE_TO_OFFSET = struct.Struct(">i16xq")


@dataclass(frozen=True, slots=True)
class BulkReply:
    """Stored messages of one queue; those of offsets that are not in `records` were filtered out or are gone."""

    queue: MessageQueue
    first_offset: int
    next_offset: int
    records: memoryview
    offset_delta: int
    """To be added to the queue offsets inside the records."""

    def messages(self) -> Iterator[MessageView]:
        """The records decoded one by one, for those who have no quicker way."""
        position, end = 0, len(self.records)
        while position < end:
            message = decode_message(self.records, position, end)
            position += message.stored_bytes
            message.broker_name = self.queue.broker_name
            message.queue_offset = QueueOffset(message.queue_offset + self.offset_delta)
            yield message


class RangeSource(Protocol):
    """What a range needs of its reader."""

    @property
    def group(self) -> str: ...

    @property
    def batch(self) -> int:
        """Messages to ask for at once."""

    def deadline(self) -> float:
        """When a wait that begins now has to end."""

    def is_over(self, deadline: float) -> bool: ...

    def channel_of(self, queue: MessageQueue) -> BulkChannel: ...

    def wait_after(self, error: RocketlineError, queue: MessageQueue, deadline: float) -> None:
        """Raise the error, unless it may pass and there is time left."""


class RangeReading:
    """One range being read: pulls in flight, oldest first, each with the offset it asks for."""

    def __init__(
        self,
        reader: RangeSource,
        queue: MessageQueue,
        start: int,
        end: int,
        expression: str | Sql,
        skip_gone: bool,
    ) -> None:
        self._reader = reader
        self._queue = queue
        self._at = start
        self._end = end
        kind, text = (SQL92, expression.text) if isinstance(expression, Sql) else (TAG, expression)
        self._kind = kind
        self._expression = build_subscription(queue.topic, text, kind).sub_string
        self._skip_gone = skip_gone
        self._channel: BulkChannel | None = None
        self._asked: deque[tuple[int, int]] = deque()
        self._step = reader.batch
        self._ahead = 1
        self._until_all = ASK_FOR_ALL_EVERY
        self._short: RangeNotAvailable | None = None
        """The error to raise, if nothing comes any more."""

    def begin(self) -> None:
        """Have the broker work on the first reply while others are read. `replies` meets what fails here again."""
        with suppress(TransportError, RouteNotFound):
            self._ask_ahead(self._reader.deadline())

    def replies(self) -> Iterator[BulkReply]:
        deadline = self._reader.deadline()
        try:
            while self._at < self._end:
                at = self._at
                try:
                    reply = self._next_reply(deadline)
                except (TransportError, BrokerError, RouteNotFound) as error:
                    self._forget_asked()
                    if self._short is not None and self._reader.is_over(deadline):
                        raise self._short from error
                    self._reader.wait_after(error, self._queue, deadline)
                    continue
                if reply is not None:
                    self._short = None
                    yield reply
                if self._at > at:
                    deadline = self._reader.deadline()  # also where nothing matched: that may be a long way
        finally:
            self._forget_asked()

    def _next_reply(self, deadline: float) -> BulkReply | None:
        self._ask_ahead(deadline)
        assert self._channel is not None
        offset, opaque = self._asked.popleft()
        answer = self._channel.receive(opaque, deadline)
        status = _PULL_STATUSES.get(answer.command.code)
        if status is None:
            raise BrokerError.of(
                answer.command.code, answer.command.remark, self._channel.address, f"pull of {self._queue} at {offset}"
            )
        fields = PullMessageResponseHeader.decode(answer.command)
        if status is not PullStatus.FOUND:
            self._forget_asked()
            self._nothing_found(status, fields, deadline)
            return None
        return self._found(offset, answer, fields, deadline)

    def _ask_ahead(self, deadline: float) -> None:
        channel = self._reader.channel_of(self._queue)
        if channel is not self._channel:
            self._forget_asked()
            self._channel = channel
        next_offset = self._asked[-1][0] + self._step if self._asked else self._at
        while next_offset < self._end and len(self._asked) < self._ahead:
            count = min(self._step, self._end - next_offset)
            self._asked.append((next_offset, channel.send(self._request(next_offset, count), deadline)))
            next_offset += count

    def _request(self, offset: int, count: int) -> Command:
        header = pull_header(self._reader.group, self._queue, offset, count, self._expression, self._kind)
        return Command(RequestCode.PULL_MESSAGE, header.encode())

    def _found(self, offset: int, answer: BulkAnswer, fields: PullMessageResponseHeader, deadline: float) -> BulkReply:
        records, next_offset = answer.body, int(fields.next_begin_offset)
        if next_offset <= offset or not records:
            raise RemoteProtocolError(
                f"{self._queue}: messages found at {offset}, {len(records)} bytes, but next is {next_offset}"
            )
        delta = fields.offset_delta or 0
        if next_offset > self._end:
            records, next_offset = _cut(records, self._end - delta), self._end
        self._at = next_offset
        self._learn(next_offset - offset, len(records))
        if self._asked and self._asked[0][0] != next_offset:
            self._forget_asked()
        if self._at < self._end:
            try:
                self._ask_ahead(deadline)  # the broker works while the caller does
            except (TransportError, RouteNotFound):
                self._forget_asked()  # the next turn meets it again and deals with it
        return BulkReply(self._queue, offset, next_offset, records, delta)

    def _learn(self, step: int, size: int) -> None:
        self._until_all -= 1
        if self._until_all <= 0 and self._step < self._reader.batch:
            self._until_all = ASK_FOR_ALL_EVERY
            self._step, self._ahead = self._reader.batch, 1
            return
        self._step = min(step, self._reader.batch)
        self._ahead = max(1, min(MAX_AHEAD, AHEAD_BYTES // max(1, size)))

    def _nothing_found(self, status: PullStatus, fields: PullMessageResponseHeader, deadline: float) -> None:
        at, better = self._at, int(fields.next_begin_offset)
        if status is PullStatus.OFFSET_MOVED:
            self._moved(better, int(fields.min_offset))
        elif better > at:
            self._at = better  # nothing matched up to there
        else:
            self._short = RangeNotAvailable(
                f"{self._queue} has nothing at {at}, though [.., {self._end}) is to be read; it ends at {fields.max_offset}",
                int(fields.max_offset),
            )
            if self._reader.is_over(deadline):
                raise self._short
            time.sleep(PAUSE_S)

    def _moved(self, better: int, first: int) -> None:
        at = self._at
        if better <= at:
            raise RangeNotAvailable(f"{self._queue} has nothing at {at}: it ends at {better}", better)
        if not self._skip_gone:
            raise RangeNotAvailable(
                f"{self._queue} has nothing at {at} any more: it begins at {first}. "
                "Messages were deleted before they were read; skip_gone=True goes on without them",
                first,
            )
        log.warning("%s: messages from %d to %d are gone and passed over", self._queue, at, min(better, self._end))
        self._at = better

    def _forget_asked(self) -> None:
        if self._channel is not None:
            for _, opaque in self._asked:
                self._channel.abandon(opaque)
        self._asked.clear()


def pull_header(
    group: str, queue: MessageQueue, offset: int, count: int, expression: str = "*", kind: str = TAG
) -> PullMessageHeader:
    """A pull that is not held, with a subscription of its own."""
    return PullMessageHeader(
        group, queue.topic, queue.queue_id, QueueOffset(offset), count, SUBSCRIPTION, commit_offset=ConsumerOffset(0),
        suspend_ms=0, sub_version=0, subscription=expression, expression_type=kind, max_msg_bytes=(1 << 31) - 1,
        broker_name=queue.broker_name, bulk=True,
    )  # fmt: skip


def _cut(records: memoryview, end: int) -> memoryview:
    """Only the records with a queue offset below `end`."""
    position, limit = 0, len(records)
    while position + MIN_RECORD_BYTES <= limit:
        size, offset = _SIZE_TO_OFFSET.unpack_from(records, position)
        if size < MIN_RECORD_BYTES or position + size > limit:
            raise RemoteProtocolError(f"a record of {size} bytes at byte {position} of a reply of {limit}")
        if offset >= end:
            break
        position += size
    return records[:position]
