"""Deleting the queues of a topic without waiting for the disk: there may be thousands of files.

The steps, and what a crash leaves:

1. a folder is renamed to `rocketline.deleted/NUMBER/TOPIC`      the folder, which says that the topic was deleted
2. names are flushed, the table of queue lengths is written      the folder, and a table without these queues
3. a thread removes the files                                    the rest of them, which the next start removes

After the first step the topic may be created again: its files are independent of the old ones. Until the second step the
table still lists the queues, and recovery would rebuild them from the log; so when a store is opened, this folder overrides
the table. Apache's broker ignores the folder.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from rocketline.errors import DiskFull, StoreError
from rocketline.store.files.disk import Disk
from rocketline.store.flush.checkpoint_writer import CheckpointWriter
from rocketline.store.retention.retention import Retention

FOLDER_NAME = "rocketline.deleted"

log = logging.getLogger(__name__)


class DeletedTopics:
    """Folders of deleted topics, moved aside to be removed. Owner thread only."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._folder = root / FOLDER_NAME
        self._count = 0

    def delete(self, folder: Path, checkpoint_writer: CheckpointWriter, retention: Retention) -> None:
        """Delete the folder of a topic, if there is one; no file of it may be open."""
        if not self._disk.exists(folder):
            return
        retention.forget(folder)
        try:
            aside = self.put_aside(folder)
        except StoreError as error:
            # Most likely it is on another disk: operators may mount parts of a store elsewhere.
            log.warning("%s: it is removed at once", error)
            with suppress(DiskFull):
                checkpoint_writer.save_table()
            self._disk.remove_tree(folder)
            return
        checkpoint_writer.note_moved(folder, aside / folder.name)
        retention.remove_folders([aside])

    def put_aside(self, folder: Path) -> Path:
        """Move a folder aside; returns the folder that has to be removed."""
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
        """Folders that are still to be removed, and the topics in each."""
        folders = [self._folder / entry.name for entry in self._disk.list(self._folder) if entry.is_folder]
        return {folder: {entry.name for entry in self._disk.list(folder)} for folder in folders}

    def tidy(self) -> None:
        """Remove the folder when it is empty."""
        if self._disk.exists(self._folder) and not self._disk.list(self._folder):
            self._disk.remove_tree(self._folder)
