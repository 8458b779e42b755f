"""A file of fixed size, mapped into memory. Rules for every kind of disk:

- The file has its full size from the start but no blocks. Bytes may be written through the map only in a range that was
  reserved before, so a full disk is a `DiskFull` error and never a SIGBUS in the middle of a write.
- What was written is durable after `sync` returns, not earlier. After a failed `sync` the state of the data is unknown.
- Closing works while slices of the map are still being sent: the memory is released with the last slice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from rocketline.errors import StoreError
from rocketline.store.files.disk_errors import as_store_error
from rocketline.store.files.mapping import FORGET, POPULATE, RANDOM, FileMap
from rocketline.system.files import (
    data_ranges,
    open_file,
    read_ahead,
    reserve_blocks,
    sync_data,
    sync_folder,
    write_at,
)

PAGE_BYTES = 4096
_WARM_STEP_BYTES = 128 << 10
_ZEROS = bytes(1 << 20)


class MappedFile(Protocol):
    """A file of fixed size, mapped into memory."""

    path: Path
    size: int
    buffer: memoryview
    is_new: bool
    """Whether its name may not be durable yet; `sync` makes it durable."""

    def reserve(self, start: int, end: int) -> None:
        """Allocate blocks for a range that is not written to yet; DiskFull when there are none."""

    def warm(self, start: int, end: int, at_once: bool = False) -> None:
        """Fault in the pages of a reserved range, so that writing there does not stall; any thread, also after `close`.

        `at_once` asks the kernel once, not in small steps. It may hold the processor for a millisecond per MiB.
        """

    def write(self, position: int, data: memoryview) -> None:
        """Write into a reserved range with a system call; the map shows it afterwards. Any thread."""

    def forget(self, start: int, end: int) -> None:
        """Release the memory of a range, which can still be read; any thread, also after `close`."""

    def erase(self, start: int, end: int) -> None:
        """Make a range read as zeros, durably, without allocating blocks for its holes."""

    def sync(self) -> None:
        """Return when everything written so far is on the disk; any thread, also after `close`."""

    def close(self) -> None: ...


class RealMappedFile:
    """A shared mapping of a file; a pinned one keeps its descriptor."""

    def __init__(self, path: Path, size: int, pinned: bool, scattered: bool) -> None:
        self.path = path
        self.size = size
        self._fd = -1
        with as_store_error("open", path):
            fd = open_file(path, write=True, create=True)
        try:
            with as_store_error("size", path):
                self.is_new = _grow_file(fd, path, size)
            with as_store_error("map", path):
                self._map: FileMap | None = FileMap(fd, size)
            if scattered:
                with suppress(OSError):
                    self._map.advise(RANDOM, 0, size)
        except BaseException:
            os.close(fd)
            raise
        self.buffer = self._map.buffer
        if pinned:
            self._fd = fd
        else:
            os.close(fd)

    @contextmanager
    def _descriptor(self, doing: str) -> Iterator[int]:
        with as_store_error(doing, self.path):
            if self._fd >= 0:
                yield self._fd
                return
            fd = open_file(self.path, write=True)
            try:
                yield fd
            finally:
                os.close(fd)

    def reserve(self, start: int, end: int) -> None:
        if end <= start:
            return
        with self._descriptor("reserve space in") as fd:
            reserve_blocks(fd, start, end - start)

    def warm(self, start: int, end: int, at_once: bool = False) -> None:
        mapped, fd = self._map, self._fd
        if mapped is None or end <= start:
            return
        step = end - start if at_once else _WARM_STEP_BYTES
        # Kernels before 5.14 do not know MADV_POPULATE_WRITE; then each page faults in when it is first written.
        with suppress(OSError):
            for position in range(start, end, step):
                stop = min(position + step, end)
                if fd >= 0:
                    # Otherwise the first fault makes all pages of the read-ahead, often 8 MiB, without interruption.
                    read_ahead(fd, position, stop - position)
                mapped.advise(POPULATE, position, stop)

    def write(self, position: int, data: memoryview) -> None:
        assert 0 <= position <= self.size - len(data)
        with self._descriptor("write to") as fd:
            while data:
                written = write_at(fd, data, position)
                data = data[written:]
                position += written

    def forget(self, start: int, end: int) -> None:
        start = -(-start // PAGE_BYTES) * PAGE_BYTES
        end = end // PAGE_BYTES * PAGE_BYTES
        mapped = self._map
        if mapped is not None and start < end:
            with suppress(OSError):
                mapped.advise(FORGET, start, end)

    def erase(self, start: int, end: int) -> None:
        with self._descriptor("erase the end of") as fd:
            changed = [_zero(self.buffer, first, last) for first, last in data_ranges(fd, start, end)]
            if True in changed:
                sync_data(fd)

    def sync(self) -> None:
        with self._descriptor("flush") as fd:
            sync_data(fd)
            if self.is_new:
                sync_folder(self.path.parent)
                self.is_new = False

    def close(self) -> None:
        mapped, self._map = self._map, None
        if mapped is None:
            return
        # Slices that are still being sent keep the memory mapped.
        self.buffer = mapped.buffer = memoryview(b"")
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _grow_file(fd: int, path: Path, size: int) -> bool:
    """Bring a file to its size; True when it was empty, so that its folder entry may not be durable yet."""
    present = os.fstat(fd).st_size
    if present > size:
        raise StoreError(f"{path} has {present} bytes, more than the {size} it should have")
    if present < size:
        os.ftruncate(fd, size)
    return present == 0


def _zero(buffer: memoryview, start: int, end: int) -> bool:
    """Write zeros where there are other bytes, so that pages of zeros stay clean; True when something was written."""
    is_changed = False
    for position in range(start, end, len(_ZEROS)):
        piece = buffer[position : min(position + len(_ZEROS), end)]
        zeros = _ZEROS[: len(piece)]
        if piece != zeros:
            piece[:] = zeros
            is_changed = True
    return is_changed
