"""Removing files for good, in a thread of its own: an unlink may take long, a gigabyte's or one behind a busy journal.

Whoever hands a file over has let go of it before: nothing finds it any more. Rules:

- Files of one folder go in the order they came, each only when the one before is gone durably. So a crash at any moment
  leaves a log without a hole; at worst some of its oldest files are back.
- Before a log file goes, queues and index are brought to the disk: what the log can no longer tell, they must know.
- Before a whole folder of a deleted topic goes, it is written down that nobody misses it.
- What cannot be removed now holds up the rest of its folder, and is tried again when `start` is called next.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Condition, Event

from rocketline.errors import StoreError
from rocketline.store.files.disk import Disk

log = logging.getLogger(__name__)


class Remover:
    """Owner thread only; `make_safe`, before log files go, and `settle`, before folders go, are called in the thread that
    removes, and False from them means: not now."""

    def __init__(
        self, disk: Disk, pause_s: float, make_safe: Callable[[], bool], settle: Callable[[], bool] = lambda: True
    ) -> None:
        self._disk = disk
        self._pause_s = pause_s
        self._make_safe = make_safe
        self._settle = settle
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
        """Hand over files of the log, the oldest first; they go before all others."""
        self._log_files.extend(paths)

    def add(self, paths: Iterable[Path]) -> None:
        """Hand over other files."""
        self._others.extend(paths)

    def add_folders(self, paths: Iterable[Path]) -> None:
        """Hand over whole folders, which stand where nobody looks."""
        self._folders.extend(paths)

    def forget(self, folder: Path) -> None:
        """Never touch this folder again: it is being deleted as a whole, and files of the same names may come back.

        Waits for a file only if it is in there and goes at this very moment.
        """
        with self._changed:
            self._others = deque(path for path in self._others if folder not in path.parents)
            while self._current is not None and folder in self._current.parents:
                self._changed.wait()
            self._failed = [path for path in self._failed if folder not in path.parents]

    @property
    def has_log_files(self) -> bool:
        """Whether the disk still has a file that left the log."""
        return bool(self._log_files)

    def start(self) -> None:
        """Remove what was handed over, and what failed before, unless that is under way."""
        if not (self._log_files or self._others or self._folders) or (self._work is not None and not self._work.done()):
            return
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="rocketline-remove")
        self._work = self._worker.submit(self._run)

    def wait(self) -> None:
        """Return when all that can be removed now is gone."""
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
            held_up: set[Path] = set()
            log_can_go = folders_can_go = True
            while True:
                folders_can_go = folders_can_go and self._remove_folders()
                log_can_go = log_can_go and self._remove_log_files()
                if not self._remove_other(held_up):
                    break
        except Exception:
            log.exception("removing old files ended early, trying again later")
        with self._changed:
            self._others.extendleft(reversed(self._failed))
            self._failed.clear()

    def _remove_folders(self) -> bool:
        """Whether all of them are gone."""
        count = len(self._folders)
        if count and not self._settle():
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
        """Whether all of them are gone."""
        if self._log_files and not self._make_safe():
            return False
        while self._log_files:
            if not self._remove(self._log_files[0]):
                return False
            self._log_files.popleft()
            if self._log_files:
                self._closing.wait(self._pause_s)
        return True

    def _remove_other(self, held_up: set[Path]) -> bool:
        """Try the next one, unless its folder is held up; False when there is none."""
        with self._changed:
            if not self._others:
                return False
            path = self._current = self._others.popleft()
        is_gone = path.parent not in held_up and self._remove(path)
        with self._changed:
            self._current = None
            if not is_gone:
                held_up.add(path.parent)
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
