"""Which brokers a producer avoids for a while because they were slow or failed (RocketMQ's latency fault tolerance).

A send that took long keeps later ones away from its broker for a time that grows with how long it took; one that failed
counts as 10 s. With probing, a broker that could not be reached is avoided until it has answered a small
request, so that no message is used to find out.

Health is only a preference: when every broker is to be avoided, queues are taken in turn as if none were.
Only monotonic time counts, so a wall clock that jumps does not matter.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rocketline.errors import BrokerError, ConfigError, TransportError

log = logging.getLogger(__name__)

LatencySteps = Sequence[tuple[float, float]]
"""(a send that took so many seconds or more, keeps its broker unused for so many), the shortest first."""

LATENCY_STEPS: LatencySteps = ((0.55, 2.0), (1.8, 5.0), (3.0, 6.0), (5.0, 10.0), (15.0, 30.0))
"""As in RocketMQ 5; its steps of 50 and 100 ms keep nothing away."""
FAILED_S = 10.0
"""What a send that failed counts as."""


@dataclass(frozen=True)
class SlowBrokers:
    """How a producer avoids brokers that were slow or failed."""

    latency_steps: LatencySteps = LATENCY_STEPS
    probe: bool = False
    """Avoid a broker that could not be reached until it has answered a small request."""

    def __post_init__(self) -> None:
        steps = tuple((float(least_s), float(unused_s)) for least_s, unused_s in self.latency_steps)
        ascending = all(before < after for before, after in pairwise(steps))
        if not steps or not ascending or steps[0][0] <= 0 or any(unused_s < 0 for _, unused_s in steps):
            raise ConfigError(
                f"latency_steps={self.latency_steps!r}: pairs (took seconds, unused seconds) are needed, the shortest first"
            )


class BrokerHealth:
    """The slow and failed brokers of one producer."""

    def __init__(self, time: Callable[[], float], settings: SlowBrokers = SlowBrokers()) -> None:
        self._time = time
        self._steps = tuple(settings.latency_steps)
        self._shortest_s = self._steps[0][0]
        self.probes = settings.probe
        self._unused_until: dict[str, float] = {}
        self._unreachable: set[str] = set()

    def took(self, broker_name: str, seconds: float) -> None:
        """Note the duration of a send; called for every send, nearly all are fast."""
        if self._unreachable:
            self._unreachable.discard(broker_name)
        if seconds >= self._shortest_s:
            self._avoid(broker_name, seconds)

    def failed(self, broker_name: str, error: TransportError | BrokerError) -> None:
        """Note that a broker did not store a message."""
        if isinstance(error, BrokerError) and not error.retryable:
            return  # that is about the message, not about the broker
        self._avoid(broker_name, FAILED_S)
        if self.probes and isinstance(error, TransportError):
            self._unreachable.add(broker_name)

    def _avoid(self, broker_name: str, seconds: float) -> None:
        unused_s = next((unused_s for least_s, unused_s in reversed(self._steps) if seconds >= least_s), 0.0)
        until = self._time() + unused_s
        if until > self._unused_until.get(broker_name, 0.0):
            self._unused_until[broker_name] = until
            log.info("broker %s is avoided for %g s: a send took %.3f s or failed", broker_name, unused_s, seconds)

    @property
    def all_healthy(self) -> bool:
        """Whether there is nothing to ask about any broker."""
        if self._unused_until:
            now = self._time()
            self._unused_until = {name: until for name, until in self._unused_until.items() if until > now}
        return not self._unused_until and not self._unreachable

    def is_available(self, broker_name: str) -> bool:
        """Whether it is neither avoided for a time nor unreachable."""
        return broker_name not in self._unreachable and self._unused_until.get(broker_name, 0.0) <= self._time()

    def is_reachable(self, broker_name: str) -> bool:
        """Whether it can be reached, even if it is slow."""
        return broker_name not in self._unreachable

    async def probe(self, answers: Callable[[str], Awaitable[bool | None]]) -> None:
        """Ask after every unreachable broker: `answers` says whether it is there, or None when no route names it."""
        for broker_name in sorted(self._unreachable):
            found = await answers(broker_name)
            if found is None:
                self._unreachable.discard(broker_name)
                self._unused_until.pop(broker_name, None)
            elif found and broker_name in self._unreachable:
                log.info("broker %s can be reached again", broker_name)
                self._unreachable.discard(broker_name)
                self._unused_until.pop(broker_name, None)
