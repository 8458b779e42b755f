"""Moving a group to another offset (222), by time or to a number.

On the server's side (useServerSideResetOffset, the default of 5.x) the offset is changed here and the next pull of each
queue is answered with it. Otherwise the broker only computes, and tells the consumers online (220), as 4.x brokers do.
"""

from __future__ import annotations

import logging

from rocketline.broker.handlers.admin.relays import refuse_older
from rocketline.broker.registries import ConsumerGroup, ConsumerRegistry
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import Topics
from rocketline.broker.waiters import PullWaiters
from rocketline.broker.wiring import wired
from rocketline.errors import RequestRejected, TransportError
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import ResetOffsetBody, TopicConfig, encode_body, encode_reset_list, queue_key
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import ResetOffsetHeader
from rocketline.store.message_store import MessageStore
from rocketline.transport import Channel, Handler, Reply

log = logging.getLogger(__name__)


@wired
class ResetHandlers:
    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets
    consumers: ConsumerRegistry
    waiters: PullWaiters
    broker_name: str
    server_side: bool = True

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset}

    def reset(self, channel: Channel, request: Command) -> Reply:
        header = ResetOffsetHeader.decode(request)
        new = self._reset_here(header) if self.server_side else self._tell_consumers(header)
        log.warning("%s resets group %s in topic %s: %s", channel.remote, header.group, header.topic, new)
        return request.reply(ResponseCode.SUCCESS, body=self._body(header.topic, new))

    def _body(self, topic: str, offsets: dict[int, int]) -> bytes:
        return encode_body(ResetOffsetBody({queue_key(self._queue(topic, item)): offsets[item] for item in offsets}))

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self.broker_name, queue_id)

    def _reset_here(self, header: ResetOffsetHeader) -> dict[int, int]:
        topic, group = header.topic, header.group
        config = self.topics.get(topic)
        if config is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if group not in self.groups.table:
            raise RequestRejected(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        new = self._wanted(header, config)
        if not new:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        for queue_id, offset in new.items():
            self.offsets.reset(group, topic, queue_id, offset)
            # Or a consumer that waits for new messages would hear of it only when its wait is over.
            self.waiters.answer_queue(topic, queue_id)
        return new

    def _wanted(self, header: ResetOffsetHeader, topic: TopicConfig) -> dict[int, int]:
        queue_id, offset = header.queue_id, header.offset
        if queue_id < 0:
            return {item: self._at_time(header, item) for item in range(topic.read_queue_nums)}
        if queue_id >= max(topic.read_queue_nums, topic.write_queue_nums):
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER, f"queueId {queue_id} is not a queue of {header.topic}"
            )
        if offset is None or offset == -1:
            return {queue_id: self._at_time(header, queue_id)}
        lowest, end = self.store.min_offset(header.topic, queue_id), self.store.max_offset(header.topic, queue_id)
        # Apache also takes one past the end; a group there would pass over the next message.
        if not lowest <= offset <= end:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"Target offset {offset} not in consume queue range [{lowest}-{end}]"
            )
        return {queue_id: offset}

    def _at_time(self, header: ResetOffsetHeader, queue_id: int) -> int:
        if header.timestamp_ms < 0:
            return self.store.max_offset(header.topic, queue_id)
        return max(0, self.store.offset_at_time(header.topic, queue_id, header.timestamp_ms))

    def _tell_consumers(self, header: ResetOffsetHeader) -> dict[int, int]:
        topic = self.topics.get(header.topic)
        if topic is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
            )
        new = {queue_id: self._no_later(header, queue_id) for queue_id in range(topic.write_queue_nums)}
        group = self.consumers.get(header.group)
        if group is None or not group.members:
            raise RequestRejected(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp_ms}",
            )
        for client in group.members.values():
            refuse_older(client)
        self._tell(group, header, new)
        return new

    def _no_later(self, header: ResetOffsetHeader, queue_id: int) -> int:
        """By time; without force a group is only ever moved back."""
        before = self.offsets.get(header.group, header.topic, queue_id)
        if before is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
        offset = self._at_time(header, queue_id)
        return offset if header.is_force else min(offset, before)

    def _tell(self, group: ConsumerGroup, header: ResetOffsetHeader, new: dict[int, int]) -> None:
        ext = ResetOffsetHeader(header.topic, header.group, header.timestamp_ms).encode()
        plain = self._body(header.topic, new)
        for member, client in group.members.items():
            body = plain
            if client.language == "CPP":
                body = encode_reset_list({self._queue(header.topic, item): offset for item, offset in new.items()})
            try:
                member.send_oneway(Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, dict(ext), body))
            except TransportError as error:
                log.warning("%s of group %s was not told of its reset: %s", client.client_id, group.name, error)
