"""What a store was given, as lists and dicts: the model that property tests compare a store with.

`log` holds every message in the order of the log. A topic that is deleted begins a new life with its next message. Deleting
is not written to the log, so when the last life has no message left a restart may bring the end of the one before it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rocketline.protocol.properties import encode_properties
from rocketline.protocol.records import Record

Key = tuple[str, int]


@dataclass(frozen=True)
class Sent:
    """A message the store took."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    properties: dict[str, str]
    log_offset: int
    end: int
    store_ms: int
    is_half: bool = False
    """In the log and in the index but in no queue."""

    @property
    def keys(self) -> list[str]:
        return f"{self.properties.get('UNIQ_KEY', '')} {self.properties.get('KEYS', '')}".split()

    def is_like(self, record: Record) -> bool:
        return (
            (record.topic, record.queue_id, record.queue_offset) == (self.topic, self.queue_id, self.queue_offset)
            and (record.log_offset, record.store_ms) == (self.log_offset, self.store_ms)
            and bytes(record.body) == self.body
            and record.properties == encode_properties(self.properties).encode()
        )


@dataclass
class Life:
    """A queue from its making to its deletion."""

    sent: list[Sent] = field(default_factory=list)
    first: int = 0
    """Messages before this one did not come back."""
    sure: int = 0
    """Messages before this one may come back or not."""


class Ledger:
    def __init__(self) -> None:
        self.log: list[Sent] = []
        self.log_min = 0
        self.dispatched = 0
        """How many messages of the log were reported as readable."""
        self.ahead: dict[Key, int] = {}
        """After a dispatch that a full disk ended: where queues end that already list some of what was not reported."""
        self._lives: dict[Key, list[Life]] = {}

    def add(self, sent: Sent) -> None:
        self.log.append(sent)
        life = self._lives.setdefault((sent.topic, sent.queue_id), [Life()])[-1]
        if not sent.is_half:
            life.sent.append(sent)

    @property
    def queues(self) -> Iterator[Key]:
        return iter(self._lives)

    def next_offset(self, key: Key) -> int:
        life = self._lives.get(key, [Life()])[-1]
        return life.sent[-1].queue_offset + 1 if life.sent else 0

    def visible(self, key: Key) -> list[Sent]:
        """What the queue must hold, no more and no less."""
        life = self._lives[key][-1]
        end = self._readable_log_end()
        return [
            sent
            for sent in life.sent
            if (sent.end <= end or sent.queue_offset < self.ahead.get(key, 0))
            and sent.log_offset >= self.log_min
            and sent.queue_offset >= life.first
        ]

    def readable_end(self, key: Key) -> int:
        """The queue's maximum: numbers are not forgotten with the messages that had them."""
        end = self._readable_log_end()
        seen = [sent.queue_offset for sent in self._lives[key][-1].sent if sent.end <= end]
        return max(seen[-1] + 1 if seen else 0, self.ahead.get(key, 0))

    def _readable_log_end(self) -> int:
        return self.log[self.dispatched - 1].end if self.dispatched else 0

    def indexed(self, with_ahead: bool = False) -> list[Sent]:
        """What the index must hold; `with_ahead`: and what it may hold."""
        log = self.log if with_ahead and self.ahead else self.log[: self.dispatched]
        return [sent for sent in log if sent.log_offset >= self.log_min]

    def delete_topic(self, topic: str) -> None:
        for (name, _), lives in self._lives.items():
            if name == topic and lives[-1].sent:
                lives.append(Life())
        self.ahead = {key: end for key, end in self.ahead.items() if key[0] != topic}

    def lose_after(self, end: int) -> list[Sent]:
        """Forget what does not fit below the log's end; returns it. Everything else is dispatched."""
        lost = [sent for sent in self.log if sent.end > end]
        del self.log[len(self.log) - len(lost) :]
        for lives in self._lives.values():
            for life in lives:
                life.sent = [sent for sent in life.sent if sent.end <= end]
        self.dispatched = len(self.log)
        self.ahead.clear()
        return lost

    def admit_returned(self, key: Key, min_offset: int, max_offset: int) -> None:
        """Believe what a restart made of a deleted queue, when it is the end of what that queue was."""
        lives = self._lives[key]
        lives[:-1] = [life for life in lives[:-1] if life.sent]
        if max_offset and not lives[-1].sent and len(lives) > 1:
            lives.pop()
            lives[-1].sure = lives[-1].sent[-1].queue_offset + 1
        if lives[-1].sure:
            lives[-1].first = min(min_offset, lives[-1].sure)
