"""What was sent, what every group was handed, and what nobody may complain about.

The ledger stands outside the world: no fault reaches it. It objects at once where order or content is broken, and at the end
where something is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rocketline.message import ORIGIN_MESSAGE_ID, MessageQueue, MessageView

Position = tuple[MessageQueue, int]


@dataclass(frozen=True)
class Sent:
    """A message that a broker acknowledged."""

    name: str
    producer: str
    number: int
    queue: MessageQueue
    offset: int


@dataclass
class Sends:
    """What producers know."""

    acked: dict[str, Sent] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    """Sent without an answer: there or not, perhaps twice."""
    objections: list[str] = field(default_factory=list)
    _last: dict[tuple[str, MessageQueue], int] = field(default_factory=dict)

    def begin(self, name: str) -> None:
        self.unsure.add(name)

    def acknowledged(self, sent: Sent) -> None:
        self.unsure.discard(sent.name)
        self.acked[sent.name] = sent
        last = self._last.get((sent.producer, sent.queue), -1)
        if sent.offset <= last:  # I4
            self.objections.append(f"I4: {sent.name} is at {sent.offset} of {sent.queue}, not behind {last}")
        self._last[sent.producer, sent.queue] = sent.offset

    def below(self, queue: MessageQueue, offset: int) -> list[str]:
        return [sent.name for sent in self.acked.values() if sent.queue == queue and sent.offset < offset]


@dataclass
class GroupLedger:
    """What one group, or one broadcasting member, was handed."""

    name: str
    delivered: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    done: set[str] = field(default_factory=set)
    excused: set[str] = field(default_factory=set)
    """Passed over by the word of an operator."""
    again: int = 0
    """Handled although it had been handled before: what at-least-once allows, counted (I9)."""
    objections: list[str] = field(default_factory=list)
    _at: dict[Position, str] = field(default_factory=dict)

    def begins(self, message: MessageView) -> str:
        name = message.body.decode()
        self.delivered[name] += 1
        if ORIGIN_MESSAGE_ID not in message.properties:
            before = self._at.setdefault((message.queue, message.queue_offset), name)
            if before != name:  # I3
                self.objections.append(
                    f"I3: {message.queue} {message.queue_offset} was {before} and is {name} for {self.name}"
                )
        return name

    def finished(self, name: str) -> None:
        self.again += name in self.done
        self.done.add(name)

    def excuse(self, names: Iterable[str]) -> None:
        self.excused.update(name for name in names if name not in self.done)

    def start_over(self) -> None:
        """The group's offsets are gone: everything is to come again."""
        self.done.clear()
        self.excused.clear()

    def missing(self, sends: Sends, dead: set[str] | frozenset[str] = frozenset()) -> list[str]:
        return [name for name in sends.acked if name not in self.done | self.excused | dead]


@dataclass
class OrderJudge:
    """Objects when a queue has two calls at once, or a message comes before those in front of it are done."""

    running: dict[MessageQueue, str] = field(default_factory=dict)
    objections: list[str] = field(default_factory=list)
    lenient_until: dict[str, float] = field(default_factory=dict)
    """By broker: until then two calls at once are counted and not objected to."""
    overlaps: int = 0
    _next: Counter[MessageQueue] = field(default_factory=Counter)
    """Everything below is done, or was passed over by an operator."""

    def begins(self, now: float, process: str, message: MessageView) -> None:
        queue, offset = message.queue, message.queue_offset
        if queue in self.running and now < self.lenient_until.get(queue.broker_name, 0):
            self.overlaps += 1
        elif queue in self.running:
            self.objections.append(f"order: {now:.1f}: {queue} runs at {self.running[queue]} and at {process}")
        self.running[queue] = process
        if offset > self._next[queue]:
            self.objections.append(
                f"order: {now:.1f}: {process} got {queue} {offset} before {self._next[queue]} was done"
            )

    def ends(self, process: str, message: MessageView, *, done: bool) -> None:
        queue = message.queue
        if self.running.get(queue) == process:
            del self.running[queue]
        if done:
            self.passed(queue, message.queue_offset + 1)

    def passed(self, queue: MessageQueue, offset: int) -> None:
        """Everything below is done or need not be."""
        self._next[queue] = max(self._next[queue], offset)

    def forgive(self, process: str) -> None:
        """A process that is dead, or stands still, no longer counts as running."""
        self.running = {queue: owner for queue, owner in self.running.items() if owner != process}
