"""Our sink and stream against Spark's own for Kafka: `python bench/spark/against_kafka.py [--rows N] [--rounds R]`.

In one session of two tasks, in turn, round after round, on the same rows (bodies of 128 bytes, 8 queues or partitions):

sink      a cached table written as a batch
stream    all of it read by a stream in ten micro-batches, into the `noop` sink
java      batches that Apache's Java client sends to our broker, as large as the sink's: processor time of the broker alone,
          beside that of the sink
trickle   a stream that is triggered once a second, while a hundred rows a second come from a producer outside of Spark:
          processor time alone

Servers are processes of their own: ours, and a Kafka broker in KRaft mode from Maven. A first round is thrown away. Rates
are medians, ratios the median over rounds of what both did in the same round. Processor time is that of the server, and of
Spark: the JVM and its Python workers.

`bench/results/spark/kafka.json` gets every round; `page.py` beside this makes tables of it.

Spark's jars for Kafka must fit its version. If the installed one is newer, put another in front:
`pip install --target build/python/pyspark-4.2 --no-deps 'pyspark==4.2.*'` and `PYTHONPATH=build/python/pyspark-4.2`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyspark
from bench import machine
from bench.generators import JavaLoad
from bench.page import without_runs
from bench.sides import READY_LINE, READY_TIMEOUT_S, SideFailed
from bench.spark.kafka import KafkaServer, spark_jars
from bench.spark.sources import processor_seconds, show
from pyspark.sql import DataFrame, SparkSession
from tests.support.admin import create_topic

from rocketline.client.bulk.writer import BulkWriter
from rocketline.message import Message

ROOT = Path(__file__).resolve().parents[2]
QUEUES = 8
BODY_BYTES = 128
BATCHES = 10
TRICKLE_S = 20
TRICKLE_ROWS = 100
"""In a second."""
JAVA_BATCH = 900
"""Messages of 128 bytes that fill 256 KiB, with their properties."""
SERVERS: set[int] = set()
"""Processes that are not Spark's."""


@dataclass(frozen=True)
class OneRun:
    rows_s: float
    server_us: float
    """Processor time of the server for a row."""
    spark_us: float


class Rocketline:
    """Our broker and name server, one process."""

    label = "rocketmq"

    def __init__(self, folder: Path) -> None:
        out, log = folder / "up.out", folder / "up.log"
        command = [
            sys.executable,
            "-m",
            "rocketline",
            "up",
            "--data",
            str(folder / "data"),
            "--namesrv-port",
            "0",
            "--broker-port",
            "0",
        ]
        with out.open("wb") as out_file, log.open("wb") as log_file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out_file, stderr=log_file, start_new_session=True
            )
        deadline = time.monotonic() + READY_TIMEOUT_S
        while (found := READY_LINE.search(out.read_text())) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SideFailed(f"rocketline does not serve: {log.read_text()[-2000:]}")
            time.sleep(0.01)
        self.namesrv, self.broker = found["namesrv"], found["broker"]
        self.pids = [self._process.pid]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)

    def create(self, topic: str) -> None:
        create_topic(self.broker, topic, QUEUES)

    def write(self, table: DataFrame, topic: str) -> None:
        rows = table.selectExpr("value AS body", "key AS keys")
        rows.write.format("rocketmq").options(namesrv=self.namesrv, topic=topic).mode("append").save()

    def stream(self, spark: SparkSession, topic: str, most: int | None) -> DataFrame:
        reader = spark.readStream.format("rocketmq").schema("queueId int, queueOffset bigint, keys string, body binary")
        limit = {} if most is None else {"maxOffsetsPerTrigger": str(most)}
        return reader.options(namesrv=self.namesrv, subscribe=topic, startingOffsets="earliest", **limit).load()

    @contextmanager
    def trickling(self, topic: str) -> Iterator[None]:
        ended = threading.Event()

        def send() -> None:
            with BulkWriter(self.namesrv, group="trickle") as writer:
                while not ended.wait(0.1):
                    for _ in range(TRICKLE_ROWS // 10):
                        writer.send(Message(topic, bytes(BODY_BYTES)))
                    writer.flush()

        sender = threading.Thread(target=send)
        sender.start()
        try:
            yield
        finally:
            ended.set()
            sender.join()


class Kafka:
    label = "kafka"

    def __init__(self, folder: Path) -> None:
        self._server = KafkaServer(folder / "kafka")
        self._server.start()
        self.pids = self._server.pids

    def stop(self) -> None:
        self._server.stop()

    def create(self, topic: str) -> None:
        self._server.create_topic(topic, QUEUES)

    def write(self, table: DataFrame, topic: str) -> None:
        rows = table.selectExpr("key", "value")
        rows.write.format("kafka").option("kafka.bootstrap.servers", self._server.address).option("topic", topic).save()

    def stream(self, spark: SparkSession, topic: str, most: int | None) -> DataFrame:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", self._server.address)
        limit = {} if most is None else {"maxOffsetsPerTrigger": str(most)}
        frame = reader.options(subscribe=topic, startingOffsets="earliest", **limit).load()
        return frame.selectExpr("partition", "offset", "key", "value")

    @contextmanager
    def trickling(self, topic: str) -> Iterator[None]:
        sender = self._server.trickle(topic, TRICKLE_ROWS, BODY_BYTES)
        SERVERS.add(sender.pid)
        try:
            yield
        finally:
            sender.kill()
            sender.wait()


Side = Rocketline | Kafka


def session(scratch: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # An installed package is compiled once, not in each process.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT / "src"), str(ROOT)])
    spark: SparkSession = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", spark_jars())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def cached_rows(spark: SparkSession, rows: int, body: int) -> DataFrame:
    value = f"cast(rpad(concat('row ', id, ' '), {body}, 'abcdefghijklmnop') AS binary) AS value"
    table = spark.range(0, rows, 1, 2).selectExpr("cast(id AS string) AS key", value).cache()
    table.count()
    return table


@contextmanager
def measured(side: Side, rows: int, into: list[OneRun]) -> Iterator[None]:
    server, spark, begin = machine.cpu_seconds(side.pids), spark_seconds(), time.perf_counter()
    yield
    elapsed = time.perf_counter() - begin
    server, spark = machine.cpu_seconds(side.pids) - server, spark_seconds() - spark
    into.append(OneRun(rows / elapsed, server / rows * 1e6, spark / rows * 1e6))


def spark_seconds() -> float:
    """Of all that this process started but servers: the JVM and its workers, those that ended included."""
    return sum(processor_seconds(SERVERS).values())


def write_once(side: Side, table: DataFrame, rows: int, topic: str, into: list[OneRun]) -> None:
    side.create(topic)
    with measured(side, rows, into):
        side.write(table, topic)


def java_batches(side: Rocketline, body: int, seconds: int, scratch: Path, rounds: int) -> list[float]:
    """Microseconds of our broker for a message of Java's batches, round by round; a first one is thrown away."""
    side.create("java")
    load, spent = JavaLoad(0, scratch), []
    SERVERS.add(load.pid)
    settings = {"threads": 2, "batch": JAVA_BATCH, "body": body, "warmup": 0, "seconds": seconds}
    try:
        for _ in range(rounds + 1):
            before = machine.cpu_seconds(side.pids)
            sent = load.run("send", seconds, namesrv=side.namesrv, topic="java", **settings)
            spent.append((machine.cpu_seconds(side.pids) - before) / max(1, sent["acked"]) * 1e6)
    finally:
        load.close()
    return spent[1:]


def stream_once(side: Side, spark: SparkSession, rows: int, topic: str, into: list[OneRun]) -> None:
    with tempfile.TemporaryDirectory() as checkpoint, measured(side, rows, into):
        query = (
            side.stream(spark, topic, -(-rows // BATCHES))
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def trickle_once(side: Side, spark: SparkSession, topic: str, seconds: int, into: list[OneRun]) -> None:
    side.create(topic)
    with tempfile.TemporaryDirectory() as checkpoint, side.trickling(topic):
        query = (
            side.stream(spark, topic, None)
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="1 second")
            .start()
        )
        try:
            deadline = time.monotonic() + READY_TIMEOUT_S
            while sum(progress.numInputRows > 0 for progress in query.recentProgress) < 3:
                if query.exception() is not None or time.monotonic() > deadline:
                    raise SideFailed(f"the stream from {side.label} has no rows: {query.exception()}")
                time.sleep(0.2)
            with measured(side, seconds * TRICKLE_ROWS, into):
                time.sleep(seconds)
        finally:
            query.stop()


def rounds(sides: list[Side], count: int, once: Callable[[Side, int, list[OneRun]], None]) -> dict[str, list[OneRun]]:
    found: dict[str, list[OneRun]] = {side.label: [] for side in sides}
    for number in range(count + 1):
        for side in sides if number % 2 else reversed(sides):
            once(side, number, found[side.label])
    return {label: runs[1:] for label, runs in found.items()}


def figures(found: dict[str, list[OneRun]]) -> dict[str, dict[str, float]]:
    kafka = found["kafka"]
    return {
        label: {
            "rows/s": median(run.rows_s for run in runs),
            "x kafka": median(run.rows_s / other.rows_s for run, other in zip(runs, kafka)),
            "server us/row": median(run.server_us for run in runs),
            "Spark us/row": median(run.spark_us for run in runs),
            "Spark CPU x kafka": median(run.spark_us / max(other.spark_us, 1e-9) for run, other in zip(runs, kafka)),
        }
        for label, runs in found.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--body", type=int, default=BODY_BYTES, help="bytes of a body, but of the trickle")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trickle", type=int, default=TRICKLE_S, help="seconds of a round of the trickle")
    parser.add_argument("--what", type=lambda text: text.split(","), default=["sink", "java", "stream", "trickle"])
    parser.add_argument("--java", type=int, default=10, help="seconds of a round of Java's batches")
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "results" / "spark" / "kafka.json")
    chosen = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="rocketline-kafka-"))
    sides: list[Side] = []
    java: list[float] = []
    try:
        machine.touch_memory()
        ours = Rocketline(scratch)
        sides += [ours]
        sides += [Kafka(scratch)]
        SERVERS.update(pid for side in sides for pid in side.pids)
        spark = session(scratch)
        table, rows = cached_rows(spark, chosen.rows, chosen.body), chosen.rows
        shown = {}
        if "sink" in chosen.what or "stream" in chosen.what:
            shown["sink"] = rounds(
                sides, chosen.rounds, lambda side, number, into: write_once(side, table, rows, f"sink-{number}", into)
            )
        if "java" in chosen.what:
            java = java_batches(ours, chosen.body, chosen.java, scratch, chosen.rounds)
        if "stream" in chosen.what:
            shown["stream"] = rounds(
                sides, chosen.rounds, lambda side, number, into: stream_once(side, spark, rows, f"sink-{number}", into)
            )
        if "trickle" in chosen.what:
            shown["trickle"] = rounds(
                sides,
                chosen.rounds,
                lambda side, number, into: trickle_once(side, spark, f"few-{number}", chosen.trickle, into),
            )
        spark.stop()
    finally:
        for side in sides:
            side.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    for title, found in shown.items():
        show(figures(found), f"{title}: {chosen.rows:,} rows of {chosen.body} bytes")
    if java:
        print(f"batches of Java's client: {median(java):.2f} us of our broker for a message")
    result = {
        "machine": {**machine.describe(ROOT), "spark": pyspark.__version__},
        "rows": chosen.rows,
        "body": chosen.body,
        "loads": {
            title: {label: [asdict(run) for run in runs] for label, runs in found.items()}
            for title, found in shown.items()
        },
        "java_us": java,
    }
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(without_runs(result), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
