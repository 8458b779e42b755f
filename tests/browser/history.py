"""What the clusters of these tests have seen: topics, groups, dead letters, traces, messages that wait."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from tests.support.history_parts import consume, leave_half_open, listed, make_dead_letters, make_topic, send_all

from rocketline.admin import Admin
from rocketline.admin.broker_settings import change_setting
from rocketline.message import Message

ORDERS, PAID, DOOMED = "orders", "paid", "doomed"
BILLING, FAILING = "billing", "failing"
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
"""A name, tag, key or body that would run if a page took it for HTML."""


@dataclass(frozen=True)
class History:
    """What tests need to know of it."""

    traced_id: str
    untraced_id: str
    timer_id: str
    timer_broker: str
    """The broker with which it waits."""


@asynccontextmanager
async def history(namesrv: str) -> AsyncIterator[History]:
    """Give a cluster its history; an open transaction stays open inside."""
    async with Admin(namesrv) as admin, AsyncExitStack() as stack:
        for broker in await admin.brokers():
            await change_setting(broker, "recallMessageEnable", "true")
        for topic in (ORDERS, PAID, DOOMED):
            await make_topic(admin, topic, 4)
        (traced,) = await send_all(namesrv, [Message(ORDERS, b'{"traced": true}', keys=["traced"])], trace=True)
        sent = await send_all(namesrv, [_order(number) for number in range(120)])
        await send_all(namesrv, [Message(DOOMED, b'{"order": %d}' % number, tag="bad") for number in range(3)])
        await listed(admin, ORDERS, 121)
        await consume(namesrv, BILLING, ORDERS, 121, trace=True)
        await make_dead_letters(admin, FAILING, DOOMED, 3)
        *_, timer = await send_all(
            namesrv,
            [
                Message(PAID, b"by level", delay_level=16),
                Message(PAID, b"by its own time", delay=timedelta(hours=1)),
            ],
        )
        await leave_half_open(stack, namesrv, "banks", Message(PAID, b'{"half": true}'))
        yield History(traced.message_id, sent[0].message_id, timer.message_id, timer.queue.broker_name)


def _order(number: int) -> Message:
    region = "eu" if number % 2 else "us"
    return Message(
        ORDERS,
        b'{"order": %d, "region": "%s", "note": "\xe8\xae\xa2\xe5\x8d\x95"}' % (number, region.encode()),
        tag="created" if number % 3 else "changed",
        keys=[f"order{number}"],
        properties={"amount": str(number * 10)},
    )
