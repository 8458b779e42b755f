"""Runs one comparison: starts, warm-up, interleaved runs, and the check whether a run counts.

Rules (bench/README.md has the reasons):

* Only one side runs at a time; the other is frozen.
* A run is void if `Loads.wrong` finds a problem. CPU time is read after that check, so that the dispatch to the consume
queues,
  which is done after the acknowledgement, is counted.
* Pairs are A B A B; a ratio is only ever taken inside a pair. A pair with a void run is repeated and stays in the
  report.
* Workloads with sync flush have brokers of their own, started after the others have ended.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import cold, machine, recovery, stored, wire
from bench.generators import LoadFailed
from bench.loads import DISPATCH_PAUSE_S, SEND_TOPIC, Loads
from bench.results import BenchPlan, MeasuredRun, RecoveryTime, Rest, Start
from bench.sides import Side
from bench.workloads import WORKLOADS, FlushKind, Workload, families

NOISY_CORES = 0.15  # used by others: above this a run counts as disturbed
CALM_SAMPLE_S = 0.5
VOID_PAIRS_ALLOWED = 2  # per workload
WARM_SLICE_S = 5.0
WARM_PATIENCE = 3  # at most so many times the planned slices
WARM_LEAST = 30  # every workload gets at least this fraction (1/30) of the warm-up


class Comparison:
    """The two sides and the generators of a comparison; `say` is called with a line for each event.

    `make_sides` returns two sides for a kind of flush; `sides` are those that run at the moment.
    """

    def __init__(
        self, make_sides: Callable[[FlushKind], list[Side]], plan: BenchPlan, scratch: Path, say: Callable[[str], None]
    ) -> None:
        self._make_sides = make_sides
        self.sides = make_sides(FlushKind.ASYNC)
        self.labels = [side.label for side in self.sides]
        self.plan = plan
        self.scratch = scratch
        self.say = say
        self.starts: list[Start] = []
        self.runs: list[MeasuredRun] = []
        self.rests: list[Rest] = []
        self.recoveries: list[RecoveryTime] = []
        self.stored_runs: list[MeasuredRun] = []  # of our side alone, with more and more stored
        self.peer_runs: list[MeasuredRun] = []  # of other servers; see bench/peers.py
        self.warmth: dict[str, list[float]] = {label: [] for label in self.labels}
        self.warm_cpu_s = dict.fromkeys(self.labels, 0.0)
        self._loads = Loads(plan, scratch)

    def measure(self, workloads: list[Workload]) -> None:
        """Fill `starts`, `warmth`, `runs`, `rests` and `recoveries`; always stops what it started."""
        with ExitStack() as cleanup:
            cleanup.callback(self._loads.close)
            for flush in FlushKind:
                chosen = [workload for workload in workloads if workload.flush is flush]
                if chosen:
                    self._measure_phase(flush, chosen)
            if self.plan.recoveries:
                self.sides = self._make_sides(FlushKind.ASYNC)
                self.recoveries += recovery.recoveries(self.sides, self._loads, self.scratch, self.say)
            if self.plan.stored:
                ours = [self._make_sides(FlushKind.ASYNC)[0] for _ in self.plan.stored]
                self.stored_runs += stored.costs(ours, self._loads, self.scratch, self.say)

    def _measure_phase(self, flush: FlushKind, workloads: list[Workload]) -> None:
        self.sides = self._make_sides(flush)
        with ExitStack() as cleanup:
            for side in self.sides:  # if one does not stop, the other must still be stopped
                cleanup.callback(shutil.rmtree, self.scratch / _folder(side, flush), ignore_errors=True)
                cleanup.callback(side.stop)
            if flush is FlushKind.ASYNC and not self.starts:
                self._measure_starts(flush)
            else:
                self._start(flush)
            for side in self.sides:
                self._awake(side)
                self._loads.prepare(side, workloads)
            self._warm(workloads)
            # Reading first: brokers return fewer messages at a time far from the end of the log, and the faster side would
            # have moved its end further by storing more messages in the other runs.
            for family in sorted(families(workloads), key=lambda family: not family[0].kind.reads):
                self._measure_pairs(family)
            if flush is FlushKind.ASYNC:
                for side in self.sides:
                    self._measure_rest(side)

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

    def _start(self, flush: FlushKind) -> None:
        for side in self.sides:
            times = side.start(self.scratch / _folder(side, flush))
            self.say(f"{side.label} ({flush.value} flush): first ack after {times.first_ack_s:.2f} s")
            if self.plan.freeze:
                side.freeze()

    def _measure_starts(self, flush: FlushKind) -> None:
        for attempt in range(self.plan.starts):
            for side in self.sides:
                directory = self.scratch / _folder(side, flush)
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
        time.sleep(self.plan.idle_s)  # for work delayed by the freeze
        before = machine.cpu_seconds(side.pids())
        time.sleep(self.plan.idle_s)
        cpu = (machine.cpu_seconds(side.pids()) - before) / self.plan.idle_s
        memory = machine.memory(side.pids())
        self.rests.append(Rest(side.label, cpu, memory.rss, memory.anonymous))

    def _warm(self, workloads: list[Workload]) -> None:
        """Warm both sides up: half of the time with the first workload, in slices whose rates show the progress.

        The sides take turns slice by slice: one frozen for minutes would lose its registration. If a neighbour used the
        core during slices, more follow until the servers have had their CPU time.
        """
        # Workloads with many topics send like raw-open-5k, and get their topics later.
        first, *others = [workload for workload in workloads if workload.topics == 1] or [WORKLOADS[0]]
        share = self.plan.warmup_s / 2 if others else self.plan.warmup_s
        slices = max(2, round(share / WARM_SLICE_S))
        # Brokers that wait for the disk never use all of their core.
        patience = WARM_PATIENCE if first.flush is FlushKind.ASYNC else 1
        rates: dict[str, list[float]] = {label: [] for label in self.labels}
        had = dict(self.warm_cpu_s)
        for turn in range(slices * patience):
            for side in self.sides:
                if turn < slices or self.warm_cpu_s[side.label] - had[side.label] < share * 0.8:
                    rates[side.label].append(self._warm_slice(side, first, share / slices))
        for workload in others:
            for side in self.sides:
                self._awake(side)
                self._loads.run(side, workload, max(share / len(others), self.plan.warmup_s / WARM_LEAST), 0.0)
        for label, seen in rates.items():
            self.say(f"{label}: warm-up took {first.name} from {seen[0]:,.0f} to {seen[-1]:,.0f} msg/s")
        if not any(self.warmth.values()):
            self.warmth = rates

    def _warm_slice(self, side: Side, workload: Workload, seconds: float) -> float:
        self._awake(side)
        before = machine.cpu_seconds(side.pids())
        rate = float(self._loads.run(side, workload, seconds, 0.0)["rate"])
        self.warm_cpu_s[side.label] += machine.cpu_seconds(side.pids()) - before
        return rate

    def _measure_pairs(self, family: list[Workload]) -> None:
        """Measure the planned number of whole pairs; a pair with a void run is repeated, but not for ever."""
        for workload in family:
            self._make_topics(workload)
        whole = dict.fromkeys([workload.name for workload in family], 0)
        for pair in range(self.plan.pairs + VOID_PAIRS_ALLOWED):
            for workload in family:
                if whole[workload.name] < self.plan.pairs:
                    runs = [self._measure_run(side, workload, pair) for side in self.sides]
                    whole[workload.name] += not any(run.void for run in runs)

    def _make_topics(self, workload: Workload) -> None:
        """Create topics only when needed, so that earlier workloads run without them."""
        if workload.topics > 1:
            for side in self.sides:
                self._awake(side)
                self._loads.make_topics(side, workload)
                self._loads.run(side, workload, self.plan.seconds / 2, 0.0)

    def _measure_run(self, side: Side, workload: Workload, pair: int) -> MeasuredRun:
        self._await_calm()
        self._awake(side)
        wire.await_route(side.namesrv, SEND_TOPIC)
        fsync, memcpy = machine.fsync_p50_us(self.scratch), machine.memcpy_gb_per_s()
        try:
            run = self._one_run(side, workload, pair, fsync, memcpy)
        except (LoadFailed, wire.WireError, cold.ColdFailed) as error:
            run = MeasuredRun(side.label, workload.name, pair, void=str(error))
        self.runs.append(run)
        figures = f"{run.rate:,.0f} msg/s, {run.cpu_per_million_s:.1f} CPU-s per million"
        self.say(f"{workload.name} pair {pair + 1} {side.label}: " + (f"VOID: {run.void}" if run.void else figures))
        return run

    def _one_run(self, side: Side, workload: Workload, pair: int, fsync: float, memcpy: float) -> MeasuredRun:
        pids = side.pids()
        before = 0 if workload.backlog else self._loads.stored(side, workload)
        warm_share = cold.put_out_of_memory(pids, side.directory) if workload.cold else None
        flushes = machine.disk_flushes(self.scratch)
        began, cpu, busy = time.monotonic(), machine.cpu_seconds(pids), machine.busy_seconds()
        result = self._loads.run(side, workload, self.plan.seconds, self.plan.cut_s)
        loaded = time.monotonic() - began
        void = "" if workload.topics > 1 else self._loads.wrong(side, workload, before, result)
        if workload.topics > 1:  # checking thousands of queues would change the figures
            time.sleep(DISPATCH_PAUSE_S)
        took = time.monotonic() - began
        cpu = machine.cpu_seconds(pids) - cpu
        others = machine.busy_seconds() - busy - cpu - result["load_cpu_s"]
        flushed = machine.disk_flushes(self.scratch)
        memory = machine.memory(pids)
        if workload.topics > 1:
            void = self._loads.wrong(side, workload, before, result)
        return MeasuredRun(
            side=side.label,
            workload=workload.name,
            pair=pair,
            void=void,
            rate=result["rate"],
            p50_us=result.get("p50_us"),
            p99_us=result.get("p99_us"),
            p999_us=result.get("p999_us"),
            max_us=result.get("max_us"),
            cpu_per_million_s=cpu / max(1, result.get("delivered", result["acked"])) * 1e6,
            server_busy=cpu / took,
            load_busy=result.get("busy", result["load_cpu_s"] / loaded),
            others_busy=max(0.0, others / took),
            rss=memory.rss,
            anonymous=memory.anonymous,
            flushes_per_s=None if flushes is None or flushed is None else (flushed - flushes) / took,
            fsync_p50_us=fsync,
            memcpy_gb_s=memcpy,
            details=result if warm_share is None else result | {"share_in_memory": warm_share},
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "plan": asdict(self.plan),
            "starts": [asdict(start) for start in self.starts],
            "warmth": self.warmth,
            "warm_cpu_s": self.warm_cpu_s,
            "rests": [asdict(rest) for rest in self.rests],
            "recoveries": [asdict(found) for found in self.recoveries],
            "stored_runs": [asdict(run) for run in self.stored_runs],
            "peer_runs": [asdict(run) for run in self.peer_runs],
            "runs": [asdict(run) for run in self.runs],
        }


def _folder(side: Side, flush: FlushKind) -> str:
    return f"{side.label}-{flush.value}"
