"""Which queue a message goes to when the caller does not say.

Pure: queues in, one of them out. Queues are taken in turn, each topic with a counter of its own (with a shared one, a
producer that alternates between two topics would use every second queue only). A retry goes to another broker than the
one that just failed, when there is another.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocketline.message import MessageQueue


class QueuesInTurn:
    """The round-robin position in the queues of one topic."""

    __slots__ = ("_next",)

    def __init__(self, start: int = 0) -> None:
        self._next = start

    def choose(self, queues: Sequence[MessageQueue], avoid_broker: str | None = None) -> MessageQueue:
        """The next queue, if possible on another broker than `avoid_broker`.

        >>> turns = QueuesInTurn()
        >>> queues = [MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)]
        >>> [str(turns.choose(queues)) for _ in range(4)]
        ['T@a:0', 'T@a:1', 'T@b:0', 'T@a:0']
        >>> str(turns.choose(queues, avoid_broker="a"))
        'T@b:0'
        """
        count = len(queues)
        position = self._next
        self._next = position + 1
        if avoid_broker is not None:
            for step in range(count):
                queue = queues[(position + step) % count]
                if queue.broker_name != avoid_broker:
                    self._next = position + step + 1
                    return queue
        return queues[position % count]
