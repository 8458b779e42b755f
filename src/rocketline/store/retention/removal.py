"""Removing files from the disk in a thread: removing a file of a gigabyte, or one while the disk is busy, may take long.

The store has stopped using a file before it is added here. Rules:

- Files of one folder are removed in the order they were added, each only when the one before is gone durably. So a crash
  at any moment leaves a log without a hole; at worst some of its oldest files are back.
- Before a log file is removed, queues and index are flushed: they can no longer be rebuilt from that file.
- Before the folder of a deleted topic is removed, the table of queue lengths is saved without its queues.
- A file that cannot be removed now delays the rest of its folder, and is tried again at the next `start`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Condition, Event
from typing import NamedTuple

from rocketline.errors import StoreError
from rocketline.store.files.disk import Disk

log = logging.getLogger(__name__)


class RemovalChecks(NamedTuple):
    """Called in the removing thread; False means that nothing may be removed now."""

    before_log_files: Callable[[], bool]
    """Flushes queues and index."""
    before_folders: Callable[[], bool]
    """Saves the table of queue lengths."""


class Remover:
    """Removes files and folders in a thread; its methods are for the owner thread only."""

    def __init__(self, disk: Disk, pause_s: float, checks: RemovalChecks) -> None:
        """`pause_s`: between the removals of two log files."""
        self._disk = disk
        self._pause_s = pause_s
        self._checks = checks
        self._folders: deque[Path] = deque()
        self._log_files: deque[Path] = deque()
        self._others: deque[Path] = deque()
        self._failed: list[Path] = []
        self._current: Path | None = None
        self._changed = Condition()
        self._worker: ThreadPoolExecutor | None = None
        self._work: Future[None] | None = None
        self._closing = Event()

    def add_log_files(self, paths: Iterable[Path]) -> None:
        """Add files of the log, the oldest first; they are removed before all others."""
        self._log_files.extend(paths)

    def add(self, paths: Iterable[Path]) -> None:
        """Add other files."""
        self._others.extend(paths)

    def add_folders(self, paths: Iterable[Path]) -> None:
        """Add folders that the store does not use any more."""
        self._folders.extend(paths)

    def forget(self, folder: Path) -> None:
        """Remove no more files of this folder: it is being deleted as a whole, and files of the same names may be made.

        Waits only if a file in it is being removed at this moment.
        """
        with self._changed:
            self._others = deque(path for path in self._others if folder not in path.parents)
            while self._current is not None and folder in self._current.parents:
                self._changed.wait()
            self._failed = [path for path in self._failed if folder not in path.parents]

    @property
    def has_log_files(self) -> bool:
        """Whether the disk still has a file that was taken out of the log."""
        return bool(self._log_files)

    def start(self) -> None:
        """Remove what was added, and what failed before, unless the thread already does."""
        if not (self._log_files or self._others or self._folders) or (self._work is not None and not self._work.done()):
            return
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="rocketline-remove")
        self._work = self._worker.submit(self._run)

    def wait(self) -> None:
        """Return when everything that can be removed now is gone."""
        if self._work is not None:
            wait([self._work])

    def close(self) -> None:
        """Finish without further pauses."""
        self._closing.set()
        if self._folders:
            self.wait()
            self.start()
        if self._worker is not None:
            self._worker.shutdown()
            self._worker = None

    def _run(self) -> None:
        try:
            delayed: set[Path] = set()
            log_can_go = folders_can_go = True
            while True:
                folders_can_go = folders_can_go and self._remove_folders()
                log_can_go = log_can_go and self._remove_log_files()
                if not self._remove_other(delayed):
                    break
        except Exception:
            log.exception("removing old files stopped early; trying again later")
        with self._changed:
            self._others.extendleft(reversed(self._failed))
            self._failed.clear()

    def _remove_folders(self) -> bool:
        """Remove the folders; True when all are gone."""
        count = len(self._folders)
        if count and not self._checks.before_folders():
            return False
        for _ in range(count):
            try:
                self._disk.remove_tree(self._folders[0])
            except StoreError as error:
                log.error("%s; trying again later", error)
                return False
            self._folders.popleft()
        return True

    def _remove_log_files(self) -> bool:
        """Remove the log files; True when all are gone."""
        if self._log_files and not self._checks.before_log_files():
            return False
        while self._log_files:
            if not self._remove(self._log_files[0]):
                return False
            self._log_files.popleft()
            if self._log_files:
                self._closing.wait(self._pause_s)
        return True

    def _remove_other(self, delayed: set[Path]) -> bool:
        """Try the next file, unless its folder is delayed; False when there is none."""
        with self._changed:
            if not self._others:
                return False
            path = self._current = self._others.popleft()
        is_gone = path.parent not in delayed and self._remove(path)
        with self._changed:
            self._current = None
            if not is_gone:
                delayed.add(path.parent)
                self._failed.append(path)
            self._changed.notify_all()
        return True

    def _remove(self, path: Path) -> bool:
        try:
            self._disk.remove(path, durably=True)
        except StoreError as error:
            log.error("%s; trying again later", error)
            return False
        return True
