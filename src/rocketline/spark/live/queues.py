"""Queries of the driver to a cluster: which queues there are, and the offsets of positions in them."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping

from rocketline.client.bulk.reader import BulkReader
from rocketline.clock import SYSTEM_CLOCK, Clock
from rocketline.errors import ConfigError, RangeNotAvailable, RouteNotFound, TopicNotExist
from rocketline.message import MessageQueue
from rocketline.protocol.names import is_derived
from rocketline.protocol.namespaces import is_system_name
from rocketline.spark.live.options import NAME, LiveOptions, Position, TopicChoice
from rocketline.spark.live.planner import clamped, out_of_range
from rocketline.spark.offsets import EARLIEST, LATEST, Offsets

log = logging.getLogger(__name__)

LIST_AGAIN_S = 2.0
"""A waiting stream asks for the ends of its queues every few milliseconds; new queues are looked for less often."""

RECREATED_HINT = (
    "A topic that was deleted and created again needs a new checkpoint, with startingOffsets=earliest: the old one has "
    "offsets of the deleted topic, and where the new topic is longer than these, its first messages would be passed over"
)
DELETED_HINT = f"The topic was deleted while it was read. {RECREATED_HINT}. failOnDataLoss=false continues without it"
LOSS_HINT = "set failOnDataLoss=false to continue without the lost messages"


class LiveQueues:
    """The queues that a source reads."""

    def __init__(self, reader: BulkReader, topics: TopicChoice, clock: Clock = SYSTEM_CLOCK) -> None:
        self._reader = reader
        self._topics = topics
        self._clock = clock
        self._listed: frozenset[MessageQueue] = frozenset()
        self._list_at = float("-inf")

    def current(self) -> frozenset[MessageQueue]:
        """The queues now; RouteNotFound when a topic is missing, ConfigError when an assigned queue is."""
        queues = self._list(may_miss=False)
        if self._topics.assigned is not None and (missing := self._topics.assigned.missing(queues)):
            raise ConfigError(
                f"{NAME}: option 'assign' names {', '.join(missing)}, which does not exist: {_describe(queues)}"
            )
        if not queues and self._topics.pattern is None:
            raise ConfigError(f"{NAME}: {', '.join(self._topics.names)}: no queue can be read; check the permission")
        return queues

    def recent(self) -> frozenset[MessageQueue]:
        """The queues as of at most `LIST_AGAIN_S` ago, for a running stream; a deleted topic has none."""
        if self._clock.monotonic() < self._list_at:
            return self._listed
        try:
            self._listed = self._list(may_miss=True)
        except RouteNotFound as error:
            if not self._listed:
                raise
            log.warning("the queues found before are used: %s", error)
        self._list_at = self._clock.monotonic() + LIST_AGAIN_S
        return self._listed

    def _list(self, may_miss: bool) -> frozenset[MessageQueue]:
        found: set[MessageQueue] = set()
        for topic in self._names():
            try:
                found.update(self._reader.queues(topic))
            except RouteNotFound as error:
                # A topic that a pattern found may be deleted before this request.
                may_miss = may_miss or self._topics.pattern is not None
                if not (may_miss and isinstance(error.__cause__, TopicNotExist)):
                    raise
        assigned = self._topics.assigned
        return frozenset(found if assigned is None else (queue for queue in found if queue in assigned))

    def _names(self) -> Collection[str]:
        topics = self._topics
        if topics.pattern is None:
            return topics.names if topics.assigned is None else topics.assigned.topics
        matches = re.compile(topics.pattern).fullmatch
        names = [name for name in self._reader.topics() if matches(name)]
        return [name for name in names if not is_system_name(name) and not is_derived(name)]


def _describe(queues: Collection[MessageQueue]) -> str:
    return f"there are {', '.join(map(str, sorted(queues)[:20]))}" if queues else "there is none"


class Resolver:
    """Turns the positions in options into offsets."""

    def __init__(self, reader: BulkReader, options: LiveOptions) -> None:
        self._reader = reader
        self._options = options

    def start(self, queues: Collection[MessageQueue], default: str) -> Offsets:
        """The offsets where reading begins; `default` is the position without an option."""
        return self._resolve(self._options.start or Position(default), queues, "starting")

    def end(self, queues: Collection[MessageQueue]) -> Offsets:
        return self._resolve(self._options.end, queues, "ending")

    def _resolve(self, position: Position, queues: Collection[MessageQueue], side: str) -> Offsets:
        reader = self._reader
        if position.word == "latest":
            return dict(reader.ends(queues))
        begins, ends = _not_below_zero(reader.begins(queues)), reader.ends(queues)
        if position.word == "earliest":
            return begins
        if position.named:
            self._check_named(position.named, queues, f"{side}Offsets{'ByTimestamp' if position.times_ms else ''}")
        if position.word == "group":
            return self._within(self._of_group(begins, ends), begins, ends, side)
        if position.offsets:
            special: Mapping[int, Mapping[MessageQueue, int]] = {EARLIEST: begins, LATEST: ends}
            wanted = {
                queue: special[offset][queue] if offset < 0 else offset for queue, offset in position.offsets.items()
            }
            return self._within(wanted, begins, ends, side)
        times = position.times_ms or dict.fromkeys(queues, position.at_ms or 0)
        found = clamped(reader.offsets_at(times), begins, ends)
        if side == "starting" and self._options.strict_times:
            self._check_found(found, ends)
        return found

    def _of_group(self, begins: Offsets, ends: Mapping[MessageQueue, int]) -> Offsets:
        committed = self._reader.group_offsets(begins)
        missing = begins.keys() - committed.keys()
        fallback = self._options.group_fallback
        if missing and fallback == "error":
            raise ConfigError(
                f"{NAME}: group {self._reader.group!r} has no offset for {', '.join(map(str, sorted(missing)))}; "
                "groupOffsetsFallback may be earliest or latest"
            )
        rest = begins if fallback == "earliest" else ends
        return {queue: int(committed.get(queue, rest[queue])) for queue in begins}

    def _check_named(self, named: Offsets, queues: Collection[MessageQueue], option: str) -> None:
        unknown, unnamed = sorted(named.keys() - set(queues)), sorted(set(queues) - named.keys())
        if unknown:
            raise ConfigError(
                f"{NAME}: option {option!r} names {_list(unknown)}, which are not read: {_describe(queues)}"
            )
        if unnamed:
            raise ConfigError(f"{NAME}: option {option!r} must name every queue, {_list(unnamed)} are missing")

    def _within(self, wanted: Offsets, begins: Offsets, ends: Mapping[MessageQueue, int], side: str) -> Offsets:
        problems = out_of_range(wanted, begins, ends)
        if problems and self._options.fail_on_loss:
            raise RangeNotAvailable(
                f"{NAME}: {side}Offsets: {'; '.join(problems[:5])}. Choose existing offsets, or set "
                "failOnDataLoss=false to read what exists",
                0,
            )
        for problem in problems:
            log.warning("%sOffsets: %s; the nearest one is taken", side, problem)
        return clamped(wanted, begins, ends)

    def _check_found(self, found: Offsets, ends: Mapping[MessageQueue, int]) -> None:
        if late := sorted(queue for queue, offset in found.items() if offset >= ends[queue]):
            raise ConfigError(
                f"{NAME}: no message of {_list(late)} was stored at or after the starting time; "
                "startingOffsetsByTimestampStrategy=latest begins at the end there"
            )


def _list(queues: Collection[MessageQueue]) -> str:
    shown = list(map(str, queues))
    return ", ".join(shown[:10]) + (f" and {len(shown) - 10} more" if len(shown) > 10 else "")


def _not_below_zero(offsets: Mapping[MessageQueue, int]) -> Offsets:
    """Apache's broker answers -1 for a queue that nothing was ever stored in."""
    return {queue: max(0, offset) for queue, offset in offsets.items()}
