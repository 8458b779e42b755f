"""Who calls: the account that signed a call, and what it may do.

Rights are asked for before anything else of a call is looked at, so that nobody learns of what is not his.

A call is signed by the time that it names, and nothing else of it. The account becomes the identity of the channel with
which the front asks a broker, so the guard that decides is the broker's own, with the same accounts and rights.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from rocketline.auth.guard import Refused
from rocketline.auth.model import Action, Need, Resource, ResourceKind
from rocketline.auth.needs import PUB, SUB, topic_need
from rocketline.auth.refusal_log import Reason
from rocketline.grpc.calls import Call
from rocketline.grpc.channel import GrpcChannel
from rocketline.grpc.steps import answered
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.signing import ACCESS_KEY
from rocketline.proxy.backend import Backend
from rocketline.proxy.links import FrontChannel
from rocketline.proxy.problems import Problem
from rocketline.proxy.proto import Code

MAX_ACCOUNTS = 64
"""Accounts that one connection may use."""
PUB_OR_SUB = (Action.PUB, Action.SUB)
MAX_NEEDS = 4096
"""Needs that are kept: the same few are asked for by every call."""
_CODES = {
    "QueryRoute": RequestCode.GET_ROUTEINFO_BY_TOPIC,
    "QueryAssignment": RequestCode.QUERY_ASSIGNMENT,
    "Heartbeat": RequestCode.HEART_BEAT,
    "Telemetry": RequestCode.HEART_BEAT,
    "NotifyClientTermination": RequestCode.UNREGISTER_CLIENT,
    "SendMessage": RequestCode.SEND_MESSAGE_V2,
    "RecallMessage": RequestCode.RECALL_MESSAGE,
    "EndTransaction": RequestCode.END_TRANSACTION,
    "ReceiveMessage": RequestCode.POP_MESSAGE,
    "AckMessage": RequestCode.ACK_MESSAGE,
    "ChangeInvisibleDuration": RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    "ForwardMessageToDeadLetterQueue": RequestCode.CONSUMER_SEND_MSG_BACK,
}
"""The request of remoting that a method stands for: whitelists and the audit log name those."""


class Access:
    """Finds the channel on which calls ask brokers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def channel(self, call: Call) -> FrontChannel:
        """The channel of the account that signed a call; raises Refused."""
        guard = self._backend.guard
        connection = call.channel
        if guard is None or (b"authorization" not in call.headers and connection.identity):
            return channel_of(connection, connection.identity)
        name, text, signature = read_signature(call)
        return channel_of(connection, guard.sign_in(channel_of(connection, ""), name, text, signature).name)

    async def refused(self, call: Call, refused: Refused) -> Problem:
        """What a call is told that is not signed as it should be; who guesses has to wait for it."""
        guard, channel = self._backend.guard, channel_of(call.channel, "")
        remark = None
        if guard is not None:
            answer = await answered(guard.refuse(channel, _request_of(call, _claimed_name(call)), refused))
            remark = answer.remark if answer is not None else None
        return Problem(Code.UNAUTHORIZED, remark or refused.remark)

    def require(self, call: Call, channel: FrontChannel, needs: Iterable[Need]) -> None:
        """Refuse a call whose account lacks a right that no request to a broker asks for."""
        guard = self._backend.guard
        if guard is None:
            return
        request = _request_of(call)
        try:
            for need in needs:
                guard.require(channel, request, need)
        except Refused as refused:
            raise Problem(Code.UNAUTHORIZED, refused.remark) from refused


def _request_of(call: Call, account: str = "") -> Command:
    method = call.served.method.path.rpartition("/")[2]
    return Command(_CODES[method], {ACCESS_KEY: account} if account else None)


def _claimed_name(call: Call) -> str:
    """Whom a call says it is of, rightly or not."""
    try:
        return read_signature(call)[0]
    except Refused:
        return ""


def group_need(name: str) -> Need:
    return Need(Resource(ResourceKind.GROUP, name), SUB)


@lru_cache(MAX_NEEDS)
def sends_to(topic: str) -> tuple[Need, ...]:
    """What whoever sends to a topic needs."""
    return (topic_need(topic, PUB),)


@lru_cache(MAX_NEEDS)
def consumes(group: str, topic: str) -> tuple[Need, ...]:
    """What a consumer of a topic needs."""
    return (group_need(group), topic_need(topic, SUB))


@lru_cache(MAX_NEEDS)
def route_needs(topic: str) -> tuple[Need, ...]:
    return (topic_need(topic, PUB_OR_SUB),)


def channel_of(connection: GrpcChannel, identity: str) -> FrontChannel:
    """The channel of an account on a connection; kept with it."""
    known: dict[str, FrontChannel] | None = connection.owner
    if known is None:
        known = connection.owner = {}
        connection.on_close.append(_close_all)
    found = known.get(identity)
    if found is None or not found.is_open:
        if len(known) >= MAX_ACCOUNTS:
            known.pop(next(name for name in known if name)).close()
        found = known[identity] = new_channel(connection, identity)
        if not identity:
            found.on_close.append(lambda _: connection.close())  # who guesses too often is sent away
    return found


def new_channel(connection: GrpcChannel, identity: str) -> FrontChannel:
    """A channel for brokers that stands for the other end of a connection."""
    return FrontChannel(
        connection.remote,
        connection.remote_ip,
        connection.remote_port,
        identity=identity,
        is_encrypted=connection.is_encrypted,
        certificate=connection.identity,
    )


def _close_all(connection: GrpcChannel) -> None:
    known: dict[str, FrontChannel] = connection.owner or {}
    for channel in known.values():
        channel.close()
    known.clear()


def read_signature(call: Call) -> tuple[str, bytes, bytes]:
    """(account, what is signed, signature) of a call; raises Refused, with RocketMQ's words."""
    header = call.header(b"authorization")
    if not header:
        raise Refused(Reason.NO_ACCOUNT, "username cannot be null.")
    signed: Any = call.headers.get(b"x-mq-date-time")
    if signed is None:
        raise Refused(Reason.NO_ACCOUNT, "datetime is null.")
    _, separator, rest = header.partition(" ")
    if not separator:
        raise Refused(Reason.NO_ACCOUNT, "authentication header is incorrect.")
    parts = {name: value for name, _, value in (item.strip().partition("=") for item in rest.split(","))}
    name = parts.get("Credential", "").partition("/")[0]
    try:
        signature = bytes.fromhex(parts.get("Signature", ""))
    except ValueError:
        signature = b""
    return name, signed, signature
