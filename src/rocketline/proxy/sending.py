"""SendMessage and RecallMessage.

Every message of a call becomes a request of its own, and has an entry of its own in the answer. The queue is chosen here:
messages of one group always have the same, others take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rocketline.broker.grpc_config import GrpcConfig
from rocketline.clock import Clock
from rocketline.errors import ProtocolError, RocketlineError
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.hashing import java_string_hash
from rocketline.protocol.headers import RecallMessageHeader, RecallMessageResponseHeader
from rocketline.protocol.recall import RecallHandle
from rocketline.proxy.access import Access, sends_to
from rocketline.proxy.backend import Backend, Topic
from rocketline.proxy.context import Context
from rocketline.proxy.links import BrokerLink
from rocketline.proxy.messages import TRANSACTION, Outgoing, PlainSend, send_reader, to_broker
from rocketline.proxy.problems import OK, Problem, problem_from, problem_of, status
from rocketline.proxy.proto import Code, pb
from rocketline.proxy.transactions import Transactions
from rocketline.proxy.validation import check_message, checked_topic

SEND_S = 3.0
MAX_MESSAGES = 1024
"""Of one call."""
_LIMIT = 1 << 31
_STORED = frozenset({
    ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
})  # fmt: skip
"""Answers of a broker that took the message."""


class Sending:
    def __init__(
        self, config: GrpcConfig, backend: Backend, access: Access, transactions: Transactions, clock: Clock
    ) -> None:
        self._config = config
        self._backend = backend
        self._access = access
        self._transactions = transactions
        self._clock = clock
        self.read = send_reader(config)

    async def send(self, context: Context, request: Any) -> Any:
        if isinstance(request, PlainSend):
            name, outgoing = checked_topic(request.topic), [request.outgoing]
            self._access.require(context.call, context.channel, sends_to(name))
        else:
            name, outgoing = self._checked(context, request.messages)
        topic = self._backend.known_topic(name) or await self._backend.topic(name)
        for item in outgoing:
            check_type(topic, item.kind)
        assert topic is not None
        answer = pb.SendMessageResponse()
        codes = {await self._send(context, topic, item, answer.entries.add()) for item in outgoing}
        answer.status.CopyFrom(answer.entries[0].status if len(codes) == 1 else status(Code.MULTIPLE_RESULTS))
        return answer

    def _checked(self, context: Context, messages: Sequence[Any]) -> tuple[str, list[Outgoing]]:
        """The topic of a call, and its messages."""
        if not messages:
            raise Problem(Code.MESSAGE_CORRUPTED, "no message to send")
        if len(messages) > MAX_MESSAGES:
            raise Problem(Code.MESSAGE_CORRUPTED, f"{len(messages)} messages: at most {MAX_MESSAGES} in one call")
        name = checked_topic(messages[0].topic.name)
        self._access.require(context.call, context.channel, sends_to(name))
        now_ms = self._clock.now_ms()
        outgoing = []
        for message in messages:
            if message.topic.name != name:
                raise Problem(Code.MESSAGE_CORRUPTED, "different topic in a batch message")
            check_message(message, self._config, now_ms)
            outgoing.append(to_broker(message, name, context.channel.remote, now_ms))
        return name, outgoing

    async def _send(self, context: Context, topic: Topic, item: Outgoing, entry: Any) -> int:
        """Fill in the entry of a message; returns its code."""
        try:
            return await self._stored(context, topic, item, entry)
        except RocketlineError as error:  # those before it are stored
            problem = problem_from(error)
            entry.status.CopyFrom(status(problem.code, problem.text))
            return problem.code

    async def _stored(self, context: Context, topic: Topic, item: Outgoing, entry: Any) -> int:
        link, queue_id = choose_queue(topic, item)
        command = Command(RequestCode.SEND_MESSAGE_V2, _fields(topic.name, queue_id, item), item.body)
        reply = await link.call(context.channel, command, SEND_S)
        if reply.code not in _STORED:
            raise problem_of(reply)
        found = reply.ext or {}
        entry.status.CopyFrom(OK if reply.code == ResponseCode.SUCCESS else status(problem_of(reply).code))
        entry.message_id = entry.transaction_id = item.message_id
        entry.offset = int(found.get("queueOffset", 0))
        if handle := found.get("recallHandle"):
            entry.recall_handle = handle
        if item.kind == TRANSACTION:
            self._transactions.prepared(topic.name, item.message_id, link.name, entry.offset, found.get("msgId", ""))
        return int(entry.status.code)

    async def recall(self, context: Context, request: Any) -> Any:
        name = checked_topic(request.topic.name)
        self._access.require(context.call, context.channel, sends_to(name))
        topic = self._backend.known_topic(name) or await self._backend.topic(name)
        if topic is None or topic.message_type not in ("DELAY", "MIXED"):
            raise Problem(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"recall needs a topic of type DELAY, {name} is {'not there' if topic is None else topic.message_type}",
            )
        try:
            handle = RecallHandle.decode(request.recall_handle)
        except ProtocolError as error:
            raise Problem(Code.BAD_REQUEST, str(error)) from error
        link = await self._backend.link(handle.broker_name)
        if link is None:
            raise Problem(Code.BAD_REQUEST, f"there is no broker {handle.broker_name[:80]!r}")
        header = RecallMessageHeader(name, request.recall_handle, name, link.name)
        answer = await link.call(context.channel, Command(RequestCode.RECALL_MESSAGE, header.encode()), SEND_S)
        if answer.code != ResponseCode.SUCCESS:
            raise problem_of(answer)
        return pb.RecallMessageResponse(status=OK, message_id=RecallMessageResponseHeader.decode(answer).msg_id)


def _fields(topic: str, queue_id: int, item: Outgoing) -> dict[str, str]:
    """The header of a send (310), which creates no topic."""
    return {
        "a": topic,
        "b": topic,
        "c": "",
        "d": "0",
        "e": str(queue_id),
        "f": str(item.sys_flag),
        "g": str(item.born_ms),
        "h": "0",
        "i": item.properties,
        "j": "0",
        "k": "false",
        "m": "false",
    }


def check_type(topic: Topic | None, kind: str) -> None:
    """Refuse a message whose type is not that of its topic."""
    expected = "UNSPECIFIED" if topic is None else topic.message_type
    if expected not in (kind, "MIXED"):
        raise Problem(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {kind}",
        )


def choose_queue(topic: Topic, item: Outgoing) -> tuple[BrokerLink, int]:
    """The broker and the queue of a message."""
    queues = topic.writable
    if not queues:
        raise Problem(Code.FORBIDDEN, f"no writable queue of topic {topic.name}")
    if item.group is not None:
        return queues[consistent_hash(java_string_hash(item.group), len(queues))]
    link, queue_id = topic.next_writable()
    if item.priority >= 0 and topic.message_type == "PRIORITY":
        own = [number for broker, number in queues if broker is link]
        queue_id = min(item.priority, own[-1])
    return link, queue_id


def consistent_hash(value: int, count: int) -> int:
    """One of `count` places for a value: few values move when a place is added. RocketMQ's proxy has the same (Guava's).

    >>> [consistent_hash(java_string_hash(text), 8) for text in ("a", "b", "group-1")]
    [0, 5, 7]
    """
    state = value & 0xFFFFFFFFFFFFFFFF
    place = 0
    while True:
        state = (2862933555777941757 * state + 1) & 0xFFFFFFFFFFFFFFFF
        step = (state >> 33) + 1
        following = int((place + 1) / (step / _LIMIT))
        if following >= count:
            return place
        place = following
