"""Deleting the queues of a topic without waiting for the disk: thousands of files may have to go.

The steps, and what a crash leaves:

1. a folder is renamed to `rocketline.deleted/NUMBER/TOPIC`      that the topic was deleted: its name is there
2. names are flushed, the table of queue lengths is written      nobody misses the queues any more
3. a thread removes the files                                    the rest of them, for the next start to remove

From the first step on the topic may be made anew: its files have nothing to do with the old ones. Until the second, the
table still says what the queues must have, and they would be built anew from the log; so what stands aside when a store is
opened counts for more than the table. Apache's broker does not look into that folder.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from rocketline.errors import DiskFull, StoreError
from rocketline.store.files.disk import Disk
from rocketline.store.flush.checkpoint_writer import Marks
from rocketline.store.retention.retention import Retention

FOLDER_NAME = "rocketline.deleted"

log = logging.getLogger(__name__)


class DeletedTopics:
    """Folders of deleted topics, put aside to be removed. Owner thread only."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._folder = root / FOLDER_NAME
        self._count = 0

    def delete(self, folder: Path, marks: Marks, retention: Retention) -> None:
        """Delete the folder of a topic, if there is one; nobody has a file of it open."""
        if not self._disk.exists(folder):
            return
        retention.forget(folder)
        try:
            aside = self.put_aside(folder)
        except StoreError as error:
            # Another disk, most likely: operators put parts of a store elsewhere.
            log.warning("%s: it is removed at once", error)
            with suppress(DiskFull):
                marks.save_table()
            self._disk.remove_tree(folder)
            return
        marks.note_moved(folder, aside / folder.name)
        retention.remove_folders([aside])

    def put_aside(self, folder: Path) -> Path:
        """Move a folder to where nobody looks; returns what has to be removed then."""
        disk = self._disk
        while disk.exists(aside := self._folder / str(self._count)):
            self._count += 1
        disk.make_folder(aside, durably=False)
        try:
            disk.move_folder(folder, aside / folder.name, durably=False)
        except StoreError:
            disk.remove_tree(aside)
            raise
        return aside

    def left_over(self) -> dict[Path, set[str]]:
        """What stands aside: folders to be removed, and the topics in each."""
        folders = [self._folder / entry.name for entry in self._disk.list(self._folder) if entry.is_folder]
        return {folder: {entry.name for entry in self._disk.list(folder)} for folder in folders}

    def tidy(self) -> None:
        """Leave no trace in a store that has nothing to remove."""
        if self._disk.exists(self._folder) and not self._disk.list(self._folder):
            self._disk.remove_tree(self._folder)
