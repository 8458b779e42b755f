"""One local Spark session for the whole folder; tests that use it are marked `spark`.

It needs Java: where that is missing they skip, and fail when CI=true.
"""

from __future__ import annotations

import os
import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.class_archive import make_archive
from tests.spark.clusters import quick, worker_python
from tests.support.admin import create_topic
from tests.support.java import JavaUnavailable, tool
from tests.support.s3_server import ACCOUNT, S3Server, s3_server

from rocketline.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "store"


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            # With several test processes, all tests of the session run in one: a second session costs a gigabyte.
            item.add_marker(pytest.mark.xdist_group("spark"))


def require_spark() -> None:
    """Leave the test where there is no Java: skip on a laptop, fail where CI=true."""
    try:
        tool("java")
    except JavaUnavailable as error:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"CI must have Java: {error}", pytrace=False)
        pytest.skip(str(error))
    make_archive()


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small session of two cores. It ends before a process goes on to tests of other folders."""
    require_spark()
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        # Workers are started by the JVM, and know neither this interpreter nor its path otherwise.
        patch.setenv("PYSPARK_PYTHON", worker_python())
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        for variable, value in ACCOUNT.items():
            patch.setenv(variable, value)  # workers have the environment in which the session started
        builder = SparkSession.builder.master("local[2]").appName("rocketline tests")
        places = {"spark.sql.warehouse.dir": scratch / "warehouse", "spark.local.dir": scratch / "local"}
        for name, setting in {**quick(), **places, "spark.driver.memory": "768m"}.items():
            builder = builder.config(name, str(setting))
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture(scope="package")
def s3() -> Iterator[S3Server]:
    """An empty object store, and an environment that has its account."""
    with pytest.MonkeyPatch.context() as patch, s3_server() as running:
        for name, value in ACCOUNT.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One broker for all tests of a module; its topics may be read with SQL92."""
    with LocalCluster(config={"enablePropertyFilter": True}) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    """A new topic of two queues."""
    name = f"T_{uuid.uuid4().hex[:8]}"
    create_topic(cluster.brokers[0].address, name, 2)
    return name


@pytest.fixture
def forgetful() -> Iterator[LocalCluster]:
    """A cluster whose old files can be deleted; it has the topic T."""
    from tests.spark.live import forgetful_cluster

    with forgetful_cluster("T") as running:
        yield running


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], Path]:
    """`golden("clean")`: the folder of a store that Apache's broker wrote."""

    def unpack(name: str) -> Path:
        with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
            archive.extractall(tmp_path, filter="data")
        return tmp_path / name / "store"

    return unpack
