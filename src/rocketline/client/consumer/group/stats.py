"""How fast a consumer pulls and consumes, topic by topic, over the last minute and the last hour.

Counted as Java's client does it, so that 307 shows comparable figures: every counter is sampled each 10 s and each
10 min, the last seven samples of either make a window, and a rate is the difference between the ends of the window. A
rate therefore lags by up to 10 s, and a new counter's first window is one step long. Samples are taken when somebody
counts or looks, not by a timer: steps in which nothing happened are filled in then.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from rocketline.client.consumer_info import ConsumeStatus
from rocketline.clock import Clock

MINUTE_STEP_S = 10.0
HOUR_STEP_S = 600.0
SAMPLES = 7


class _Sample(NamedTuple):
    at_s: float
    times: int
    value: float


class _Window:
    """The last samples of one counter."""

    __slots__ = ("_samples", "_step_s")

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES)

    def sample(self, at_s: float, times: int, value: float) -> None:
        if not self._samples:
            self._samples.append(_Sample(at_s - self._step_s, 0, 0))
        self._samples.append(_Sample(at_s, times, value))

    @property
    def sum(self) -> float:
        return self._samples[-1].value - self._samples[0].value if self._samples else 0.0

    @property
    def per_second(self) -> float:
        return self.sum / (self._samples[-1].at_s - self._samples[0].at_s) if self._samples else 0.0

    @property
    def average(self) -> float:
        times = self._samples[-1].times - self._samples[0].times if self._samples else 0
        return self.sum / times if times else 0.0

    @property
    def start_value(self) -> float:
        return self._samples[0].value if self._samples else 0.0


class _Counter:
    __slots__ = ("hour", "minute", "times", "value")

    def __init__(self) -> None:
        self.times = 0
        self.value = 0.0
        self.minute = _Window(MINUTE_STEP_S)
        self.hour = _Window(HOUR_STEP_S)


class _TopicCounters:
    __slots__ = ("consume_ms", "failed", "ok", "pull_ms", "pulled")

    def __init__(self) -> None:
        self.pull_ms = _Counter()
        self.pulled = _Counter()
        self.consume_ms = _Counter()
        self.ok = _Counter()
        self.failed = _Counter()

    def all(self) -> tuple[_Counter, ...]:
        return self.pull_ms, self.pulled, self.consume_ms, self.ok, self.failed


class ConsumerStats:
    """The counters of one consumer, by topic."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: dict[str, _TopicCounters] = {}
        now_s = clock.monotonic()
        self._next_minute_s = now_s + MINUTE_STEP_S
        self._next_hour_s = now_s + HOUR_STEP_S

    def pulled(self, topic: str, took_ms: float, messages: int) -> None:
        """A pull found something; `messages` of it were wanted."""
        counters = self._counters(topic)
        _add(counters.pull_ms, took_ms)
        if messages:
            _add(counters.pulled, messages)

    def handled(self, topic: str, took_ms: float) -> None:
        """A handler has run."""
        _add(self._counters(topic).consume_ms, took_ms)

    def succeeded(self, topic: str, messages: int) -> None:
        _add(self._counters(topic).ok, messages)

    def failed(self, topic: str, messages: int) -> None:
        _add(self._counters(topic).failed, messages)

    def status(self, topic: str) -> ConsumeStatus:
        counters = self._counters(topic)
        consume = counters.consume_ms
        failed = counters.failed
        return ConsumeStatus(
            pull_rt=counters.pull_ms.minute.average,
            pull_tps=counters.pulled.minute.per_second,
            consume_rt=consume.minute.average if consume.minute.sum else consume.hour.average,
            consume_ok_tps=counters.ok.minute.per_second,
            consume_failed_tps=failed.minute.per_second,
            # Up to now, not up to the last sample: Java shows a failure up to ten minutes late.
            consume_failed_msgs=int(failed.value - failed.hour.start_value),
        )

    def topics(self) -> list[str]:
        return list(self._topics)

    def _counters(self, topic: str) -> _TopicCounters:
        now_s = self._clock.monotonic()
        if now_s >= self._next_minute_s:
            self._sample(now_s)
        counters = self._topics.get(topic)
        if counters is None:
            counters = self._topics[topic] = _TopicCounters()
        return counters

    def _sample(self, now_s: float) -> None:
        """Take every sample that has come due; of a long pause only what still fits the windows."""
        counters = [counter for topic in self._topics.values() for counter in topic.all()]
        for at_s in _due(self._next_minute_s, MINUTE_STEP_S, now_s):
            self._next_minute_s = at_s + MINUTE_STEP_S
            for counter in counters:
                counter.minute.sample(at_s, counter.times, counter.value)
        for at_s in _due(self._next_hour_s, HOUR_STEP_S, now_s):
            self._next_hour_s = at_s + HOUR_STEP_S
            for counter in counters:
                counter.hour.sample(at_s, counter.times, counter.value)


def _add(counter: _Counter, value: float) -> None:
    counter.times += 1
    counter.value += value


def _due(next_s: float, step_s: float, now_s: float) -> list[float]:
    steps = int((now_s - next_s) // step_s) + 1
    return [next_s + step * step_s for step in range(max(0, steps - SAMPLES), steps)]
