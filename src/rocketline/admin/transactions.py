"""Open transactions: half messages whose outcome no producer told yet, and those the broker gave up asking about.

Half messages are in RMQ_SYS_TRANS_HALF_TOPIC; notes in RMQ_SYS_TRANS_OP_HALF_TOPIC list the offsets of ended ones. How far
the broker is with both counts as the progress of the group CID_RMQ_SYS_TRANS. A note is written some seconds after the end
of a transaction, so one that just ended is still shown. At each check the broker stores the half message again, and until it
has noted that, both are there: only the later one is shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from rocketline.admin.cluster import Admin
from rocketline.admin.messages import by_offset_id, read_queue
from rocketline.admin.partial import Partial
from rocketline.admin.remote import AdminBroker
from rocketline.admin.search import ANYTHING, Budget, Page, cut_body, newest
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
    body_bytes: int = 0
    """Of the whole body, of which the message may have only the beginning."""


async def open_transactions(
    admin: Admin, *, most: int = 100, scan: int = 10_000, body_bytes: int | None = None
) -> Partial[list[OpenHalf]]:
    """Open half messages, the oldest first; of each broker the first `scan` that may be open are looked at.

    The answer is limited when there are more, or when there are so many notes that some of these may have ended.
    """
    answers = await admin.ask_each(await admin.brokers(), lambda broker: _open_on(broker, most, scan, body_bytes))
    found = sorted((half for _, (halves, _) in answers.value for half in halves), key=lambda half: -half.age_ms)
    limited = len(found) > most or any(is_limited for _, (_, is_limited) in answers.value)
    return Partial(found[:most], answers.missing, answers.answered, limited)


async def _open_on(broker: AdminBroker, most: int, scan: int, body_bytes: int | None) -> tuple[list[OpenHalf], bool]:
    """(the open half messages of a broker, whether there may be others)."""
    queue, notes = (MessageQueue(topic, broker.name, 0) for topic in (HALF_TOPIC, OP_TOPIC))
    begin, end = await _undecided(broker, queue)
    if begin >= end:
        return [], False
    ended, is_limited = await _ended(broker, notes)
    found: list[OpenHalf] = []
    async for message in read_queue(broker, queue, begin, min(end, begin + scan)):
        if message.queue_offset not in ended:
            if len(found) >= most:
                return once_each(found), True
            found.append(_half(message, body_bytes))
    return once_each(found), is_limited or end > begin + scan


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


async def _ended(broker: AdminBroker, notes: MessageQueue) -> tuple[set[int], bool]:
    """(the queue offsets of half messages that are noted as ended, whether there are too many notes to read all)."""
    begin, end = await _undecided(broker, notes)
    found: set[int] = set()
    async for note in read_queue(broker, notes, max(begin, end - MAX_NOTES), end):
        numbers = (read_number(item) for item in note.body.decode("ascii", "replace").split(","))
        found.update(number for number in numbers if number is not None)
    return found, end - begin > MAX_NOTES


def once_each(halves: Iterable[OpenHalf]) -> list[OpenHalf]:
    """Of a half message that was stored again the last one, in the order of their offsets."""
    last = {(half.message.message_id, half.message.born_ms): half for half in halves}
    return list(last.values())


def _half(message: MessageView, body_bytes: int | None) -> OpenHalf:
    properties, size = message.properties, len(message.body)
    cut_body(message, body_bytes, {})
    return OpenHalf(
        message,
        properties.get(REAL_TOPIC, ""),
        properties.get(PGROUP, ""),
        max(0, int(time.time() * 1000) - message.born_ms),
        read_number(properties.get(CHECK_TIMES)) or 0,
        message.broker_name,
        size,
    )


async def given_up(admin: Admin, *, most: int = 100, cursor: str | None = None, body_bytes: int | None = None) -> Page:
    """Half messages that the broker asked about too often, the newest first."""
    try:
        return await newest(admin, MAX_CHECKS_TOPIC, ANYTHING, Budget(most=most, body_bytes=body_bytes), cursor)
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
