"""Half messages that nobody has decided, and those that were given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from rocketline.admin.cursors import MAX_CHARS as MAX_CURSOR_CHARS
from rocketline.admin.transactions import check_again, given_up, open_transactions
from rocketline.console.access import Role
from rocketline.console.bodies import LISTED_BYTES, MessageRow, found_row, message_row
from rocketline.console.endpoints import Change, Input, PartialView, View, changes, reads
from rocketline.console.limits import Heavy
from rocketline.console.views import Item, Result, silent

if TYPE_CHECKING:
    from rocketline.console.visit import Visit


class HalfRow(View, kw_only=True):
    message: MessageRow
    topic: str
    group: str
    age_ms: int
    checks: int


class Transactions(PartialView, kw_only=True):
    items: list[HalfRow]
    given_up: list[MessageRow]
    next: str | None
    """Cursor of older ones that were given up."""
    limited: bool
    """There may be more open ones, or some of these may have ended."""


class TransactionsInput(Input, kw_only=True):
    cursor: Annotated[str, msgspec.Meta(max_length=MAX_CURSOR_CHARS)] = ""
    """Of those that were given up."""


@reads("/transactions", Role.READER, "transactions.html", heavy=Heavy.SCAN, audited=True)
async def transactions(visit: Visit, wanted: TransactionsInput) -> Transactions:
    """Open transactions, the oldest first."""
    found = await open_transactions(visit.admin, body_bytes=LISTED_BYTES)
    lost = await given_up(visit.admin, cursor=wanted.cursor or None, body_bytes=LISTED_BYTES)
    items = [
        HalfRow(
            message=message_row(visit, item.message, body_bytes=item.body_bytes), topic=item.topic, group=item.group,
            age_ms=item.age_ms, checks=item.checks,
        )
        for item in found.value
    ]  # fmt: skip
    return Transactions(
        items=items, given_up=[found_row(visit, lost, message) for message in lost.messages],
        next=lost.next, limited=found.limited, complete=found.complete and lost.complete,
        partial=silent({item.where: item for item in [*found.missing, *lost.missing]}.values()),
    )  # fmt: skip


class CheckAgain(Change, kw_only=True):
    offset_id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


@changes("POST", "/transactions/check", Role.OPERATOR, "/transactions")
async def check_transaction(visit: Visit, wanted: CheckAgain) -> Result:
    """Ask the producer once more about a transaction that was given up."""
    await check_again(visit.admin, wanted.offset_id)
    items = [Item(where=wanted.offset_id, ok=True)]
    return Result(title="transaction_checked", about=wanted.offset_id, items=items, back="/transactions")
