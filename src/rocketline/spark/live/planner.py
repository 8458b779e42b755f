"""Plans which ranges of which queues the tasks of a batch read. Pure functions: offsets in, ranges out.

A stream moves from one set of offsets to the next, and Spark saves each set before anything is read. So the offsets
alone must determine the content of a batch:

* A new queue is first saved with its first offset, and read from the next batch on.
* A queue that is gone keeps its offset, in case it comes back.
* A queue that ends before its saved offset was deleted and created again: its offset is set back to the start. One that
  was created again and is longer by now cannot be told from the old one.

Losses of messages are described as texts; the caller decides whether they end the stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rocketline.message import MessageQueue
from rocketline.spark.offsets import Offsets

Known = Mapping[MessageQueue, int]

TASK_ROWS = 10_000


@dataclass(frozen=True, order=True)
class QueueRange:
    """The messages of a queue from `start` up to but not including `end`."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def rows(self) -> int:
        """The most rows it can give: filters and retention may leave fewer."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.queue} from {self.start} to {self.end}"


@dataclass(frozen=True)
class Step:
    """The offsets a stream may advance to, and the losses on the way."""

    end: Offsets
    losses: tuple[str, ...] = ()
    is_recreated: bool = False
    """Whether a queue was certainly deleted and created again."""


def advance(start: Known, begins: Known, ends: Known) -> Step:
    """Advance to the current ends; `begins` may leave out queues that end at their offset."""
    known_topics = {queue.topic for queue in start}
    end: Offsets = {}
    losses: list[str] = []
    is_recreated = False
    for queue in sorted({*start, *ends}):
        if queue not in ends:
            end[queue] = start[queue]
            losses.append(
                f"{queue} does not exist any more: its topic was deleted or got fewer queues, or its broker is not "
                "registered with the name server"
            )
        elif queue not in start:
            end[queue] = begins[queue]
            if begins[queue] and queue.topic in known_topics:
                losses.append(f"{queue} is new and begins at {begins[queue]}: earlier messages are lost unread")
        elif ends[queue] < start[queue]:
            end[queue], is_recreated = begins[queue], True
            losses.append(
                f"{queue} ends at {ends[queue]}, though it was read up to {start[queue]}: it was deleted and created again"
            )
        else:
            end[queue] = ends[queue]
            if queue in begins and begins[queue] > start[queue]:
                losses.append(f"{queue} begins at {begins[queue]}: messages from {start[queue]} on are lost unread")
    return Step(end, tuple(losses), is_recreated)


def backlog(start: Known, begins: Known, end: Known) -> Offsets:
    """The number of messages to read of each queue that has any."""
    sizes = {queue: end[queue] - max(start[queue], begins.get(queue, 0)) for queue in end if queue in start}
    return {queue: size for queue, size in sizes.items() if size > 0}


def limited(start: Known, begins: Known, end: Known, limit: int) -> Offsets:
    """An end that is at most `limit` messages away, shared out in proportion to the backlog of each queue.

    The remainder of rounding goes first to queues that got nothing, the shortest first, so that none is starved.
    """
    sizes = backlog(start, begins, end)
    total = sum(sizes.values())
    if total <= limit:
        return dict(end)
    shares = {queue: size * limit // total for queue, size in sizes.items()}
    left = limit - sum(shares.values())
    for queue in sorted(shares, key=lambda queue: (shares[queue] > 0, sizes[queue], queue))[:left]:
        shares[queue] += 1
    return {
        queue: max(start[queue], begins.get(queue, 0)) + shares[queue] if queue in shares else offset
        for queue, offset in end.items()
    }


def ranges_between(start: Known, end: Known) -> list[QueueRange]:
    """The ranges between two sets of offsets; a queue that is only in one of them, or was set back, has none."""
    return [
        QueueRange(queue, start[queue], end[queue])
        for queue in sorted(end)
        if queue in start and end[queue] > start[queue]
    ]


def split_ranges(
    ranges: Sequence[QueueRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[QueueRange]:
    """The same messages in more ranges: none above `max_records`, and about `min_partitions` ranges; large ones are
    split."""
    total = sum(part.rows for part in ranges)
    pieces = []
    for part in ranges:
        by_size = -(-part.rows // max_records) if max_records else 1
        by_count = -(-part.rows * min_partitions // total) if min_partitions and min_partitions > len(ranges) else 1
        pieces += _cut(part, max(1, min(part.rows, max(by_size, by_count))))
    return pieces


def joined_ranges(
    ranges: Sequence[QueueRange], enough: int = TASK_ROWS, max_records: int | None = None
) -> list[tuple[QueueRange, ...]]:
    """Ranges by tasks: neighbours are read by one task as long as it has at most `enough` messages. A task costs more than
    reading a thousand messages."""
    most = min(enough, max_records or enough)
    tasks: list[list[QueueRange]] = []
    rows = 0
    for part in ranges:
        if not tasks or rows + part.rows > most:
            tasks.append([])
            rows = 0
        tasks[-1].append(part)
        rows += part.rows
    return [tuple(task) for task in tasks]


def _cut(part: QueueRange, pieces: int) -> list[QueueRange]:
    cuts = [part.start + part.rows * number // pieces for number in range(pieces + 1)]
    return [QueueRange(part.queue, start, end) for start, end in pairwise(cuts)]


def out_of_range(wanted: Known, begins: Known, ends: Known) -> list[str]:
    """Descriptions of the wanted offsets that a queue does not have."""
    return [
        f"{queue} has offsets from {begins[queue]} to {ends[queue]}, not {offset}"
        for queue, offset in sorted(wanted.items())
        if not begins[queue] <= offset <= ends[queue]
    ]


def clamped(wanted: Known, begins: Known, ends: Known) -> Offsets:
    """The wanted offsets, moved into the range that each queue has."""
    return {queue: min(max(offset, begins[queue]), ends[queue]) for queue, offset in wanted.items()}
