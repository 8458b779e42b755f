"""One comparison from start to end: starts, warm-up, interleaved runs, and the checks that make a run count.

Rules kept here (bench/README.md says why):

* Only one side is awake at a time; the other is frozen.
* A run is void unless no send failed and the topic's offsets grew by exactly what was acknowledged, or unless
  every message of the backlog was read. Processor time is read after that check, so the dispatch to the consume
  queues, done after the acknowledgement, is counted.
* Pairs are A B A B; a ratio is only ever taken inside a pair. A pair with a void run is repeated and stays in the
  report.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import machine, wire
from bench.generators import JavaLoad, LoadFailed, RawLoad
from bench.results import BACKLOG_BATCH, Plan, Rest, Run, Start
from bench.sides import Side
from bench.workloads import Kind, Workload

SEND_TOPIC = "bench-send"
BACKLOG_TOPIC = "bench-backlog"
BODY_BYTES = 128
NOISY_CORES = 0.15  # used by others: above this a run is called disturbed
CALM_SAMPLE_S = 0.5
VOID_PAIRS_ALLOWED = 2  # per workload
DISPATCH_TIMEOUT_S = 30.0
DISPATCH_PAUSE_S = 0.1  # no growth for so long: nothing is being dispatched
WARM_SLICE_S = 5.0
WARM_PATIENCE = 3  # times the planned slices, at most


class Comparison:
    """Holds the two sides and the generators for the time of a comparison; `say` is told what happens."""

    def __init__(self, sides: list[Side], plan: Plan, scratch: Path, say: Callable[[str], None]) -> None:
        self.sides = sides
        self.plan = plan
        self.scratch = scratch
        self.say = say
        self.starts: list[Start] = []
        self.runs: list[Run] = []
        self.rests: list[Rest] = []
        self.warmth: dict[str, list[float]] = {side.label: [] for side in sides}
        self.warm_cpu_s = {side.label: 0.0 for side in sides}
        self._raw = RawLoad(plan.load_core)
        self._java: JavaLoad | None = None
        self._groups = 0

    def measure(self, workloads: list[Workload]) -> None:
        """Fills `starts`, `warmth`, `runs` and `rests`; ends every process it started, whatever happens."""
        with ExitStack() as cleanup:
            cleanup.callback(self._close)
            self._measure_starts()
            for side in self.sides:
                self._awake(side)
                self._prepare(side, workloads)
            self._warm(workloads)
            for workload in workloads:
                self._measure_pairs(workload)
            for side in self.sides:
                self._measure_rest(side)

    def _close(self) -> None:
        with ExitStack() as each:  # one that does not stop must not keep the next from being stopped
            for side in self.sides:
                each.callback(side.stop)
            if self._java:
                each.callback(self._java.close)

    def _awake(self, side: Side) -> None:
        if self.plan.freeze:
            for other in self.sides:
                if other is not side:
                    other.freeze()
            side.thaw()
            time.sleep(self.plan.settle_s)

    def _await_calm(self) -> None:
        if not self.plan.freeze:
            return
        for side in self.sides:
            side.freeze()
        deadline = time.monotonic() + self.plan.calm_s
        while time.monotonic() < deadline and machine.busy_cores(CALM_SAMPLE_S) > NOISY_CORES:
            pass

    def _measure_starts(self) -> None:
        for attempt in range(self.plan.starts):
            for side in self.sides:
                directory = self.scratch / f"{side.label}-{attempt}"
                times = side.start(directory)
                time.sleep(self.plan.idle_s)
                idle = machine.memory(side.pids())
                self.starts.append(Start(side.label, times.ready_s, times.first_ack_s, idle.rss, idle.anonymous))
                self.say(
                    f"{side.label}: ready in {times.ready_s:.2f} s, first ack after {times.first_ack_s:.2f} s, "
                    f"idle {idle.rss / 2**20:.0f} MiB"
                )
                if attempt < self.plan.starts - 1:
                    side.stop()
                    shutil.rmtree(directory)
                elif self.plan.freeze:
                    side.freeze()

    def _measure_rest(self, side: Side) -> None:
        self._awake(side)
        time.sleep(self.plan.idle_s)  # for what the freeze has held up
        before = machine.cpu_seconds(side.pids())
        time.sleep(self.plan.idle_s)
        cpu = (machine.cpu_seconds(side.pids()) - before) / self.plan.idle_s
        memory = machine.memory(side.pids())
        self.rests.append(Rest(side.label, cpu, memory.rss, memory.anonymous))

    def _prepare(self, side: Side, workloads: list[Workload]) -> None:
        wire.create_topic(side.namesrv, side.broker, SEND_TOPIC, self.plan.queues)
        if not any(workload.kind.reads for workload in workloads):
            return
        wire.create_topic(side.namesrv, side.broker, BACKLOG_TOPIC, self.plan.queues)
        options = {"connections": 8, "batch": BACKLOG_BATCH, "count": self.plan.backlog}
        filled = self._raw.run(
            side.broker, side.broker_name, 600, topic=BACKLOG_TOPIC, queues=self.plan.queues, **options
        )
        wrong = self._check_stored(side, BACKLOG_TOPIC, 0, filled)
        if wrong:
            raise LoadFailed(f"the backlog of {side.label} could not be filled: {wrong}")

    def _warm(self, workloads: list[Workload]) -> None:
        """Half of the time on the first workload, in slices whose rates show whether a side got warm.

        The sides take turns slice by slice: one frozen for minutes would lose its registration. A slice in which a
        neighbour had the core warms nothing, so more of them follow until the servers have had their processor time.
        """
        share = self.plan.warmup_s / 2 if len(workloads) > 1 else self.plan.warmup_s
        slices = max(2, round(share / WARM_SLICE_S))
        for turn in range(slices * WARM_PATIENCE):
            for side in self.sides:
                if turn < slices or self.warm_cpu_s[side.label] < share * 0.8:
                    self._warm_slice(side, workloads[0], share / slices)
        for workload in workloads[1:]:
            for side in self.sides:
                self._awake(side)
                self._load(side, workload, share / len(workloads[1:]), 0.0)
        for side in self.sides:
            rates = self.warmth[side.label]
            self.say(f"{side.label}: warm-up took {workloads[0].name} from {rates[0]:,.0f} to {rates[-1]:,.0f} msg/s")

    def _warm_slice(self, side: Side, workload: Workload, seconds: float) -> None:
        self._awake(side)
        before = machine.cpu_seconds(side.pids())
        self.warmth[side.label].append(self._load(side, workload, seconds, 0.0)["rate"])
        self.warm_cpu_s[side.label] += machine.cpu_seconds(side.pids()) - before

    def _measure_pairs(self, workload: Workload) -> None:
        """As many whole pairs as planned; a pair with a void run is measured again, but not for ever."""
        whole = 0
        for pair in range(self.plan.pairs + VOID_PAIRS_ALLOWED):
            runs = [self._measure_run(side, workload, pair) for side in self.sides]
            whole += not any(run.void for run in runs)
            if whole == self.plan.pairs:
                return

    def _measure_run(self, side: Side, workload: Workload, pair: int) -> Run:
        self._await_calm()
        self._awake(side)
        wire.await_route(side.namesrv, SEND_TOPIC)
        fsync, memcpy = machine.fsync_p50_us(self.scratch), machine.memcpy_gb_per_s()
        try:
            run = self._one_run(side, workload, pair, fsync, memcpy)
        except (LoadFailed, wire.WireError) as error:
            run = Run(side.label, workload.name, pair, void=str(error))
        self.runs.append(run)
        figures = f"{run.rate:,.0f} msg/s, {run.cpu_per_million_s:.1f} CPU-s per million"
        self.say(f"{workload.name} pair {pair + 1} {side.label}: " + (f"VOID: {run.void}" if run.void else figures))
        return run

    def _one_run(self, side: Side, workload: Workload, pair: int, fsync: float, memcpy: float) -> Run:
        pids = side.pids()
        stored = self._settled_messages(side)
        began, cpu, busy = time.monotonic(), machine.cpu_seconds(pids), machine.busy_seconds()
        result = self._load(side, workload, self.plan.seconds, self.plan.cut_s)
        loaded = time.monotonic() - began
        void = "" if workload.kind.reads else self._check_stored(side, SEND_TOPIC, stored, result)
        if result["errors"] or not result["messages"]:
            void = f"{result['errors']} failed: {result['first_error']}"
        took = time.monotonic() - began
        cpu = machine.cpu_seconds(pids) - cpu
        others = machine.busy_seconds() - busy - cpu - result["load_cpu_s"]
        memory = machine.memory(pids)
        return Run(
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
            server_busy=cpu / took,
            load_busy=result["load_cpu_s"] / loaded,
            others_busy=max(0.0, others / took),
            rss=memory.rss,
            anonymous=memory.anonymous,
            fsync_p50_us=fsync,
            memcpy_gb_s=memcpy,
            details=result,
        )

    def _settled_messages(self, side: Side) -> int:
        """What is stored once the broker has dispatched all it has: a void run may have left some behind."""
        deadline = time.monotonic() + DISPATCH_TIMEOUT_S
        stored = wire.stored_messages(side.broker, SEND_TOPIC, self.plan.queues)
        while time.monotonic() < deadline:
            time.sleep(DISPATCH_PAUSE_S)
            before, stored = stored, wire.stored_messages(side.broker, SEND_TOPIC, self.plan.queues)
            if stored == before:
                return stored
        raise LoadFailed(f"{side.label} still stores messages {DISPATCH_TIMEOUT_S:.0f} s after the last send")

    def _check_stored(self, side: Side, topic: str, before: int, result: dict[str, Any]) -> str:
        """Wait until consumers could read what was acknowledged; says what is wrong, or nothing."""
        wanted = before + int(result["acked"])
        deadline = time.monotonic() + DISPATCH_TIMEOUT_S
        while True:
            stored = wire.stored_messages(side.broker, topic, self.plan.queues)
            if stored == wanted and not result["errors"]:
                return ""
            if stored > wanted or time.monotonic() > deadline or result["errors"]:
                return (
                    f"{result['acked']} acknowledged, {result['errors']} failed, but the offsets of {topic} "
                    f"grew by {stored - before} {result['first_error']}"
                )
            time.sleep(0.02)

    def _load(self, side: Side, workload: Workload, seconds: float, cut_s: float) -> dict[str, Any]:
        if workload.kind.is_java:
            return self._java_load(side, workload, seconds, cut_s)
        topic = BACKLOG_TOPIC if workload.kind is Kind.RAW_PULL else SEND_TOPIC
        options: dict[str, Any] = {"body": BODY_BYTES, **workload.options, "topic": topic, "seconds": seconds}
        if workload.kind is Kind.RAW_PULL:
            options["mode"] = "pull"
        return self._raw.run(
            side.broker, side.broker_name, seconds + cut_s, queues=self.plan.queues, warmup=cut_s, **options
        )

    def _java_load(self, side: Side, workload: Workload, seconds: float, cut_s: float) -> dict[str, Any]:
        if self._java is None:
            self._java = JavaLoad(self.plan.load_core, self.scratch)
        settings: dict[str, Any] = {"namesrv": side.namesrv, **workload.options}
        if workload.kind is Kind.JAVA_PUSH:
            self._groups += 1  # a group that has never read starts at the beginning
            settings |= {"topic": BACKLOG_TOPIC, "group": f"bench_push_{self._groups}", "timeout": 120}
            settings |= {"expected": self.plan.backlog, "skip": self.plan.backlog // 10}
            return self._java.run("push", 120, **settings)
        settings |= {"topic": SEND_TOPIC, "body": BODY_BYTES, "seconds": seconds, "warmup": cut_s}
        return self._java.run("send", seconds + cut_s, **settings)

    def as_dict(self) -> dict[str, Any]:
        return {
            "plan": asdict(self.plan),
            "starts": [asdict(start) for start in self.starts],
            "warmth": self.warmth,
            "warm_cpu_s": self.warm_cpu_s,
            "rests": [asdict(rest) for rest in self.rests],
            "runs": [asdict(run) for run in self.runs],
        }
