"""Measures how fast Spark reads messages: `python bench/spark/sources.py [--rows N] [--rounds R]`.

Seven ways to the same rows in one session with one task at a time, in turn, round after round; all columns but where said:

log            the source rocketmq-log, bodies checked against their checksums (the default)
log, no CRC    the same with checkCrc=false
log, 3 columns queue, offset and body alone, by a schema
tuples         records decoded one by one and given to Spark as tuples; only a tenth of them, because it takes so long. The
               start of the job then weighs more, which makes the ratio better for us than with all rows
ready          batches made before: what Spark needs for any rows that come from Python; no source can be faster
live           the source rocketmq, from our broker, which runs in this process and takes a core of its own while Spark reads
parquet        the rows in a Parquet file, as Spark writes it

Rows go to the `noop` sink. A first round is thrown away. Rates are medians, ratios the median over rounds of what two ways
did in the same round. `per core` divides by processor time: of the Python workers, which is our part, and of the JVM and
them together, because a task keeps both busy at once. `decode` is reading and decoding alone, without Spark, on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench import machine
from bench.spark.other_sources import ReadySource, TupleSource
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table
from tests.support.admin import create_topic

from rocketline.protocol.message_ids import encode_host
from rocketline.spark.columns import ColumnPlan
from rocketline.spark.log.plan import EVERYTHING, plan_folder
from rocketline.spark.log.reader import LogReading
from rocketline.store.config import StoreConfig
from rocketline.store.message_store import MessageStore, StoreMessage
from rocketline.store.tools.folder import find_stores
from rocketline.store.tools.read_only import ReadOnlyDisk
from rocketline.testing import LocalCluster

ROOT = Path(__file__).resolve().parents[2]
HOST = encode_host("127.0.0.1", 10911)
PARTITION_BYTES = 64 << 20
SEGMENT_BYTES = 256 << 20
TOPIC, QUEUES = "orders", 8


def fill(folder: Path, rows: int, body_bytes: int) -> None:
    """A store of messages with the properties Apache's Java client sends."""
    store = MessageStore(folder, StoreConfig(log_segment_bytes=SEGMENT_BYTES), HOST)
    store.open()
    bodies = [random.Random(seed).randbytes(body_bytes) for seed in range(64)]
    try:
        for number in range(rows):
            properties = {
                "UNIQ_KEY": f"C0000202437D4E0E2F2A4A11{number:08X}",
                "KEYS": f"key-{number}",
                "TAGS": f"Tag{number % 3}",
                "WAIT": "true",
                "CLUSTER": "DefaultCluster",
            }
            raw = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()]).encode()
            store.append(
                StoreMessage(
                    TOPIC, number % QUEUES, bodies[number % 64], properties, raw, 0, 0, 1_700_000_000_000 + number, HOST
                )
            )
    finally:
        store.close()


@contextmanager
def serving(store: Path) -> Iterator[str]:
    """A broker on the store; gives the address of its name server."""
    sizes = {
        "mappedFileSizeCommitLog": SEGMENT_BYTES,
        "mappedFileSizeConsumeQueue": StoreConfig().queue_segment_bytes,
        "maxHashSlotNum": 5_000_000,
        "maxIndexNum": 20_000_000,
    }
    with LocalCluster(data=store, config=sizes) as cluster:
        create_topic(cluster.brokers[0].address, TOPIC, QUEUES)
        yield cluster.namesrv


def session(scratch: Path, settings: Sequence[str]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(scratch / "local"))
    )
    for setting in settings:
        builder = builder.config(*setting.split("=", 1))
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(TupleSource)
    spark.dataSource.register(ReadySource)
    return spark


@dataclass(frozen=True)
class Way:
    """A table, and how many rows it has."""

    frame: DataFrame
    rows: int


@dataclass(frozen=True)
class TableRun:
    """One reading of a table: rows by the second of the clock and of processor time."""

    rows_s: float
    rows_worker_s: float
    rows_cpu_s: float


def ways(spark: SparkSession, store: Path, namesrv: str, scratch: Path, rows: int, tuples_end: int) -> dict[str, Way]:
    def log(name: str, **options: str) -> DataFrame:
        options["partitionBytes"] = str(PARTITION_BYTES)
        return spark.read.format(name).options(**options).load(str(store))

    narrow = spark.read.format("rocketmq-log").schema("queueId int, queueOffset bigint, body binary")
    parquet = str(scratch / "rows.parquet")
    log("rocketmq-log").write.parquet(parquet)
    ready = log("rocketmq-log-ready")
    few = log("rocketmq-log-tuples", endingLogOffset=str(tuples_end))
    return {
        "log": Way(log("rocketmq-log"), rows),
        "ready": Way(ready, ready.count()),
        "log, 3 columns": Way(narrow.option("partitionBytes", str(PARTITION_BYTES)).load(str(store)), rows),
        "log, no CRC": Way(log("rocketmq-log", checkCrc="false"), rows),
        "live": Way(spark.read.format("rocketmq").options(namesrv=namesrv, subscribe=TOPIC).load(), rows),
        "tuples": Way(few, few.count()),
        "parquet": Way(spark.read.parquet(parquet), rows),
    }


def read(way: Way) -> TableRun:
    """Read a whole table; processor time is of all that this process started, a worker that came or went included."""
    cpu, begin = processor_seconds(), time.perf_counter()
    way.frame.write.format("noop").mode("overwrite").save()
    elapsed = time.perf_counter() - begin
    spent = {name: seconds - cpu.get(name, 0) for name, seconds in processor_seconds().items()}
    workers = sum(seconds for name, seconds in spent.items() if name != "java")
    return TableRun(way.rows / elapsed, way.rows / max(workers, 0.01), way.rows / max(sum(spent.values()), 0.01))


def processor_seconds(servers: Collection[int] = ()) -> dict[str, float]:
    """By the name of a program: user and system time of the processes below this one, also of those they waited for."""
    found: dict[str, float] = {}
    for pid in machine.process_tree(os.getpid()):
        if pid == os.getpid() or pid in servers:
            continue
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        name = stat[stat.index("(") + 1 : stat.rindex(")")]
        ticks = sum(map(int, stat[stat.rindex(")") + 2 :].split()[11:15]))
        found[name] = found.get(name, 0) + ticks / machine.TICKS_PER_SECOND
    return found


def rounds(tables: dict[str, Way], count: int) -> list[dict[str, TableRun]]:
    return [{name: read(way) for name, way in tables.items()} for _ in range(count + 1)][1:]


def decode_seconds(store: Path, repeats: int) -> float:
    """Processor time of the columnar decode of the whole log, checksums included, after it was read once."""
    (folder,) = find_stores(ReadOnlyDisk(), store)
    parts = plan_folder(folder, ReadOnlyDisk(), EVERYTHING, PARTITION_BYTES)
    spent = []
    for _ in range(repeats):
        begin = time.process_time()
        for part in parts:
            for _ in LogReading(ColumnPlan()).read(part):
                pass
        spent.append(time.process_time() - begin)
    return min(spent)


def figures(measured: list[dict[str, TableRun]], record_bytes: float) -> dict[str, dict[str, float]]:
    shown: dict[str, dict[str, float]] = {}
    for name in measured[0]:
        rate = median(one[name].rows_s for one in measured)
        shown[name] = {
            "rows/s": rate,
            "MB/s of log": rate * record_bytes / 1e6,
            "per core, workers": median(one[name].rows_worker_s for one in measured),
            "per core, all": median(one[name].rows_cpu_s for one in measured),
            "x parquet": median(one[name].rows_s / one["parquet"].rows_s for one in measured),
            "x tuples": median(one[name].rows_s / one["tuples"].rows_s for one in measured),
        }
    shown["parquet"]["per core, workers"] = 0
    return shown


def show(shown: dict[str, dict[str, float]], title: str) -> None:
    table = Table(title=title)
    table.add_column("way")
    heads = list(next(iter(shown.values())))
    for head in heads:
        table.add_column(head, justify="right")
    for name, values in shown.items():
        table.add_row(
            name, *(f"{values[head]:,.2f}" if values[head] < 100 else f"{values[head]:,.0f}" for head in heads)
        )
    Console().print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--body", type=int, default=128, help="bytes of a body")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="rocketline-spark-"))
    try:
        store = scratch / "store"
        fill(store, chosen.rows, chosen.body)
        (folder,) = find_stores(ReadOnlyDisk(), store)
        parts = plan_folder(folder, ReadOnlyDisk(), EVERYTHING, PARTITION_BYTES)
        log_bytes = sum(part.end - part.start for part in parts)
        decode = decode_seconds(store, 3)
        spark = session(scratch, chosen.conf)
        try:
            with serving(store) as namesrv:
                tables = ways(spark, store, namesrv, scratch, chosen.rows, log_bytes // 10)
                shown = figures(rounds(tables, chosen.rounds), log_bytes / chosen.rows)
        finally:
            spark.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    show(shown, f"{chosen.rows:,} messages of {chosen.body} bytes, {log_bytes / chosen.rows:.0f} bytes a record")
    Console().print(f"decode alone: {chosen.rows / decode:,.0f} rows/s, {log_bytes / decode / 1e6:,.0f} MB/s of log")
    if chosen.json:
        chosen.json.write_text(json.dumps({"decode rows/s": chosen.rows / decode, "ways": shown}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
