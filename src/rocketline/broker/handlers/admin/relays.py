"""Requests relayed to a client: running info (307), consume a message directly (309), positions of a group (223, sent on as
221).

Each waits in a task of its own for the client's answer, up to a time limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from rocketline.auth.guard import Require, require_nothing
from rocketline.auth.needs import SUB, topic_need
from rocketline.broker.registries import ClientInfo, ConsumerRegistry
from rocketline.broker.tables.groups import Groups
from rocketline.broker.tables.topics import Topics
from rocketline.broker.wiring import wired
from rocketline.errors import ProtocolError, RequestRejected, RequestTimeout, TransportError
from rocketline.protocol.bodies import ConsumerStatus, decode_body, encode_body
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import (
    ConsumeMessageDirectlyHeader,
    GetConsumerRunningInfoHeader,
    GetConsumerStatusHeader,
)
from rocketline.protocol.message_ids import parse_offset_id
from rocketline.protocol.records import decode_record
from rocketline.protocol.signing import ACCOUNT_FIELDS
from rocketline.store.message_store import MessageStore
from rocketline.transport import Channel, Handler

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 10.0
STATUS_TIMEOUT_S = 5.0
ANSWERS_STATUS = 28
"""Clients before 3.0.7 answer neither 220 nor 221."""
ANSWERS_CALLS = 62
"""Clients before 3.1.8 answer neither 307 nor 309."""

LaterReply = Coroutine[Any, Any, Command]


@wired
class RelayHandlers:
    store: MessageStore
    topics: Topics
    groups: Groups
    consumers: ConsumerRegistry
    broker_name: str
    require: Require = require_nothing
    call_timeout_s: float = CALL_TIMEOUT_S
    status_timeout_s: float = STATUS_TIMEOUT_S

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.positions,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    def running_info(self, channel: Channel, request: Command) -> LaterReply:
        """307."""
        header = GetConsumerRunningInfoHeader.decode(request)
        client = self._find(header.consumer_group, header.client_id)
        question = Command(request.code, _fields_for_client(request), request.body)
        return self._call(request, client, header.consumer_group, header.client_id, question)

    def consume_directly(self, channel: Channel, request: Command) -> LaterReply:
        """309: the client gets the stored message with the question."""
        header = ConsumeMessageDirectlyHeader.decode(request)
        client_id = header.client_id or ""
        client = self._find(header.consumer_group, client_id)
        record = self._record(header.msg_id or "")
        # Or a group could read any message of the log, by having it given to a member of its own.
        self.require(channel, request, topic_need(decode_record(record, 0, len(record)).topic, SUB))
        question = Command(request.code, self._described(header, request), bytes(record))
        return self._call(request, client, header.consumer_group, client_id, question)

    def _described(self, header: ConsumeMessageDirectlyHeader, request: Command) -> dict[str, str]:
        ext = dict(_fields_for_client(request), brokerName=self.broker_name)
        if header.topic and (topic := self.topics.get(header.topic)) is not None:
            ext["topicSysFlag"] = str(topic.topic_sys_flag)
        if (group := self.groups.table.get(header.consumer_group)) is not None:
            ext["groupSysFlag"] = str(group.group_sys_flag)
        return ext

    def _record(self, message_id: str) -> memoryview:
        try:
            _, log_offset = parse_offset_id(message_id)
        except ProtocolError as error:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error
        record = self.store.record_at(log_offset)
        if record is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {log_offset}")
        return record

    def _find(self, group_name: str, client_id: str) -> Channel:
        group = self.consumers.get(group_name)
        # The newest first: a client that came back may still have its old connection here.
        for channel, client in reversed(group.members.items()) if group else ():
            if client.client_id == client_id:
                if client.version < ANSWERS_CALLS:
                    raise RequestRejected(
                        ResponseCode.SYSTEM_ERROR,
                        f"The Consumer <{client_id}> Version <{client.version}> too low to finish, "
                        "please upgrade it to V3_1_8_SNAPSHOT",
                    )
                return channel
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group_name}> <{client_id}> not online")

    async def _call(self, request: Command, client: Channel, group: str, client_id: str, question: Command) -> Command:
        try:
            answer = await client.call(question, self.call_timeout_s)
        except RequestTimeout as error:
            remark = f"consumer <{group}> <{client_id}> Timeout: {error}"
            raise RequestRejected(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from error
        except TransportError as error:
            remark = f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark) from error
        return request.reply(answer.code, answer.ext, answer.body, remark=answer.remark)

    def positions(self, channel: Channel, request: Command) -> LaterReply:
        """223: all members are asked at once; one that does not answer is left out."""
        header = GetConsumerStatusHeader.decode(request)
        group = self.consumers.get(header.group)
        if group is None or not group.members:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]"
            )
        for client in group.members.values():
            refuse_older(client)
        wanted = (header.client_addr or "").strip()
        members = [
            (client.client_id, member) for member, client in group.members.items() if wanted in ("", client.client_id)
        ]
        return self._positions(request, header, members)

    async def _positions(
        self, request: Command, header: GetConsumerStatusHeader, members: list[tuple[str, Channel]]
    ) -> Command:
        found = await asyncio.gather(*(self._position(header, *member) for member in members))
        table = {client_id: queues for (client_id, _), queues in zip(members, found) if queues is not None}
        return request.reply(ResponseCode.SUCCESS, body=encode_body(ConsumerStatus(consumer_table=table)))

    async def _position(
        self, header: GetConsumerStatusHeader, client_id: str, client: Channel
    ) -> dict[str, int] | None:
        question = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": header.topic, "group": header.group})
        try:
            answer = await client.call(question, self.status_timeout_s)
            if answer.code == ResponseCode.SUCCESS and answer.body:
                return decode_body(ConsumerStatus, answer.body).message_queue_table
            log.warning("%s of group %s does not say where it is: %s", client_id, header.group, answer.remark)
        except (TransportError, ProtocolError) as error:
            log.warning("%s of group %s does not say where it is: %s", client_id, header.group, error)
        return None


def _fields_for_client(request: Command) -> dict[str, str]:
    """The fields of a request without its sender's signature, which the client could use itself."""
    return {name: value for name, value in (request.ext or {}).items() if name not in ACCOUNT_FIELDS}


def refuse_older(client: ClientInfo) -> None:
    """Refuse clients that understand neither 220 nor 221."""
    if client.version < ANSWERS_STATUS:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"the client does not support this feature. version={client.version}"
        )
