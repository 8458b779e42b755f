"""Looking messages up: by key or unique id (12), by commit-log offset (33)."""

from __future__ import annotations

from rocketline.auth.guard import Require, require_nothing
from rocketline.auth.needs import SUB_OR_GET, topic_need
from rocketline.broker.wiring import wired
from rocketline.errors import RequestRejected
from rocketline.message import LogOffset
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import QueryMessageHeader, QueryMessageResponseHeader, ViewMessageByIdHeader
from rocketline.protocol.records import decode_record
from rocketline.store.message_store import MessageStore
from rocketline.transport import Channel, Handler, Reply

UNIQUE_KEY_MAX = 32


@wired
class QueryHandlers:
    store: MessageStore
    require: Require = require_nothing

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.QUERY_MESSAGE: self.query, RequestCode.VIEW_MESSAGE_BY_ID: self.view}

    def query(self, channel: Channel, request: Command) -> Reply:
        header = QueryMessageHeader.decode(request)
        count = UNIQUE_KEY_MAX if header.unique_key_query else header.max_num
        kind = "U" if header.unique_key_query else header.index_type or ""
        found = self.store.query(header.topic, header.key, count, header.begin_ms, header.end_ms, kind)
        ext = QueryMessageResponseHeader(found.index_updated_ms, LogOffset(found.index_updated_log_offset)).encode()
        if not found.records:
            return request.reply(
                ResponseCode.QUERY_NOT_FOUND, ext, remark="can not find message, maybe time range not correct"
            )
        return request.reply(ResponseCode.SUCCESS, ext, chunks=list(found.records))

    def view(self, channel: Channel, request: Command) -> Reply:
        header = ViewMessageByIdHeader.decode(request)
        record = self.store.record_at(header.log_offset)
        if record is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.log_offset}")
        self.require(channel, request, topic_need(decode_record(record, 0, len(record)).topic, SUB_OR_GET))
        return request.reply(ResponseCode.SUCCESS, chunks=[record])
