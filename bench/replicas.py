"""A master with its replica as one thing that is measured: started, frozen and stopped together."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from bench import machine, wire
from bench.sides import APACHE_VERSION, PATIENCE, Side, SideFailed
from tests.support.apache import AS_SHIPPED, QUICK_START, ApacheCluster, request

HA_STATUS = 907
POLL_S = 0.01
PATIENCE_S = 120.0
FROZEN = {"haHousekeepingInterval": "600000"}
"""Who was frozen was not silent."""


class Replica(ABC):
    """A replica that can be started beside a side."""

    @abstractmethod
    def start(self, side: Side, directory: Path) -> None:
        """On a fresh directory."""

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def pids(self) -> list[int]: ...


class OurReplica(Replica):
    def __init__(self, core: int) -> None:
        self._core = core
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, side: Side, directory: Path) -> None:
        settings = FROZEN | {
            "brokerName": side.broker_name,
            "brokerId": "1",
            "brokerRole": "SLAVE",
            "metricsPromExporterPort": "0",
        }
        command = ["taskset", "-c", str(self._core), str(Path(sys.executable).parent / "rocketline"), "broker"]
        command += ["-n", side.namesrv, "--data", str(directory), "--port", "0"]
        command += [word for pair in settings.items() for word in ("--set", "=".join(pair))]
        with directory.with_suffix(".log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pids(self) -> list[int]:
        return machine.process_tree(self._process.pid) if self._process else []


class ApacheReplica(Replica):
    def __init__(self, core: int, heap_mb: int, quick: bool) -> None:
        self._core, self._heap_mb, self._quick = core, heap_mb, quick
        self._cluster: ApacheCluster | None = None

    def start(self, side: Side, directory: Path) -> None:
        self._cluster = ApacheCluster(
            directory,
            version=APACHE_VERSION,
            broker_conf=PATIENCE | FROZEN | {"brokerName": side.broker_name, "brokerId": "1", "brokerRole": "SLAVE"},
            heap_mb=self._heap_mb,
            cpu=self._core,
            namesrv=False,
            namesrv_addr=side.namesrv,
            apache_defaults=not self._quick,
            jvm_options=QUICK_START if self._quick else AS_SHIPPED,
        )
        self._cluster.start()

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.kill()
            self._cluster = None

    def pids(self) -> list[int]:
        return list(self._cluster.pids.values()) if self._cluster else []


class Group:
    """A master with its name server, and a replica beside it unless it is to be alone."""

    def __init__(self, label: str, master: Side, replica: Replica | None) -> None:
        self.label, self.master, self.replica = label, master, replica

    def start(self, directory: Path, topics: Mapping[str, int]) -> None:
        """Start both, with these topics (and their numbers of queues), and wait until the replica has everything."""
        self.master.launch(directory)
        if self.replica is not None:
            self.start_replica(directory.with_name(f"{directory.name}-replica"))
            self.await_replica()
        for topic, queues in topics.items():
            wire.create_topic(self.master.namesrv, self.master.broker, topic, queues)

    def start_replica(self, directory: Path) -> None:
        assert self.replica is not None
        directory.parent.mkdir(parents=True, exist_ok=True)
        self.replica.start(self.master, directory)

    def stop_replica(self) -> None:
        """Kill it, and wait until the master has noticed."""
        assert self.replica is not None
        self.replica.stop()
        limit = time.monotonic() + PATIENCE_S
        while b'"slaveAckOffset"' in request(self.master.broker, HA_STATUS):
            self._require_time(limit)

    def stop(self) -> None:
        if self.replica is not None:
            self.replica.stop()
        self.master.stop()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in [*self.master.pids(), *(self.replica.pids() if self.replica else ())]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def progress(self) -> tuple[int, int] | None:
        """(end that the replica reported, bytes it lacks); None: it has reported nothing yet."""
        answer = request(self.master.broker, HA_STATUS)
        end, behind = re.search(rb'"slaveAckOffset":(\d+)', answer), re.search(rb'"diff":(-?\d+)', answer)
        if not end or not behind or (int(end[1]) == 0 < int(behind[1])):
            return None
        return int(end[1]), int(behind[1])

    def await_replica(self) -> tuple[int, float]:
        """Wait until the replica has everything. How many bytes came since the first report that was seen, and in what time:
        no start of a process is in it."""
        if self.replica is None:
            return 0, 0.0
        limit = time.monotonic() + PATIENCE_S
        while (first := self.progress()) is None:
            self._require_time(limit)
        began = time.monotonic()
        found: tuple[int, int] | None = first
        while found is None or found[1] > 0:
            self._require_time(limit)
            found = self.progress()
        return found[0] - first[0], time.monotonic() - began

    def _require_time(self, limit: float) -> None:
        if time.monotonic() > limit:
            raise SideFailed(f"{self.label}: the replica does not come: (end, bytes it lacks) {self.progress()}")
        time.sleep(POLL_S)
