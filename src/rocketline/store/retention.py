"""Retention: old files go, and a disk that fills up is noticed in time.

When log files go (all RocketMQ's rules; the ratios are of the disk the log is on):

    at the hours of `delete_when`, or when asked to     those unchanged for `reserved_hours`
    above `expire_ratio`                                the same, at any hour
    above `force_ratio`                                 the oldest, expired or not, until it is below again
    above `full_ratio`                                  as before, and messages are refused

Always oldest first and a few at a time. A file stays while a message in it has yet to be flushed or listed in its queue, and
so does the last file with a message: after any crash the log knows where to go on.

How a file goes: it leaves the log, so nobody finds it any more (who already holds a slice of it keeps that); the minimum of
every queue moves up; a thread removes it from the disk; then queue files and index files go that only know what is gone.
Stopped anywhere in between, the store opens and serves what is left, and the rest is done then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import NamedTuple

from rocketline.clock import Clock
from rocketline.errors import BAD_ITEM, StoreError
from rocketline.store.commit_log import CommitLog
from rocketline.store.config import UNIT_BYTES, RetentionConfig
from rocketline.store.consume_queue import FILLER_SIZE, ConsumeQueue
from rocketline.store.disk import Disk, DiskUsage
from rocketline.store.key_index import KeyIndex
from rocketline.store.queues import ConsumeQueues
from rocketline.store.removal import Remover
from rocketline.store.segment import Segment

ASKED_PASSES = 20
"""How many passes disregard the hour when somebody asked for expired files to go; as Apache's."""

HOUR_MS = 3_600_000
_TURN_S = 0.005

log = logging.getLogger(__name__)


class CleanUp(NamedTuple):
    """What one pass found and took away; the disk gets its space back a little later."""

    usage: DiskUsage
    log_files: int = 0
    queue_files: int = 0
    index_files: int = 0
    log_bytes: int = 0

    @property
    def files(self) -> int:
        return self.log_files + self.queue_files + self.index_files


def may_expire(config: RetentionConfig, usage: DiskUsage, now_ms: int) -> bool:
    """Whether expired files may go at this hour."""
    return usage.is_above(config.expire_ratio) or datetime.fromtimestamp(now_ms / 1000).hour in config.delete_hours


def count_expired(config: RetentionConfig, modified_ms: Iterable[int], now_ms: int) -> int:
    """How many files, given the times of their last changes, oldest file first, are expired and go in one pass."""
    newest_ms = now_ms - config.reserved_hours * HOUR_MS
    return sum(1 for _ in takewhile(lambda ms: ms <= newest_ms, islice(modified_ms, config.files_per_pass)))


def count_forced(config: RetentionConfig, usage: DiskUsage, file_bytes: int) -> int:
    """How many files must go in one pass, whatever their age, to bring the disk back to `force_ratio`."""
    if not config.force_enabled:
        return 0
    excess = usage.used_bytes - usage.total_bytes * config.force_ratio // 100
    return min(max(0, -(-excess // file_bytes)), config.files_per_pass)


class Retention:
    """Owner thread only."""

    def __init__(
        self,
        disk: Disk,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
        config: RetentionConfig,
        clock: Clock,
        settled: Callable[[], int],
        make_safe: Callable[[], bool],
        settle: Callable[[], bool],
    ) -> None:
        """`settled`: below this log offset all is flushed and dispatched; `make_safe`, `settle`: see `Remover`."""
        self._disk = disk
        self._log = commit_log
        self._queues = queues
        self._index = index
        self.config = config
        self._clock = clock
        self._settled = settled
        self._remover = Remover(disk, config.file_pause_ms / 1000, make_safe, settle)
        self._asked_passes = 0
        self._queue_files = 0
        self._index_files = 0
        # What queues and index have followed so far, or are following now: the queues in `_behind` have yet to.
        self._followed = (0, False)
        self._behind: list[ConsumeQueue] = []
        self._stuck: list[ConsumeQueue] = []

    def measure(self) -> DiskUsage:
        folder = self._log.file.folder
        return self._disk.usage(folder if self._disk.exists(folder) else folder.parent)

    def refusal(self, usage: DiskUsage) -> str:
        """Why the disk is too full for more messages; empty when it is not."""
        if not usage.is_above(self.config.full_ratio):
            return ""
        return (
            f"the disk of {self._log.file.folder} is {usage.used_percent:.1f} % full, "
            f"above diskSpaceWarningLevelRatio={self.config.full_ratio}, with {usage.free_bytes} bytes free; "
            "messages are taken again once there is room"
        )

    def forget(self, topic_folder: Path) -> None:
        """The queues of a topic are going to be deleted."""
        self._remover.forget(topic_folder)

    def remove_folders(self, paths: Iterable[Path]) -> None:
        """Have whole folders removed that stand where nobody looks."""
        self._remover.add_folders(paths)
        self._remover.start()

    def ask(self) -> None:
        """Let expired files go in the next passes, whatever the hour."""
        self._asked_passes = ASKED_PASSES

    def run(self, usage: DiskUsage, wait: bool = False) -> CleanUp:
        """One pass: a look at the oldest file at most, unless there is something to do."""
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
        settled = self._settled()
        # Strictly: the file after it then holds a message that no crash can take away.
        free_to_go = [segment for segment in self._log.file if segment.next_base < settled]
        count = min(len(free_to_go), self._count(usage, free_to_go))
        taken = [self._log.file.take_first() for _ in range(count)]
        self._remover.add_log_files(segment.path for segment in taken)
        if not taken and self.config.force_enabled and usage.is_above(self.config.force_ratio):
            log.warning("the disk is %.1f %% full, and the log has no file to give", usage.used_percent)
        return taken

    def _count(self, usage: DiskUsage, segments: list[Segment]) -> int:
        config, now_ms = self.config, self._clock.now_ms()
        expired = 0
        if self._asked_passes or may_expire(config, usage, now_ms):
            expired = count_expired(config, (self._disk.modified_ms(segment.path) for segment in segments), now_ms)
            self._asked_passes = max(0, self._asked_passes - 1) if expired else 0
        return max(expired, count_forced(config, usage, self._log.file.segment_bytes))

    def follow(self) -> bool:
        """Let queues and index follow the log's minimum, for one turn; False when there is more to do."""
        goal = (self._log.min_offset, self._remover.has_log_files)
        if goal != self._followed:
            self._followed = goal
            self._behind = list(self._queues)
            self._trim_index()
        deadline = self._clock.monotonic() + _TURN_S
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
            # While the disk has the log file, it keeps what lists its messages.
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
        """Return when the disk has its space back, as far as possible now."""
        self._remover.wait()
        while not self.follow():
            pass
        self._remover.wait()

    def close(self) -> None:
        self._remover.close()


def _has_file_below(queue: ConsumeQueue, log_min_offset: int) -> bool:
    """Whether the oldest file of a queue, unless it is the only one, lists nothing that is still in the log."""
    first = queue.file.first
    if first is None or len(queue.file) < 2:
        return False
    end = first.next_base // UNIT_BYTES
    unit = queue.unit(end - 1)
    # Without a size nothing was ever listed there; then the search for the minimum alone counts.
    return end <= queue.min_offset and (unit is None or unit[1] <= 0 or unit[0] < log_min_offset)
