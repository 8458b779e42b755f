"""What background workers do with an item that no try can handle: it is set aside, and the work goes on with the next.

Delays, timers, redeliveries and checks handle what anybody sent or stored, one item after the other. An item that is bad
(malformed, or nothing the store would take) raises one of `BAD_ITEM`. If it is a message, a copy goes to a topic where an
operator finds it: its group's dead letters if it has a group, TRANS_CHECK_MAX_TIME_TOPIC for half messages, else
`ASIDE_TOPIC`. It is reported once and counted.

A store that takes nothing now, because the disk is full or failed, is not the item's fault. That is a StoreError: the worker
waits, and tries the same item again. Nothing is ever set aside for it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import field

from rocketline.broker.tables.topics import Topics
from rocketline.broker.wiring import wired
from rocketline.errors import CorruptRecord, StoreError, Unstorable
from rocketline.message import UNIQ_KEY
from rocketline.protocol.names import ASIDE_TOPIC
from rocketline.protocol.properties import decode_properties
from rocketline.protocol.records import Record, decode_record
from rocketline.store.message_store import AppendResult, AppendStatus, MessageStore, StoreMessage, copy_of

log = logging.getLogger(__name__)

_SHOWN_CHARS = 200
_NEVER_TAKEN = (AppendStatus.MESSAGE_ILLEGAL, AppendStatus.PROPERTIES_TOO_LARGE)


class NotStoredNow(StoreError):
    """The store takes nothing now."""


def store_own(store: MessageStore, message: StoreMessage) -> AppendResult:
    """Append a message that the broker made; Unstorable: it will never be taken, NotStoredNow: nothing is taken now."""
    result = store.append(message)
    if result.status is AppendStatus.OK:
        return result
    reason = result.reason or result.status.name
    raise Unstorable(reason) if result.status in _NEVER_TAKEN else NotStoredNow(reason)


@wired
class SetAside:
    """Keeps, counts and reports what workers set aside."""

    store: MessageStore
    topics: Topics
    stored: Callable[[], None]
    counts: Counter[str] = field(default_factory=Counter)
    """Items set aside since the start, by worker."""

    def message(self, worker: str, log_offset: int, error: Exception, topic: str = ASIDE_TOPIC) -> None:
        """Set the message at a log offset aside; a StoreError when the store takes nothing now: then try again."""
        record = self._record_at(log_offset)
        unique_id, kept = "", "it stays only where it was stored"
        if record is not None:
            properties = decode_properties(record.properties.decode("utf-8", "replace"))
            unique_id = properties.get(UNIQ_KEY, "")[:_SHOWN_CHARS]
            if self._keep(record, properties, topic):
                kept = f"a copy is in {topic}"
        self.item(worker, f"message {unique_id!r} at {log_offset} ({kept})", error)

    def item(self, worker: str, what: str, error: Exception) -> None:
        """Count and report an item that nothing else can be done about."""
        self.counts[worker] += 1
        reason = str(error)[:_SHOWN_CHARS] or type(error).__name__  # it may quote all of a property
        log.error("%s cannot handle %s, and sets it aside: %s", worker, what, reason)

    def _record_at(self, log_offset: int) -> Record | None:
        try:
            view = self.store.record_at(log_offset)
            return None if view is None else decode_record(view, 0, len(view))
        except CorruptRecord:
            return None

    def _keep(self, record: Record, properties: dict[str, str], topic: str) -> bool:
        copy = copy_of(record, topic, 0, properties)
        # As they were: what was stored fits, and anything added, or mended, might not.
        copy.properties_raw = record.properties
        self.topics.require_derived(topic, 1)
        try:
            store_own(self.store, copy)
        except Unstorable:
            return False  # bodies may have been allowed to be larger
        self.stored()
        return True
