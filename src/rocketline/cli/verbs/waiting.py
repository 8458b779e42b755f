"""Verbs about messages that wait: for a delay, for a time of their own, for the end of their transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from rocketline.cli.tables import Ms, Table, sentence
from rocketline.cli.verb import Args, Flag, verb
from rocketline.cli.verbs.messages import body_text

if TYPE_CHECKING:
    from rocketline.admin import Admin
    from rocketline.admin.delayed import Waiting
    from rocketline.admin.partial import Partial

MOST = Flag("", "max", "Messages shown at most; default 100.", kind=int, default=100)


@verb("delayLevels", "How many messages wait by delay level.")
async def delay_levels(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.delayed import level_counts

    table = Table(("broker", "level", "delay", "waiting", "next"))
    for item in (await level_counts(admin)).some():
        table.rows.append((item.broker, item.level, item.delay, item.waiting, Ms(item.next_due_ms or 0)))
    yield table


@verb(
    "delayedMessages",
    "Messages that wait by delay level, the next to be delivered first.",
    Flag("l", "level", "Only this level.", kind=int),
    MOST,
    aliases=("delayed",),
)
async def delayed_messages(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.delayed import delayed_messages as read

    yield _waiting_table(await read(admin, level=args.level, most=args.max))


MORE = "there may be more than these: use --max"


def _waiting_table(found: Partial[list[Waiting]]) -> Table:
    table = Table(("id", "topic", "due", "level", "broker", "stored", "tag", "keys", "body", "handle"))
    table.about = MORE if found.limited else ""
    for item in found.some():
        message = item.message
        place = (message.message_id, item.topic, Ms(item.due_ms), item.level, message.broker_name, Ms(message.store_ms))
        marks = (message.tag, list(message.keys), body_text(message.body, "utf-8"), item.handle)
        table.rows.append((*place, *marks))
    return table


@verb("timerStatus", "How many timer messages of each topic wait, and how far delivery is.")
async def timer_status(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.delayed import timer_states

    states = (await timer_states(admin)).some()
    progress = [(item.broker, item.address, Ms(item.read_ms), item.queue_offset) for item in states]
    yield Table(("broker", "address", "delivered up to", "taken in"), list(progress), "delivery")
    rows = [(item.broker, topic, count) for item in states for topic, count in sorted(item.waiting.items())]
    yield Table(("broker", "topic", "waiting"), list(rows), "waiting")


@verb("timerMessages", "Timer messages that wait, the next to be delivered first.", MOST, aliases=("timers",))
async def timer_messages(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.delayed import timer_messages as read

    yield _waiting_table(await read(admin, most=args.max))


@verb(
    "recallMessage",
    "Have a timer message not delivered.",
    Flag("r", "recallHandle", "Its handle, from timerMessages or the answer to its send.", required=True),
    aliases=("recall",),
)
async def recall_message(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.delayed import recall

    yield sentence(f"{await recall(admin, args.recall_handle)} will not be delivered")


@verb("openTransactions", "Half messages whose transaction is open, the oldest first.", MOST, aliases=("transactions",))
async def open_transactions(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.transactions import open_transactions as read

    table = Table(("id", "topic", "producers", "broker", "age s", "checks", "tag", "keys", "body"))
    found = await read(admin, most=args.max)
    table.about = MORE if found.limited else ""
    for half in found.some():
        message = half.message
        place = (message.message_id, half.topic, half.group, half.broker, half.age_ms / 1000, half.checks)
        table.rows.append((*place, message.tag, list(message.keys), body_text(message.body, "utf-8")))
    yield table


@verb("givenUpTransactions", "Half messages that brokers no longer ask about, the newest first.", MOST)
async def given_up_transactions(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.transactions import given_up
    from rocketline.message import REAL_TOPIC
    from rocketline.protocol.transactions import PGROUP

    page = await given_up(admin, most=args.max)
    admin.note(page.missing)
    table = Table(("offset id", "id", "topic", "producers", "broker", "given up", "body"))
    for message in page.messages:
        origin = (message.properties.get(REAL_TOPIC), message.properties.get(PGROUP))
        place = (message.broker_name, Ms(message.store_ms), body_text(message.body, "utf-8"))
        table.rows.append((message.offset_id, message.message_id, *origin, *place))
    yield table


@verb(
    "resumeCheckHalfMessage",
    "Let the broker check a half message again that it has given up.",
    Flag("i", "msgId", "Offset id in TRANS_CHECK_MAX_TIME_TOPIC.", required=True),
    Flag("t", "topic", "Accepted for compatibility with mqadmin; ignored."),
    aliases=("check-again",),
)
async def resume_check_half_message(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.transactions import check_again

    await check_again(admin, args.msg_id)
    yield sentence(f"{args.msg_id} will be checked again")
