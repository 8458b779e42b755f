"""How many messages of each queue are popped and neither acknowledged nor delivered again.

Counted since the broker started: of what was popped before, neither the pop nor the end counts. An acknowledgement that
comes twice counts twice, so this is a measure, as in Apache, and nothing that has to be exact may rest on it.
"""

from __future__ import annotations

from collections.abc import Callable

QueueKey = tuple[str, str, int]
"""(topic, group, queue)"""


class InFlight:
    def __init__(self, started_ms: int) -> None:
        self._started_ms = started_ms
        self._counts: dict[QueueKey, int] = {}

    def add(self, queue: QueueKey, count: int) -> None:
        self._counts[queue] = self._counts.get(queue, 0) + count

    def remove(self, queue: QueueKey, count: int, pop_ms: int) -> None:
        left = self._counts.get(queue, 0) - count
        if pop_ms < self._started_ms or left == -count:
            return
        if left > 0:
            self._counts[queue] = left
        else:
            del self._counts[queue]

    def of_queue(self, queue: QueueKey) -> int:
        return self._counts.get(queue, 0)

    def of_group(self, topic: str, group: str) -> int:
        return sum(count for (name, owner, _), count in self._counts.items() if (name, owner) == (topic, group))

    def forget(self, is_gone: Callable[[QueueKey], bool]) -> None:
        self._counts = {queue: count for queue, count in self._counts.items() if not is_gone(queue)}
