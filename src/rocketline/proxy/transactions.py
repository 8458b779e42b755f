"""Transactions: ended by the client (EndTransaction), or asked about by the broker.

A broker finds a half message by its place in the log, which clients do not know: the place of every half message is kept
here from when it was sent, or asked about, until it is old. Ended ones stay for a while, so that ending one twice changes
nothing. A broker that asks later than `CROSSING_S` about an ended one has lost the outcome: the client is asked again, and
its answer is passed on.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rocketline.errors import CorruptRecord, ProtocolError
from rocketline.message import LogOffset, QueueOffset
from rocketline.protocol.codes import RequestCode, ResponseCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import CheckTransactionStateHeader, EndTransactionHeader
from rocketline.protocol.message_ids import parse_offset_id
from rocketline.protocol.records import decode_message
from rocketline.protocol.transactions import Transaction
from rocketline.proxy.access import Access, sends_to
from rocketline.proxy.backend import Backend
from rocketline.proxy.clients import Client
from rocketline.proxy.context import Context
from rocketline.proxy.messages import to_client
from rocketline.proxy.problems import OK, Problem, problem_of
from rocketline.proxy.proto import Code, Resolution, Source, pb
from rocketline.proxy.validation import checked_topic

log = logging.getLogger(__name__)

KEEP_S = 3600.0
MAX_KEPT = 100_000
"""Open ones, and as many that ended."""
CROSSING_S = 10.0
"""A question that comes so soon after the outcome was on its way before that."""
END_S = 3.0


@dataclass(slots=True)
class _Prepared:
    """Where the half message of a transaction is."""

    broker_name: str
    queue_offset: int
    log_offset: int
    message_id: str
    """As brokers name it: an offset id, or the unique id."""
    since: float


Key = tuple[str, str]
"""(topic, transaction id)"""


class Transactions:
    def __init__(self, backend: Backend, access: Access, now: Callable[[], float]) -> None:
        self._backend = backend
        self._access = access
        self._now = now
        self._open: OrderedDict[Key, _Prepared] = OrderedDict()
        self._ended: OrderedDict[Key, float] = OrderedDict()
        """When each ended."""

    def __len__(self) -> int:
        return len(self._open)

    def prepared(self, topic: str, transaction_id: str, broker_name: str, queue_offset: int, offset_id: str) -> None:
        """A half message was stored."""
        try:
            _, log_offset = parse_offset_id(offset_id)
        except ProtocolError:
            log.warning("broker %s does not say where the half message %s is", broker_name, transaction_id)
            return
        self._note(topic, transaction_id, _Prepared(broker_name, queue_offset, log_offset, transaction_id, self._now()))

    def _note(self, topic: str, transaction_id: str, place: _Prepared) -> None:
        key = topic, transaction_id
        self._ended.pop(key, None)
        self._open.pop(key, None)
        self._open[key] = place
        oldest = self._now() - KEEP_S
        while self._open:
            key, first = next(iter(self._open.items()))
            if first.since > oldest and len(self._open) <= MAX_KEPT:
                return
            if first.since > oldest:
                log.warning("%d transactions are open: %s can be ended when its broker asks", MAX_KEPT, key[1])
            del self._open[key]

    def _note_end(self, key: Key) -> None:
        self._open.pop(key, None)
        self._ended[key] = self._now()
        oldest = self._now() - KEEP_S
        while len(self._ended) > MAX_KEPT or next(iter(self._ended.values())) < oldest:
            self._ended.popitem(last=False)

    async def end(self, context: Context, request: Any) -> Any:
        """EndTransaction."""
        topic, transaction_id = checked_topic(request.topic.name), request.transaction_id
        self._access.require(context.call, context.channel, sends_to(topic))
        if not transaction_id or transaction_id.isspace():
            raise Problem(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        key = topic, transaction_id
        if key in self._ended:
            return pb.EndTransactionResponse(status=OK)
        place = self._open.get(key)
        if place is None:
            raise Problem(
                Code.INVALID_TRANSACTION_ID, f"transaction {transaction_id[:80]!r} is not known here, or too old"
            )
        outcome = _OUTCOMES.get(request.resolution, Transaction.UNKNOWN)
        if outcome:
            await self._tell(context, topic, transaction_id, place, outcome, request.source)
            self._note_end(key)
        return pb.EndTransactionResponse(status=OK)

    async def _tell(
        self, context: Context, topic: str, transaction_id: str, place: _Prepared, outcome: Transaction, source: int
    ) -> None:
        link = await self._backend.link(place.broker_name)
        if link is None:
            raise Problem(Code.BAD_REQUEST, f"there is no broker {place.broker_name}")
        header = EndTransactionHeader(
            topic,
            QueueOffset(place.queue_offset),
            LogOffset(place.log_offset),
            outcome,
            place.message_id,
            source == Source.SOURCE_SERVER_CHECK,
            topic,
            transaction_id,
            place.broker_name,
        )
        answer = await link.call(context.channel, Command(RequestCode.END_TRANSACTION, header.encode()), END_S)
        if answer.code != ResponseCode.SUCCESS:
            raise problem_of(answer)

    def check(self, client: Client, command: Command) -> None:
        """A broker asks about a transaction (39): pass it on to the client."""
        try:
            header = CheckTransactionStateHeader.decode(command)
            message = decode_message(command.body, 0, len(command.body), inflates=False)
        except (CorruptRecord, ProtocolError) as error:
            log.warning("a broker asks %s about a transaction that cannot be read: %s", client.id, error)
            return
        if client.stream is None:
            log.info("%s is to be asked about transaction %s, and has no stream", client.id, message.message_id)
            return
        transaction_id = header.transaction_id or message.message_id
        key = message.topic, transaction_id
        if self._now() - self._ended.get(key, -CROSSING_S) < CROSSING_S:
            return
        former = self._open.get(key)
        broker_name = header.broker_name or message.broker_name or (former.broker_name if former else "")
        place = _Prepared(broker_name, header.queue_offset, header.log_offset, transaction_id, self._now())
        self._note(message.topic, transaction_id, place)
        asked = pb.TelemetryCommand()
        asked.recover_orphaned_transaction_command.transaction_id = transaction_id
        asked.recover_orphaned_transaction_command.message.CopyFrom(to_client(message, pb.Resource(name=message.topic)))
        client.stream.send(asked)


_OUTCOMES = {Resolution.COMMIT: Transaction.COMMIT, Resolution.ROLLBACK: Transaction.ROLLBACK}
