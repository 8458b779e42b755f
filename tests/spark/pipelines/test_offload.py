"""Finished log files copied to a folder and to an S3 server: Spark reads them there, and a broker serves them again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.live import send, stored
from tests.support.admin import create_topic
from tests.support.patience import PATIENCE_S
from tests.support.s3_server import S3Server

from rocketline.broker.config import BrokerConfig
from rocketline.errors import ConfigError, CorruptRecord, StoreError
from rocketline.pipelines.bring_back import bring_back
from rocketline.pipelines.offload import offload, verify_offload
from rocketline.spark.log.object_store import ObjectStore
from rocketline.spark.log.offloaded import MANIFEST, find_offloaded, read_manifest
from rocketline.testing import LocalCluster

from .stores import CONFIG, content, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "cold"
SMALL_LOG = {"mappedFileSizeCommitLog": 1 << 20}


def ignore(text: str) -> None:
    pass


def load(spark: SparkSession, path: str, **options: str) -> DataFrame:
    return spark.read.format("rocketmq-log").options(**options).load(path)


def places(frame: DataFrame) -> list[Any]:
    chosen = frame.selectExpr("topic", "queueId", "queueOffset", "commitLogOffset", "msgId", "crc32(body) AS crc")
    return sorted(map(tuple, chosen.collect()))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small store with many files of everything."""
    return fill(tmp_path_factory.mktemp("offload") / "store")


@pytest.fixture
def offloaded(store: Path, tmp_path: Path) -> Iterator[Path]:
    offload(store, str(tmp_path / "cold"), ignore)
    yield tmp_path / "cold"


def test_from_a_running_broker_to_s3_and_back_to_another(spark: SparkSession, s3: S3Server, tmp_path: Path) -> None:
    address = s3.address("cold/broker")
    bodies = [b"%06d" % number + bytes(3000) for number in range(1500)]
    with LocalCluster(config=SMALL_LOG, data=tmp_path / "hot") as cluster:
        create_topic(cluster.brokers[0].address, TOPIC, 2)
        for queue_id in (0, 1):
            send(cluster.namesrv, TOPIC, bodies[queue_id::2], queue_id, keys=["k"], tag="t")
        (row,) = offload(tmp_path / "hot", address, ignore).rows
        assert row[1] == row[3] >= 3, "several files were finished"
        assert offload(tmp_path / "hot", address, ignore).rows[0][1] == 0, "nothing is copied twice"
        expected = [place for place in places(load(spark, str(tmp_path / "hot"))) if place[3] < row[5]]
    cache = {"cacheDir": str(tmp_path / "cache"), "cacheBytes": "2m"}
    assert places(load(spark, address, topic=TOPIC, partitionBytes="300k", **cache)) == [
        place for place in expected if place[0] == TOPIC
    ]
    kept = [path for path in (tmp_path / "cache").iterdir() if path.suffix != ".lock"]
    assert 1 <= len(kept) <= 4, "what is not used any more makes room"

    (back,) = bring_back(address, tmp_path / "back", ignore).rows
    assert back[1:4] == (row[3], row[2], len(expected))
    with LocalCluster(config=SMALL_LOG, data=tmp_path / "back") as cluster:
        served = stored(cluster.namesrv, TOPIC)
        assert sorted((view.queue_id, view.queue_offset, view.body) for view in served) == [
            (queue_id, number, bodies[queue_id + 2 * number]) for _, queue_id, number, *_ in sorted(
                place for place in expected if place[0] == TOPIC
            )
        ]  # fmt: skip
        send(cluster.namesrv, TOPIC, [b"new"], queue_id=1)
        (new,) = [view for view in stored(cluster.namesrv, TOPIC) if view.body == b"new"]
        assert (new.queue_id, new.queue_offset) == (1, 1 + max(view.queue_offset for view in served if view.queue_id))


@pytest.mark.parametrize("where", ["folder", "s3"])
def test_killed_and_repeated(store: Path, tmp_path: Path, where: str, s3: S3Server) -> None:
    address = s3.address("cold/killed") if where == "s3" else str(tmp_path / "cold")
    command = [sys.executable, "-m", "tests.spark.jobs.offload_then_die", str(store), address, "3"]
    done = subprocess.run(command, timeout=PATIENCE_S, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    before = read_manifest(ObjectStore(address))
    assert before is not None
    assert len(before.files) == 3
    (row,) = offload(store, address, ignore).rows
    assert row[1] == row[3] - 3 > 0, "what was listed is not copied again"

    root = tmp_path / "back"
    whole = bring_back(address, root, ignore, BrokerConfig(store=CONFIG)).rows
    names = [path.name for path in sorted((root / "commitlog").iterdir())]
    assert list(content(root, "commitlog")) == [f"commitlog/{name}" for name in names]
    for name in names:
        assert (root / "commitlog" / name).read_bytes() == (store / "commitlog" / name).read_bytes()
    (root / "commitlog" / names[1]).unlink()  # as a run that was killed leaves it
    (root / "commitlog" / f"{names[1]}.part").write_bytes(b"half")
    assert bring_back(address, root, ignore, BrokerConfig(store=CONFIG)).rows == whole


def test_a_damaged_object_is_refused_by_name(spark: SparkSession, s3: S3Server, store: Path, tmp_path: Path) -> None:
    address = s3.address("cold/damaged")
    offload(store, address, ignore)
    file = read_manifest(ObjectStore(address)).files[1]  # type: ignore[union-attr]
    place = ObjectStore(address)
    data = bytearray(place.read(file.name, file.size) or b"")
    data[1000] ^= 1
    place.write(file.name, bytes(data))
    problem = f"{file.name} is damaged: its SHA-256 is "
    with pytest.raises(CorruptRecord, match=problem):
        bring_back(address, tmp_path / "back", ignore)
    with pytest.raises(Exception, match=problem):
        load(spark, address, cacheDir=str(tmp_path / "cache")).count()
    place.write(file.queues_name, b"something else")
    data[1000] ^= 1
    place.write(file.name, bytes(data))
    with pytest.raises(StoreError, match=f"{file.queues_name} "):
        bring_back(address, tmp_path / "back", ignore, BrokerConfig(store=CONFIG))


def test_a_changed_file_is_refused_and_a_touched_one_is_not(tmp_path: Path) -> None:
    store, address = fill(tmp_path / "store", 1000), str(tmp_path / "cold")
    offload(store, address, ignore)
    file = sorted((store / "commitlog").iterdir())[1]
    file.touch()
    assert offload(store, address, ignore).rows[0][1] == 0
    changed = bytearray(file.read_bytes())
    changed[100] ^= 1
    file.write_bytes(changed)
    with pytest.raises(StoreError, match=f"{file.name} differs from what .*cold has of it"):
        offload(store, address, ignore)


def test_a_damaged_file_is_not_copied(tmp_path: Path) -> None:
    store, address = fill(tmp_path / "store", 1000), str(tmp_path / "cold")
    second = sorted((store / "commitlog").iterdir())[1]
    whole = second.read_bytes()
    damaged = bytearray(whole)
    damaged[2000] ^= 1
    second.write_bytes(damaged)
    with pytest.raises(StoreError, match=f"{second.name} is damaged from log offset [0-9]+ on .* and is not copied"):
        offload(store, address, ignore)
    assert len(find_offloaded(address)[0][1].files) == 1, "the file before it is there"
    second.write_bytes(whole)
    assert offload(store, address, ignore).rows[0][1] > 0


def test_what_was_copied_is_read_back(offloaded: Path) -> None:
    outcome = verify_offload(str(offloaded), ignore)
    (manifest,) = [manifest for _, manifest in find_offloaded(str(offloaded))]
    assert (outcome.is_bad, outcome.rows[0][1], outcome.rows[0][3]) == (
        False, 2 * len(manifest.files) + len(manifest.tables), 0,
    )  # fmt: skip
    log, queues = offloaded / manifest.files[0].name, offloaded / manifest.files[1].queues_name
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    queues.unlink()
    outcome = verify_offload(str(offloaded), ignore)
    assert (outcome.is_bad, outcome.rows[0][3]) == (True, 2)
    assert f"{manifest.files[0].name} is damaged: its SHA-256 is" in outcome.notes[0]
    assert f"cannot read local {queues}" in outcome.notes[1]


def test_a_hole_in_the_log_is_refused(tmp_path: Path) -> None:
    store, address = fill(tmp_path / "store", 1000), str(tmp_path / "cold")
    for file in sorted((store / "commitlog").iterdir())[1:]:
        file.rename(tmp_path / file.name)
    offload(store, address, ignore)
    assert find_offloaded(address)[0][1].files == []
    for file in sorted(tmp_path.glob("0*"))[1:]:
        file.rename(store / "commitlog" / file.name)
    manifest = read_manifest(ObjectStore(address))
    assert manifest is not None
    with pytest.raises(StoreError, match="was deleted before it was copied"):
        offload(store, address, ignore)


def test_what_is_no_offload_and_no_empty_folder(offloaded: Path, store: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is a store in use\. Restore into an empty folder"):
        bring_back(str(offloaded), store, ignore)
    with pytest.raises(StoreError, match=f"has no {MANIFEST}"):
        bring_back(str(tmp_path / "nothing"), tmp_path / "back", ignore)
    with pytest.raises(ConfigError, match="leave the account out of the address") as caught:
        ObjectStore("s3://me:secret@bucket/x")
    assert "secret" not in str(caught.value).replace("AWS_SECRET_ACCESS_KEY", "")
    with pytest.raises(ConfigError, match=r"ftp:// is not known; there are s3, s3a"):
        ObjectStore("ftp://host/x")


def test_several_stores_of_a_folder(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in ("broker-a", "broker-b"):
        fill(data / name, 1000)
    rows = offload(data, str(tmp_path / "cold"), ignore).rows
    assert [Path(row[0]).name for row in rows] == ["broker-a", "broker-b"]
    found = load(spark, str(tmp_path / "cold"), cacheDir=str(tmp_path / "cache"))
    counted = {row["brokerName"]: row["count"] for row in found.groupBy("brokerName").count().collect()}
    assert counted.keys() == {"broker-a", "broker-b"}
    back = bring_back(str(tmp_path / "cold"), tmp_path / "back", ignore, BrokerConfig(store=CONFIG))
    assert [row[3] for row in back.rows] == [counted["broker-a"], counted["broker-b"]]


@pytest.mark.parametrize(
    "wrong", [{"store": "../elsewhere"}, {"store": ".."}, {"sha256": "../../" + "0" * 58}, {"base": -1}]
)
def test_a_manifest_leads_nowhere_else(offloaded: Path, tmp_path: Path, wrong: dict[str, Any]) -> None:
    manifest = json.loads((offloaded / MANIFEST).read_bytes())
    (manifest if "store" in wrong else manifest["files"][0]).update(wrong)
    (offloaded / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=f"{MANIFEST} is not of an offload"):
        bring_back(str(offloaded), tmp_path / "back", ignore)
