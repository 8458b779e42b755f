"""Verbs about dead letters: counting, showing, sending them again, exporting them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from rocketline.cli.tables import Ms, Table, sentence
from rocketline.cli.verb import Args, Flag, verb
from rocketline.cli.verbs.common import BEGIN, END, GROUP
from rocketline.cli.verbs.messages import COUNT, body_text, first_messages, message_facts, range_of

if TYPE_CHECKING:
    from rocketline.admin import Admin
    from rocketline.message import MessageView

MESSAGE_ID = Flag("i", "msgId", "Only the letters with these ids, separated by commas.")


@verb("dlqList", "Groups that have dead letters, and how many.", aliases=("dead-letters", "dlq"))
async def dlq_list(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.dead_letters import count_dead_letters

    rows = [(item.group, item.count, Ms(item.last_ms)) for item in (await count_dead_letters(admin)).some()]
    yield Table(("group", "dead letters", "last"), list(rows))


@verb("dlqShow", "The dead letters of a group; with -i, all details.", GROUP, MESSAGE_ID, BEGIN, END, COUNT)
async def dlq_show(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.dead_letters import origin_id, origin_topic

    letters, more = await first_messages(_chosen(admin, args), args.max)
    if args.msg_id:
        for letter in letters:
            yield message_facts(letter)
        return
    table = Table(("id", "topic", "died", "retries", "tag", "keys", "first id", "body"))
    for letter in letters:
        marks = (letter.reconsume_times, letter.tag, list(letter.keys), origin_id(letter))
        place = (letter.message_id, origin_topic(letter), Ms(letter.store_ms))
        table.rows.append((*place, *marks, body_text(letter.body, "utf-8")))
    if more:
        table.about = f"there are more than these {len(letters)}: use --max, -b and -e"
    yield table


async def _chosen(admin: Admin, args: Args) -> AsyncIterator[MessageView]:
    from rocketline.admin.dead_letters import origin_id, read_dead_letters

    wanted = {item.strip() for item in (args.msg_id or "").split(",") if item.strip()}
    async for letter in read_dead_letters(admin, args.consumer_group, range_of(args)):
        if not wanted or wanted & {letter.message_id, letter.offset_id, origin_id(letter)}:
            yield letter


@verb(
    "dlqRedrive",
    "Send dead letters to their topic again; they stay among the dead letters.",
    GROUP,
    MESSAGE_ID,
    Flag("t", "topic", "Send them to this topic instead of their own."),
    BEGIN,
    END,
    Flag("", "dryRun", "Only show what would be sent.", switch=True),
    COUNT,
    aliases=("redrive",),
)
async def dlq_redrive(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.admin.dead_letters import Resent, origin_topic, resend

    letters, more = await first_messages(_chosen(admin, args), args.max)
    if args.dry_run:
        outcomes = [
            Resent(letter.message_id, letter.offset_id, args.topic or origin_topic(letter)) for letter in letters
        ]
    else:
        outcomes = await resend(admin, letters, args.topic)
    table = Table(("dead letter", "topic", "sent as", "broker", "queue", "offset", "problem"))
    for item in outcomes:
        receipt = item.receipt
        place = (
            (receipt.queue.broker_name, receipt.queue.queue_id, receipt.queue_offset) if receipt else ("", None, None)
        )
        table.rows.append((item.letter_id, item.topic, receipt.message_id if receipt else "", *place, item.problem))
    failed = sum(item.problem is not None for item in outcomes)
    table.is_bad = failed > 0
    table.about = f"{len(outcomes) - failed} {'would be' if args.dry_run else 'were'} sent again"
    if failed:
        table.about += f", {failed} were not"
    if more:
        table.about += f"; there are more than these {len(outcomes)}: use --max"
    yield table


@verb(
    "dlqExport",
    "Write the dead letters of a group to a file, one JSON object per line.",
    GROUP,
    MESSAGE_ID,
    Flag("f", "file", "The file; it must not exist.", required=True),
    BEGIN,
    END,
)
async def dlq_export(admin: Admin, args: Args) -> AsyncIterator[Table]:
    from rocketline.cli.messages.text import message_record

    count = 0
    with Path(args.file).open("x", encoding="utf-8") as file:  # noqa: ASYNC230 (nobody else waits for this loop)
        async for letter in _chosen(admin, args):
            file.write(json.dumps(message_record(letter)) + "\n")
            count += 1
    yield sentence(f"{count} dead letters of {args.consumer_group} are in {args.file}")
