"""The messages of one queue between pull and acknowledgement: pure arithmetic.

The rule that makes at-least-once work: what a group commits is the lowest offset still held here, or one past the
highest seen when nothing is held. Messages may be finished in any order; the commit never passes one that is not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from rocketline.errors import ConfigError
from rocketline.message import ConsumerOffset, MessageView

MIB = 1024 * 1024


@dataclass(frozen=True)
class BufferLimits:
    """How much of one queue may be held before pulling pauses."""

    max_messages: int
    max_mib: int
    max_span: int | None
    """Highest offset read minus lowest unfinished: one message that hangs must not let the others run far ahead. None
    for consumers that keep order: there the others wait anyway."""

    def __post_init__(self) -> None:
        for name, most in (("max_messages", 65535), ("max_mib", 1024), ("max_span", 65535)):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= most:
                raise ConfigError(f"{name}={value}: 1 to {most} expected")


class QueueBuffer:
    """Unfinished messages by queue offset."""

    # An OrderedDict and not a dict: the first key is asked for after every message, and a dict that lost its first
    # keys searches for the next one from the start.
    __slots__ = ("_held", "body_bytes", "next_offset")

    def __init__(self) -> None:
        self._held: OrderedDict[int, MessageView] = OrderedDict()
        self.body_bytes = 0
        self.next_offset = ConsumerOffset(0)
        """One past the highest offset ever added."""

    def __len__(self) -> int:
        return len(self._held)

    def add(self, messages: Iterable[MessageView]) -> list[MessageView]:
        """Hold messages; returns those that are new (a queue is read forward, so lower offsets were here before)."""
        added = []
        for message in messages:
            offset = message.queue_offset
            if offset >= self.next_offset:
                self._held[offset] = message
                self.body_bytes += len(message.body)
                self.next_offset = ConsumerOffset(offset + 1)
                added.append(message)
        return added

    def remove(self, messages: Iterable[MessageView]) -> ConsumerOffset | None:
        """Finish messages; returns what may be committed now, or None when nothing was held any more."""
        held = self._held
        if not held:
            return None
        for message in messages:
            if held.pop(message.queue_offset, None) is not None:
                self.body_bytes -= len(message.body)
        return self.committable

    @property
    def committable(self) -> ConsumerOffset:
        """Everything below is finished."""
        return ConsumerOffset(next(iter(self._held))) if self._held else self.next_offset

    @property
    def min_offset(self) -> int | None:
        return next(iter(self._held), None)

    @property
    def max_offset(self) -> int | None:
        return next(reversed(self._held), None)

    def oldest(self, count: int, *, skip: int = 0) -> list[MessageView]:
        """The unfinished messages with the lowest offsets, without the first `skip` of them."""
        return list(islice(self._held.values(), skip, skip + count))

    def clear(self) -> None:
        self._held.clear()
        self.body_bytes = 0

    def over(self, limits: BufferLimits) -> str | None:
        """Which limit is passed, in words; None when there is room."""
        if len(self._held) > limits.max_messages:
            return f"{len(self._held)} messages held, the limit is {limits.max_messages}"
        if self.body_bytes // MIB > limits.max_mib:
            return f"{self.body_bytes // MIB} MiB held, the limit is {limits.max_mib}"
        if self._held and limits.max_span is not None:
            # Measured to the highest seen, not the highest held: those that finish must not hide how far they ran.
            span = self.next_offset - 1 - next(iter(self._held))
            if span > limits.max_span:
                return f"reading is {span} offsets past an unfinished message, the limit is {limits.max_span}"
        return None
