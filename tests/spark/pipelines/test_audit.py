"""A store checked in parallel has the same findings as one checked in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketline.pipelines.audit import audit, stretches
from rocketline.store.tools.folder import StoreFolder
from rocketline.store.tools.inspection import Verdict, VerifyReport, verify

from .stores import CONFIG, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def folder(root: Path) -> StoreFolder:
    return StoreFolder(root / "commitlog", root)


def both(spark: SparkSession | None, root: Path, stretch_bytes: int = 5_000) -> tuple[VerifyReport, VerifyReport]:
    said: list[str] = []
    return verify(folder(root), CONFIG), audit(spark, folder(root), said.append, CONFIG, stretch_bytes)


def test_a_sound_store_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    root = fill(tmp_path / "store")
    assert len(stretches(folder(root), lambda whole: 60_000)) > 5
    alone, report = both(spark, root, 60_000)
    assert report == alone
    assert (report.verdict, report.records) == (Verdict.SOUND, 3000)


def test_every_kind_of_damage_is_listed(tmp_path: Path) -> None:
    root = fill(tmp_path / "store", deleted=False)
    log = sorted((root / "commitlog").iterdir())
    queue = sorted((root / "consumequeue" / "orders" / "1").iterdir())
    index = sorted((root / "index").iterdir())
    for path, at in ((log[0], 9_000), (log[3], 65_400), (log[4], 20), (queue[0], 2_003), (index[1], 3_000)):
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"\x5a" * 30)
    alone, report = both(None, root)
    assert sorted(map(str, report.findings)) == sorted(map(str, alone.findings))
    assert (report.damaged, report.records, report.units) == (alone.damaged, alone.records, alone.units)
    assert report.verdict is Verdict.DAMAGED
    assert {"commit log", "consume queues", "key index"} == set(report.damaged)


@pytest.mark.parametrize("name", ["clean", "killed", "features"])
def test_stores_that_apache_wrote(golden: Callable[[str], Path], name: str) -> None:
    alone, report = both(None, golden(name), 200_000)
    assert report == alone
