"""Pulls (11, 361): check, read, and when there is nothing new, hold the request until there is.

Stored messages go from the mapped log to the socket as they lie there. A held pull commits its consumer offset only
once, when it first arrives; when it is woken it is read again without holding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from rocketline.broker.registries import BROADCASTING, ConsumerRegistry
from rocketline.broker.replication.roles import Roles
from rocketline.broker.selection import Selection, Selections
from rocketline.broker.statistics.statistics import BrokerStatistics
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import READ, Topics
from rocketline.broker.waiters import PullWaiters
from rocketline.broker.wiring import wired
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import RequestRejected
from rocketline.message import QueueOffset
from rocketline.protocol.bodies import MASTER_ID, SubscriptionData, SubscriptionGroupConfig
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import PullMessageHeader, PullMessageResponseHeader
from rocketline.protocol.headers.read import COMMIT_OFFSET, SUSPEND
from rocketline.store.message_store import MessageStore, ReadResult, ReadStatus
from rocketline.store.reading.reader import MAX_READ_BYTES
from rocketline.transport import Channel, Handler, Reply

log = logging.getLogger(__name__)

MAX_SUSPEND_S = 120.0
"""Longest time a pull is held."""

_CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


@wired
class PullParts:
    """What pulling needs of a broker."""

    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    consumers: ConsumerRegistry
    waiters: PullWaiters
    selections: Selections
    readable: bool
    suspend_s: Callable[[int], float]
    """How long to hold a pull that asks to be held for so many milliseconds."""
    statistics: BrokerStatistics
    clock: Clock = SYSTEM_CLOCK
    slave_read: bool = False
    """Whether groups are sent to the brokers their settings name."""
    roles: Roles | None = None
    """None: this broker is the master for ever."""
    commit: Callable[[str, str, str, int, int], None] | None = None
    """Takes offsets that come with pulls, where these are not just kept here."""
    corrects: bool = True
    """Whether a consumer at an offset outside of its queue is told where to go on."""


class PullHandlers:
    """Handlers of pulls."""

    def __init__(self, parts: PullParts) -> None:
        self.parts = self._parts = parts

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def pull(self, channel: Channel, request: Command) -> Reply:
        header = PullMessageHeader.decode(request)
        selected = self.admit(header)
        if self._parts.offsets.has_resets and (told := self._tell_reset(request, header)) is not None:
            return told
        self._commit(channel, header)
        found = self._read(header, selected)
        answer = self._answer(request, header, found)
        if answer.code != ResponseCode.PULL_NOT_FOUND or not header.sys_flag & SUSPEND:
            return answer
        waiter = self._parts.waiters.hold(
            header.topic,
            header.queue_id,
            QueueOffset(header.queue_offset),
            min(self._parts.suspend_s(header.suspend_ms), MAX_SUSPEND_S),
            selected.accept_tags,
            partial(self.read_again, request, header, selected),
            selected.accept_properties,
        )
        return answer if waiter is None else waiter

    def admit(self, header: PullMessageHeader) -> Selection:
        """What a pull selects; RequestRejected when it is refused."""
        return self._select(header, self._check(header))

    def _tell_reset(self, request: Command, header: PullMessageHeader) -> Command | None:
        """The answer that moves a consumer to where an operator put its group; None when nobody did."""
        store, topic, queue_id = self._parts.store, header.topic, header.queue_id
        offset = self._parts.offsets.take_reset(header.consumer_group, topic, queue_id)
        if offset is None or self._is_there(header, offset):
            return None
        ext = PullMessageResponseHeader(
            QueueOffset(offset),
            QueueOffset(store.min_offset(topic, queue_id)),
            QueueOffset(store.max_offset(topic, queue_id)),
        ).encode()
        return request.reply(ResponseCode.PULL_OFFSET_MOVED, ext, remark="OFFSET_RESET")

    def _is_there(self, header: PullMessageHeader, offset: int) -> bool:
        """Whether a consumer begins at the offset of a reset and holds nothing before it: one that has just started.

        Apache's broker tells it all the same, and a Java client then drops the queue for ten seconds.
        """
        committed = header.commit_offset if header.sys_flag & COMMIT_OFFSET else 0
        return header.queue_offset == offset == committed

    def read_again(self, request: Command, header: PullMessageHeader, selected: Selection) -> Command:
        """The answer to a pull that was held, now."""
        if self._parts.roles is not None:
            self._parts.roles.require_giving()
        if self._parts.offsets.has_resets and (told := self._tell_reset(request, header)) is not None:
            return told
        return self._answer(request, header, self._read(header, selected))

    def _read(self, header: PullMessageHeader, selected: Selection) -> ReadResult:
        monotonic = self._parts.clock.monotonic
        started = monotonic()
        count, max_bytes = self.asked_for(header)
        found = self._parts.store.read(
            header.topic,
            header.queue_id,
            header.queue_offset,
            count,
            accept_tags=selected.accept_tags,
            accept_record=selected.accept_record,
            accept_ext=selected.accept_ext,
            max_bytes=max_bytes,
        )
        self._count(header, found, monotonic() - started)
        return found

    def asked_for(self, header: PullMessageHeader) -> tuple[int, int]:
        """Messages and bytes that a pull wants of the store. Only one that asks for a bulk read gets more messages than
        Apache's broker gives, however many it names."""
        count, max_bytes = header.max_msg_nums, header.max_msg_bytes
        if not header.bulk:
            count = min(count, self._parts.store.usual_messages)
        return count, max_bytes if max_bytes is not None and max_bytes > 0 else MAX_READ_BYTES

    def _check(self, header: PullMessageHeader) -> SubscriptionGroupConfig:
        parts = self._parts
        if not parts.readable:
            raise RequestRejected(ResponseCode.NO_PERMISSION, "the broker pulling message is forbidden")
        group = parts.groups.require_readable(header.consumer_group)
        topic = parts.topics.get(header.topic)
        if topic is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!")
        if not topic.perm & READ:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )
        return group

    def _select(self, header: PullMessageHeader, group: SubscriptionGroupConfig) -> Selection:
        selections = self._parts.selections
        selected = selections.of_request(header)
        return selections.of_heartbeat(header, self._subscription(header, group)) if selected is None else selected

    def _subscription(self, header: PullMessageHeader, group: SubscriptionGroupConfig) -> SubscriptionData:
        live = self._parts.consumers.get(header.consumer_group)
        if live is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist: no heartbeat of {header.consumer_group} arrived yet",
            )
        if not group.consume_broadcast_enable and live.message_model == BROADCASTING:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
            )
        subscription = live.subscriptions.get(header.topic)
        if subscription is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: group {header.consumer_group}, topic {header.topic}",
            )
        if not self._parts.groups.may_read(header.consumer_group, header.topic):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumer_group}] is forbidden to read this topic",
            )
        if subscription.sub_version < header.sub_version:
            raise RequestRejected(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription

    def _commit(self, channel: Channel, header: PullMessageHeader) -> None:
        if header.sys_flag & COMMIT_OFFSET and header.commit_offset >= 0:
            commit = self._parts.commit or self._parts.offsets.commit
            commit(channel.remote, header.consumer_group, header.topic, header.queue_id, header.commit_offset)

    def _next_broker(self, group_name: str, found: ReadResult) -> int:
        """Where the group should pull next: a reader that memory cannot serve would push others out of it."""
        if self._sends_to_master(found):
            return MASTER_ID
        group = self._parts.groups.table.get(group_name)
        if group is None:
            return MASTER_ID
        return group.which_broker_when_consume_slowly if found.lagging else group.broker_id

    @property
    def _is_replica(self) -> bool:
        return self._parts.roles is not None and not self._parts.roles.is_master

    def _sends_to_master(self, found: ReadResult) -> bool:
        """Whether a replica is no longer needed for this reader: its master is there, and has what comes next in memory."""
        roles = self._parts.roles
        return roles is not None and self._is_replica and not found.lagging and roles.has_master

    def _answer(self, request: Command, header: PullMessageHeader, found: ReadResult) -> Command:
        code = _CODES.get(found.status)
        if code is None:
            moved = header.queue_offset != 0
            code = ResponseCode.PULL_OFFSET_MOVED if moved else ResponseCode.PULL_NOT_FOUND
        next_offset = found.next_queue_offset
        if self._is_replica:
            code, next_offset = self._as_replica(code, header, found)
        if code == ResponseCode.PULL_OFFSET_MOVED:
            log.info("group %s asked for offset %d of %s queue %d, which has %d to %d, and is sent to %d",
                     header.consumer_group, header.queue_offset, header.topic, header.queue_id, found.min_offset,
                     found.max_offset, found.next_queue_offset)  # fmt: skip
        ext = PullMessageResponseHeader(
            QueueOffset(next_offset),
            QueueOffset(found.min_offset),
            QueueOffset(found.max_offset),
            self._next_broker(header.consumer_group, found) if self._parts.slave_read else MASTER_ID,
            is_replica=self._is_replica and self._parts.roles is not None and self._parts.roles.has_master,
        ).encode()
        return request.reply(code, ext, remark=found.status.name, chunks=found.chunks or None)

    def _as_replica(self, code: ResponseCode, header: PullMessageHeader, found: ReadResult) -> tuple[ResponseCode, int]:
        """A replica may not have what its master has: it does not move a consumer, and sends it to the master instead."""
        if code == ResponseCode.PULL_OFFSET_MOVED and not self._parts.corrects:
            return ResponseCode.PULL_RETRY_IMMEDIATELY, header.queue_offset
        if code == ResponseCode.PULL_NOT_FOUND and self._sends_to_master(found):
            return ResponseCode.PULL_RETRY_IMMEDIATELY, header.queue_offset
        return code, found.next_queue_offset

    def _count(self, header: PullMessageHeader, found: ReadResult, took_s: float) -> None:
        group, topic = header.consumer_group, header.topic
        self._parts.offsets.note_pulled(group, topic, header.queue_id, found.next_queue_offset)
        if found.message_count:
            self._parts.statistics.got(group, topic, found.message_count, found.total_bytes, took_s)
        else:
            self._parts.statistics.missed += 1
