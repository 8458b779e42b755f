"""A chain of files of equal size, each named by the offset of its first byte in 20 digits.

The chain may start anywhere, because old files are removed. The number of an offset's file is `offset // segment_bytes`.
Positions are absolute. The owner thread writes and truncates; a flusher thread may call `flush`, which only looks up
segments and syncs them. A background thread can make the next file in advance, so that the owner does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rocketline.errors import DiskFull, FlushFailed, StoreError, WrongFiles
from rocketline.store.files.disk import Disk
from rocketline.store.files.segment import MapPool, Segment

PREPARE_FROM_BYTES = 16 << 20
"""Smaller files are made when they are needed: a thread would cost more than it saves."""


_MAX_OFFSET = (1 << 63) - 1


class PendingFlush(NamedTuple):
    """A part of a chain that is flushed together with its whole file system."""

    file: SegmentedFile
    start: int
    end: int
    name_count: int


class SegmentedFile:
    """The chain of files in one folder."""

    def __init__(
        self, disk: Disk, folder: Path, segment_bytes: int, *, pinned: bool = False, pool: MapPool | None = None
    ) -> None:
        self.folder = folder
        self.segment_bytes = segment_bytes
        self.min_offset = 0
        """Start of the oldest file."""
        self.flushed = 0
        """Everything below is on disk."""
        self._disk = disk
        self._pinned = pinned
        self._pool = pool
        self._segments: dict[int, Segment] = {}
        self._unflushed_names: list[Path] = []
        """Folders to flush, because folders above this chain were created in them."""
        self._worker: ThreadPoolExecutor | None = None
        self._next: Future[Segment] | None = None

    def load(self, after_crash: bool = False) -> None:
        """Load the files of the folder; StoreError when one of them has another size than configured.

        An empty last file was not finished when the process ended, and is removed; after a crash, any empty file.
        """
        names = [entry for entry in self._disk.list(self.folder) if not entry.is_folder and is_segment_name(entry.name)]
        for name, size, _ in names:
            base = int(name)
            if size == 0 and (after_crash or name == names[-1].name):
                self._disk.remove(self.folder / name)
                continue
            self._require_size(name, size)
            self._segments[base // size] = self._segment(base)
        self._note_first()

    def _require_size(self, name: str, size: int) -> None:
        path, wanted = self.folder / name, self.segment_bytes
        if size == 0:
            raise WrongFiles(f"{path} has 0 bytes, but there are files after it; bring back a copy of it")
        if size != wanted:
            raise WrongFiles(
                f"{path} has {size} bytes, but files of {wanted} bytes are configured for {self.folder}; start with the "
                "setting the files were written with, or bring back a whole copy of this one if it was cut short"
            )
        if int(name) % wanted:
            raise WrongFiles(
                f"{path} is named by an offset at which no file of {wanted} bytes begins; start with the setting the files "
                "were written with, or move this one away if it does not belong there"
            )
        if int(name) + wanted > _MAX_OFFSET:
            raise WrongFiles(f"{path} is named by an offset no log can reach; move it away, it does not belong there")

    def _segment(self, base: int) -> Segment:
        path = self.folder / f"{base:020d}"
        return Segment(self._disk, path, base, self.segment_bytes, self._pinned, self._pool)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(list(self._segments.values()))

    @property
    def first(self) -> Segment | None:
        return next(iter(self._segments.values()), None)

    @property
    def last(self) -> Segment | None:
        return next(reversed(self._segments.values()), None)

    def _note_first(self) -> None:
        first = self.first
        self.min_offset = first.base if first else 0

    def segment_at(self, offset: int) -> Segment | None:
        return self._segments.get(offset // self.segment_bytes)

    def slice(self, start: int, end: int) -> memoryview | None:
        """The bytes from `start` to `end`, all of one file; None when no file has them."""
        segment = self._segments.get(start // self.segment_bytes)
        if segment is None or end > segment.base + segment.size or start > end:
            return None
        base = segment.base
        view = segment.view
        if view is None:
            view = segment.open()
        return view[start - base : end - base]

    def add(self, offset: int) -> Segment:
        """The file that holds `offset`; makes it if there is none."""
        number = offset // self.segment_bytes
        present = self._segments.get(number)
        if present is not None:
            return present
        segment = self._prepared()
        if segment is None or segment.base != number * self.segment_bytes:
            if segment is not None:
                segment.delete()
            segment = self._make(number * self.segment_bytes)
        self._segments[number] = segment
        self._note_first()
        return segment

    def _make(self, base: int, make_ready: Callable[[Segment], None] | None = None) -> Segment:
        if not self._segments:
            # The names of pinned files must be durable at once; other names can wait for the first flush.
            self._unflushed_names += self._disk.make_folder(self.folder, durably=self._pinned)
        segment = self._segment(base)
        try:
            segment.open()
            if self._pinned:
                # A crash must not lose its name and size and keep those of a later file.
                _sync_new(segment)
            if make_ready is not None:
                make_ready(segment)
        except BaseException:
            segment.close()
            raise
        return segment

    def prepare_next(self, make_ready: Callable[[Segment], None] | None = None, first: int = 0) -> None:
        """Make the file after the last one in the background; `make_ready` is called with it there.

        Without any file it is the one that holds `first`.
        """
        last = self.last
        if self._next is not None or self.segment_bytes < PREPARE_FROM_BYTES:
            return
        base = last.next_base if last is not None else first // self.segment_bytes * self.segment_bytes
        self._next = self._thread().submit(self._make, base, make_ready)

    def run_in_background(self, work: Callable[[int, int], None], start: int, end: int) -> None:
        """Run `work` in the thread that makes files; does nothing when files are too small to have such a thread."""
        if self.segment_bytes >= PREPARE_FROM_BYTES:
            self._thread().submit(work, start, end)

    def _thread(self) -> ThreadPoolExecutor:
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="rocketline-next-segment")
        return self._worker

    def wait_prepared(self) -> None:
        """Return when no file is being made in the background; any thread."""
        if (preparing := self._next) is not None:
            wait([preparing])

    def _prepared(self) -> Segment | None:
        """The file made in advance, if there is one. A failure is ignored: making the file now may work, or fails with the
        reason. Only a failed flush is final: the next one could succeed without the data being on disk.
        """
        prepared, self._next = self._next, None
        if prepared is None or (prepared.exception() is not None and not isinstance(prepared.exception(), FlushFailed)):
            return None
        return prepared.result()

    def flush(self, end: int) -> None:
        """Flush everything below `end`. One thread at a time; `flushed` moves only on success."""
        start = self.flushed
        if end <= start:
            return
        for number in range(start // self.segment_bytes, (end - 1) // self.segment_bytes + 1):
            segment = self._segments.get(number)
            if segment is not None:
                self._sync(segment)
        self._sync_names()
        # The owner may have truncated meanwhile: then its lower value stays.
        if self.flushed == start:
            self.flushed = end

    def begin_flush(self, end: int) -> PendingFlush:
        """The argument for `end_flush`, which is called after the whole file system was flushed."""
        return PendingFlush(self, self.flushed, end, len(self._unflushed_names))

    def end_flush(self, pending: PendingFlush) -> None:
        """Note that the whole file system was flushed since `begin_flush`."""
        _, start, end, names = pending
        if end <= start:
            return
        for number in range(start // self.segment_bytes, (end - 1) // self.segment_bytes + 1):
            segment = self._segments.get(number)
            if segment is not None:
                segment.note_synced()
        del self._unflushed_names[:names]
        if self.flushed == start:
            self.flushed = end

    def _sync_names(self) -> None:
        names, self._unflushed_names = self._unflushed_names, []
        for folder in names:
            try:
                self._disk.sync_folder(folder)
            except StoreError:
                if self._segments:
                    raise
                # The chain was deleted meanwhile, with its folders.

    def _sync(self, segment: Segment) -> None:
        try:
            segment.sync()
        except StoreError:
            if not segment.deleted:
                raise

    def truncate(self, offset: int, erase: bool = True, keep_first: bool = False) -> int:
        """Remove everything from `offset` on, durably; returns how many files were deleted.

        `keep_first`: the first file stays, though nothing is left in it.
        """
        deleted = 0
        for number in reversed(list(self._segments)):
            segment = self._segments[number]
            if segment.base < offset or (keep_first and len(self._segments) == 1):
                if erase and offset < segment.next_base:
                    segment.erase(max(0, offset - segment.base))
                break
            del self._segments[number]
            segment.delete()
            deleted += 1
        self.flushed = min(self.flushed, offset)
        self._note_first()
        return deleted

    def remove_first(self) -> None:
        """Delete the oldest file, unless it is the only one."""
        if len(self._segments) > 1:
            number = next(iter(self._segments))
            self._segments.pop(number).delete()
            self._note_first()

    def take_first(self) -> Segment:
        """Take the oldest file out of the chain; the caller has to remove it from the disk."""
        segment = self._segments.pop(next(iter(self._segments)))
        self._note_first()
        segment.abandon()
        return segment

    def unmap(self) -> None:
        """Unmap all files; they are mapped again when needed."""
        for segment in self._segments.values():
            segment.close()

    def close(self) -> None:
        if self._worker is not None:
            self._worker.shutdown()
            self._worker = None
        with suppress(FlushFailed):
            if unused := self._prepared():
                unused.delete()
        self.unmap()

    def abandon(self) -> None:
        """Take all files out of the chain; the caller has to remove the folder."""
        for segment in self._segments.values():
            segment.abandon()
        self._segments.clear()
        self._note_first()
        self.flushed = 0

    def destroy(self) -> None:
        """Delete every file and the folder."""
        self.abandon()
        self._disk.remove_tree(self.folder)


def _sync_new(segment: Segment) -> None:
    try:
        segment.sync()
    except StoreError as error:
        # After a failed flush pages look clean but are not on disk: the next attempt must use a new file.
        with suppress(StoreError):
            segment.delete()
        if isinstance(error, DiskFull):
            raise
        raise FlushFailed(str(error)) from error


def is_segment_name(name: str) -> bool:
    return len(name) == 20 and name.isascii() and name.isdigit()
