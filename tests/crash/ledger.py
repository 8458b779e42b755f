"""What was sent and what the broker answered, kept in the harness and never in the broker's files.

A *message* is what an application wants sent; an *attempt* is one send of it. Attempts of a producer are numbered in the
order they go out. One that was answered with success is acknowledged, with the place the answer named; every other one,
refused or unanswered, is a maybe: it may be found or not. A maybe is sent again later, so a message may be found twice, and
that is counted.

Bodies and properties follow from producer, message and size, so nothing but these needs to be remembered.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

from rocketline.message import KEYS, TAGS, UNIQ_KEY

Queue = tuple[str, int]
"""Topic and queue id."""

ATTEMPT = "N"
PRODUCER = "P"
BROKERS_OWN = frozenset({"CLUSTER", "MSG_REGION", "TRACE_ON"})
"""Properties a broker adds to what it was sent."""

MAX_BODY_BYTES = 64 << 10
_NOISE = Random(20_240_229).randbytes(3 * MAX_BODY_BYTES)
_HEAD = struct.Struct(">IIQ")


@dataclass(slots=True)
class Attempt:
    """One send of a message."""

    producer: int
    number: int
    message: int
    body_bytes: int
    queue: Queue
    in_batch: bool = False
    queue_offset: int = -1
    """As acknowledged; -1 for a maybe."""
    log_offset: int = -1
    acked_at: float = 0.0

    @property
    def body(self) -> bytes:
        start = (self.producer * 7919 + self.message * 104_729) % MAX_BODY_BYTES
        head = _HEAD.pack(self.producer, self.body_bytes, self.message)
        return head + _NOISE[start : start + self.body_bytes - len(head)]

    @property
    def properties(self) -> dict[str, str]:
        found = {
            UNIQ_KEY: f"{self.producer:04X}{self.message:012X}",
            PRODUCER: str(self.producer),
            ATTEMPT: str(self.number),
        }
        if self.message % 3 == 0:
            found[KEYS] = f"order-{self.message % 97} all"
        if self.message % 2:
            found[TAGS] = "odd"
        return found

    def __str__(self) -> str:
        place = f" acknowledged at {self.queue_offset}" if self.queue_offset >= 0 else " not acknowledged"
        return f"attempt {self.number} of producer {self.producer} (message {self.message}){place} of {self.queue}"


@dataclass
class Ledger:
    """Everything one store was sent, and everything that was ever read from it."""

    attempts: dict[int, list[Attempt]] = field(default_factory=lambda: defaultdict(list))
    """By producer, in order of sending."""
    acked: dict[Queue, dict[int, Attempt]] = field(default_factory=lambda: defaultdict(dict))
    """By queue and queue offset."""
    unsettled: dict[int, list[Attempt]] = field(default_factory=lambda: defaultdict(list))
    """Maybes of a producer that it has yet to send again."""
    seen: dict[Queue, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """Checksum of the whole record found at an offset when it was first read."""
    problems: list[str] = field(default_factory=list)
    ack_count: int = 0
    lost_count: int = 0
    _messages: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def queues(self) -> list[Queue]:
        return sorted({attempt.queue for found in self.attempts.values() for attempt in found})

    def new_attempt(self, producer: int, queue: Queue, body_bytes: int, in_batch: bool = False) -> Attempt:
        """The next attempt of a producer, with a message of its own."""
        self._messages[producer] += 1
        return self._attempt(producer, self._messages[producer], queue, body_bytes, in_batch)

    def again(self, former: Attempt, in_batch: bool = False) -> Attempt:
        """Another attempt to send the message of an unsettled one, to the same queue."""
        return self._attempt(former.producer, former.message, former.queue, former.body_bytes, in_batch)

    def _attempt(self, producer: int, message: int, queue: Queue, body_bytes: int, in_batch: bool) -> Attempt:
        attempts = self.attempts[producer]
        attempt = Attempt(producer, len(attempts), message, body_bytes, queue, in_batch)
        attempts.append(attempt)
        return attempt

    def acknowledge(self, attempt: Attempt, queue_offset: int, log_offset: int, at: float) -> None:
        attempt.queue_offset, attempt.log_offset, attempt.acked_at = queue_offset, log_offset, at
        other = self.acked[attempt.queue].get(queue_offset)
        if other is not None:
            self.problems.append(f"I1: {attempt} and {other} were given one place")
        self.acked[attempt.queue][queue_offset] = attempt
        self.ack_count += 1

    def unanswered(self, attempt: Attempt) -> None:
        self.unsettled[attempt.producer].append(attempt)

    def find(self, producer: str | None, number: str | None) -> Attempt | None:
        """The attempt a stored record claims to be."""
        if not (producer and number and producer.isdecimal() and number.isdecimal()):
            return None
        attempts = self.attempts.get(int(producer), [])
        return attempts[int(number)] if int(number) < len(attempts) else None

    def note_read(self, queue: Queue, queue_offset: int, checksum: int) -> None:
        """I3: what was read once at a place is what anybody reads there ever after."""
        before = self.seen[queue].setdefault(queue_offset, checksum)
        if before != checksum:
            self.problems.append(f"I3: the record at {queue_offset} of {queue} is not the one read there before")

    def lose_from(self, log_offset: int) -> list[Attempt]:
        """Take what was acknowledged at or past a log offset for lost; returns it."""
        lost = [
            attempt for places in self.acked.values() for attempt in places.values() if attempt.log_offset >= log_offset
        ]
        for attempt in lost:
            del self.acked[attempt.queue][attempt.queue_offset]
            attempt.queue_offset = -1
        self.lost_count += len(lost)
        return lost

    def take_problems(self) -> list[str]:
        problems, self.problems = self.problems, []
        return problems
