"""Asking a broker which queues are ours and how to read them (400), instead of working it out here.

That is how a group is switched to pop mode: an operator sets it for a topic (401), and members that leave the sharing to
the brokers learn it from their next answer. A broker that cannot say (unknown topic, group or strategy) answers without a
list: everything stays as it is. An empty list means that nothing is ours.
"""

from __future__ import annotations

import random

from rocketline.client.consumer.group.assignment import Strategy, allocate_averagely, allocate_by_circle
from rocketline.client.remote_broker import RemoteBroker
from rocketline.client.session import ClientSession
from rocketline.errors import BrokerError, ConfigError, RequestNotSupported, RocketlineError, RouteNotFound
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import (
    POP,
    PULL,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
    decode_body,
    encode_body,
)
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command

_NAMES: dict[Strategy, str] = {allocate_averagely: "AVG", allocate_by_circle: "AVG_BY_CIRCLE"}


def strategy_name(strategy: Strategy) -> str:
    """The name of a strategy that brokers have too."""
    name = _NAMES.get(strategy)
    if name is None:
        raise ConfigError(f"ByBrokers leaves the sharing to the brokers, which know {', '.join(_NAMES.values())} only")
    return name


class AssignmentQuery:
    """Asks for one member of a group."""

    def __init__(self, session: ClientSession, group: str, strategy: Strategy) -> None:
        self._session = session
        self._group = group
        self._strategy = strategy_name(strategy)
        self._chance = random.Random()

    async def __call__(self, topic: str) -> dict[MessageQueue, str] | None:
        """PULL or POP by queue, -1 for all queues of a broker; None when the broker cannot say."""
        route = await self._session.routes.find(topic)
        names = sorted(route.brokers)
        self._chance.shuffle(names)
        problem: RocketlineError = RouteNotFound(f"no broker of topic {topic!r} can be asked for the share of a member")
        for name in names:
            found = self._session.reader_of(name, 0)
            if found is None:
                continue
            try:
                return await self._ask(found[0], topic)
            except RequestNotSupported:
                raise
            except RocketlineError as error:
                problem = error
        raise problem

    async def _ask(self, broker: RemoteBroker, topic: str) -> dict[MessageQueue, str] | None:
        body = QueryAssignmentRequestBody(topic, self._group, self._session.client_id, self._strategy)
        answer = await _asked(broker, RequestCode.QUERY_ASSIGNMENT, encode_body(body), f"share of {topic}")
        items = decode_body(QueryAssignmentResponseBody, answer.body or b"{}").message_queue_assignments
        if items is None:
            return None
        return {
            item.message_queue.queue: POP if item.mode == POP else PULL
            for item in items
            if item.message_queue is not None and item.message_queue.topic == topic
        }


async def set_request_mode(
    broker: RemoteBroker, topic: str, group: str, mode: str, pop_share_queue_num: int = 0
) -> None:
    """Tell one broker how a group reads a topic from now on: PULL, or POP with every queue shared by 1 + n members."""
    body = encode_body(SetMessageRequestModeRequestBody(topic, group, mode, pop_share_queue_num))
    await _asked(broker, RequestCode.SET_MESSAGE_REQUEST_MODE, body, f"mode {mode} of group {group} for {topic}")


async def _asked(broker: RemoteBroker, code: int, body: bytes, doing: str) -> Command:
    answer = await broker.call(Command(code, {}, body), broker.timeout_s)
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError.of(answer.code, answer.remark, broker.address, doing)
    return answer
