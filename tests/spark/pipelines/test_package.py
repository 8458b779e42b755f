"""What `rocketline pipeline package` writes."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from rocketline.errors import ConfigError
from rocketline.pipelines.package import LIBRARIES, package


def test_a_package_holds_everything_and_is_the_same_each_time(tmp_path: Path) -> None:
    first, again = tmp_path / "a.tar.gz", tmp_path / "b.tar.gz"
    parts = dict(package(first))
    package(again)
    assert first.read_bytes() == again.read_bytes()
    assert parts.keys() >= {"rocketline", "pyspark_rocketmq_log", *LIBRARIES}
    with tarfile.open(first) as archive:
        names = archive.getnames()
    assert {"rocketline/spark/log/source.py", "msgspec/__init__.py"} <= set(names)
    assert not [name for name in names if name.startswith(("/", "..")) or name.endswith(".pyc")]


def test_a_zip_has_the_sources_alone(tmp_path: Path) -> None:
    package(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} <= {"rocketline", "pyspark_rocketmq", "pyspark_rocketmq_log"}
    assert "rocketline/pipelines/medallion_project.py.txt" in names
    assert not [name for name in names if name.endswith(".so")]
    with pytest.raises(ConfigError, match="for --py-files"):
        package(tmp_path / "a.rar")
