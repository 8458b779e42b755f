"""Finding stores in a folder and the sizes of their files, for tools that have no settings.

A store root holds `commitlog`, beside it `consumequeue`, `index`, `checkpoint` and others; our folders and Apache's have
the same layout. `rocketline up --data` with several brokers makes a root for each of them. Sizes are taken from the files.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rocketline.errors import StoreError
from rocketline.store.config import UNIT_BYTES, StoreConfig
from rocketline.store.files.disk import Disk
from rocketline.store.files.segment import Segment
from rocketline.store.files.segmented_file import is_segment_name
from rocketline.store.index.index_file import index_file_bytes

LOG_FOLDER = "commitlog"
QUEUE_FOLDER = "consumequeue"
INDEX_FOLDER = "index"
BATCH_QUEUE_FOLDER = "batchconsumequeue"

_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_GUESS_BYTES = 4 << 20
"""For larger index files the number of slots is not searched for: they have one of the usual shapes."""


@dataclass(frozen=True)
class StoreFolder:
    """Where the parts of a store are; `root` is None for a commit log without a store around it."""

    log: Path
    root: Path | None

    @property
    def name(self) -> Path:
        return self.root or self.log


def find_stores(disk: Disk, path: Path) -> list[StoreFolder]:
    """The stores of a folder: itself, the store whose log it is, or those in it; StoreError when there is none."""
    if not disk.exists(path):
        raise StoreError(f"{path} does not exist")
    entries = disk.list(path)
    folders = {entry.name for entry in entries if entry.is_folder}
    if _is_root(disk, path):
        return [StoreFolder(path / LOG_FOLDER, path)]
    if any(not entry.is_folder and is_segment_name(entry.name) for entry in entries):
        if path.parent.name == "" or path.name != LOG_FOLDER:
            return [StoreFolder(path, None)]
        return [StoreFolder(path, path.parent)]
    inside = [path / name for name in sorted(folders) if _is_root(disk, path / name)]
    if inside:
        return [StoreFolder(root / LOG_FOLDER, root) for root in inside]
    found = ", ".join(repr(entry.name) for entry in entries[:5]) or "nothing"
    raise StoreError(
        f"{path} is no store: neither it nor a folder in it has a {LOG_FOLDER!r}, and it has no log files itself; "
        f"it holds {found}{', ...' if len(entries) > 5 else ''}"
    )


def _is_root(disk: Disk, path: Path) -> bool:
    if (LOG_FOLDER, True) in ((entry.name, entry.is_folder) for entry in disk.list(path)):
        return True
    # A broker that never got a message has no log yet.
    return disk.exists(path / "checkpoint") and disk.exists(path / "lock")


@dataclass(frozen=True)
class ChainFile:
    """One file of a chain, with the size it really has."""

    path: Path
    base: int
    size: int


def chain_files(disk: Disk, folder: Path) -> list[ChainFile]:
    """The files of a chain in order, without empty ones and files with other names."""
    return [
        ChainFile(folder / name, int(name), size)
        for name, size, is_folder in disk.list(folder)
        if not is_folder and size and is_segment_name(name)
    ]


def chain_bytes(files: list[ChainFile]) -> int:
    """The size most files of a chain have; of two equally frequent ones the larger."""
    counts = Counter(file.size for file in files)
    return max(counts, key=lambda size: (counts[size], size), default=0)


def chain_problems(files: list[ChainFile], unit: int = 1) -> Iterator[tuple[ChainFile, str]]:
    """(file, problem) for each wrong name or size in a chain."""
    size = chain_bytes(files)
    expected = files[0].base if files else 0
    for file in files:
        if file.size != size:
            yield file, f"has {file.size} bytes, the other files have {size}"
        if size % unit:
            yield file, f"has {file.size} bytes, which is no multiple of {unit}"
        if file.base % size:
            yield file, f"is named by an offset that is no multiple of {size}"
        elif file.base != expected:
            yield file, f"is there, but {expected:020d} before it is missing"
        expected = file.base - file.base % size + size


def segments_of(disk: Disk, files: list[ChainFile]) -> list[Segment]:
    """The files, ready to be mapped; a short one ends early, one that is too long ends where the next begins."""
    ends = [file.base for file in files[1:]] + [1 << 63]
    return [Segment(disk, file.path, file.base, min(file.size, end - file.base)) for file, end in zip(files, ends)]


def queue_folders(disk: Disk, folder: Path) -> Iterator[tuple[str, int, Path]]:
    """(topic, queue id, folder) of each consume queue."""
    for topic in disk.list(folder):
        if not topic.is_folder:
            continue
        for queue in disk.list(folder / topic.name):
            if queue.is_folder and queue.name.isascii() and queue.name.isdigit():
                yield topic.name, int(queue.name), folder / topic.name / queue.name


def batch_topics(disk: Disk, root: Path) -> set[str]:
    """Topics whose queues have Apache's batch format, one unit for a whole batch."""
    return {topic.name for topic in disk.list(root / BATCH_QUEUE_FOLDER) if topic.is_folder}


def queue_file_bytes(disk: Disk, folder: Path, default: int) -> int:
    """The size of consume-queue files: what most of them have."""
    counts: Counter[int] = Counter()
    for _, _, path in queue_folders(disk, folder):
        counts.update(file.size for file in chain_files(disk, path) if file.size % UNIT_BYTES == 0)
    return counts.most_common(1)[0][0] if counts else default


def index_names(disk: Disk, folder: Path) -> list[tuple[Path, int]]:
    """(path, size) of the files of the key index, oldest first."""
    return [
        (folder / name, size)
        for name, size, is_folder in disk.list(folder)
        if not is_folder and size and name.isascii() and name.isdigit()
    ]


def index_shape(view: memoryview, config: StoreConfig) -> tuple[int, int] | None:
    """(slots, entries) of an index file; None when no shape fits. The file itself does not say.

    Tried are the given settings, Apache's, any with four entries for each slot, and for small files all shapes.
    """
    size = len(view)
    for slots, entries in ((config.index_slots, config.index_entries), (5_000_000, 20_000_000)):
        if index_file_bytes(slots, entries) == size:
            return slots, entries
    quarter = (size - _HEADER.size) // 84
    if index_file_bytes(quarter, quarter * 4) == size and _fits(view, quarter, quarter * 4):
        return quarter, quarter * 4
    if size > _GUESS_BYTES:
        return None
    for slots in range((size - _HEADER.size) // 4 % 5, (size - _HEADER.size) // 4 - 5, 5):
        entries = (size - _HEADER.size - slots * 4) // 20
        if slots and index_file_bytes(slots, entries) == size and _fits(view, slots, entries):
            return slots, entries
    return None


def _fits(view: memoryview, slots: int, entries: int) -> bool:
    """Whether the first and the last entry are where this shape puts them."""
    _, _, begin, end, _, count = _HEADER.unpack_from(view, 0)
    if count <= 1:
        return True
    if count > entries:
        return False
    entries_at = _HEADER.size + slots * 4
    first_hash, first_offset, seconds, previous = _ENTRY.unpack_from(view, entries_at + 20)
    _, last_offset, _, _ = _ENTRY.unpack_from(view, entries_at + (count - 1) * 20)
    if (first_offset, seconds, previous, last_offset) != (begin, 0, 0, end) or first_hash < 0:
        return False
    newest: int = struct.unpack_from(">i", view, _HEADER.size + first_hash % slots * 4)[0]
    return 0 < newest <= entries
