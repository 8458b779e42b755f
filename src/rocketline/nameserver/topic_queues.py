"""The queues of each topic on each broker: the part of the route tables that is about topics.

A topic is known as long as any broker has it. Mappings of static topics are stored with the queues, unchanged, and removed
together with them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from rocketline.protocol.bodies import QueueData

UNIT = 1
UNIT_SUB = 2
"""Bits of a topic's system flag."""


class TopicQueues:
    """topic -> broker name -> queues; `generation` grows with every change."""

    def __init__(self) -> None:
        self.generation = 0
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, Any]] = {}

    def of(self, topic: str) -> Mapping[str, QueueData]:
        """The queues of a topic by broker name; empty when there is no such topic."""
        return self._queues.get(topic, {})

    def mappings_of(self, topic: str) -> dict[str, Any] | None:
        return self._mappings.get(topic)

    def put(self, topic: str, queues: QueueData) -> None:
        known = self._queues.setdefault(topic, {})
        if known.get(queues.broker_name) != queues:
            known[queues.broker_name] = queues
            self.generation += 1

    def put_mapping(self, topic: str, broker_name: str, mapping: Any) -> None:
        known = self._mappings.setdefault(topic, {})
        if known.get(broker_name) != mapping:
            known[broker_name] = mapping
            self.generation += 1

    def remove(self, topic: str, broker_names: Collection[str]) -> None:
        """Remove a topic from some brokers."""
        tables: tuple[dict[str, dict[str, Any]], ...] = (self._queues, self._mappings)
        for table in tables:
            known = table.get(topic)
            if known is None or known.keys().isdisjoint(broker_names):
                continue
            left = {name: item for name, item in known.items() if name not in broker_names}
            if left:
                table[topic] = left
            else:
                del table[topic]
            self.generation += 1

    def remove_broker(self, broker_name: str, but: Collection[str] = ()) -> None:
        """Remove all topics of a broker, except those in `but`."""
        for topic in self._queues.keys() | self._mappings.keys():
            if topic not in but:
                self.remove(topic, (broker_name,))

    def change_perms(self, broker_name: str, change: Callable[[int], int]) -> int:
        """Change the permission of every topic a broker holds; returns how many it holds."""
        found = [queues[broker_name] for queues in self._queues.values() if broker_name in queues]
        for item in found:
            item.perm = change(item.perm)
        self.generation += bool(found)
        return len(found)

    def all(self) -> list[str]:
        return list(self._queues)

    def on_any(self, broker_names: Collection[str]) -> list[str]:
        """Topics that at least one of these brokers has."""
        return [topic for topic, queues in self._queues.items() if not queues.keys().isdisjoint(broker_names)]

    def with_flags(self, required: int, forbidden: int = 0) -> list[str]:
        """Topics whose system flag has all of the `required` bits and none of the `forbidden` ones."""
        flags = ((topic, next(iter(queues.values())).topic_sys_flag) for topic, queues in self._queues.items())
        return [topic for topic, flag in flags if flag & required == required and not flag & forbidden]
