"""A log that was offloaded: copies of finished log files in an object store, and a manifest that lists them.

    manifest.json                       what counts; written after everything it lists
    commitlog/00000000000000000000      a log file, byte for byte
    queues/00000000000000000000         the units of all queues that list records of that file
    config/topics.json ...              the tables a broker needs to serve the topics

The manifest also has what planning needs, so that only tasks read log files: when each file begins, and where records
start in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from rocketline.errors import StoreError
from rocketline.spark.log.object_store import ObjectStore, inside
from rocketline.spark.log.plan import LogRange, LogWindow, plan_ranges
from rocketline.store.tools.folder import ChainFile

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 256 << 20
FORMAT = 1
Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Name = Annotated[str, msgspec.Meta(pattern=r"^(?!\.{1,2}\Z)[^/\\]+\Z")]
"""Sums and names become parts of paths: a manifest must not lead anywhere else."""
Count = Annotated[int, msgspec.Meta(ge=0)]


class OffloadedFile(msgspec.Struct, frozen=True):
    """One log file and the units that list its records."""

    base: Count
    size: Count
    sha256: Sha256
    modified_ns: int
    """When the file of the store was last changed; another time means that it is compared again."""
    first_ms: int
    """The store time of its first record."""
    starts: list[int]
    """Log offsets of some records, ascending: where a task may begin."""
    units: int
    queues_bytes: Count
    queues_sha256: Sha256

    @property
    def name(self) -> str:
        return f"commitlog/{self.base:020d}"

    @property
    def queues_name(self) -> str:
        return f"queues/{self.base:020d}"


class Manifest(msgspec.Struct, frozen=True):
    format: int
    store: Name
    """The name of the store's folder."""
    queue_file_bytes: int
    index_shape: tuple[int, int]
    files: list[OffloadedFile] = []
    tables: dict[str, Sha256] = {}
    """SHA-256 of each table, by its name."""


def read_manifest(place: ObjectStore) -> Manifest | None:
    """None when nothing was offloaded to this place; StoreError when its manifest cannot be used."""
    # The second is there alone when a run ended while it replaced the first, on a file system that cannot do that at once.
    data = place.read(MANIFEST, MAX_MANIFEST_BYTES) or place.read(f"{MANIFEST}.new", MAX_MANIFEST_BYTES)
    if data is None:
        return None
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise StoreError(f"{place.address}: {MANIFEST} is not of an offload: {error}") from error
    if found.format != FORMAT:
        raise StoreError(f"{place.address}: {MANIFEST} has format {found.format}, this rocketline knows {FORMAT}")
    return found


def find_offloaded(address: str) -> list[tuple[str, Manifest]]:
    """(address, manifest) of each offloaded store: of the place itself, or of those in it; StoreError when there is none."""
    place = ObjectStore(address)
    if (own := read_manifest(place)) is not None:
        return [(address, own)]
    below = [inside(address, name) for name in place.folders()]
    found = [(part, manifest) for part in below if (manifest := read_manifest(ObjectStore(part))) is not None]
    if not found:
        raise StoreError(
            f"{address} has no {MANIFEST}, and no folder with one: `rocketline pipeline offload` writes it last"
        )
    return found


class OffloadedLog:
    """What planning needs to know, from the manifest alone."""

    def __init__(self, manifest: Manifest) -> None:
        self._by_base = {file.base: file for file in manifest.files}
        self.files: Sequence[ChainFile] = [ChainFile(Path(file.name), file.base, file.size) for file in manifest.files]
        self.next_offset = max((file.base + file.size for file in manifest.files), default=0)

    def first_ms(self, file: ChainFile) -> int:
        return self._by_base[file.base].first_ms

    def start_before(self, file: ChainFile, log_offset: int) -> int:
        starts = self._by_base[file.base].starts
        found = bisect_right(starts, log_offset)
        return starts[found - 1] if found else file.base


def plan_offloaded(manifest: Manifest, window: LogWindow, partition_bytes: int | None) -> list[LogRange]:
    """The ranges of one offloaded store. Each task copies the whole file, so a file is not cut unless a size is given."""
    return plan_ranges(OffloadedLog(manifest), window, partition_bytes or 1 << 62)
