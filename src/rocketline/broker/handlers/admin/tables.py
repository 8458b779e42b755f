"""Tables as other brokers copy them: consumer offsets (43), delay offsets (45); and a consume queue's entries (321)."""

from __future__ import annotations

from rocketline.broker.delays.delay_levels import DelayLevels
from rocketline.broker.registries import ConsumerRegistry
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.wiring import wired
from rocketline.errors import RequestRejected
from rocketline.protocol.bodies import ConsumeQueueBody, ConsumeQueueUnit, encode_body
from rocketline.protocol.bodies.heartbeat import TAG
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import QueryConsumeQueueHeader
from rocketline.store.message_store import MessageStore
from rocketline.transport import Channel, Handler, Reply

MAX_UNITS = 4096
"""Entries in one answer: other requests wait meanwhile."""


@wired
class TableHandlers:
    store: MessageStore
    offsets: ConsumerOffsets
    delays: DelayLevels
    consumers: ConsumerRegistry

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.consumer_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self.delay_offsets,
            RequestCode.QUERY_CONSUME_QUEUE: self.queue,
        }

    def consumer_offsets(self, channel: Channel, request: Command) -> Reply:
        return request.reply(ResponseCode.SUCCESS, body=encode_body(self.offsets.snapshot()))

    def delay_offsets(self, channel: Channel, request: Command) -> Reply:
        return request.reply(ResponseCode.SUCCESS, body=encode_body(self.delays.lasting()))

    def queue(self, channel: Channel, request: Command) -> Reply:
        header = QueryConsumeQueueHeader.decode(request)
        topic, queue_id, index = header.topic, header.queue_id, header.index
        if queue_id not in self.store.queue_ids(topic):
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        body = ConsumeQueueBody(
            self._units(header), self.store.min_offset(topic, queue_id), self.store.max_offset(topic, queue_id)
        )
        if not body.min_queue_index <= index <= body.max_queue_index:
            return request.reply(ResponseCode.SUCCESS, remark=f"Index {index} of {queue_id}@{topic} is not exist!")
        self._add_subscription(header, body)
        return request.reply(ResponseCode.SUCCESS, body=encode_body(body))

    def _units(self, header: QueryConsumeQueueHeader) -> list[ConsumeQueueUnit]:
        units = []
        for offset in range(header.index, header.index + min(header.count, MAX_UNITS)):
            unit = self.store.unit_at(header.topic, header.queue_id, offset)
            if unit is None:
                break
            units.append(ConsumeQueueUnit(unit.log_offset, unit.size, unit.tags_code))
        return units

    def _add_subscription(self, header: QueryConsumeQueueHeader, body: ConsumeQueueBody) -> None:
        if header.consumer_group is None:
            return
        group = self.consumers.get(header.consumer_group)
        body.subscription_data = group.subscriptions.get(header.topic) if group else None
        if body.subscription_data is None:
            body.filter_data = f"{header.consumer_group}@{header.topic} is not online!"
        elif body.subscription_data.expression_type == TAG:
            body.filter_data = "null"  # as Java writes that there is no filter but tags
