"""Room for so many sends: who waits, who comes next, and what a cancelled one leaves."""

from __future__ import annotations

import asyncio

from rocketline.client.producer.window import SendWindow


def waiting(window: SendWindow, names: str, entered: list[str]) -> dict[str, asyncio.Task[None]]:
    async def enter(name: str) -> None:
        await window.enter()
        entered.append(name)

    return {name: asyncio.ensure_future(enter(name)) for name in names}


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_who_waits_longest_comes_next_and_nobody_overtakes() -> None:
    window, entered = SendWindow(1), list[str]()
    assert window.try_enter()
    waiting(window, "ab", entered)
    await turns()
    assert not entered and not window.try_enter()
    window.leave()
    assert not window.try_enter(), "the place is somebody's already"
    await turns()
    assert entered == ["a"]
    window.leave()
    await turns()
    window.leave()
    assert entered == ["a", "b"] and window.try_enter()


async def test_one_that_gives_up_costs_nobody_the_place() -> None:
    window, entered = SendWindow(1), list[str]()
    assert window.try_enter()
    tasks = waiting(window, "abc", entered)
    await turns()
    tasks["a"].cancel()
    await turns()
    window.leave()
    tasks["b"].cancel()  # in the very turn in which it was given the place
    await turns()
    assert entered == ["c"]
    window.leave()
    assert window.try_enter() and not window.try_enter()
