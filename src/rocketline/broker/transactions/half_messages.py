"""Half messages: stored under a topic of the broker's own, out of every consumer's sight, until their transaction ends.

A commit stores a new record under the real topic, without REAL_TOPIC and REAL_QID, with the commit bit in its system flag
and the log offset of the half message in it; then the half message is noted as ended.

A transaction is ended once. Its half message moves when the broker asks about it (it is stored again at the end of its
queue), so an end may speak of an older place; a slow producer may answer twice; and after a crash there may be two copies to
ask about. Where half messages went and how their transactions ended is remembered in memory for the last ones, and for older
ones looked up in the log. Apache's broker stores the message again in all these cases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from rocketline.broker.detours import real_place, send_on_detour
from rocketline.broker.transactions.ops import OpWriter
from rocketline.broker.transactions.topic_counts import TransactionsByTopic
from rocketline.errors import RequestRejected
from rocketline.message import REAL_QID, REAL_TOPIC, TRANSACTION_ID, UNIQ_KEY
from rocketline.protocol.codes import ResponseCode
from rocketline.protocol.names import topic_problem
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.record_layout import TRANSACTION_COMMIT, TRANSACTION_MASK
from rocketline.protocol.records import Record, decode_record
from rocketline.protocol.transactions import HALF_TOPIC, PGROUP, Transaction
from rocketline.store.message_store import AppendResult, AppendStatus, MessageStore, StoreMessage, copy_of

K = TypeVar("K")
V = TypeVar("V")

REMEMBERED = 1 << 16
"""Half messages of which it is remembered where they went, or how they ended."""
ADDED_LATER_BYTES = 256
"""Room for what checks add to the properties, and then the detour of a committed message that is for later."""

Identity = tuple[str, str]
"""Producer group and unique id of a transaction."""


@dataclass(slots=True)
class TransactionCounts:
    """What became of transactions since the broker started."""

    prepared: int = 0
    committed: int = 0
    rolled_back: int = 0
    repeated: int = 0
    """Ends of transactions that were ended before."""
    checked: int = 0
    unanswerable: int = 0
    """Checks for which no producer of the group was connected that may publish to the message's topic."""
    given_up: int = 0
    """Put aside because nobody answered, or because they could not be asked about."""


class HalfMessage:
    """A half message read back from the log."""

    __slots__ = ("properties", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.properties = decode_properties(record.properties.decode("utf-8", "replace"))

    @property
    def transaction(self) -> Identity:
        """What all copies of a half message have in common."""
        unique = self.properties.get(UNIQ_KEY) or f"at {self.record.log_offset}"
        return self.properties.get(PGROUP, ""), unique

    @property
    def real_topic(self) -> str:
        """As it says; "" when it does not."""
        return self.properties.get(REAL_TOPIC, "")

    @property
    def target(self) -> tuple[str, int] | None:
        """Real topic and queue; None when it names none that can be."""
        try:
            return None if topic_problem(self.real_topic) else real_place(self.properties)
        except ValueError:
            return None

    def to_store(self, topic: str, queue_id: int, properties: dict[str, str]) -> StoreMessage:
        """The same message for another place."""
        copy = copy_of(self.record, topic, queue_id, properties)
        copy.prepared_log_offset = 0
        return copy


class HalfMessages:
    """Takes half messages in and ends their transactions."""

    def __init__(
        self,
        store: MessageStore,
        ops: OpWriter,
        stored: Callable[[], None],
        postpone: Callable[[StoreMessage], None],
    ) -> None:
        """`postpone` sends committed messages that are for later on their detour."""
        self._store = store
        self._postpone = postpone
        self._stored = stored
        self.ops = ops
        self.counts = TransactionCounts()
        self.by_topic = TransactionsByTopic()
        self._moved: dict[int, int] = {}
        self._ended: dict[int, Transaction] = {}
        self._outcomes: dict[Identity, Transaction] = {}
        self._found = store.max_offset(HALF_TOPIC, 0)
        """Half messages before this were there when the broker started: how those ended is not remembered."""

    def prepare(self, message: StoreMessage) -> None:
        """Make a message that arrived a half message; RequestRejected when its commit could not be stored."""
        self._postpone(msgspec.structs.replace(message, properties=dict(message.properties)))
        topic, properties = message.topic, message.properties
        if unique := properties.get(UNIQ_KEY):
            properties[TRANSACTION_ID] = unique
        send_on_detour(message, HALF_TOPIC, 0, ADDED_LATER_BYTES)
        message.sys_flag &= ~TRANSACTION_MASK
        self.by_topic.of(topic).open += 1
        self.counts.prepared += 1

    def at(self, log_offset: int) -> HalfMessage | None:
        """The half message at a log offset, if one is there."""
        view = self._store.record_at(log_offset)
        if view is None:
            return None
        record = decode_record(view, 0, len(view))
        return HalfMessage(record) if record.topic == HALF_TOPIC else None

    def moved(self, queue_offset: int, next_offset: int) -> None:
        """The half message at `queue_offset` was stored again at `next_offset`."""
        _remember(self._moved, queue_offset, next_offset)

    def place_of(self, queue_offset: int) -> int:
        """Where a half message is now."""
        while (later := self._moved.get(queue_offset)) is not None:
            queue_offset = later
        return queue_offset

    def ended(self, queue_offset: int, outcome: Transaction = Transaction.UNKNOWN) -> None:
        """Remember that a transaction is over; UNKNOWN: in which way is not known."""
        if queue_offset not in self._ended:
            _remember(self._ended, queue_offset, outcome)

    def has_ended(self, queue_offset: int) -> bool:
        """Whether the half message at this place is known to be of no more use."""
        return queue_offset in self._ended

    def outcome_of(self, half: HalfMessage) -> Transaction | None:
        """How the transaction of a half message ended, as far as is remembered."""
        return self._outcomes.get(half.transaction)

    def commit(self, half: HalfMessage) -> AppendResult | None:
        """Store the real message; None when that was done before. RequestRejected when it cannot be stored."""
        if self._is_repeated(half, Transaction.COMMIT):
            return None
        if half.record.queue_offset < self._found and self.was_committed(half):
            self.counts.repeated += 1
            self._end(half, Transaction.COMMIT)
            return None
        result = self._store.append(self._real(half))
        if result.status is not AppendStatus.OK:
            raise RequestRejected(_refusal_code(result.status), result.reason or result.status.name)
        self._stored()
        self.counts.committed += 1
        self.by_topic.committed(half.real_topic, self._store.last_store_ms - half.record.born_ms)
        self._end(half, Transaction.COMMIT)
        return result

    def roll_back(self, half: HalfMessage) -> None:
        if not self._is_repeated(half, Transaction.ROLLBACK):
            self.counts.rolled_back += 1
            self.by_topic.rolled_back(half.real_topic)
            self._end(half, Transaction.ROLLBACK)

    def was_committed(self, half: HalfMessage) -> bool:
        """Whether the log has the real message: a crash may have taken the note away."""
        unique, target = half.properties.get(UNIQ_KEY), half.target
        if not unique or target is None:
            return False
        found = [
            decode_record(view, 0, len(view))
            for view in self._store.query(target[0], unique, 32, index_type="U").records
        ]
        return any(
            record.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT
            and HalfMessage(record).transaction == half.transaction
            for record in found
        )

    def _is_repeated(self, half: HalfMessage, outcome: Transaction) -> bool:
        queue_offset = self.place_of(half.record.queue_offset)
        before = self._outcomes.get(half.transaction, self._ended.get(queue_offset))
        if before is None:
            return False
        self.counts.repeated += 1
        if before not in (outcome, Transaction.UNKNOWN):
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"the transaction is over, it ended before with {before.name}"
            )
        self._note(queue_offset, outcome)
        return True

    def _end(self, half: HalfMessage, outcome: Transaction) -> None:
        _remember(self._outcomes, half.transaction, outcome)
        self._note(self.place_of(half.record.queue_offset), outcome)

    def _note(self, queue_offset: int, outcome: Transaction) -> None:
        if queue_offset not in self._ended:
            self.ended(queue_offset, outcome)
            self.ops.add(queue_offset)

    def _real(self, half: HalfMessage) -> StoreMessage:
        target = half.target
        if target is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"the half message at {half.record.log_offset} names no topic and queue it could go to",
            )
        properties = {name: value for name, value in half.properties.items() if name not in (REAL_TOPIC, REAL_QID)}
        real = half.to_store(*target, properties)
        real.sys_flag = real.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
        real.prepared_log_offset = half.record.log_offset
        self._postpone(real)
        return real


def _remember(memory: dict[K, V], key: K, value: V) -> None:
    memory[key] = value
    if len(memory) > REMEMBERED:
        del memory[next(iter(memory))]


def _refusal_code(status: AppendStatus) -> ResponseCode:
    if status is AppendStatus.BUSY:
        return ResponseCode.SYSTEM_BUSY
    if status is AppendStatus.NOT_AVAILABLE:
        return ResponseCode.SERVICE_NOT_AVAILABLE
    return ResponseCode.MESSAGE_ILLEGAL
