"""Reading ranges of queues as fast as a broker gives them: no event loop, no decoding, no group membership.

    with BulkReader("127.0.0.1:9876", group="export") as reader:
        for queue in reader.queues("orders"):
            for reply in reader.read(queue, *reader.bounds(queue)):
                decode(reply.records)  # stored messages back to back, as in the commit log

One connection per broker. Pulls carry their own subscription and are never held by the broker; nothing is committed.

Failures: a lost connection, a broker that moved and a busy one are tried again until `timeout` seconds brought no
progress. A range that the queue does not have, at either end, raises RangeNotAvailable; nothing is skipped in silence.

A reader belongs to one thread and one process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Self

from rocketline.client.bulk.channel import BulkAnswer, BulkChannel
from rocketline.client.bulk.cluster import BulkCluster
from rocketline.client.bulk.range import BulkReply, RangeReading, pull_header
from rocketline.client.consumer.group.subscription import Sql
from rocketline.client.identity import check_group
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import BrokerError, ConfigError, InvalidMessage, RocketlineError
from rocketline.message import ConsumerOffset, MessageQueue, QueueOffset
from rocketline.protocol.bodies import TopicStatsTable, decode_body, parse_queue_key
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    GetMaxOffsetHeader,
    GetMinOffsetHeader,
    GetTopicStatsHeader,
    Header,
    OffsetResponseHeader,
    QueryConsumerOffsetHeader,
    SearchOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from rocketline.protocol.records import decode_message
from rocketline.transport.access import Access, TlsOption
from rocketline.transport.credentials import CredentialsOption

MAX_ASKED = 65_536
UNDER_WAY = 256
"""Questions sent before the first of their answers is read."""

_STATS, _PULL = RequestCode.GET_TOPIC_STATS_INFO, RequestCode.PULL_MESSAGE
_MAY_FAIL = frozenset({_STATS, _PULL})
"""Requests of which an answer with an error is an answer."""


class Bounds(NamedTuple):
    """Of a queue."""

    begin: QueueOffset
    """The offset of the oldest message kept."""
    end: QueueOffset
    """The offset the next message will get."""


class BulkReader:
    """Reads ranges of queues; a context manager."""

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        group: str,
        batch: int = 2048,
        timeout: float = 30.0,
        credentials: CredentialsOption = None,
        tls: TlsOption = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`batch` messages are asked for at once; a broker may give fewer (Apache's 32 and 256 KiB, unless configured
        otherwise). `timeout` limits every wait, and how long failures may last."""
        if not 1 <= batch <= MAX_ASKED:
            raise ConfigError(f"batch {batch}: 1 to {MAX_ASKED} messages expected")
        self.group = check_group(group)
        self.batch = batch
        self._cluster = BulkCluster(name_servers, timeout, clock, Access.of(credentials, tls))
        self._single: set[str] = set()
        """Brokers that do not answer, or not to this account, about all queues of a topic at once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next call would make new ones."""
        self._cluster.close()

    def topics(self) -> list[str]:
        """The topics the name server knows, those of RocketMQ itself included."""
        return self._cluster.topics()

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be read."""
        return self._cluster.fetch_route(topic).readable

    def bounds(self, queue: MessageQueue) -> tuple[QueueOffset, QueueOffset]:
        """(the offset of the oldest message kept, the offset the next message will get)."""
        return self.begins([queue])[queue], self.ends([queue])[queue]

    def begins(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueOffset]:
        """The offset of the oldest message kept, of many queues at once."""
        return self._offsets(
            RequestCode.GET_MIN_OFFSET,
            {queue: GetMinOffsetHeader(queue.topic, queue.queue_id, broker_name=queue.broker_name) for queue in queues},
        )

    def ends(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueOffset]:
        """The offset the next message will get, of many queues at once."""
        return self._offsets(
            RequestCode.GET_MAX_OFFSET,
            {queue: GetMaxOffsetHeader(queue.topic, queue.queue_id, broker_name=queue.broker_name) for queue in queues},
        )

    def all_bounds(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, Bounds]:
        """Where many queues begin and end. A broker is asked once about all queues of a topic; one that refuses that, as it
        may need another permission, is asked about each queue."""
        found = self._stats(queues)
        rest = [queue for queue in queues if queue not in found]
        if rest:
            begins, ends = self.begins(rest), self.ends(rest)
            found.update({queue: Bounds(QueueOffset(max(0, begins[queue])), ends[queue]) for queue in rest})
        return found

    def store_times(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """When the messages at these offsets were stored, in milliseconds; those that are not there are left out."""
        headers = {queue: pull_header(self.group, queue, offset, 1) for queue, offset in offsets.items()}
        return {
            queue: decode_message(answer.body, 0, len(answer.body)).store_ms
            for queue, answer in self._ask(_PULL, headers).items()
            if answer.command.code == ResponseCode.SUCCESS and answer.body
        }

    def offset_at(self, queue: MessageQueue, when: datetime) -> QueueOffset:
        """The offset of the first message stored at or after a time; the end when there is none."""
        return self.offsets_at({queue: round(when.timestamp() * 1000)})[queue]

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, QueueOffset]:
        """The same for many queues, each with a time of its own."""
        return self._offsets(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            {
                queue: SearchOffsetHeader(queue.topic, queue.queue_id, at_ms, broker_name=queue.broker_name)
                for queue, at_ms in times_ms.items()
            },
        )

    def group_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, ConsumerOffset]:
        """What the group committed; queues for which it committed nothing are left out."""
        found = self._offsets(
            RequestCode.QUERY_CONSUMER_OFFSET,
            {
                queue: QueryConsumerOffsetHeader(
                    self.group, queue.topic, queue.queue_id, set_zero_if_not_found=False, broker_name=queue.broker_name
                )
                for queue in queues
            },
        )
        return {queue: ConsumerOffset(offset) for queue, offset in found.items() if offset >= 0}

    def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Set the progress of the group."""
        self._ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {
                queue: UpdateConsumerOffsetHeader(
                    self.group, queue.topic, queue.queue_id, ConsumerOffset(offset), queue.broker_name
                )
                for queue, offset in offsets.items()
            },
        )

    def read(
        self, queue: MessageQueue, start: int, end: int, expression: str | Sql = "*", *, skip_gone: bool = False
    ) -> Iterator[BulkReply]:
        """The messages of [start, end) in order. `expression` selects tags by their hash on the broker: compare them
        again. With `skip_gone`, messages that the broker has deleted are passed over with a warning."""
        if not 0 <= start <= end:
            raise InvalidMessage(f"{queue}: [{start}, {end}) is not a range of offsets")
        return self.reading(queue, start, end, expression, skip_gone=skip_gone).replies()

    def reading(
        self, queue: MessageQueue, start: int, end: int, expression: str | Sql = "*", *, skip_gone: bool = False
    ) -> RangeReading:
        """The same, to begin it while another range is read."""
        return RangeReading(self, queue, start, end, expression, skip_gone)

    # For the readings

    def deadline(self) -> float:
        return self._cluster.deadline()

    def channel_of(self, queue: MessageQueue) -> BulkChannel:
        """The connection to a queue's broker: the master, or in its absence a slave."""
        return self._cluster.channel(self._cluster.address_of(queue))

    def wait_after(self, error: RocketlineError, queue: MessageQueue, deadline: float) -> None:
        """A failure that may pass: pause and ask for the route again, or raise it when the time is over."""
        self._cluster.wait_after(error, queue, deadline)

    def is_over(self, deadline: float) -> bool:
        return self._cluster.is_over(deadline)

    def _offsets(self, code: int, headers: Mapping[MessageQueue, Header]) -> dict[MessageQueue, QueueOffset]:
        answers = self._ask(code, headers)
        return {
            queue: QueueOffset(OffsetResponseHeader.decode(answer.command).offset)
            for queue, answer in answers.items()
            if answer.command.code == ResponseCode.SUCCESS
        }

    def _stats(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, Bounds]:
        """What brokers tell about all queues of a topic at once."""
        asked: dict[tuple[str, str], MessageQueue] = {}
        for queue in queues:
            if queue.broker_name not in self._single:
                asked.setdefault((queue.topic, queue.broker_name), queue)
        found: dict[MessageQueue, Bounds] = {}
        for queue, answer in self._ask(_STATS, {q: GetTopicStatsHeader(q.topic) for q in asked.values()}).items():
            if answer.command.code != ResponseCode.SUCCESS:
                if answer.command.code != ResponseCode.TOPIC_NOT_EXIST:
                    self._single.add(queue.broker_name)
                continue
            for key, offsets in decode_body(TopicStatsTable, bytes(answer.body)).offset_table.items():
                found[parse_queue_key(key)] = Bounds(
                    QueueOffset(max(0, offsets.min_offset)), QueueOffset(max(0, offsets.max_offset))
                )
        return {queue: found[queue] for queue in queues if queue in found}

    def _ask(self, code: int, headers: Mapping[MessageQueue, Header]) -> dict[MessageQueue, BulkAnswer]:
        """The answers to one question per queue; also that a group has no offset there is an answer."""
        deadline = self.deadline()
        answers: dict[MessageQueue, BulkAnswer] = {}
        while left := [queue for queue in headers if queue not in answers]:
            asked: list[tuple[MessageQueue, BulkChannel, int]] = []
            queue = left[0]
            try:
                for queue in left[:UNDER_WAY]:
                    channel = self.channel_of(queue)
                    asked.append((queue, channel, channel.send(Command(code, headers[queue].encode()), deadline)))
                while asked:
                    queue, channel, opaque = asked.pop(0)
                    answers[queue] = _accepted(code, channel.receive(opaque, deadline), channel, queue)
            except RocketlineError as error:
                self.wait_after(error, queue, deadline)
            finally:
                for _, channel, opaque in asked:
                    channel.abandon(opaque)
        return answers


def _accepted(code: int, answer: BulkAnswer, channel: BulkChannel, queue: MessageQueue) -> BulkAnswer:
    found = answer.command
    absent = code == RequestCode.QUERY_CONSUMER_OFFSET and found.code == ResponseCode.QUERY_NOT_FOUND
    if found.code != ResponseCode.SUCCESS and not absent and code not in _MAY_FAIL:
        raise BrokerError.of(found.code, found.remark, channel.address, f"an offset of {queue}")
    return answer
