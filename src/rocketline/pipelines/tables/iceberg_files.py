"""Files of an Iceberg table that nothing names any more: killed runs leave them, merges, compaction, and old snapshots.

Only files that are ours are removed: under `data/batch-*`, and lists of files (`metadata/*.avro`). None that a snapshot
names which is kept, and none that is young: a job may be about to commit it, or a reader may have planned with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rocketline.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

OLD_MS = 2 * 3_600_000
_OURS = re.compile(r"/(data/batch-[^/]+/.*|metadata/[^/]+\.avro)")


def remove_unnamed(table: Any, clock: Clock = SYSTEM_CLOCK) -> int:
    """Remove them; returns how many files are gone. A table whose files cannot be listed is left as it is."""
    from pyarrow.fs import FileSelector, FileType
    from pyiceberg.io.pyarrow import PyArrowFileIO

    if not isinstance(table.io, PyArrowFileIO):
        return 0
    scheme, place, root = PyArrowFileIO.parse_location(table.location(), table.io.properties)
    files = table.io.fs_by_scheme(scheme, place)
    named = {PyArrowFileIO.parse_location(name, table.io.properties)[2] for name in _named(table)}
    found: list[FileInfo] = [
        info
        for folder in ("data", "metadata")
        for info in files.get_file_info(FileSelector(f"{root}/{folder}", allow_not_found=True, recursive=True))
        if _OURS.fullmatch(info.path.removeprefix(root))
    ]
    limit_ns = (clock.now_ms() - OLD_MS) * 1_000_000
    kept, gone = set[str](), 0
    for info in found:
        if info.type != FileType.File:
            continue
        if _summed(info.path) in named or (info.mtime_ns or 0) > limit_ns:
            kept.add(_batch(info.path, root))
            continue
        files.delete_file(info.path)
        gone += 1
    for batch in {_batch(info.path, root) for info in found if info.path.startswith(f"{root}/data/")} - kept:
        files.delete_dir(batch)
    return gone


def _named(table: Any) -> Iterator[str]:
    """All files that snapshots name. Snapshots share most of their lists."""
    seen: set[str] = set()
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest.manifest_path
                for entry in manifest.fetch_manifest_entry(table.io):
                    yield entry.data_file.file_path


def _summed(path: str) -> str:
    """The file that a checksum of Hadoop, `.name.crc`, is for; others are themselves."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name[1:-4]}" if name.startswith(".") and name.endswith(".crc") else path


def _batch(path: str, root: str) -> str:
    """The folder of the batch that a file belongs to."""
    return "/".join(path.split("/")[: root.count("/") + 3])
