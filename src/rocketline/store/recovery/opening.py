"""Opening the files of a store: who else has them, what they are, and what must be made whole.

The order matters. The lock comes first; a folder that is not ours to work on is refused before anything in it is made or
changed; the abort file is written before recovery changes anything, so that an interrupted recovery is run again.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from rocketline.errors import StoreInUse
from rocketline.protocol.properties import decode_properties
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import Disk, FolderLock
from rocketline.store.flush.checkpoint import Checkpoint
from rocketline.store.flush.checkpoint_writer import load_extents, store_sizes
from rocketline.store.flush.progress import FILE_NAME as PROGRESS_NAME
from rocketline.store.flush.progress import Progress
from rocketline.store.flush.whole_disk import WholeDisk
from rocketline.store.index.key_index import KeyIndex
from rocketline.store.log.commit_log import CommitLog
from rocketline.store.queue.consume_queues import ConsumeQueues
from rocketline.store.queue.dispatcher import Dispatcher
from rocketline.store.queue.tags_codes import TagsCodes
from rocketline.store.reading.damage import Damage
from rocketline.store.recovery.recovery import Known, Recovery, RecoveryReport, refuse_unknown
from rocketline.store.retention.deletion import DeletedTopics
from rocketline.store.tools.rebuild import finish_rebuild

ABORT_NAME = "abort"


class StoreFiles:
    """The files of one store; `open` once, `close` lets go of them however far that came."""

    def __init__(
        self,
        root: Path,
        disk: Disk,
        config: StoreConfig,
        log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex | None,
    ) -> None:
        self.checkpoint: Checkpoint | None = None
        self.progress: Progress | None = None
        self.whole: WholeDisk | None = None
        self.must_flush = False
        """Whether queues and index were changed by opening, and must be on disk before anything is taken in."""
        self.deleted = DeletedTopics(disk, root)
        self.left_over: list[Path] = []
        """Folders of deleted topics that were not removed when the store was open before."""
        self._root = root
        self._disk = disk
        self._config = config
        self._log = log
        self._queues = queues
        self._index = index
        self._lock: FolderLock | None = None

    def open(self, dispatcher: Dispatcher, codes: TagsCodes, damage: Damage) -> RecoveryReport:
        """Lock the folder and make its files whole. On a StoreError the folder is left unlocked."""
        self._disk.make_folder(self._root)
        self._lock = self._locked()
        # Before anything is written: it tells only of what could not be written since.
        self.whole = self._disk.whole(self._root)
        try:
            return self._recover(dispatcher, codes, damage)
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

    def _recover(self, dispatcher: Dispatcher, codes: TagsCodes, damage: Damage) -> RecoveryReport:
        has_abort = self._disk.exists(self._root / ABORT_NAME)
        self._log.load()
        # What is no log of ours must be known before anything is made or changed in the folder.
        refuse_unknown(self._log, self._queues)
        finish_rebuild(self._disk, self._root)
        checkpoint = self.checkpoint = Checkpoint(self._disk, self._root / "checkpoint")
        progress = self.progress = Progress(self._disk, self._root / PROGRESS_NAME)
        known = self._look(checkpoint, progress, has_abort, codes.needs_all_properties)
        self._disk.write_atomic(self._root / ABORT_NAME, str(os.getpid()).encode())
        if known.mark is not None and known.mark.closed:
            progress.save(msgspec.structs.replace(known.mark, closed=False))
        report = Recovery(self._log, self._queues, self._index, dispatcher, checkpoint, codes, known, damage).run()
        # The log may be shorter than it was: another broker's recovery cut it. The old word must not outlive that.
        progress.note_flushed(self._log.flushed)
        if self._index is not None:
            # Now, or the first key would have to wait for the folder's name to last.
            self._disk.make_folder(self._root / "index")
        self.must_flush = report.after_crash or bool(report.rebuilt) or known.mark is None
        return report

    def _look(self, checkpoint: Checkpoint, progress: Progress, has_abort: bool, all_properties: bool) -> Known:
        """Take up queues and index, and what is written down about them; StoreError for what must be left alone."""
        mark = progress.valid_mark(checkpoint.times)
        after_crash = has_abort or (mark is not None and not mark.closed)
        can_rebuild = mark is not None and mark.sizes == store_sizes(self._config)
        broken = self._queues.load(after_crash, can_rebuild)
        refuse_unknown(self._log, self._queues)
        extents, are_exact = (
            load_extents(self._disk, self._root, mark, self._log.min_offset) if mark is not None else ({}, False)
        )
        left_over = self.deleted.left_over()
        self.left_over = list(left_over)
        gone = set().union(*left_over.values())
        return Known(
            after_crash=after_crash,
            check_crc=self._config.check_crc,
            parse_properties=decode_properties if all_properties else None,
            verify=self._config.verify_on_start,
            mark=mark,
            flushed=progress.flushed,
            extents={key: extent for key, extent in extents.items() if key[0] not in gone} if gone else extents,
            are_exact=are_exact and not after_crash,
            broken=broken,
            index_broken=self._index is not None and not self._index.load(can_rebuild),
        )

    def note_clean_stop(self) -> None:
        self._disk.remove(self._root / ABORT_NAME)

    def close(self) -> None:
        self._log.close()
        self._queues.close()
        for part in (self._index, self.checkpoint, self.progress, self.whole):
            if part is not None:
                part.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
