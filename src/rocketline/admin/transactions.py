"""Open transactions: half messages whose outcome no producer told yet, and those the broker gave up asking about.

Half messages are in RMQ_SYS_TRANS_HALF_TOPIC; notes in RMQ_SYS_TRANS_OP_HALF_TOPIC list the offsets of ended ones. How far
the broker is with both counts as the progress of the group CID_RMQ_SYS_TRANS. A note is written some seconds after the end
of a transaction, so one that just ended is still shown.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from rocketline.admin.cluster import Admin
from rocketline.admin.messages import by_offset_id, read_queue
from rocketline.admin.partial import Partial
from rocketline.admin.remote import AdminBroker
from rocketline.admin.search import ANYTHING, Budget, Page, newest
from rocketline.errors import ClientError, QueryNotFound, RouteNotFound
from rocketline.message import REAL_TOPIC, MessageQueue, MessageView
from rocketline.protocol.numbers import read_number
from rocketline.protocol.transactions import CHECK_TIMES, HALF_TOPIC, MAX_CHECKS_TOPIC, OP_TOPIC, PGROUP

CHECKER_GROUP = "CID_RMQ_SYS_TRANS"
MAX_NOTES = 10_000


@dataclass(frozen=True)
class OpenHalf:
    """A half message whose transaction is open."""

    message: MessageView
    topic: str
    """Where it goes if it is committed."""
    group: str
    """The producers that are asked."""
    age_ms: int
    checks: int
    broker: str


async def open_transactions(admin: Admin, *, most: int = 100, scan: int = 10_000) -> Partial[list[OpenHalf]]:
    """Open half messages, the oldest first; of each broker the first `scan` that may be open are looked at."""
    answers = await admin.ask_each(await admin.brokers(), lambda broker: _open_on(broker, most, scan))
    found = [half for _, halves in answers.value for half in halves]
    return Partial(sorted(found, key=lambda half: -half.age_ms)[:most], answers.missing, answers.answered)


async def _open_on(broker: AdminBroker, most: int, scan: int) -> list[OpenHalf]:
    queue, notes = (MessageQueue(topic, broker.name, 0) for topic in (HALF_TOPIC, OP_TOPIC))
    begin, end = await _undecided(broker, queue)
    if begin >= end:
        return []
    ended = await _ended(broker, notes)
    found: list[OpenHalf] = []
    async for message in read_queue(broker, queue, begin, min(end, begin + scan)):
        if message.queue_offset not in ended:
            found.append(_half(message))
            if len(found) >= most:
                break
    return found


async def _undecided(broker: AdminBroker, queue: MessageQueue) -> tuple[int, int]:
    """The offsets from which and before which the broker has not dealt with all messages."""
    end = await broker.max_offset(queue)
    if end <= 0:
        return 0, 0
    begin = await broker.min_offset(queue)
    try:
        return max(begin, await broker.consumer_offset(CHECKER_GROUP, queue)), end
    except QueryNotFound:
        return begin, end


async def _ended(broker: AdminBroker, notes: MessageQueue) -> set[int]:
    """The queue offsets of half messages that are noted as ended."""
    begin, end = await _undecided(broker, notes)
    found: set[int] = set()
    async for note in read_queue(broker, notes, max(begin, end - MAX_NOTES), end):
        numbers = (read_number(item) for item in note.body.decode("ascii", "replace").split(","))
        found.update(number for number in numbers if number is not None)
    return found


def _half(message: MessageView) -> OpenHalf:
    properties = message.properties
    return OpenHalf(
        message,
        properties.get(REAL_TOPIC, ""),
        properties.get(PGROUP, ""),
        max(0, int(time.time() * 1000) - message.born_ms),
        read_number(properties.get(CHECK_TIMES)) or 0,
        message.broker_name,
    )


async def given_up(admin: Admin, *, most: int = 100, cursor: str | None = None) -> Page:
    """Half messages that the broker asked about too often, the newest first."""
    try:
        return await newest(admin, MAX_CHECKS_TOPIC, ANYTHING, Budget(most=most), cursor)
    except RouteNotFound:
        return Page([], 0, None, None)


async def check_again(admin: Admin, offset_id: str) -> None:
    """Have the broker ask about a half message again that it gave up (323)."""
    message = await by_offset_id(admin, offset_id)
    # Asked about any other message, a producer could only be confused.
    if message.topic != MAX_CHECKS_TOPIC:
        raise ClientError(
            f"{offset_id} is in {message.topic}: only messages of {MAX_CHECKS_TOPIC} can be checked again"
        )
    broker = await admin.master(message.broker_name)
    await broker.resume_check(message.topic, message.offset_id)
