"""Moving the progress of a group: first what it would do, queue by queue, then doing exactly that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rocketline.admin.cluster import Admin
from rocketline.admin.partial import Missing, Partial, merged
from rocketline.admin.search import QueueRange, queue_ranges
from rocketline.errors import BrokerError, ClientError, RocketlineError
from rocketline.message import MessageQueue
from rocketline.protocol.bodies import parse_queue_key
from rocketline.protocol.headers import ResetOffsetHeader

END_MS = -1
"""As a time: the end of each queue."""


@dataclass(frozen=True)
class QueueMove:
    """Where a group is in a queue, and where it would be."""

    queue: MessageQueue
    begin: int
    """The offset of the oldest message kept."""
    end: int
    before: int | None
    """None: the group never committed an offset here."""
    after: int

    @property
    def repeats(self) -> int:
        """Messages that it would get again."""
        return max(0, (self.before or 0) - self.after) if self.before is not None else 0

    @property
    def skips(self) -> int:
        """Messages that it would never get."""
        start = self.begin if self.before is None else max(self.before, self.begin)
        return max(0, self.after - start)


@dataclass(frozen=True)
class Moved:
    """What became of the move of one queue."""

    move: QueueMove
    problem: str | None = None

    @property
    def ok(self) -> bool:
        return self.problem is None


async def preview_reset(
    admin: Admin, group: str, topic: str, *, to_ms: int | None = None, offsets: Mapping[MessageQueue, int] | None = None
) -> Partial[list[QueueMove]]:
    """What a move of a group to a time (-1: the end, 0: the oldest message), or of some queues to offsets, would do."""
    if (to_ms is None) == (offsets is None):
        raise ClientError("say where the group is to go: to a time, or to offsets of queues")
    brokers = await admin.brokers_of(topic)
    ranges = await queue_ranges(admin, topic, brokers)
    stats = await admin.ask_each(brokers, lambda broker: broker.consume_stats(group, topic))
    before = {
        parse_queue_key(key): item.consumer_offset
        for _, found in stats.value
        for key, item in found.offset_table.items()
    }
    readable = {queue for _, queue in await admin.queues_of(topic)}
    wanted = [item for item in ranges.value if item.queue in (readable if offsets is None else offsets)]
    if offsets is not None and len(wanted) < len(offsets) and not ranges.missing:
        unknown = ", ".join(sorted(str(queue) for queue in offsets.keys() - {item.queue for item in wanted}))
        raise ClientError(f"there is no queue {unknown}")
    targets = await admin.gather_or_errors(_target(item, to_ms, offsets) for item in wanted)
    moves: list[QueueMove] = []
    failed: list[Missing] = []
    for item, target in zip(wanted, targets):
        if isinstance(target, RocketlineError):
            failed.append(Missing.of(item.broker.name, item.broker.address, target))
        else:
            moves.append(QueueMove(item.queue, item.low, item.high, _offset(before.get(item.queue)), target))
    # A broker without progress of the group refuses to tell it: that is no missing part.
    silent = Partial(None, tuple(item for item in stats.missing if item.code is None))
    return Partial(moves, merged(ranges, silent, Partial(None, tuple(failed))), ranges.answered)


def _offset(found: int | None) -> int | None:
    return None if found is None or found < 0 else found


async def _target(item: QueueRange, to_ms: int | None, offsets: Mapping[MessageQueue, int] | None) -> int:
    if offsets is not None:
        target = offsets[item.queue]
        if not item.low <= target <= item.high:
            raise ClientError(f"{item.queue} has offsets from {item.low} to {item.high}, {target} is not among them")
        return target
    if to_ms == END_MS:
        return item.high
    if not to_ms or item.low == item.high:
        return item.low
    return min(item.high, max(item.low, await item.broker.offset_at(item.queue, to_ms)))


async def moved_meanwhile(
    admin: Admin, group: str, topic: str, moves: Iterable[QueueMove], *, is_online: bool
) -> list[str]:
    """Why the moves of a preview are not what they were: a group that is online may have gone on, and nothing else."""
    wanted = {move.queue: move for move in moves}
    try:
        now = await preview_reset(admin, group, topic, offsets={queue: move.after for queue, move in wanted.items()})
    except ClientError as error:  # a queue is gone, or what it was to go back to was deleted
        return [str(error)]
    found = []
    for move in now.value:
        before = wanted[move.queue].before
        if move.before != before and not (is_online and (before is None or (move.before or 0) > before)):
            found.append(f"{move.queue}: {before} → {move.before}")
    return found


async def apply_reset(admin: Admin, group: str, topic: str, moves: Iterable[QueueMove]) -> list[Moved]:
    """Move the queues of a group to the offsets of a preview; the outcome of each."""
    brokers = {broker.name: broker for broker in await admin.brokers_of(topic)}

    async def apply(move: QueueMove) -> Moved:
        queue = move.queue
        broker = brokers.get(queue.broker_name)
        if broker is None or queue.topic != topic:
            return Moved(move, f"there is no queue {queue} of topic {topic!r}")
        header = ResetOffsetHeader(topic, group, 0, True, queue.queue_id, move.after)
        try:
            moved = await broker.reset_offsets(header)
        except BrokerError as error:
            return Moved(move, str(error))
        except RocketlineError as error:
            return Moved(move, f"whether it moved is not known: {error}")
        reached = moved.get(queue)
        return Moved(move) if reached in (None, move.after) else Moved(move, f"it is at {reached} instead")

    return await admin.gather(apply(move) for move in moves)
