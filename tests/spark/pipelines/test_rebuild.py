"""Queues and index rebuilt in parallel: the same bytes as the broker's own."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rocketline.broker.config import BrokerConfig, parse_delay_levels
from rocketline.broker.delays.delay_levels import deliver_time_codes
from rocketline.clock import ManualClock
from rocketline.errors import StoreInUse
from rocketline.pipelines import rebuild as module
from rocketline.pipelines.index_file import KEY, are_linked, link_piece, write_index_file
from rocketline.pipelines.rebuild import rebuild
from rocketline.protocol.hashing import index_key_hash
from rocketline.store.config import StoreConfig
from rocketline.store.files.disk import RealDisk
from rocketline.store.index.key_index import KeyIndex
from rocketline.store.tools.folder import StoreFolder
from rocketline.store.tools.index_check import IndexContent
from rocketline.store.tools.rebuild import rebuild as rebuild_alone

from .stores import CONFIG, content, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = BrokerConfig(store=CONFIG)
CODES = deliver_time_codes(parse_delay_levels(SETTINGS.delay_levels))
PARTS = ("consumequeue", "index")


def folder(root: Path) -> StoreFolder:
    return StoreFolder(root / "commitlog", root)


def ignore(text: str) -> None:
    pass


def test_what_is_built_equals_what_a_broker_wrote(spark: SparkSession, tmp_path: Path) -> None:
    # Without deleted topics, of which a broker forgets the queues and the log does not.
    root = fill(tmp_path / "store", deleted=False)
    before = {part: content(root, part) for part in PARTS}
    for part in PARTS:
        shutil.rmtree(root / part)
    result = rebuild(spark, folder(root), ignore, SETTINGS, stretch_bytes=60_000)
    without_schedule = {n: raw for n, raw in before["consumequeue"].items() if "SCHEDULE" not in n}
    built = content(root, "consumequeue")
    assert {name: raw for name, raw in built.items() if "SCHEDULE" not in name} == without_schedule
    assert content(root, "index") == before["index"]
    assert (result.records, result.units, result.index_files, result.gaps) == (3000, 3000, 6, [])


@pytest.mark.parametrize(("stretch_bytes", "cores"), [(3_000, 1), (10_000_000, 1), (20_000, 16)])
def test_it_equals_a_rebuild_in_one_walk_also_with_damage_and_deleted_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stretch_bytes: int, cores: int
) -> None:
    # With more cores than there are index files, several tasks write one.
    monkeypatch.setattr(module, "parallelism", lambda _: cores)
    root = fill(tmp_path / "store")
    log = sorted((root / "commitlog").iterdir())
    for path, at in ((log[0], 5_000), (log[1], 64 * 1024 - 4_000), (log[2], 0)):
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"\xa5" * 4_000)
    other = shutil.copytree(root, tmp_path / "other")
    alone = rebuild_alone(folder(root), CONFIG, CODES)
    result = rebuild(None, folder(other), ignore, SETTINGS, stretch_bytes)
    assert len(alone.gaps) >= 2
    assert (result.gaps, result.records, result.log_bytes) == (alone.gaps, alone.records, alone.log_bytes)
    assert content(other, "index") == content(root, "index")
    assert content(other, "consumequeue") == content(root, "consumequeue")
    assert not (other / "rebuild.tmp").exists()


@pytest.mark.parametrize("name", ["clean", "features"])
def test_apaches_logs_give_what_one_walk_gives(golden: Callable[[str], Path], name: str) -> None:
    root = golden(name)
    other = shutil.copytree(root, root.parent / "other")
    rebuild_alone(folder(root), BrokerConfig().store, CODES)
    rebuild(None, folder(other), ignore, stretch_bytes=100_000)
    assert content(other, "index") == content(root, "index")
    assert content(other, "consumequeue") == content(root, "consumequeue")


def test_a_store_in_use_is_left_alone(tmp_path: Path) -> None:
    root = fill(tmp_path / "store", 10)
    before = {part: content(root, part) for part in PARTS}
    lock = RealDisk().lock(root / "lock")
    try:
        with pytest.raises(StoreInUse, match="stop the broker first"):
            rebuild(None, folder(root), ignore, SETTINGS)
    finally:
        lock.release()
    assert {part: content(root, part) for part in PARTS} == before


@pytest.mark.parametrize(
    ("count", "pieces"), [(1, [1]), (7, [3, 4]), (400, [400]), (999, [500, 1, 498]), (700, [350, 100, 300])]
)
def test_an_index_file_of_all_entries_at_once(tmp_path: Path, count: int, pieces: list[int]) -> None:
    config = StoreConfig(index_slots=100, index_entries=1000)
    index = KeyIndex(RealDisk(), tmp_path / "index", config, ManualClock())
    times = [1_700_000_000_000 + (number * 7_919) % 50_000 for number in range(count)]
    for number, at in enumerate(times):
        index.put("orders", 100 + number * 50, at, {"KEYS": f"key-{number % 60}"})
    index.flush()
    hashes = [index_key_hash("orders", f"key-{number % 60}") for number in range(count)]
    # The file before this one took what is too much of the first piece.
    more = sum(pieces) - count
    keys = np.empty(sum(pieces), KEY)
    keys["hash"], keys["store_ms"] = hashes[:more] + hashes, times[:more] + times
    keys["log_offset"] = [100 + (number - more) * 50 for number in range(len(keys))]
    shares = np.split(keys, np.cumsum(pieces)[:-1])
    for share in shares:
        link_piece(share, 100)
    taken = [(share[more:] if not number else share, more if not number else 0) for number, share in enumerate(shares)]
    write_index_file(tmp_path / "made", taken, 100, 1000)
    made = (tmp_path / "made").read_bytes()
    assert made == index.files[0].path.read_bytes()
    index.close()
    # In parts, the last one first; and once more, as when a task is tried again.
    for _ in range(2):
        for at in reversed(range(len(taken))):
            is_last = at == len(taken) - 1
            write_index_file(tmp_path / "parts", taken[at : at + 1], 100, 1000, taken[:at], is_last=is_last)
    assert (tmp_path / "parts").read_bytes() == made
    assert are_linked(memoryview(made), 100, count + 1)
    for place in (40, 40 + 4 * (hashes[-1] % 100), 440 + 20 * count + 16, 440 + 20 * (count // 2 + 1) + 16):
        for wrong in (0, 1, count, count + 1, -1):
            spoilt = bytearray(made)
            struct.pack_into(">i", spoilt, place, wrong)
            content = IndexContent("made", memoryview(spoilt), 100, 1000)
            assert are_linked(memoryview(spoilt), 100, count + 1) == (not list(content.link_problems())) or (
                spoilt != made and wrong > count
            )
