"""Half messages that the broker gave up, to be checked again (323)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketline.auth.guard import Require, require_nothing
from rocketline.auth.needs import UPDATE, topic_need
from rocketline.broker.transactions.half_messages import HalfMessage
from rocketline.broker.wiring import wired
from rocketline.errors import ProtocolError, RequestRejected
from rocketline.message import UNIQ_KEY
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import ResumeCheckHalfMessageHeader
from rocketline.protocol.message_ids import parse_offset_id
from rocketline.protocol.records import decode_record
from rocketline.protocol.transactions import CHECK_TIMES, HALF_TOPIC, MAX_CHECKS_TOPIC
from rocketline.store.message_store import AppendStatus, MessageStore
from rocketline.transport import Channel, Handler, Reply

log = logging.getLogger(__name__)


@wired
class HalfMessageHandlers:
    store: MessageStore
    stored: Callable[[], None]
    require: Require = require_nothing

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume}

    def resume(self, channel: Channel, request: Command) -> Reply:
        """Store the message under the half topic again, with no checks counted."""
        message_id = ResumeCheckHalfMessageHeader.decode(request).msg_id
        half = self._given_up(message_id)
        self.require(channel, request, topic_need(half.real_topic, UPDATE))
        result = self.store.append(half.to_store(HALF_TOPIC, 0, half.properties | {CHECK_TIMES: "0"}))
        if result.status is not AppendStatus.OK:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"half message {message_id} cannot be stored again now: {result.reason}"
            )
        self.stored()
        log.warning("%s has half message %s checked again", channel.remote, half.properties.get(UNIQ_KEY))
        return request.reply(ResponseCode.SUCCESS)

    def _given_up(self, message_id: str) -> HalfMessage:
        try:
            _, log_offset = parse_offset_id(message_id)
        except ProtocolError as error:
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, str(error)) from error
        view = self.store.record_at(log_offset)
        record = decode_record(view, 0, len(view)) if view is not None else None
        # Any other message would become a half message: somebody else's, by one request.
        if record is None or record.topic != MAX_CHECKS_TOPIC:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"{message_id} is no message of {MAX_CHECKS_TOPIC}")
        return HalfMessage(record)
