"""What more rows, queues and workers cost: `python bench/spark/growth.py [--decades 5 6 7] [--queues 1 8 64] [--rounds R]`.

A topic for each number of rows and queues, written by our sink and read by our source (four columns, into `noop`), in
sessions of one task at a time and of two. A session first does both on a small topic. Printed and written to
`bench/results/spark/growth.json`: seconds for a million rows, by what is done, rows, queues and workers; how much longer a
million takes than with a tenth of the rows (flat is 1.0); how many times as fast two workers are. Medians over rounds.

Every session is a process of its own, so that one does not warm up the other; the broker is another process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyspark
from bench import machine
from bench.page import without_runs
from bench.spark.against_kafka import Rocketline
from tests.support.admin import create_topic

from rocketline.spark.sessions import open_session

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "bench" / "results" / "spark" / "growth.json"
BODY = "x" * 128
WARM_ROWS = 2_000
SESSION_LIMIT_S = 3600
READ = "queueId int, queueOffset bigint, keys string, body binary"


def seconds_of(namesrv: str, broker: str, name: str, rows: int, queues: int, workers: int) -> dict[str, float]:
    """Seconds of writing a topic and of reading it, in a session of so many workers."""
    with open_session("growth", f"local[{workers}]", {"spark.driver.memory": "2g"}) as spark:
        spent: dict[str, float] = {}
        for topic, count in ((f"{name}_warm", WARM_ROWS), (name, rows)):
            create_topic(broker, topic, queues)
            table = spark.range(0, count, 1, workers).selectExpr(f"'{BODY}' AS body", "CAST(id AS string) AS keys")
            begin = time.perf_counter()
            table.write.format("rocketmq").options(namesrv=namesrv, topic=topic).mode("append").save()
            spent["write"] = time.perf_counter() - begin
            reader = spark.read.format("rocketmq").schema(READ).options(namesrv=namesrv, subscribe=topic)
            begin = time.perf_counter()
            # One queue is one task unless it is split.
            reader.option("minPartitions", str(workers)).load().write.format("noop").mode("overwrite").save()
            spent["read"] = time.perf_counter() - begin
    return spent


def in_a_process(arguments: list[str]) -> dict[str, float]:
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, __file__, "--one", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SESSION_LIMIT_S, env=environment)
    if done.returncode:
        raise SystemExit(f"{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def measure(rows: list[int], queues: list[int], rounds: int, scratch: Path) -> list[dict[str, Any]]:
    """A line for what is done, rows, queues and workers: seconds for a million rows."""
    taken: dict[tuple[str, int, int, int], list[float]] = {}
    for number in range(rounds):
        for count in rows:
            for wide in queues:
                # A broker for each: what is stored before must not slow down what comes after.
                folder = scratch / f"{number}-{count}-{wide}"
                folder.mkdir()
                server = Rocketline(folder)
                try:
                    for workers in (1, 2):
                        arguments = [server.namesrv, server.broker, f"G{workers}", str(count), str(wide), str(workers)]
                        for work, seconds in in_a_process(arguments).items():
                            taken.setdefault((work, count, wide, workers), []).append(seconds * 1e6 / count)
                finally:
                    server.stop()
                    shutil.rmtree(folder, ignore_errors=True)
    million = {key: median(each) for key, each in taken.items()}
    return [
        {
            "work": work, "rows": count, "queues": wide, "workers": workers, "seconds_per_million": seconds,
            "to_a_tenth": seconds / before if (before := million.get((work, count // 10, wide, workers))) else None,
            "gain_of_two": million[work, count, wide, 1] / seconds if workers == 2 else None,
        }
        for (work, count, wide, workers), seconds in sorted(million.items())
    ]  # fmt: skip


def show(lines: list[dict[str, Any]]) -> None:
    print(f"{'work':<6} {'rows':>12} {'queues':>6} {'workers':>7} {'s/million':>10} {'to a tenth':>10} {'of two':>7}")
    for line in lines:
        ratios = [f"{line[name]:.2f}" if line[name] else "" for name in ("to_a_tenth", "gain_of_two")]
        print(
            f"{line['work']:<6} {line['rows']:>12,} {line['queues']:>6} {line['workers']:>7} "
            f"{line['seconds_per_million']:>10.2f} {ratios[0]:>10} {ratios[1]:>7}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decades", type=int, nargs="+", default=[5, 6, 7], help="5 is a hundred thousand rows")
    parser.add_argument("--queues", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=RESULT)
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        namesrv, broker, name, rows, queues, workers = chosen.one
        print(json.dumps(seconds_of(namesrv, broker, name, int(rows), int(queues), int(workers))))
        return 0
    scratch = Path(tempfile.mkdtemp(prefix="rocketline-growth-"))
    try:
        lines = measure([10**decade for decade in chosen.decades], chosen.queues, chosen.rounds, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    show(lines)
    result = {"machine": {**machine.describe(ROOT), "spark": pyspark.__version__}, "lines": lines}
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(without_runs(result), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
