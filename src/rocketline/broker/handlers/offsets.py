"""Offsets: of groups (14, 15), and of queues by end (30, 31), by time (29, 32)."""

from __future__ import annotations

from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import Topics
from rocketline.broker.wiring import wired
from rocketline.errors import RequestRejected
from rocketline.message import QueueOffset
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    GetEarliestStoreTimeHeader,
    GetMaxOffsetHeader,
    GetMinOffsetHeader,
    QueryConsumerOffsetHeader,
    SearchOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from rocketline.store.message_store import MessageStore
from rocketline.transport import Channel, Handler, Reply


@wired
class OffsetHandlers:
    """Handlers of offset requests, over the parts they need."""

    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: ConsumerOffsets

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_time,
        }

    def query(self, channel: Channel, request: Command) -> Reply:
        """14. A group without offset starts at 0 while the queue's first message is still at hand, else it is told so."""
        header = QueryConsumerOffsetHeader.decode(request)
        offset: int | None = self.offsets.get(header.consumer_group, header.topic, header.queue_id)
        if offset is None:
            offset = self._first_offset(header)
        return request.reply(ResponseCode.SUCCESS, {"offset": str(offset)})

    def _first_offset(self, header: QueryConsumerOffsetHeader) -> int:
        lowest = self.store.min_offset(header.topic, header.queue_id)
        if lowest <= 0 and header.set_zero_if_not_found is not False:
            unit = self.store.unit_at(header.topic, header.queue_id, QueueOffset(0))
            # An empty queue too: a client told "none" would start at the end and could miss the first messages.
            if unit is None or self.store.in_memory(unit.log_offset):
                return 0
        raise RequestRejected(
            ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        )

    def update(self, channel: Channel, request: Command) -> Reply:
        """15; stored as given. Unlike a pull or heartbeat it creates no group."""
        header = UpdateConsumerOffsetHeader.decode(request)
        if header.consumer_group not in self.groups.table:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.consumer_group} not exist!"
            )
        topic = self.topics.require(header.topic)
        if not 0 <= header.queue_id < max(topic.read_queue_nums, topic.write_queue_nums):
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER, f"queueId {header.queue_id} is not a queue of {header.topic}"
            )
        if header.commit_offset < 0:
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, f"offset {header.commit_offset} is negative")
        self.offsets.commit(channel.remote, header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        return request.reply(ResponseCode.SUCCESS)

    def max_offset(self, channel: Channel, request: Command) -> Reply:
        header = GetMaxOffsetHeader.decode(request)
        self.topics.require(header.topic)
        return _offset(request, self.store.max_offset(header.topic, header.queue_id))

    def min_offset(self, channel: Channel, request: Command) -> Reply:
        header = GetMinOffsetHeader.decode(request)
        self.topics.require(header.topic)
        return _offset(request, self.store.min_offset(header.topic, header.queue_id))

    def search(self, channel: Channel, request: Command) -> Reply:
        header = SearchOffsetHeader.decode(request)
        self.topics.require(header.topic)
        upper = (header.boundary_type or "").upper() == "UPPER"
        offset = self.store.offset_at_time(header.topic, header.queue_id, header.timestamp_ms, upper=upper)
        return _offset(request, offset)

    def earliest_time(self, channel: Channel, request: Command) -> Reply:
        header = GetEarliestStoreTimeHeader.decode(request)
        self.topics.require(header.topic)
        stamp = self.store.earliest_store_ms(header.topic, header.queue_id)
        return request.reply(ResponseCode.SUCCESS, {"timestamp": str(stamp)})


def _offset(request: Command, offset: int) -> Command:
    return request.reply(ResponseCode.SUCCESS, {"offset": str(offset)})
