"""Replies (324, 325): stored in the cluster's reply topic, and pushed to the client that waits for them (326).

The answer tells the replier whether that client took it; it is stored either way, unless replies are not to be stored.
"""

from __future__ import annotations

import logging

from rocketline.broker.handlers.send import SendHandlers
from rocketline.broker.registries import ProducerRegistry
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.errors import RequestRejected, TransportError
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import PushReplyHeader, SendMessageHeader
from rocketline.protocol.message_ids import decode_host, offset_id
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.replies import PUSH_REPLY_TIME, REPLY_TO_CLIENT
from rocketline.store.message_store import AppendStatus, StoreMessage
from rocketline.transport import Channel, Handler, Reply

log = logging.getLogger(__name__)

PUSH_TIMEOUT_S = 10.0


@wired
class ReplyHandlers:
    sends: SendHandlers
    producers: ProducerRegistry
    clock: Clock
    stores: bool = True

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.SEND_REPLY_MESSAGE: self.reply, RequestCode.SEND_REPLY_MESSAGE_V2: self.reply}

    def reply(self, channel: Channel, request: Command) -> Reply:
        header = SendMessageHeader.decode(request)
        try:
            message = self.sends.reply_message(channel, request, header)
        except RequestRejected as rejected:
            return self.sends.refuse(request, rejected)
        ext = {**self._stored(message), **self.sends.answer_ext}
        client_id = message.properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            return _answer(request, ext, f"reply message properties[{REPLY_TO_CLIENT}] is null")
        asker = self.producers.find(client_id)
        if asker is None:
            return _answer(request, ext, f"push reply message fail, channel of <{client_id}> not found.")
        return self._handed_over(asker, self._pushed(channel, header, message), request, ext)

    def _stored(self, message: StoreMessage) -> dict[str, str]:
        """Where the reply is; zeros, which every client can read, when it is nowhere."""
        parts = self.sends.parts
        placed = {"msgId": "0", "queueId": str(message.queue_id), "queueOffset": "0"}
        if not self.stores:
            return placed
        result = parts.store.append(message)
        if result.status is not AppendStatus.OK:
            log.warning("a reply for %s is not stored: %s", message.properties.get(REPLY_TO_CLIENT), result.reason)
            return placed
        parts.stored()
        return {
            **placed,
            "msgId": offset_id(parts.store_host, result.log_offset),
            "queueOffset": str(result.queue_offset),
        }

    @staticmethod
    async def _handed_over(asker: Channel, pushed: Command, request: Command, ext: dict[str, str]) -> Command:
        try:
            answer = await asker.call(pushed, PUSH_TIMEOUT_S)
        except TransportError as error:
            return _answer(request, ext, f"push reply message to {asker.remote} fail: {error}")
        if answer.code != ResponseCode.SUCCESS:
            return _answer(request, ext, f"push reply message to {asker.remote} fail: {answer.remark or answer.code}")
        return _answer(request, ext, None)

    def _pushed(self, channel: Channel, header: SendMessageHeader, message: StoreMessage) -> Command:
        now_ms = self.clock.now_ms()
        properties = {**message.properties, PUSH_REPLY_TIME: str(now_ms)}
        pushed = PushReplyHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=message.queue_id,
            sys_flag=header.sys_flag,
            born_ms=header.born_ms,
            flag=header.flag,
            properties=encode_properties(properties),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=channel.remote,
            store_host=decode_host(self.sends.parts.store_host),
            store_ms=now_ms,
        )
        return Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed.encode(), bytes(message.body))


def _answer(request: Command, ext: dict[str, str], problem: str | None) -> Command:
    return request.reply(ResponseCode.SYSTEM_ERROR if problem else ResponseCode.SUCCESS, ext, remark=problem)
