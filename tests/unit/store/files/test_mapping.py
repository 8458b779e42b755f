"""Mapped files: how long their memory stays valid."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketline.store.files.mapping import FileMap

SIZE = 16 * mmap.PAGESIZE


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[FileMap]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(fd, SIZE)
        yield FileMap(fd, SIZE)
    finally:
        os.close(fd)


def test_what_is_written_stays_when_the_memory_is_given_back(mapped: FileMap) -> None:
    mapped.buffer[:5] = b"hello"
    mapped.advise(mmap.MADV_DONTNEED, 0, SIZE)
    assert mapped.buffer[:5] == b"hello"


def test_a_slice_outlives_its_file(mapped: FileMap) -> None:
    mapped.buffer[:5] = b"hello"
    part = mapped.buffer[:5]
    mapped.buffer = memoryview(b"")
    assert part == b"hello"


def test_advice_that_comes_too_late_is_not_given(mapped: FileMap) -> None:
    """A thread may be about to give it when the owner closes the file; others may have the addresses by now."""
    mapped.buffer = memoryview(b"")
    mapped.advise(mmap.MADV_DONTNEED, 0, SIZE)


def test_advice_the_kernel_does_not_know(mapped: FileMap) -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        mapped.advise(9999, 0, SIZE)
