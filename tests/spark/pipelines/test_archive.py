"""Archives of a store's files: every message once, however often the run is repeated or killed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.store_files import walk_log

from rocketline.errors import ConfigError
from rocketline.pipelines import archive as module
from rocketline.pipelines.archive import archive, archived
from rocketline.pipelines.origin import Origin

from .stores import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def ignore(text: str) -> None:
    pass


def places(frame: DataFrame) -> list[int]:
    return sorted(row.commitLogOffset for row in frame.select("commitLogOffset").collect())


def test_an_archive_grows_and_survives_a_killed_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, target = tmp_path / "store", tmp_path / "archive"
    fill(store, 200, deleted=False)
    archive(spark, Origin(path=str(store)), str(target), ignore)
    fill(store, 300, seed=2, deleted=False)
    # Killed after the batch was written and before it was noted as done.
    with monkeypatch.context() as patch:
        patch.setattr(module, "_note", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            archive(spark, Origin(path=str(store)), str(target), ignore)
    assert archived(spark, str(target)).count() == 500
    # And so that of its folders one is missing, and another has a file too much.
    missing, too_full, *_ = sorted(target.glob("messages/*/*/*/batch=1"))
    shutil.rmtree(missing)
    shutil.copy(next(target.glob("messages/*/*/*/batch=0/*.parquet")), too_full / "part-of-the-dead.parquet")
    fill(store, 50, seed=3, deleted=False)
    outcome = archive(spark, Origin(path=str(store)), str(target), ignore)
    assert places(archived(spark, str(target))) == [entry.log_offset for entry in walk_log(store).records]
    assert sum(row[1] for row in outcome.rows) == 550
    said: list[str] = []
    archive(spark, Origin(path=str(store)), str(target), said.append)
    assert "nothing new" in said[0]


def test_apaches_store_by_topic(spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path) -> None:
    root, target = golden("clean"), str(tmp_path / "archive")
    shutil.copytree(root, tmp_path / "data" / "broker-a")
    outcome = archive(spark, Origin(("S_Beta",), path=str(tmp_path / "data")), target, ignore)
    wanted = [entry.log_offset for entry in walk_log(root).records if entry.topic == "S_Beta"]
    assert places(archived(spark, target)) == wanted
    assert [row[:2] for row in outcome.rows] == [["S_Beta", len(wanted)]]


def test_what_is_no_archive_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not an archive"):
        archived(spark, str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "name either a cluster"),
        ({"namesrv": "h:1", "path": "/x"}, "name either a cluster"),
        ({"namesrv": "h:1"}, "name topics of the cluster"),
        ({"namesrv": "h:1", "topics": ("a",), "pattern": "b"}, "name topics of the cluster"),
    ],
)
def test_an_origin_must_be_one(arguments: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Origin(**arguments)  # type: ignore[arg-type]
