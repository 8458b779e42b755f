"""`restore --from`: makes a store of an offloaded log, which a broker opens and serves.

Log files are copied and compared with their sums. Consume queues and key index are rebuilt from them, as `rocketline store
rebuild` does it, and every unit that was offloaded must be among them. At the end the store is verified as a whole. A run
that was killed is repeated: files that are complete stay.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from rocketline.broker.config import BrokerConfig, parse_delay_levels
from rocketline.broker.delays.delay_levels import deliver_time_codes
from rocketline.errors import CorruptRecord, StoreError
from rocketline.files import replace_file
from rocketline.pipelines.offload import TABLES, slices_in, table_name
from rocketline.pipelines.outcome import Outcome
from rocketline.pipelines.tasks import Progress
from rocketline.spark.log.object_store import ObjectStore
from rocketline.spark.log.offloaded import Manifest, OffloadedFile, find_offloaded
from rocketline.store.config import UNIT_BYTES
from rocketline.store.files.disk import RealDisk
from rocketline.store.queue.consume_queue import UNIT
from rocketline.store.tools.findings import Findings
from rocketline.store.tools.folder import LOG_FOLDER, StoreFolder, chain_files
from rocketline.store.tools.inspection import Verdict, verify
from rocketline.store.tools.log_check import queue_units
from rocketline.store.tools.queue_check import QueueUnits
from rocketline.store.tools.read_only import ReadOnlyDisk
from rocketline.store.tools.rebuild import rebuild


def bring_back(address: str, folder: Path, tell: Progress, config: BrokerConfig | None = None) -> Outcome:
    """Fill an empty folder; StoreError or CorruptRecord names what is damaged or in the way."""
    stores = find_offloaded(address)
    rows = []
    for place, manifest in stores:
        root = (folder if len(stores) == 1 else folder / manifest.store).absolute()
        rows.append(_BringBack(ObjectStore(place), manifest, root, tell, config or BrokerConfig()).run())
    columns = ("store", "log files", "bytes", "records", "queues", "result")
    return Outcome(f"restored from {address}", columns, rows)


class _BringBack:
    def __init__(
        self, place: ObjectStore, manifest: Manifest, root: Path, tell: Progress, config: BrokerConfig
    ) -> None:
        self._place = place
        self._manifest = manifest
        self._folder = StoreFolder(root / LOG_FOLDER, root)
        self._root = root
        self._tell = tell
        self._config = config
        slots, entries = manifest.index_shape
        self._store_config = replace(
            config.store, queue_segment_bytes=manifest.queue_file_bytes, index_slots=slots, index_entries=entries
        )

    def run(self) -> tuple[str, int, int, int, int, str]:
        if not self._manifest.files:
            raise StoreError(f"{self._place.address} has no log files yet: the store had none that were finished")
        self._refuse_others()
        self._folder.log.mkdir(parents=True, exist_ok=True)
        for file in self._manifest.files:
            self._copy(file)
        self._copy_tables()
        self._tell(f"{self._root}: rebuilding queues and index")
        codes = deliver_time_codes(parse_delay_levels(self._config.delay_levels))
        built = rebuild(self._folder, self._store_config, codes)
        units = queue_units(ReadOnlyDisk(), self._root, Findings())
        for file in self._manifest.files:
            self._compare_units(file, units)
        report = verify(self._folder, self._store_config)
        if report.verdict is not Verdict.SOUND:
            raise StoreError(f"{self._root} is {report.verdict.value}: run rocketline store verify {self._root}")
        total = sum(file.size for file in self._manifest.files)
        return str(self._root), len(self._manifest.files), total, report.records, built.queues, report.verdict.value

    def _refuse_others(self) -> None:
        """Only what an earlier run of this left may be there."""
        known = {file.base for file in self._manifest.files}
        for found in chain_files(ReadOnlyDisk(), self._folder.log):
            if found.base not in known:
                raise StoreError(
                    f"{found.path} is no part of {self._place.address}: {self._root} is a store in use. "
                    "Restore into an empty folder"
                )

    def _copy(self, file: OffloadedFile) -> None:
        path = self._folder.log / f"{file.base:020d}"
        if path.exists():
            with path.open("rb") as there:
                if hashlib.file_digest(there, "sha256").hexdigest() == file.sha256:
                    return
            raise StoreError(f"{path} is there with other bytes than {self._place.address} has: use an empty folder")
        self._tell(f"{path}: {file.size:,} bytes")
        part = path.with_suffix(".part")
        found = self._place.download(file.name, part)
        if found != file.sha256:
            part.unlink()
            raise self._damaged(file.name, found, file.sha256)
        RealDisk().sync(part)
        part.replace(path)

    def _copy_tables(self) -> None:
        for name in TABLES:
            if (wanted := self._manifest.tables.get(name)) is None:
                continue
            data = self._checked(table_name(name, wanted), wanted, 1 << 30)
            path = self._root / "config" / name
            path.parent.mkdir(exist_ok=True)
            replace_file(path, data)

    def _compare_units(self, file: OffloadedFile, built: dict[tuple[str, int], QueueUnits]) -> None:
        content = self._checked(file.queues_name, file.queues_sha256, file.queues_bytes)
        for part, raw in slices_in(content, UNIT_BYTES):
            units = built.get((part.topic, part.queue_id))
            if units is None or _listed(units.raw(part.first, part.count)) != _listed(raw):
                raise CorruptRecord(
                    f"{self._root}: queue {part.queue_id} of topic {part.topic} from offset {part.first} on differs from "
                    f"the units in {self._place.address}"
                )

    def _checked(self, name: str, sha256: str, most_bytes: int) -> bytes:
        data = self._place.read(name, most_bytes)
        found = hashlib.sha256(data or b"").hexdigest()
        if data is None or found != sha256:
            raise self._damaged(name, "missing" if data is None else found, sha256)
        return data

    def _damaged(self, name: str, found: str, wanted: str) -> CorruptRecord:
        return CorruptRecord(
            f"{self._place.address}: {name} is damaged: its SHA-256 is {found}, the manifest says {wanted}"
        )


def _listed(units: bytes) -> list[tuple[int, int]]:
    """Log offset and size of each unit. Tags codes may be addresses, or depend on the delay levels of the broker."""
    return [(log_offset, size) for log_offset, size, _ in UNIT.iter_unpack(units)]
