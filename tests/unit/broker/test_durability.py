"""Sends that wait for the disk: released together and in order, late ones told so, failures reach everyone."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rocketline.broker.durability import Durability, Durable
from rocketline.errors import StoreError

LONG_S = 1000.0


class Flushes:
    """Counts what the broker would do after each flush."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


async def _settle() -> None:
    """Let what a thread reported arrive."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_one_flush_releases_everyone_up_to_it() -> None:
    flushes = Flushes()
    durability = Durability(LONG_S, flushes)
    waiting = [durability.wait(end) for end in (100, 200, 300)]
    durability.flushed_from_thread(200)
    await _settle()
    assert [future.done() for future in waiting] == [True, True, False]
    assert {future.result() for future in waiting[:2]} == {Durable.YES}
    assert flushes.count == 1
    durability.flushed_from_thread(300)
    assert await waiting[2] is Durable.YES


async def test_readers_see_the_messages_before_the_producer_is_told() -> None:
    order: list[str] = []
    durability = Durability(LONG_S, lambda: order.append("dispatched"))
    waiting = durability.wait(100)
    waiting.add_done_callback(lambda _: order.append("answered"))
    durability.flushed_from_thread(100)
    await _settle()
    assert order == ["dispatched", "answered"]


async def test_what_is_flushed_already_does_not_wait() -> None:
    durability = Durability(LONG_S, Flushes())
    durability.flushed_from_thread(500)
    await _settle()
    assert durability.wait(500).done()
    assert not durability.wait(501).done()


async def test_a_report_out_of_order_never_moves_back() -> None:
    durability = Durability(LONG_S, Flushes())
    durability.flushed_from_thread(500)
    durability.flushed_from_thread(100)
    await _settle()
    assert durability.wait(400).done()


async def test_late_ones_are_told_and_a_flush_afterwards_releases_the_rest() -> None:
    durability = Durability(0.001, Flushes())
    late = durability.wait(100)
    assert await late is Durable.TIMED_OUT
    durability._timeout_s = LONG_S
    patient = durability.wait(200)
    durability.flushed_from_thread(200)
    assert await patient is Durable.YES
    assert late.result() is Durable.TIMED_OUT


async def test_a_failure_reaches_everyone_and_cancels_their_timers() -> None:
    durability = Durability(LONG_S, Flushes())
    waiting = [durability.wait(end) for end in (100, 200)]
    durability.failed_from_thread(StoreError("the disk is gone"))
    for future in waiting:
        with pytest.raises(StoreError, match="the disk is gone"):
            await future
    assert not durability._waiting


async def test_someone_who_left_is_skipped() -> None:
    durability = Durability(LONG_S, Flushes())
    gone, here = durability.wait(100), durability.wait(200)
    gone.cancel()
    durability.flushed_from_thread(200)
    assert await here is Durable.YES
    gone = durability.wait(300)
    gone.cancel()
    durability.failed_from_thread(StoreError("too late"))
    await _settle()
    assert gone.cancelled()


async def test_the_report_may_come_from_any_thread() -> None:
    durability = Durability(LONG_S, Flushes())
    waiting = durability.wait(100)
    thread = threading.Thread(target=durability.flushed_from_thread, args=(100,))
    thread.start()
    assert await waiting is Durable.YES
    thread.join()


def test_a_report_after_the_loop_is_closed_is_dropped() -> None:
    """The store is closed last and flushes once more; the loop may be gone by then."""

    async def make() -> Durability:
        return Durability(LONG_S, Flushes())

    durability = asyncio.run(make())
    durability.flushed_from_thread(100)
    durability.failed_from_thread(StoreError("nobody hears this"))


async def test_a_flush_before_a_cut_does_not_count_for_what_is_written_afterwards() -> None:
    flushed = 300
    durability = Durability(LONG_S, Flushes(), flushed_now=lambda: flushed)
    durability.flushed_from_thread(300)  # told on the loop later
    flushed = 100
    durability.log_cut(100)
    await _settle()
    waiting = durability.wait(200)
    assert not waiting.done()
    flushed = 200
    durability.flushed_from_thread(200)
    assert await waiting is Durable.YES
