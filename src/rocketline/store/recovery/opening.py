"""Opening the files of a store: lock the folder, check what is in it, recover.

The order matters. The lock comes first. A folder that is not a store of ours is refused before anything in it is made or
changed. The abort file is written before recovery changes anything, so that an interrupted recovery is run again.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from rocketline.errors import StoreInUse
from rocketline.protocol.properties import decode_properties
from rocketline.store.files.disk import FolderLock
from rocketline.store.files.file_system import FileSystem
from rocketline.store.flush.checkpoint import Checkpoint
from rocketline.store.flush.checkpoint_writer import load_extents, store_sizes
from rocketline.store.flush.progress import FILE_NAME as PROGRESS_NAME
from rocketline.store.flush.progress import ProgressFile
from rocketline.store.recovery.folder_check import refuse_unknown
from rocketline.store.recovery.recovery import Recovery
from rocketline.store.recovery.report import RecoveryInput, RecoveryReport
from rocketline.store.retention.deletion import DeletedTopics
from rocketline.store.store_parts import StoreParts
from rocketline.store.tools.rebuild import finish_rebuild

ABORT_NAME = "abort"


class StoreFiles:
    """The files of one store: `open` once; `close` releases them, also after a failed `open`."""

    def __init__(self, parts: StoreParts) -> None:
        self.checkpoint: Checkpoint | None = None
        self.progress: ProgressFile | None = None
        self.file_system: FileSystem | None = None
        self.must_flush = False
        """Whether opening changed queues or index: then they must be on disk before messages are accepted."""
        self.deleted = DeletedTopics(parts.disk, parts.root)
        self.left_over: list[Path] = []
        """Folders of deleted topics that were not removed when the store was open before."""
        self._parts = parts
        self._root = parts.root
        self._disk = parts.disk
        self._lock: FolderLock | None = None

    def open(self) -> RecoveryReport:
        """Lock the folder and recover its files. On a StoreError the folder is left unlocked."""
        self._disk.make_folder(self._root)
        self._lock = self._locked()
        # Before anything is written: it reports only writes that failed since it was opened.
        self.file_system = self._disk.file_system(self._root)
        try:
            return self._recover()
        except BaseException:
            self.close()
            raise

    def _locked(self) -> FolderLock:
        running = self._disk.read(self._root / ABORT_NAME) or b""
        try:
            return self._disk.lock(self._root / "lock")
        except StoreInUse as error:
            pid = running.decode("ascii", "replace").strip()
            by = f" (its abort file names process {pid})" if pid.isdigit() else ""
            raise StoreInUse(f"{error}{by}; stop that one first or use another folder") from error

    def _recover(self) -> RecoveryReport:
        parts, disk, root = self._parts, self._disk, self._root
        has_abort = disk.exists(root / ABORT_NAME)
        parts.log.load()
        refuse_unknown(parts.log, parts.queues)
        finish_rebuild(disk, root)
        checkpoint = self.checkpoint = Checkpoint(disk, root / "checkpoint")
        progress = self.progress = ProgressFile(disk, root / PROGRESS_NAME)
        known = self._load(checkpoint, progress, has_abort)
        disk.write_atomic(root / ABORT_NAME, str(os.getpid()).encode())
        if known.mark is not None and known.mark.closed:
            progress.save(msgspec.structs.replace(known.mark, closed=False))
        report = Recovery(parts, checkpoint, known).run()
        # Another broker's recovery may have cut the log: then the former value is too high.
        progress.note_flushed(parts.log.flushed)
        if parts.index is not None:
            # Made here, so that the first key does not wait until the folder's name is durable.
            disk.make_folder(root / "index")
        self.must_flush = report.after_crash or bool(report.rebuilt) or known.mark is None
        return report

    def _load(self, checkpoint: Checkpoint, progress: ProgressFile, has_abort: bool) -> RecoveryInput:
        """Load queues and index, and what the small files say about them; StoreError for files that must not be changed."""
        parts, config = self._parts, self._parts.config
        mark = progress.valid_mark(checkpoint.times)
        after_crash = has_abort or (mark is not None and not mark.closed)
        can_rebuild = mark is not None and mark.sizes == store_sizes(config)
        broken = parts.queues.load(after_crash, can_rebuild)
        refuse_unknown(parts.log, parts.queues)
        extents, are_exact = (
            load_extents(self._disk, self._root, mark, parts.log.min_offset) if mark is not None else ({}, False)
        )
        left_over = self.deleted.left_over()
        self.left_over = list(left_over)
        gone = set().union(*left_over.values())
        return RecoveryInput(
            after_crash=after_crash,
            parse_properties=decode_properties if parts.codes.needs_all_properties else None,
            mark=mark,
            flushed=progress.flushed,
            extents={key: extent for key, extent in extents.items() if key[0] not in gone} if gone else extents,
            are_exact=are_exact and not after_crash,
            broken=broken,
            index_broken=parts.index is not None and not parts.index.load(can_rebuild),
        )

    def note_clean_stop(self) -> None:
        self._disk.remove(self._root / ABORT_NAME)

    def close(self) -> None:
        parts = self._parts
        parts.log.close()
        parts.queues.close()
        for part in (parts.index, self.checkpoint, self.progress, self.file_system):
            if part is not None:
                part.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
