"""Offsets of queues as JSON: in options that users write, and in Spark's checkpoints.

Both have three levels, topic, broker and queue, as in RocketMQ's other connectors:

    {"orders": {"broker-a": {"0": 1200, "1": -2}, "broker-b": {"0": -1}}}

In an option -2 means the earliest message and -1 the end. Spark compares checkpoints as text, so `to_json` gives equal texts
for equal offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rocketline.errors import ConfigError
from rocketline.message import MessageQueue

Offsets = dict[MessageQueue, int]

EARLIEST, LATEST = -2, -1
LAST_OFFSET = (1 << 63) - 1
_EXAMPLE = '{"topic": {"broker": {"0": 42}}}'


def to_json(offsets: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """The offsets as three sorted levels.

    >>> to_json({MessageQueue("T", "a", 10): 5, MessageQueue("T", "a", 9): 7})
    {'T': {'a': {'9': 7, '10': 5}}}
    """
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        nested.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return nested


def from_json(nested: object, what: str, lowest: int = 0) -> Offsets:
    """The offsets of three levels; ConfigError when the levels are wrong or an offset is below `lowest`."""
    offsets: Offsets = {}
    for topic, brokers in _items(nested, what):
        for broker, queues in _items(brokers, what):
            for queue_id, offset in _items(queues, what):
                queue = _queue(topic, broker, queue_id, what)
                if type(offset) is not int or not lowest <= offset <= LAST_OFFSET:
                    raise ConfigError(f"{what}: {queue} is {offset!r}: a whole number from {lowest} on is needed")
                offsets[queue] = offset
    return offsets


def parse_offsets(text: str, what: str, lowest: int = EARLIEST) -> Offsets:
    """The offsets in an option; ConfigError names the mistake."""
    offsets = from_json(_parsed(text, what), what, lowest)
    if not offsets:
        raise ConfigError(f"{what}: no queue is named; expected is {_EXAMPLE}")
    return offsets


class Assignment:
    """Queues chosen by topic, broker and number; without a broker, the queues with these numbers on every broker.

    >>> chosen = Assignment.parse('{"A": [0, 1], "B": {"broker-a": [3]}}', "assign")
    >>> [MessageQueue("A", "x", 1) in chosen, MessageQueue("B", "x", 3) in chosen, chosen.topics]
    [True, False, ('A', 'B')]
    """

    def __init__(self, named: Iterable[tuple[str, str | None, int]]) -> None:
        self.named = tuple(named)
        self._set = frozenset(self.named)

    @staticmethod
    def parse(text: str, what: str) -> Assignment:
        named: list[tuple[str, str | None, int]] = []
        for topic, value in _items(_parsed(text, what), what):
            groups: list[tuple[str | None, Any]] = [(None, value)]
            if isinstance(value, dict):
                groups = [*_items(value, what)]
            for broker, numbers in groups:
                if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
                    raise ConfigError(
                        f"{what}: {topic!r} has {numbers!r}, numbers of queues are expected: "
                        '{"topic": {"broker": [0, 1]}} or {"topic": [0, 1]}'
                    )
                named += [(topic, broker, number) for number in numbers]
        if not named:
            raise ConfigError(f'{what}: no queue is named; expected is {{"topic": {{"broker": [0, 1]}}}}')
        return Assignment(named)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(topic for topic, _, _ in self.named))

    def __contains__(self, queue: MessageQueue) -> bool:
        topic, broker, number = queue.topic, queue.broker_name, queue.queue_id
        return (topic, broker, number) in self._set or (topic, None, number) in self._set

    def missing(self, queues: Iterable[MessageQueue]) -> list[str]:
        """The chosen queues that are not among these, as texts."""
        there = {(queue.topic, queue.broker_name, queue.queue_id) for queue in queues}
        anywhere = {(topic, None, number) for topic, _, number in there}
        return [f"{t}@{b or '*'}:{n}" for t, b, n in self.named if (t, b, n) not in there | anywhere]


def _parsed(text: str, what: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{what} is not JSON: {error}; expected is {_EXAMPLE}") from None


def _items(value: object, what: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise ConfigError(f"{what}: three levels are expected, such as {_EXAMPLE}, not {str(value)[:80]!r}")
    return value.items()


def _queue(topic: str, broker: str, queue_id: str, what: str) -> MessageQueue:
    if not (queue_id.isascii() and queue_id.isdigit() and len(queue_id) < 10):
        raise ConfigError(f"{what}: {queue_id!r} of {topic}@{broker} is not the number of a queue")
    return MessageQueue(topic, broker, int(queue_id))
