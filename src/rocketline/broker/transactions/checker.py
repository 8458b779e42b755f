"""Asks producers how transactions ended that nobody ended.

Every round looks through the half messages from the first one that may be open, in order:

* ended, or found committed in the log: passed;
* asked about often enough, older than the log keeps messages, or nothing that could be stored again: put aside under
  TRANS_CHECK_MAX_TIME_TOPIC;
* too young: the round ends here, unless the message brought its own time (CHECK_IMMUNITY_TIME_IN_SECONDS). Then it is stored
  again at the end of the queue, so that it does not hold up the others;
* otherwise stored again with its count of checks raised, and some live producer of its group is asked, by the new place.
  It is shown the whole message, so it must have the right to publish to the message's topic.

How far it came counts as the offset of the group CID_RMQ_SYS_TRANS, but only once the log is on disk up to there: a power
cut must not take the second copy of a half message and keep the word that the first one was dealt with.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from rocketline.auth.guard import AccessGuard
from rocketline.auth.model import Need
from rocketline.auth.needs import PUB, topic_need
from rocketline.broker.config import TransactionConfig
from rocketline.broker.registries import ClientInfo, ProducerRegistry
from rocketline.broker.set_aside import SetAside, store_own
from rocketline.broker.tables.consumer_offsets import ConsumerOffsets
from rocketline.broker.tables.topics import Topics
from rocketline.broker.transactions.half_messages import HalfMessage, HalfMessages
from rocketline.broker.transactions.ops import OpReader
from rocketline.broker.wiring import wired
from rocketline.clock import Clock
from rocketline.errors import BAD_ITEM, StoreError, TransportError
from rocketline.message import UNIQ_KEY, WAIT, LogOffset, QueueOffset
from rocketline.protocol.codes import RequestCode
from rocketline.protocol.command import Command
from rocketline.protocol.headers import CheckTransactionStateHeader
from rocketline.protocol.message_ids import offset_id
from rocketline.protocol.numbers import read_number
from rocketline.protocol.properties import encode_properties
from rocketline.protocol.records import encode_record, record_head
from rocketline.protocol.transactions import (
    CHECK_IMMUNITY_S,
    CHECK_TIMES,
    HALF_TOPIC,
    MAX_CHECKS_TOPIC,
    OP_TOPIC,
    PGROUP,
    PREPARED_QUEUE_OFFSET,
    immunity_ms,
)
from rocketline.store.message_store import AppendResult, MessageStore, StoreMessage
from rocketline.transport import Channel

log = logging.getLogger(__name__)

WORKER = "transaction checks"
GROUP = "CID_RMQ_SYS_TRANS"
A_TURN = 128
"""Half messages looked at before other work gets its turn."""
MAX_ROUND_S = 60.0
_HOUR_MS = 3_600_000


@wired
class CheckerParts:
    """What checking needs of a broker."""

    store: MessageStore
    topics: Topics
    offsets: ConsumerOffsets
    producers: ProducerRegistry
    half_messages: HalfMessages
    aside: SetAside
    clock: Clock
    stored: Callable[[], None]
    store_host: bytes
    broker_name: str
    guard: AccessGuard | None = None


class TransactionChecker:
    def __init__(self, config: TransactionConfig, parts: CheckerParts) -> None:
        self._parts = parts
        self._half = parts.half_messages
        self._store = parts.store
        self.use(config)
        self._next = self._saved(HALF_TOPIC)
        self._ops = OpReader(parts.store, self._saved(OP_TOPIC))
        self._unsaved: tuple[int, int, int] | None = None
        """Offsets of half messages and notes, and up to where the log must be on disk before they count."""

    def use(self, config: TransactionConfig) -> None:
        """Check by these settings from now on, and as long as the store keeps messages now."""
        self._config = config
        self._keeps_ms = self._store.config.retention.reserved_hours * _HOUR_MS

    def _saved(self, topic: str) -> int:
        saved = self._parts.offsets.get(GROUP, topic, 0)
        return self._store.min_offset(topic, 0) if saved is None else saved

    async def check(self) -> None:
        """One round."""
        self.publish()
        clock, store = self._parts.clock, self._store
        started, before = clock.monotonic(), (self._next, self._ops.done)
        self._next = max(self._next, store.min_offset(HALF_TOPIC, 0))
        for offset in self._ops.read(self._next):
            self._half.ended(offset)
        end = store.max_offset(HALF_TOPIC, 0)  # what is stored again meanwhile is for the next round
        while self._next < end and self._pass(self._next):
            self._next += 1
            if self._next % A_TURN == 0:
                await asyncio.sleep(0)
                if clock.monotonic() - started > MAX_ROUND_S:
                    log.warning("half messages from %d to %d wait for the next round", self._next, end)
                    break
        if (self._next, self._ops.done) != before:
            self._unsaved = self._next, self._ops.done, store.log_next_offset

    def publish(self) -> None:
        """Let the offsets count whose messages nothing takes away any more."""
        if self._unsaved is None or self._store.lasting_offset < self._unsaved[2]:
            return
        half, op, _ = self._unsaved
        self._unsaved = None
        self._parts.offsets.commit(self._parts.broker_name, GROUP, HALF_TOPIC, 0, half)
        self._parts.offsets.commit(self._parts.broker_name, GROUP, OP_TOPIC, 0, op)

    def _pass(self, queue_offset: int) -> bool:
        """Deal with one half message; False when the round ends before it."""
        if self._ops.passed(queue_offset) or self._half.has_ended(queue_offset):
            return True
        unit = self._store.unit_at(HALF_TOPIC, 0, queue_offset)
        log_offset = unit.log_offset if unit is not None else -1
        try:
            return self._check_or_set_aside(log_offset)
        except StoreError as error:
            log.error("half message %d cannot be stored again now: %s", queue_offset, error)
            return False

    def _check_or_set_aside(self, log_offset: int) -> bool:
        half = None
        try:
            half = self._half.at(log_offset)
            if half is None:
                raise LookupError("there is no half message")
            return self._is_over(half) or self._check(half)
        except BAD_ITEM as error:
            self._parts.aside.message(WORKER, log_offset, error, MAX_CHECKS_TOPIC)
            self._count_given_up(half)
            return True

    def _count_given_up(self, half: HalfMessage | None) -> None:
        self._half.counts.given_up += 1
        if half is not None:
            self._half.by_topic.of(half.real_topic).close()

    def _is_over(self, half: HalfMessage) -> bool:
        """Whether its transaction was ended by another copy of it, or by the place it had before."""
        if self._half.outcome_of(half) is not None:
            return True
        before = read_number(half.properties.get(PREPARED_QUEUE_OFFSET))
        return before is not None and self._half.has_ended(before)

    def _check(self, half: HalfMessage) -> bool:
        properties, now_ms = half.properties, self._parts.clock.now_ms()
        checks = read_number(properties.get(CHECK_TIMES)) or 0
        if checks >= self._config.max_checks or now_ms - half.record.born_ms > self._keeps_ms:
            self._give_up(half, checks)
            return True
        born_ms = half.record.born_ms
        # A producer whose clock is ahead says nothing about the age: then it is as old as its record.
        age_ms = now_ms - (born_ms if born_ms <= now_ms else half.record.store_ms)
        if age_ms <= immunity_ms(properties, self._config.timeout_ms):
            if CHECK_IMMUNITY_S not in properties:
                return False
            properties.setdefault(PREPARED_QUEUE_OFFSET, str(half.record.queue_offset))
            self._store_again(half)
            return True
        if self._half.was_committed(half):
            log.info("half message %d was committed before: nobody is asked", half.record.queue_offset)
            return True
        properties[CHECK_TIMES] = str(checks + 1)
        self._ask(half, self._store_again(half))
        return True

    def _store_again(self, half: HalfMessage) -> AppendResult:
        result = self._append(half.to_store(HALF_TOPIC, 0, half.properties))
        self._half.moved(half.record.queue_offset, result.queue_offset)
        return result

    def _give_up(self, half: HalfMessage, checks: int) -> None:
        self._parts.topics.require_derived(MAX_CHECKS_TOPIC, 1)
        self._append(half.to_store(MAX_CHECKS_TOPIC, 0, half.properties))
        self._count_given_up(half)
        log.error(
            "message %s of group %s for %s was asked about %d times without an answer: it is now in %s",
            half.properties.get(UNIQ_KEY), half.properties.get(PGROUP), half.target, checks, MAX_CHECKS_TOPIC,
        )  # fmt: skip

    def _append(self, message: StoreMessage) -> AppendResult:
        result = store_own(self._store, message)
        self._parts.stored()
        return result

    def _ask(self, half: HalfMessage, placed: AppendResult) -> None:
        group = half.properties.get(PGROUP, "")
        self._half.counts.checked += 1
        channel = self._parts.producers.pick(group, partial(self._may_see, topic_need(half.real_topic, PUB)))
        if channel is None:
            self._half.counts.unanswerable += 1
            log.warning(
                "no producer of group %r that may publish to %s is connected to be asked about %s",
                group, half.real_topic, half.properties.get(UNIQ_KEY),
            )  # fmt: skip
            return
        try:
            channel.send_oneway(self._question(half, placed))
        except (TransportError, *BAD_ITEM) as error:
            # It was stored again, so that it is asked about again, and put aside after so many times.
            log.warning("%s could not be asked about a transaction: %s", channel.remote, error)

    def _may_see(self, need: Need, channel: Channel, client: ClientInfo) -> bool:
        """Anybody can say in a heartbeat that he is a producer of a group."""
        guard = self._parts.guard
        return guard is None or guard.may(client.account, need, channel.remote_ip)

    def _question(self, half: HalfMessage, placed: AppendResult) -> Command:
        unique = half.properties.get(UNIQ_KEY)
        header = CheckTransactionStateHeader(
            QueueOffset(placed.queue_offset),
            LogOffset(placed.log_offset),
            HALF_TOPIC,
            unique,
            unique,
            offset_id(self._parts.store_host, placed.log_offset),
            self._parts.broker_name,
        )
        return Command(RequestCode.CHECK_TRANSACTION_STATE, header.encode(), self._shown(half, placed))

    @staticmethod
    def _shown(half: HalfMessage, placed: AppendResult) -> bytes:
        """The record a producer is shown: under its real topic and queue, at its new place."""
        record = half.record
        topic, queue_id = half.target or (record.topic, record.queue_id)
        head = record_head(record, topic)._replace(
            queue_id=queue_id,
            queue_offset=placed.queue_offset,
            log_offset=placed.log_offset,
            prepared_log_offset=0,
        )
        return encode_record(head, record.body, encode_properties({**half.properties, WAIT: "false"}).encode())
