"""Queue locks of ordered consumers: lock (41), unlock (42)."""

from __future__ import annotations

from rocketline.broker.queue_locks import QueueLocks
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import Topics
from rocketline.broker.wiring import wired
from rocketline.errors import RequestRejected
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    QueueBody,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.transport import Channel, Handler, Reply


@wired
class LockHandlers:
    locks: QueueLocks
    topics: Topics
    groups: Groups

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    def lock(self, channel: Channel, request: Command) -> Reply:
        """41: the answer names exactly the queues that are the client's now; it stops consuming the others."""
        asked = decode_body(LockBatchRequestBody, request.body)
        if not asked.consumer_group or not asked.client_id:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "a lock needs a consumerGroup and a clientId")
        self.groups.require(asked.consumer_group)
        # Only queues that exist, so that nobody fills the table with invented ones.
        queues = {item.queue for item in asked.mq_set if self._exists(item.queue)}
        granted = self.locks.lock(asked.consumer_group, asked.client_id, sorted(queues))
        body = LockBatchResponseBody([QueueBody.of(queue) for queue in granted])
        return request.reply(ResponseCode.SUCCESS, body=encode_body(body))

    def unlock(self, channel: Channel, request: Command) -> Reply:
        """42: also sent one-way."""
        asked = decode_body(UnlockBatchRequestBody, request.body)
        self.locks.unlock(asked.consumer_group, asked.client_id, [item.queue for item in asked.mq_set])
        return request.reply(ResponseCode.SUCCESS)

    def _exists(self, queue: MessageQueue) -> bool:
        topic = self.topics.get(queue.topic)
        return topic is not None and 0 <= queue.queue_id < max(topic.read_queue_nums, topic.write_queue_nums)
