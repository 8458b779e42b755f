"""Tables of topics while their job, its JVM, its executors and their Python workers are killed at random points.

    python -m tests.spark.soak --variant merge --seed 7 --runs 2

A run: messages come, a job is started and one of its processes is killed, again and again; then a job runs to its end, and
`audit-table` compares the table with the log. Everything is done by the command line, as a user does it.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.crash.outcome import Outcome
from tests.spark.clusters import as_conf, quick, worker_python
from tests.spark.conftest import ROOT
from tests.spark.live import send
from tests.support.admin import create_topic
from tests.support.delta import delta_environment, delta_jars
from tests.support.patience import PATIENCE_S

from rocketline.testing import LocalCluster

SCENARIO = "T1"
VARIANTS = ("parquet", "delta", "iceberg", "merge")
"""The last one has the latest row of each key, in Iceberg."""
KILLS = 3
KEYS = 40
TOPIC = "orders"
MASTERS = ("local[2]", "local-cluster[2,1,512]")
_MARKS = (
    ("executor", "CoarseGrainedExecutorBackend"),
    ("worker", "pyspark.daemon"),
    ("worker", "early_worker.py"),
    ("JVM", "org.apache.spark.deploy.SparkSubmit"),
)


@dataclass
class Run:
    """One table of one topic, and the random choices of its life."""

    namesrv: str
    folder: Path
    variant: str
    choose: random.Random
    outcome: Outcome
    sent: int = 0

    def live(self) -> None:
        for _ in range(KILLS):
            self.send(self.choose.randrange(40, 160))
            self.kill_one()
        self.send(10)
        code, said = self.command("table", *self.kind, "--per-batch", "60")
        self.outcome.require(code == 0, f"the job that was left alone failed: {said[-500:]}")
        code, said = self.command("audit-table")
        self.outcome.require(code == 0, f"the audit found a difference: {said[-1000:]}")
        self.outcome.acked += self.sent

    def send(self, count: int) -> None:
        """Some of them are no JSON."""
        bodies = []
        for _ in range(count):
            self.sent += 1
            body = b'{"id": %d, "v": %d}' % (self.choose.randrange(KEYS), self.sent)
            bodies.append(body if self.choose.random() < 0.95 else body[:-1])
        send(self.namesrv, TOPIC, bodies)

    @property
    def table_format(self) -> str:
        return "iceberg" if self.variant == "merge" else self.variant

    @property
    def kind(self) -> list[str]:
        merging = ["--merge-key", "id"] if self.variant == "merge" else []
        return ["--body", "json", "--schema", "id int, v int", *merging]

    def kill_one(self) -> None:
        """Begin a job, and kill one of its processes after one of its batches began."""
        master = self.choose.choice(MASTERS)
        batch = self.choose.randrange(1, 4)
        log = self.folder / "job.log"
        with (
            log.open("wb") as file,
            self._started("table", *self.kind, "--per-batch", "20", master=master, to=file) as job,
        ):
            while job.poll() is None and len(re.findall(rb": batch \d+, ", log.read_bytes())) < batch:
                time.sleep(0.05)
            time.sleep(self.choose.random() * 1.5)
            if job.poll() is not None:
                return
            victims = {process: name for process, name in processes_of(job.pid).items() if name != "other"}
            name = self.choose.choice(sorted(set(victims.values())))
            with suppress(ProcessLookupError):
                os.kill(
                    self.choose.choice([process for process in victims if victims[process] == name]), signal.SIGKILL
                )
            self.outcome.note(f"killed: {name}", 1)
            with suppress(subprocess.TimeoutExpired):  # a job goes on without an executor
                job.wait(self.choose.random() * 20)

    def command(self, *arguments: str) -> tuple[int, str]:
        log = self.folder / "command.log"
        with log.open("wb") as file, self._started(*arguments, to=file) as job:
            code = job.wait(PATIENCE_S)
        return code, log.read_text(errors="replace")

    @contextmanager
    def _started(
        self, name: str, *more: str, to: object, master: str = "local[2]"
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A command as a process group, which ends with the context."""
        settings = {**quick(), "spark.driver.memory": "700m", "spark.executor.memory": "512m", **self._delta()}
        command = [
            sys.executable, "-m", "rocketline", "pipeline", name, str(self.folder / "lake"), "--namesrv", self.namesrv,
            "--topic", TOPIC, "--format", self.table_format, "--master", master, *more, *as_conf(settings),
        ]  # fmt: skip
        job = subprocess.Popen(
            command, env=self._environment(), stdin=subprocess.DEVNULL, stdout=to, stderr=to, start_new_session=True
        )  # type: ignore[call-overload]
        try:
            yield job
        finally:
            while left := processes_of(job.pid):
                for process in left:
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                job.poll()
                time.sleep(0.01)
            job.wait()

    def _delta(self) -> dict[str, str]:
        if self.variant != "delta":
            return {}
        return {"spark.jars": delta_jars(), "spark.databricks.delta.snapshotPartitions": "1"}

    def _environment(self) -> Mapping[str, str]:
        if self.variant == "delta":
            return {**delta_environment(), "SPARK_LOCAL_IP": "127.0.0.1"}
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        return {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": worker_python(), "SPARK_LOCAL_IP": "127.0.0.1"}


def processes_of(session: int) -> dict[int, str]:
    """The processes of a job, with what they are. They all stay in the session in which it began."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            stat = (path / "stat").read_text()
            state, _, _, of = stat[stat.rindex(")") + 2 :].split()[:4]
            if int(of) == session and state != "Z":
                text = (path / "cmdline").read_text(errors="replace")
                names = [name for name, mark in _MARKS if mark in text]
                found[int(path.name)] = "driver" if int(path.name) == session else names[0] if names else "other"
    return found


def run(folder: Path, seed: int, variant: str, runs: int) -> Outcome:
    outcome = Outcome(SCENARIO, variant, seed)
    for number in range(runs):
        place = folder / str(number)
        place.mkdir(parents=True)
        with LocalCluster() as cluster:
            create_topic(cluster.brokers[0].address, TOPIC, 2)
            Run(cluster.namesrv, place, variant, random.Random(f"{seed} {number}"), outcome).live()
        outcome.runs += 1
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.soak", description=__doc__)
    parser.add_argument("--variant", action="append", choices=VARIANTS, help="repeatable; all of them otherwise")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1, help="of each variant")
    options = parser.parse_args()
    failed = False
    for variant in options.variant or VARIANTS:
        with tempfile.TemporaryDirectory(prefix="rocketline-tables-", ignore_cleanup_errors=True) as folder:
            outcome = run(Path(folder), options.seed, variant, options.runs)
        kills = ", ".join(
            f"{name.removeprefix('killed: ')} {len(each)}" for name, each in sorted(outcome.notes.items())
        )
        print(f"{outcome}; killed: {kills}", flush=True)
        failed |= bool(outcome.violations)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
