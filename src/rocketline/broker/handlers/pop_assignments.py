"""Assignment of queues to members: query it (400), set a group's mode for a topic (401), show all modes (402)."""

from __future__ import annotations

from collections.abc import Awaitable

from rocketline.async_table import when_saved
from rocketline.broker.pop.modes import STRATEGIES, RequestModes, share_out
from rocketline.broker.pop.routes import ClusterQueues, Queues
from rocketline.broker.registries import BROADCASTING, ConsumerRegistry
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import Topics
from rocketline.broker.wiring import wired
from rocketline.errors import RequestRejected
from rocketline.message import RETRY_PREFIX, MessageQueue
from rocketline.protocol.bodies import (
    POP,
    PULL,
    MessageQueueAssignment,
    MessageRequestModeTable,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    QueueBody,
    SetMessageRequestModeRequestBody,
    decode_body,
    encode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.transport import Channel, Handler, Reply


@wired
class AssignmentHandlers:
    topics: Topics
    groups: Groups
    consumers: ConsumerRegistry
    modes: RequestModes
    queues: ClusterQueues
    shares_queues: bool

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.all_modes,
        }

    def query(self, channel: Channel, request: Command) -> Reply:
        asked = decode_body(QueryAssignmentRequestBody, request.body)
        queues = self.queues.of(asked.topic)
        if isinstance(queues, list) or queues is None:
            return self._answer(request, asked, queues)
        return self._answer_later(request, asked, queues)

    async def _answer_later(
        self, request: Command, asked: QueryAssignmentRequestBody, queues: Awaitable[Queues]
    ) -> Command:
        return self._answer(request, asked, await queues)

    def _answer(self, request: Command, asked: QueryAssignmentRequestBody, queues: Queues) -> Command:
        mode = self.modes.get(asked.topic, asked.consumer_group)
        mine = None if queues is None else self._share(asked, mode, queues)
        if mine is None:
            # No list of queues means: keep what you have. An empty list would mean: give up all queues.
            return request.reply(ResponseCode.SUCCESS, body=encode_body(QueryAssignmentResponseBody()))
        assignments = [MessageQueueAssignment(QueueBody.of(queue), mode.mode) for queue in mine]
        return request.reply(ResponseCode.SUCCESS, body=encode_body(QueryAssignmentResponseBody(assignments)))

    def _share(
        self, asked: QueryAssignmentRequestBody, mode: SetMessageRequestModeRequestBody, queues: list[MessageQueue]
    ) -> list[MessageQueue] | None:
        if asked.message_model == BROADCASTING or not self.shares_queues:
            return queues
        group = self.consumers.get(asked.consumer_group)
        strategy = STRATEGIES.get(asked.strategy_name)
        if group is None or strategy is None:
            return None
        return share_out(mode, strategy, asked.client_id, sorted(group.client_ids), queues)

    def set_mode(self, channel: Channel, request: Command) -> Reply:
        mode = decode_body(SetMessageRequestModeRequestBody, request.body)
        if mode.topic.startswith(RETRY_PREFIX):
            raise RequestRejected(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self.topics.get(mode.topic) is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic[{mode.topic}] not exist")
        self.groups.require(mode.consumer_group)
        if mode.mode not in (PULL, POP):
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER, f"mode {mode.mode[:40]!r} is neither {PULL} nor {POP}"
            )
        return when_saved([self.modes.put(mode)], lambda: request.reply(ResponseCode.SUCCESS))

    def all_modes(self, channel: Channel, request: Command) -> Reply:
        return request.reply(ResponseCode.SUCCESS, body=encode_body(MessageRequestModeTable(self.modes.table)))
