"""One member of four hangs and goes on sending heartbeats: what pop mode is for, and what pull mode does about it."""

from __future__ import annotations

from bench.hung_member import BATCH, POP, PULL, QUEUES, run

MESSAGES = 400


async def test_popped_everything_is_done_by_the_others() -> None:
    found = await run(POP, MESSAGES, 0.001)
    assert found.done == MESSAGES
    assert 1 <= found.late <= BATCH, "only what it had in its hands had to wait"
    assert not found.left
    assert not found.twice


async def test_pulled_the_queue_of_the_hung_member_stands_still() -> None:
    found = await run(PULL, MESSAGES, 0.001)
    [(_, left)] = found.left.items()
    assert 0 < left <= MESSAGES // QUEUES
    assert found.done == MESSAGES - left
    assert not found.late
