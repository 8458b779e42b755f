"""The end of a transaction (37): the producer says commit or roll back, by itself or because it was asked.

Java's producers send it one-way and get no answer; ours wait for it. "Unknown" is never answered, as with Apache.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketline.auth.guard import Require, require_nothing
from rocketline.auth.needs import PUB, topic_need
from rocketline.broker.durability import Durability
from rocketline.broker.handlers.send import answer_when_durable
from rocketline.broker.transactions.half_messages import HalfMessage, HalfMessages
from rocketline.broker.wiring import wired
from rocketline.errors import RequestRejected
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import EndTransactionHeader
from rocketline.protocol.transactions import CHECK_IMMUNITY_S, PGROUP, Transaction, immunity_ms
from rocketline.transport import Channel, Handler, Reply

log = logging.getLogger(__name__)


@wired
class TransactionHandlers:
    half_messages: HalfMessages
    durability: Durability | None
    """What to wait for under SYNC_FLUSH."""
    now_ms: Callable[[], int]
    timeout_ms: int
    require: Require = require_nothing
    is_slave: bool = False

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.END_TRANSACTION: self.end}

    def end(self, channel: Channel, request: Command) -> Reply:
        header = EndTransactionHeader.decode(request)
        try:
            return self._end(channel, request, header)
        except RequestRejected as rejected:
            # Java's producers send it one-way and never learn of this.
            log.warning("%s cannot end transaction %s: %s", channel.remote, header.transaction_id, rejected.remark)
            raise

    def _end(self, channel: Channel, request: Command, header: EndTransactionHeader) -> Reply:
        if self.is_slave:
            raise RequestRejected(ResponseCode.SLAVE_NOT_AVAILABLE, "a slave cannot end transactions")
        outcome = header.commit_or_rollback
        if outcome == Transaction.UNKNOWN:
            log.info("%s does not know yet how transaction %s ends", channel.remote, header.transaction_id)
            return None
        if outcome not in (Transaction.COMMIT, Transaction.ROLLBACK):
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"commitOrRollback {outcome} is neither 8 (commit) nor 12 (roll back)"
            )
        half = self._half_message(header)
        self.require(channel, request, topic_need(half.real_topic, PUB))
        if not self.half_messages.ops.has_room:
            raise RequestRejected(ResponseCode.SYSTEM_BUSY, "ended transactions cannot be noted now, try again later")
        if outcome == Transaction.ROLLBACK:
            self.half_messages.roll_back(half)
            return request.reply(ResponseCode.SUCCESS)
        result = self.half_messages.commit(half)
        if result is None or self.durability is None:
            return request.reply(ResponseCode.SUCCESS)
        # Late is not lost: the half message is on disk, and would be asked about.
        durable = self.durability.wait(result.next_log_offset)
        return answer_when_durable(durable, lambda _: request.reply(ResponseCode.SUCCESS))

    def _half_message(self, header: EndTransactionHeader) -> HalfMessage:
        half = self.half_messages.at(header.log_offset)
        if half is None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if self._is_too_late(header, half):
            raise RequestRejected(
                ResponseCode.ILLEGAL_OPERATION,
                f"the message's own {CHECK_IMMUNITY_S} is over: only an answer to the broker's check counts now",
            )
        if half.properties.get(PGROUP) != header.producer_group:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.record.queue_offset != header.queue_offset:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if half.record.log_offset != header.log_offset:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
        return half

    def _is_too_late(self, header: EndTransactionHeader, half: HalfMessage) -> bool:
        if header.from_transaction_check or CHECK_IMMUNITY_S not in half.properties:
            return False
        limit_ms = max(immunity_ms(half.properties, 0), self.timeout_ms)
        return self.now_ms() - half.record.born_ms > limit_ms
