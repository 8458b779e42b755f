"""`offload` copies finished files of a store's log to a folder or an object store, with the queue units that list their
records. `spark/log/offloaded.py` says what lies there, and `pipelines/bring_back.py` makes a store of it again.

Every file is copied once, with its SHA-256, and counts when the manifest lists it; the manifest is replaced after each
file. A run that was killed leaves files that do not count, which the next one writes again. The store is only read: a broker
may have it open, and may delete the files by its own rules once they are listed.

So a file counts only when all its records are sound: a sum over damaged bytes would make them the truth. `verify_offload`
reads everything back and compares it with the sums.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec.structs import replace

from rocketline.errors import StoreError
from rocketline.pipelines.outcome import Outcome
from rocketline.pipelines.runs import note
from rocketline.pipelines.tasks import Progress
from rocketline.spark.log.object_store import ObjectStore, inside
from rocketline.spark.log.offloaded import FORMAT, MANIFEST, Manifest, OffloadedFile, find_offloaded, read_manifest
from rocketline.spark.log.plan import StoredLog
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import is_locked
from rocketline.store.queue.batch_dispatch import QueueKey
from rocketline.store.queue.consume_queue import FILLER_SIZE
from rocketline.store.recovery.scan import LogScan, gc_paused
from rocketline.store.tools.findings import Findings
from rocketline.store.tools.folder import (
    INDEX_FOLDER,
    QUEUE_FOLDER,
    ChainFile,
    StoreFolder,
    find_stores,
    index_names,
    index_shape,
    queue_file_bytes,
    segments_of,
)
from rocketline.store.tools.log_check import queue_units
from rocketline.store.tools.queue_check import QueueUnits
from rocketline.store.tools.read_only import ReadOnlyDisk

log = logging.getLogger(__name__)

TABLES = ("topics.json", "subscriptionGroup.json")
"""What a broker needs to serve the topics. Accounts are never copied; progress of groups belongs to the running cluster."""
START_EVERY_BYTES = 16 << 20
_HEAD_BYTES = 4


class QueueSlice(msgspec.Struct, array_like=True, frozen=True):
    """Units of one queue, in the file with the units of all queues."""

    topic: str
    queue_id: int
    first: int
    count: int


def offload(folder: Path, address: str, tell: Progress) -> Outcome:
    """Copy what is finished and not there yet; StoreError when a file differs from what was copied earlier."""
    stores = find_stores(ReadOnlyDisk(), folder.absolute())
    rows = []
    for store in stores:
        place = ObjectStore(address if len(stores) == 1 else inside(address, store.name.name))
        rows.append(_Offload(store, place, tell).run())
    columns = ("store", "files copied", "bytes", "files there", "log offset from", "to")
    return Outcome(f"offloaded to {address}", columns, rows)


class _Offload:
    def __init__(self, folder: StoreFolder, place: ObjectStore, tell: Progress) -> None:
        if folder.root is None:
            raise StoreError(f"{folder.log} is a log without a store around it: there are no queues to copy")
        self._folder = folder
        self._root = folder.root
        self._place = place
        self._tell = tell
        self._disk = ReadOnlyDisk()

    def run(self) -> tuple[str, int, int, int, int, int]:
        manifest = read_manifest(self._place) or self._new()
        with closing(StoredLog(self._folder, self._disk)) as stored:
            queues = queue_units(self._disk, self._root, Findings())
            todo = self._todo(stored, queues, manifest)
            copied = 0
            for file in todo:
                self._tell(f"{self._place.address}: {file.path.name}, {file.size:,} bytes")
                done = self._copy(stored, queues, file)
                manifest = replace(manifest, files=[*manifest.files, done])
                self._write(manifest)
                copied += file.size
                note(f"{file.path.name} is copied", rows=done.units)
        manifest = self._with_tables(manifest)
        first = manifest.files[0].base if manifest.files else 0
        end = manifest.files[-1].base + manifest.files[-1].size if manifest.files else 0
        return str(self._folder.name), len(todo), copied, len(manifest.files), first, end

    def _new(self) -> Manifest:
        default = StoreConfig()
        shape = default.index_slots, default.index_entries
        for path, size in index_names(self._disk, self._root / INDEX_FOLDER)[:1]:
            shape = index_shape(self._disk.open_mapped(path, size, scattered=True).buffer, default) or shape
        unit_file = queue_file_bytes(self._disk, self._root / QUEUE_FOLDER, default.queue_segment_bytes)
        return Manifest(FORMAT, self._root.name, unit_file, shape)

    def _todo(self, stored: StoredLog, queues: dict[QueueKey, QueueUnits], manifest: Manifest) -> list[ChainFile]:
        """The files to copy; those that are listed are compared with the list."""
        listed = {file.base: file for file in manifest.files}
        finished = [file for file in stored.files if file.base + file.size < stored.next_offset]
        dispatched = _dispatched(queues) if self._may_be_behind() else stored.next_offset
        todo = []
        for file in finished:
            if file.base in listed:
                self._compare(file, listed[file.base])
            elif file.base + file.size > dispatched:
                self._tell(f"{file.path.name} is left for the next run: its records are not in their queues yet")
                break
            else:
                todo.append(file)
        self._refuse_gap(manifest, todo)
        return todo

    def _may_be_behind(self) -> bool:
        """Whether the log can have records that are in no queue yet."""
        return is_locked(self._root / "lock") or self._disk.exists(self._root / "abort")

    def _compare(self, file: ChainFile, listed: OffloadedFile) -> None:
        """A file may have been copied or restored since, with a new time and the same bytes."""
        if file.size == listed.size and file.path.stat().st_mtime_ns == listed.modified_ns:
            return
        found = _sha256(file.path)
        if found != listed.sha256:
            raise StoreError(
                f"{file.path} differs from what {self._place.address} has of it: SHA-256 {found}, there {listed.sha256}. "
                "Either it is damaged (rocketline store verify), or it is of another store: offload to another place"
            )

    def _refuse_gap(self, manifest: Manifest, todo: list[ChainFile]) -> None:
        chain = [(file.base, file.size) for file in manifest.files] + [(file.base, file.size) for file in todo]
        for (base, size), (following, _) in pairwise(chain):
            if base + size != following:
                raise StoreError(
                    f"the log between {base + size} and {following} was deleted before it was copied to "
                    f"{self._place.address}: begin another place, and run offload more often than the broker deletes"
                )

    def _copy(self, stored: StoredLog, queues: dict[QueueKey, QueueUnits], file: ChainFile) -> OffloadedFile:
        modified_ns = file.path.stat().st_mtime_ns
        units, content = _units_of(queues, file)
        entry = OffloadedFile(
            file.base, file.size, "", modified_ns, stored.first_ms(file), _starts(stored, file), units, len(content), ""
        )
        self._place.write(entry.queues_name, content)
        sent = self._place.upload(file.path, entry.name)
        self._check_records(file)
        if file.path.stat().st_size != file.size or sent != _sha256(file.path):
            raise StoreError(f"{file.path} changed while it was copied: it is not finished")
        return replace(entry, sha256=sent, queues_sha256=hashlib.sha256(content).hexdigest())

    def _check_records(self, file: ChainFile) -> None:
        """StoreError unless sound records reach from the beginning of the file to its end."""
        (segment,) = segments_of(self._disk, [file])
        with closing(segment), gc_paused():
            scan = LogScan([segment], file.base, end=segment.next_base)
            for _ in scan.rows():
                pass
        if scan.next_log_offset < segment.next_base and scan.stop is not None:
            raise StoreError(
                f"{file.path} is damaged from log offset {scan.stop.log_offset} on ({scan.stop.reason}) and is not copied: "
                "run rocketline store verify. Bring a sound file from a replica, or begin another place behind this file"
            )

    def _with_tables(self, manifest: Manifest) -> Manifest:
        tables = {}
        for name in TABLES:
            if data := self._disk.read(self._root / "config" / name):
                tables[name] = hashlib.sha256(data).hexdigest()
                if manifest.tables.get(name) != tables[name]:
                    self._place.write(table_name(name, tables[name]), data)
        if tables != manifest.tables or not manifest.files:
            manifest = replace(manifest, tables=tables)
            self._write(manifest)
        return manifest

    def _write(self, manifest: Manifest) -> None:
        self._place.write(MANIFEST, msgspec.json.encode(manifest))


def verify_offload(address: str, tell: Progress) -> Outcome:
    """Read everything back that counts in a place, and compare it with its sums."""
    rows, notes = [], []
    for found, manifest in find_offloaded(address):
        place = ObjectStore(found)
        sums = [(each.name, each.sha256) for each in manifest.files]
        sums += [(each.queues_name, each.queues_sha256) for each in manifest.files]
        sums += [(table_name(name, sha256), sha256) for name, sha256 in manifest.tables.items()]
        bad = []
        for name, sha256 in sums:
            tell(f"{found}: {name}")
            if (problem := _problem(place, name, sha256)) is not None:
                bad.append(f"{found}: {name} {problem}")
        total = sum(each.size + each.queues_bytes for each in manifest.files)
        rows.append((manifest.store, len(sums), total, len(bad)))
        notes += bad
    outcome = Outcome(f"verified {address}", ("store", "files", "bytes", "damaged"), rows, notes)
    outcome.is_bad = bool(notes)
    return outcome


def _problem(place: ObjectStore, name: str, sha256: str) -> str | None:
    try:
        found = place.sum_of(name)
    except StoreError as error:
        return str(error)
    return None if found == sha256 else f"is damaged: its SHA-256 is {found}, the manifest says {sha256}"


def table_name(name: str, sha256: str) -> str:
    """Where a table lies: a new content has a new name, so that the old one counts until the manifest is replaced."""
    return f"config/{sha256}-{name}"


def _dispatched(queues: dict[QueueKey, QueueUnits]) -> int:
    """The end of the last record that a queue lists: records are listed in the order of the log."""
    ends = [0]
    for units in queues.values():
        if (end := units.end()) > units.first:
            log_offset, size, _ = units.unit(end - 1)
            ends.append(0 if size == FILLER_SIZE else log_offset + size)
    return max(ends)


def _starts(stored: StoredLog, file: ChainFile) -> list[int]:
    marks = range(file.base, file.base + file.size, START_EVERY_BYTES)
    return sorted({stored.start_before(file, mark) for mark in marks})


def _units_of(queues: dict[QueueKey, QueueUnits], file: ChainFile) -> tuple[int, bytes]:
    """How many units list records of a file, and the content of the file for them: slices, then the bytes of each."""
    slices, pieces = [], []
    for (topic, queue_id), units in sorted(queues.items()):
        first, stop = units.number_at(file.base), units.number_at(file.base + file.size)
        if stop > first:
            slices.append(QueueSlice(topic, queue_id, first, stop - first))
            pieces.append(units.raw(first, stop - first))
    head = msgspec.json.encode(slices)
    content = b"".join([len(head).to_bytes(_HEAD_BYTES, "big"), head, *pieces])
    return sum(part.count for part in slices), content


def slices_in(content: bytes, unit_bytes: int) -> Iterator[tuple[QueueSlice, bytes]]:
    """The units of each queue in such a content, whose sum is right."""
    head = int.from_bytes(content[:_HEAD_BYTES], "big")
    position = _HEAD_BYTES + head
    for part in msgspec.json.decode(content[_HEAD_BYTES:position], type=list[QueueSlice]):
        yield part, content[position : position + part.count * unit_bytes]
        position += part.count * unit_bytes


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
