"""Held pulls by themselves: who is marked by an arrival, who is answered, and that nobody is answered twice or forgotten."""

from __future__ import annotations

import asyncio

import pytest

from rocketline.broker.waiters import AcceptTags, PullWaiter, PullWaiters
from rocketline.message import LogOffset, QueueOffset
from rocketline.protocol.command import Command
from rocketline.protocol.records import LogEntry

LONG_S = 1000.0


def entry(queue_offset: int, topic: str = "orders", queue_id: int = 0, tags_code: int = 0) -> LogEntry:
    return LogEntry(LogOffset(0), 100, topic, queue_id, QueueOffset(queue_offset), tags_code, 0, 0, {})


class Reads:
    """What `read_again` answers: a new command each time, counted."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> Command:
        self.count += 1
        return Command(self.count)


def hold(
    waiters: PullWaiters,
    queue_offset: int = 0,
    *,
    timeout_s: float = LONG_S,
    accept_tags: AcceptTags | None = None,
    queue_id: int = 0,
    reads: Reads | None = None,
) -> PullWaiter:
    waiter = waiters.hold("orders", queue_id, QueueOffset(queue_offset), timeout_s, accept_tags, reads or Reads())
    assert waiter is not None
    return waiter


async def test_an_arrival_marks_and_the_end_of_the_dispatch_answers() -> None:
    waiters, reads = PullWaiters(), Reads()
    waiter = hold(waiters, 5, reads=reads)
    waiters.answer_woken()
    for queue_offset in (5, 6, 7):
        waiters.on_arrivals([entry(queue_offset)])
    assert (waiter.done(), reads.count) == (False, 0)
    waiters.answer_woken()
    assert (waiter.result().code, reads.count, len(waiters)) == (1, 1, 0)
    waiters.answer_woken()
    assert reads.count == 1


@pytest.mark.parametrize(
    "arrival", [entry(4), entry(5, topic="other"), entry(5, queue_id=1)], ids=["earlier", "topic", "queue"]
)
async def test_an_arrival_elsewhere_wakes_nobody(arrival: LogEntry) -> None:
    waiters = PullWaiters()
    waiter = hold(waiters, 5)
    waiters.on_arrivals([arrival])
    waiters.answer_woken()
    assert (waiter.done(), len(waiters)) == (False, 1)


async def test_tags_are_asked_for_each_arrival_until_one_fits() -> None:
    waiters = PullWaiters()
    asked: list[int] = []

    def accept(tags_code: int) -> bool:
        asked.append(tags_code)
        return tags_code == 7

    waiter = hold(waiters, accept_tags=accept)
    for tags_code in (3, 7, 7):
        waiters.on_arrivals([entry(0, tags_code=tags_code)])
    waiters.answer_woken()
    assert (waiter.done(), asked) == (True, [3, 7])


async def test_everyone_on_a_queue_is_answered_each_with_an_own_read() -> None:
    waiters = PullWaiters()
    held = [hold(waiters, offset) for offset in (0, 1, 2)]
    waiters.on_arrivals([entry(1)])
    waiters.answer_woken()
    assert [waiter.done() for waiter in held] == [True, True, False]
    assert len(waiters) == 1


async def test_time_answers_too_and_exactly_once() -> None:
    waiters, reads = PullWaiters(), Reads()
    waiter = hold(waiters, timeout_s=0.001, reads=reads)
    await waiter
    waiters.on_arrivals([entry(0)])
    waiters.answer_woken()
    waiters.answer_all()
    assert (reads.count, len(waiters)) == (1, 0)


async def test_after_an_arrival_the_timer_is_gone() -> None:
    waiters, reads = PullWaiters(), Reads()
    waiter = hold(waiters, timeout_s=LONG_S, reads=reads)
    waiters.on_arrivals([entry(0)])
    waiters.answer_woken()
    assert waiter.expiry is not None
    assert waiter.expiry.cancelled()


async def test_a_cancelled_waiter_is_forgotten_with_its_timer_and_its_mark() -> None:
    waiters, reads = PullWaiters(), Reads()
    waiter, other = hold(waiters, reads=reads), hold(waiters)
    waiters.on_arrivals([entry(0)])
    waiter.cancel()
    await asyncio.sleep(0)
    assert waiter.expiry is not None
    assert (waiter.expiry.cancelled(), len(waiters)) == (True, 1)
    waiters.answer_woken()
    assert (reads.count, other.done(), len(waiters)) == (0, True, 0)


async def test_all_can_be_answered_at_once() -> None:
    waiters = PullWaiters()
    held = [hold(waiters, queue_id=number % 3) for number in range(10)]
    waiters.answer_all()
    assert all(waiter.done() for waiter in held)
    assert len(waiters) == 0


async def test_a_read_that_fails_fails_its_own_waiter_only() -> None:
    waiters = PullWaiters()

    def fails() -> Command:
        raise ZeroDivisionError("a bug")

    broken = waiters.hold("orders", 0, QueueOffset(0), LONG_S, None, fails)
    sound = hold(waiters)
    waiters.on_arrivals([entry(0)])
    waiters.answer_woken()
    assert broken is not None
    assert isinstance(broken.exception(), ZeroDivisionError)
    assert (sound.result().code, len(waiters)) == (1, 0)


async def test_no_more_than_the_limit_are_held() -> None:
    waiters = PullWaiters(max_held=2)
    first = hold(waiters)
    hold(waiters, queue_id=1)
    assert waiters.hold("orders", 2, QueueOffset(0), LONG_S, None, Reads()) is None
    first.cancel()
    await asyncio.sleep(0)
    hold(waiters, queue_id=2)
    assert len(waiters) == 2


async def test_a_closed_set_answers_everyone_and_holds_nobody_any_more() -> None:
    waiters = PullWaiters()
    waiter = hold(waiters)
    waiters.close()
    assert (waiter.done(), len(waiters)) == (True, 0)
    assert waiters.hold("orders", 0, QueueOffset(0), LONG_S, None, Reads()) is None
