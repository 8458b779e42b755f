"""Other servers for comparison: the sends of the raw workloads to redis streams and to NATS JetStream.

`bench/compare.py --peers redis,nats` measures them after the comparison with Apache, in rounds: ours, redis, nats, ours
... Servers come from PATH (`apt-get install redis-server nats-server`); a missing one is left out with a message. All
acknowledge when the operating system has the data: redis with appendfsync everysec, NATS with its file store's default.
They do less per message than a broker: no queues, index or keys. So these figures are for orientation.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import machine
from bench.generators import LoadFailed, RawLoad
from bench.loads import BODY_BYTES, Loads
from bench.redis_side import RedisSide
from bench.results import BenchPlan, MeasuredRun
from bench.server_side import ServerSide
from bench.sides import Side, SideFailed
from bench.workloads import WORKLOADS, Workload

PROGRAMS = {"redis": "redis-server", "nats": "nats-server"}
STREAM = "bench"
NAMES = ("raw-64", "raw-1", "raw-8x32")


class RedisPeer(RedisSide):
    def stored(self) -> int:
        return self.length(STREAM)

    def empty(self) -> None:
        self.call([b"DEL", STREAM.encode()])


class NatsPeer(ServerSide):
    """nats-server with one stream in files."""

    def arguments(self, port: int, directory: Path) -> list[str]:
        return ["--addr", "127.0.0.1", "--port", str(port), "--jetstream", "--store_dir", str(directory)]

    def greet(self) -> None:
        self._ask("STREAM.CREATE", {"name": STREAM, "subjects": [STREAM], "storage": "file"})

    def _ask(self, verb: str, fields: dict[str, Any]) -> dict[str, Any]:
        """One request to the stream's interface."""
        body = json.dumps(fields).encode()
        host, _, port = self.broker.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            head = f'CONNECT {{"verbose":false}}\r\nSUB _A.{os.getpid()} 1\r\nPUB $JS.API.{verb}.{STREAM} _A.{os.getpid()} '
            connection.sendall(head.encode() + b"%d\r\n%b\r\n" % (len(body), body))
            with connection.makefile("rb") as lines:
                for line in lines:
                    if line.startswith(b"MSG "):
                        answer: dict[str, Any] = json.loads(lines.read(int(line.split()[-1])))
                        if "error" in answer:
                            raise SideFailed(f"nats at {self.broker} answered {verb} with {answer['error']}")
                        return answer
        raise OSError(f"nats at {self.broker} closed the connection")

    def stored(self) -> int:
        return int(self._ask("STREAM.INFO", {})["state"]["messages"])

    def empty(self) -> None:
        self._ask("STREAM.PURGE", {})


Peer = RedisPeer | NatsPeer


def peers_named(names: str, core: int, say: Callable[[str], None]) -> list[Peer]:
    """The peers of a comma-separated list that this machine has."""
    found: list[Peer] = []
    for name in names.split(","):
        if name not in PROGRAMS:
            raise ValueError(f"no such peer: {name}; there are {', '.join(PROGRAMS)}")
        program = shutil.which(PROGRAMS[name])
        if program is None:
            say(f"{name} is left out: {PROGRAMS[name]} is not on PATH (apt-get install {PROGRAMS[name]})")
        else:
            found.append((RedisPeer if name == "redis" else NatsPeer)(name, core, program))
    return found


class PeerRounds:
    """Our broker and the peers; only one runs at a time."""

    def __init__(
        self, ours: Side, peers: list[Peer], plan: BenchPlan, scratch: Path, say: Callable[[str], None]
    ) -> None:
        self._ours, self._peers, self._plan, self._scratch, self._say = ours, peers, plan, scratch, say
        self._load = RawLoad(plan.load_core, "peers")
        self._loads = Loads(plan, scratch)
        self.runs: list[MeasuredRun] = []

    def measure(self) -> list[MeasuredRun]:
        workloads = [workload for workload in WORKLOADS if workload.name in NAMES]
        with ExitStack() as stops:
            for side in (self._ours, *self._peers):
                stops.callback(side.stop)
            self._ours.start(self._scratch / "ours-peers")
            self._loads.prepare(self._ours, workloads)
            for peer in self._peers:
                peer.start_empty(self._scratch / peer.label)
            for pair in range(-1, self._plan.pairs):  # the first round warms up
                for workload in workloads:
                    for side in (self._ours, *self._peers):
                        self._measure_run(side, workload, pair)
        return self.runs

    def _awake(self, side: Side) -> None:
        for other in (self._ours, *self._peers):
            if other is not side:
                other.freeze()
        side.thaw()
        time.sleep(self._plan.settle_s)

    def _measure_run(self, side: Side, workload: Workload, pair: int) -> None:
        self._awake(side)
        cpu = machine.cpu_seconds(side.pids())
        try:
            result, void = self._run(side, workload)
        except (LoadFailed, SideFailed, OSError) as error:
            result, void = {"rate": 0.0, "acked": 0}, str(error)
        cpu = machine.cpu_seconds(side.pids()) - cpu
        run = MeasuredRun(
            side=side.label,
            workload=workload.name,
            pair=pair,
            void=void,
            rate=result["rate"],
            p50_us=result.get("p50_us"),
            p99_us=result.get("p99_us"),
            p999_us=result.get("p999_us"),
            max_us=result.get("max_us"),
            cpu_per_million_s=cpu / max(1, result["acked"]) * 1e6,
            details=result,
        )
        said = f"VOID: {void}" if void else f"{run.rate:,.0f} msg/s, {run.cpu_per_million_s:.1f} CPU-s per million"
        self._say(f"peers, {workload.name} {f'round {pair + 1}' if pair >= 0 else 'warm-up'} {side.label}: {said}")
        if pair >= 0:
            self.runs.append(run)

    def _run(self, side: Side, workload: Workload) -> tuple[dict[str, Any], str]:
        seconds, cut_s = self._plan.seconds, self._plan.cut_s
        if not isinstance(side, RedisPeer | NatsPeer):
            before = self._loads.stored(side, workload)
            result = self._loads.run(side, workload, seconds, cut_s)
            return result, self._loads.wrong(side, workload, before, result)
        side.empty()
        result = self._load.run(
            side.broker, "", seconds + cut_s, peer=side.label, topic=STREAM, body=BODY_BYTES, seconds=seconds,
            warmup=cut_s, **workload.options,
        )  # fmt: skip
        if result["errors"] or not result["messages"]:
            return result, f"{result['errors']} failed: {result['first_error']}"
        stored = side.stored()
        return result, "" if stored == result["acked"] else f"{result['acked']} acknowledged, {stored} stored"
