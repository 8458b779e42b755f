"""Retention: removing old files, and refusing messages before the disk is full.

When log files are removed (all RocketMQ's rules; the ratios are of the disk the log is on):

    at the hours of `delete_when`, or on request     files unchanged for `reserved_hours`
    above `expire_ratio`                             the same, at any hour
    above `force_ratio`                              the oldest, expired or not, until usage is below it again
    above `full_ratio`                               as before, and messages are refused

Always oldest first and a few at a time. A file stays while a message in it is not yet flushed or not yet in its queue. The
last file with a message stays too: after any crash the log knows where to go on.

How a file is removed: it is taken out of the log, so it is not found any more (a reader that already holds a slice of it
keeps the slice); the minimum of every queue moves up; a thread removes the file from the disk; then queue files and index
files are removed that only list messages that are gone. If this is interrupted at any point, the store opens and serves
what is left, and goes on with the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import NamedTuple

from rocketline.errors import BAD_ITEM, StoreError
from rocketline.store.config import UNIT_BYTES, RetentionConfig
from rocketline.store.files.disk import DiskUsage
from rocketline.store.files.segment import Segment
from rocketline.store.queue.consume_queue import FILLER_SIZE, ConsumeQueue
from rocketline.store.retention.removal import RemovalChecks, Remover
from rocketline.store.store_parts import StoreParts

ASKED_PASSES = 20
"""How many passes ignore the hour after a request to remove expired files; as in Apache's broker."""

HOUR_MS = 3_600_000
_MAX_FOLLOW_S = 0.005

log = logging.getLogger(__name__)


class CleanUp(NamedTuple):
    """What one pass found and removed; the disk gets its space back a little later."""

    usage: DiskUsage
    log_files: int = 0
    queue_files: int = 0
    index_files: int = 0
    log_bytes: int = 0

    @property
    def files(self) -> int:
        return self.log_files + self.queue_files + self.index_files


def may_expire(config: RetentionConfig, usage: DiskUsage, now_ms: int) -> bool:
    """Whether expired files may be removed at this hour."""
    return usage.is_above(config.expire_ratio) or datetime.fromtimestamp(now_ms / 1000).hour in config.delete_hours


def count_expired(config: RetentionConfig, modified_ms: Iterable[int], now_ms: int) -> int:
    """How many expired files one pass removes, given the times of their last changes, oldest file first."""
    newest_ms = now_ms - config.reserved_hours * HOUR_MS
    return sum(1 for _ in takewhile(lambda ms: ms <= newest_ms, islice(modified_ms, config.files_per_pass)))


def count_forced(config: RetentionConfig, usage: DiskUsage, file_bytes: int) -> int:
    """How many files one pass must remove, whatever their age, to bring the disk back to `force_ratio`."""
    if not config.force_enabled:
        return 0
    excess = usage.used_bytes - usage.total_bytes * config.force_ratio // 100
    return min(max(0, -(-excess // file_bytes)), config.files_per_pass)


class Retention:
    """Removes old files in passes. Owner thread only."""

    def __init__(self, parts: StoreParts, checks: RemovalChecks) -> None:
        self.config = parts.config.retention
        self._disk = parts.disk
        self._log = parts.log
        self._queues = parts.queues
        self._index = parts.index
        self._dispatcher = parts.dispatcher
        self._clock = parts.clock
        self._remover = Remover(parts.disk, self.config.file_pause_ms / 1000, checks)
        self._asked_passes = 0
        self._queue_files = 0
        self._index_files = 0
        # The state of the log that queues and index follow; the queues in `_behind` have not done so yet.
        self._followed = (0, False)
        self._behind: list[ConsumeQueue] = []
        self._stuck: list[ConsumeQueue] = []

    def measure(self) -> DiskUsage:
        """Usage of the disk the log is on."""
        folder = self._log.file.folder
        return self._disk.usage(folder if self._disk.exists(folder) else folder.parent)

    def refusal(self, usage: DiskUsage) -> str:
        """Why the disk is too full for more messages; empty when it is not."""
        if not usage.is_above(self.config.full_ratio):
            return ""
        return (
            f"the disk of {self._log.file.folder} is {usage.used_percent:.1f} % full, "
            f"above diskSpaceWarningLevelRatio={self.config.full_ratio}, with {usage.free_bytes} bytes free; "
            "messages are accepted again when there is room"
        )

    def forget(self, topic_folder: Path) -> None:
        """Remove no more files of a topic, because its folder is going to be deleted."""
        self._remover.forget(topic_folder)

    def remove_folders(self, paths: Iterable[Path]) -> None:
        """Remove folders that the store does not use any more."""
        self._remover.add_folders(paths)
        self._remover.start()

    def ask(self) -> None:
        """Remove expired files in the next passes, whatever the hour."""
        self._asked_passes = ASKED_PASSES

    def run(self, usage: DiskUsage, wait: bool = False) -> CleanUp:
        """Run one pass; without anything to do it looks at the oldest file at most."""
        taken = [] if self._remover.has_log_files else self._take_log_files(usage)
        self._behind += self._stuck
        self._stuck.clear()
        self._queue_files = self._index_files = 0
        self.follow()
        if wait:
            self._wait()
        done = CleanUp(usage, len(taken), self._queue_files, self._index_files, sum(segment.size for segment in taken))
        if done.files:
            log.info(
                "old files removed: %d of the log from %d on (the disk is %.1f %% full), %d of queues, %d of the index",
                done.log_files, taken[0].base if taken else -1, usage.used_percent, done.queue_files, done.index_files,
            )  # fmt: skip
        return done

    def _take_log_files(self, usage: DiskUsage) -> list[Segment]:
        settled = min(self._log.flushed, self._dispatcher.dispatched)
        # Strictly below: then the next file holds a message that no crash can lose.
        removable = [segment for segment in self._log.file if segment.next_base < settled]
        count = min(len(removable), self._count(usage, removable))
        taken = [self._log.file.take_first() for _ in range(count)]
        self._remover.add_log_files(segment.path for segment in taken)
        if not taken and self.config.force_enabled and usage.is_above(self.config.force_ratio):
            log.warning("the disk is %.1f %% full, and no log file can be removed", usage.used_percent)
        return taken

    def _count(self, usage: DiskUsage, segments: list[Segment]) -> int:
        config, now_ms = self.config, self._clock.now_ms()
        expired = 0
        if self._asked_passes or may_expire(config, usage, now_ms):
            expired = count_expired(config, (self._disk.modified_ms(segment.path) for segment in segments), now_ms)
            self._asked_passes = max(0, self._asked_passes - 1) if expired else 0
        return max(expired, count_forced(config, usage, self._log.file.segment_bytes))

    def follow(self) -> bool:
        """Bring queues and index to the log's minimum, for 5 ms at most; False when there is more to do."""
        goal = (self._log.min_offset, self._remover.has_log_files)
        if goal != self._followed:
            self._followed = goal
            self._behind = list(self._queues)
            self._trim_index()
        deadline = self._clock.monotonic() + _MAX_FOLLOW_S
        while self._behind:
            self._follow_queue(self._behind.pop())
            if self._clock.monotonic() > deadline:
                break
        self._remover.start()
        return not self._behind

    def _follow_queue(self, queue: ConsumeQueue) -> None:
        minimum = self._log.min_offset
        try:
            unit = queue.unit(queue.min_offset)
            if unit is None or unit[1] == FILLER_SIZE or unit[0] < minimum:
                queue.follow_log_minimum(minimum)
            # While a log file is on the disk, the queue files that list its messages stay as well.
            while not self._remover.has_log_files and _has_file_below(queue, minimum):
                self._remover.add([queue.file.take_first().path])
                self._queue_files += 1
            if not self._remover.has_log_files:
                self._remover.add(queue.take_ext_files())
        except (StoreError, *BAD_ITEM) as error:
            log.error("queue %s cannot follow the log now: %s", queue.file.folder, error)
            self._stuck.append(queue)

    def _trim_index(self) -> None:
        if self._index is not None and not self._remover.has_log_files:
            paths = self._index.take_below(self._log.min_offset)
            self._remover.add(paths)
            self._index_files += len(paths)

    def _wait(self) -> None:
        """Return when everything that can be removed now is gone from the disk."""
        self._remover.wait()
        while not self.follow():
            pass
        self._remover.wait()

    def close(self) -> None:
        self._remover.close()


def _has_file_below(queue: ConsumeQueue, log_min_offset: int) -> bool:
    """Whether the oldest file of a queue lists only messages that left the log, and is not the only file."""
    first = queue.file.first
    if first is None or len(queue.file) < 2:
        return False
    end = first.next_base // UNIT_BYTES
    unit = queue.unit(end - 1)
    # A unit without a size was never written; then only the queue's minimum counts.
    return end <= queue.min_offset and (unit is None or unit[1] <= 0 or unit[0] < log_min_offset)
