"""How long delayed messages wait when the clock was set back.

Times in the log never go back: a message stored then has a store time that is still to come, and so has its deliver time.
Neither can be compared with the clock. By RocketMQ's rule, deliver what is further away than its delay allows, everything
would come at once until the clock is where it was. Here such a message waits for its delay as time really passes:

* since it came, when the clock was behind the log already;
* since it was first met, when it was stored before: it is then late, by one delay at most, and never early.
"""

from __future__ import annotations

from collections import deque

from rocketline.clock import Clock


class SetBack:
    """Of the queues of one schedule topic, what came while the clock was behind; nothing at all in good times."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._came: dict[int, deque[tuple[int, float]]] = {}
        """By queue: offsets and moments of arrival."""
        self._met: dict[int, float] = {}
        """By queue: when a message was met that is too far away and whose arrival is not known."""

    @property
    def is_noted(self) -> bool:
        return bool(self._came or self._met)

    def came(self, queue_id: int, offset: int) -> None:
        """A message was stored while the clock was behind the log."""
        self._came.setdefault(queue_id, deque()).append((offset, self._clock.monotonic()))

    def left_ms(self, queue_id: int, offset: int, wait_ms: int, delay_ms: int) -> int:
        """How long the first message of a queue still waits, when the clock says `wait_ms`."""
        arrivals = self._came.get(queue_id)
        while arrivals and arrivals[0][0] < offset:
            arrivals.popleft()
        if not arrivals:
            self._came.pop(queue_id, None)
        now = self._clock.monotonic()
        if arrivals and arrivals[0][0] == offset:
            since = arrivals[0][1]
        elif wait_ms > delay_ms:
            since = self._met.setdefault(queue_id, now)
        else:
            self._met.pop(queue_id, None)
            return wait_ms
        return min(wait_ms, delay_ms - int((now - since) * 1000))
