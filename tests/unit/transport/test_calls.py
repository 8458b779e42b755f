"""Calls that wait for their answer, all with one timer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest
from tests.support.virtual import VirtualLoop

from rocketline.errors import ConnectionLost, RequestTimeout
from rocketline.protocol.command import RESPONSE, Command
from rocketline.transport.calls import SPARE_DEADLINES, Calls


def answer(opaque: int) -> Command:
    return Command(0, opaque=opaque, flag=RESPONSE)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(scenario)
    finally:
        loop.close()


def test_each_ends_at_its_own_deadline() -> None:
    ended: list[tuple[float, int]] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        calls, start = Calls(loop), loop.time()

        def note(opaque: int, _: asyncio.Future[Command]) -> None:
            ended.append((loop.time() - start, opaque))

        for opaque, timeout in enumerate((3.0, 1.0, 30.0, 1.0, 2.0)):
            call = calls.add(opaque, 310, timeout)
            call.add_done_callback(partial(note, opaque))
        calls.answer(answer(4))
        await asyncio.sleep(2.5)
        late = calls.add(5, 310, 0.1)
        with pytest.raises(RequestTimeout, match=r"\? did not answer request 310 within 0\.1 s"):
            await late
        assert loop.time() - start == pytest.approx(2.6)
        await asyncio.sleep(60)
        assert len(calls) == 0

    run(scenario())
    assert [opaque for _, opaque in ended] == [4, 1, 3, 0, 2]
    assert [at for at, _ in ended] == pytest.approx([0.0, 1.0, 1.0, 3.0, 30.0])


def test_what_is_answered_given_up_or_lost_does_not_time_out() -> None:
    async def scenario() -> None:
        calls = Calls(asyncio.get_running_loop())
        answered, given_up, lost = (calls.add(opaque, 1, 5.0) for opaque in range(3))
        calls.answer(answer(0))
        calls.answer(answer(0))  # once more
        given_up.cancel()
        calls.forget(1)
        calls.fail(ConnectionLost, "gone")
        assert answered.result().opaque == 0
        with pytest.raises(ConnectionLost, match="gone"):
            await lost
        await asyncio.sleep(10)
        again = calls.add(3, 1, 5.0)
        with pytest.raises(RequestTimeout):
            await again

    run(scenario())


def test_deadlines_of_answered_calls_do_not_pile_up() -> None:
    async def scenario() -> None:
        calls = Calls(asyncio.get_running_loop())
        patient = calls.add(0, 1, 50.0)
        for opaque in range(1, 10_000):
            calls.add(opaque, 1, 100.0)
            calls.answer(answer(opaque))
            assert len(calls._deadlines) <= SPARE_DEADLINES + 8
        with pytest.raises(RequestTimeout):
            await patient

    run(scenario())
