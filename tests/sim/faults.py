"""Mistakes to plant into clients, so that the simulated day shows that it can find them. Never used outside tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.crash.faults import Patches

from rocketline.client.consumer.push.pull_loop import PullLoop
from rocketline.client.consumer.push.retries import SendBack
from rocketline.client.tasks import OwnedTasks
from rocketline.message import ConsumerOffset, MessageQueue, MessageView


def progress_past_unfinished(patches: Patches) -> None:
    """A group's progress moves behind everything read when any message is done."""
    really_finish = PullLoop.finish

    def finish_all(self: PullLoop, messages: list[MessageView]) -> ConsumerOffset | None:
        really_finish(self, messages)
        return ConsumerOffset(self.next_offset)

    patches.set(PullLoop, "finish", finish_all)


def failures_forgotten(patches: Patches) -> None:
    """Failed messages are not handed back."""

    async def take(self: SendBack, message: MessageView, queue: MessageQueue, delay_level: int) -> bool:
        return True

    patches.set(SendBack, "__call__", take)


def tasks_left_behind(patches: Patches) -> None:
    """What a client started goes on when it is closed."""

    async def leave(self: OwnedTasks) -> None:
        return None

    patches.set(OwnedTasks, "cancel", leave)


FAULTS: dict[str, Callable[[Patches], Any]] = {
    fault.__name__: fault
    for fault in (
        failures_forgotten,
        progress_past_unfinished,
        tasks_left_behind,
    )
}
FOUND_AS = {
    "failures_forgotten": "lost",
    "progress_past_unfinished": "lost",
    "tasks_left_behind": "leak",
}
