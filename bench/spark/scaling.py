"""Measures whether `audit` and `rebuild` gain from a second core: `python bench/spark/scaling.py [--rows N] [--rounds
R] [--json OUT]`.

One store, sessions of one core and of two in turn, each a process of its own, opened as the commands open them. A
session first runs both jobs on a small store, so that Spark, its workers and their modules are there; the time of a job
includes planning and the driver's part. The store is about as large as one log file of a broker, a gigabyte: a smaller
one needs no second core. Figures are medians; the gain is the median over rounds.

What the machine itself gains from a second core is measured in the same rounds, with plain processes: checksums of a block
that stays in the cache, and the audit's walk over the same store, halved, without Spark. No job can gain more.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.spark.shared_work import KINDS, seconds_of
from bench.spark.sources import SEGMENT_BYTES, fill

from rocketline.broker.config import BrokerConfig
from rocketline.pipelines.audit import audit
from rocketline.pipelines.rebuild import rebuild
from rocketline.settings import load
from rocketline.spark.sessions import open_session
from rocketline.store.tools.folder import StoreFolder
from rocketline.store.tools.inspection import Verdict

SETTINGS, _ = load(BrokerConfig, {"mappedFileSizeCommitLog": str(SEGMENT_BYTES)}, "bench")
WARM_ROWS, WARM_BYTES = 4_000, 128 << 10
SESSION_LIMIT_S = 600


def folder(root: Path) -> StoreFolder:
    return StoreFolder(root / "commitlog", root)


def ignore(text: str) -> None:
    pass


def jobs(cores: int, store: Path, small: Path) -> dict[str, float]:
    """Seconds of each job in a session of so many cores."""
    spent = {}
    with open_session("scaling", f"local[{cores}]", {"spark.driver.memory": "1g"}, tasks_only=True) as spark:
        # The small one in many pieces, so that every core has a worker with all modules loaded.
        for root, stretch_bytes in ((small, WARM_BYTES), (store, None)):
            begin = time.perf_counter()
            report = audit(spark, folder(root), ignore, SETTINGS.store, stretch_bytes)
            spent["audit"] = time.perf_counter() - begin
            if report.verdict is Verdict.DAMAGED:
                raise SystemExit(f"{root}: the audit found damage in a sound store: {report.findings[:3]}")
            begin = time.perf_counter()
            rebuild(spark, folder(root), ignore, SETTINGS, stretch_bytes)
            spent["rebuild"] = time.perf_counter() - begin
    return spent


def in_a_process(cores: int, store: Path, small: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--cores", str(cores), "--store", str(store), "--small", str(small)]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SESSION_LIMIT_S, env=environment)
    if done.returncode:
        raise SystemExit(f"{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured | {name: seconds_of(name, cores, store) for name in KINDS}


def measure(rows: int, body_bytes: int, rounds: int, scratch: Path) -> dict[str, dict[str, float]]:
    store, small = scratch / "store", scratch / "small"
    fill(store, rows, body_bytes)
    fill(small, WARM_ROWS, body_bytes)
    taken = [{cores: in_a_process(cores, store, small) for cores in (1, 2)} for _ in range(rounds)]
    return {
        name: {
            "1 core, s": median(one[1][name] for one in taken),
            "2 cores, s": median(one[2][name] for one in taken),
            "rows/s of 2": rows / median(one[2][name] for one in taken),
            "gain": median(one[1][name] / one[2][name] for one in taken),
        }
        for name in taken[0][1]
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3_200_000)
    parser.add_argument("--body", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--small", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.cores:
        print(json.dumps(jobs(chosen.cores, chosen.store, chosen.small)))
        return 0
    scratch = Path(tempfile.mkdtemp(prefix="rocketline-scaling-"))
    try:
        shown = measure(chosen.rows, chosen.body, chosen.rounds, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for name, values in shown.items():
        print(f"{name:<22}", "  ".join(f"{head} {value:,.2f}" for head, value in values.items()))
    if chosen.json:
        chosen.json.write_text(json.dumps(shown, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
