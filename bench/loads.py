"""Runs the workloads on a side: creates topics and backlogs, runs the load, and checks the result.

A run counts only if no send failed and the topics' offsets grew by exactly the number of acknowledged messages, or if
it read everything in order, or of a filtered backlog the messages that have the tag.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench import wire
from bench.generators import JavaLoad, LoadFailed, RawLoad
from bench.results import BACKLOG_BATCH, BenchPlan
from bench.sides import Side
from bench.workloads import Backlog, LoadKind, Workload

SEND_TOPIC = "bench-send"
FLOW_TOPIC = "bench-flow"
BODY_BYTES = 128
FILL_TIMEOUT_S = 600.0
PUSH_TIMEOUT_S = 120.0
DISPATCH_TIMEOUT_S = 30.0
DISPATCH_PAUSE_S = 0.1  # without growth for this long, nothing is being dispatched


class Loads:
    """The load generators of a comparison."""

    def __init__(self, plan: BenchPlan, scratch: Path) -> None:
        self.plan = plan
        self.raw = RawLoad(plan.load_core)
        self._scratch = scratch
        self._java: JavaLoad | None = None
        self._groups = 0

    def close(self) -> None:
        if self._java:
            self._java.close()

    def prepare(self, side: Side, workloads: list[Workload]) -> None:
        """Create topics and backlogs of the workloads; workloads with many topics get theirs in `make_topics`."""
        topics = [SEND_TOPIC]
        if any(workload.kind is LoadKind.RAW_FLOW for workload in workloads):
            topics.append(FLOW_TOPIC)
        wire.create_topics(side.namesrv, side.broker, topics, self.plan.queues)
        for backlog in dict.fromkeys(workload.backlog for workload in workloads if workload.backlog):
            self._fill(side, backlog)

    def make_topics(self, side: Side, workload: Workload) -> None:
        """Create the topics and send a message to every queue: the first message creates files, which is not to be
        measured."""
        queues = self._queues(workload)
        wire.create_topics(side.namesrv, side.broker, topics_of(workload), queues)
        options: dict[str, Any] = {"topic": topics_name(workload), "topics": workload.topics, "queues": queues}
        options |= _signing(side)
        self.raw.run(
            side.broker, side.broker_name, FILL_TIMEOUT_S, connections=8, count=workload.topics * queues, **options
        )

    def _fill(self, side: Side, backlog: Backlog) -> None:
        wire.create_topic(side.namesrv, side.broker, backlog.topic, self.plan.queues)
        count = backlog_size(backlog, self.plan)
        options = {"tags": backlog.tags} if backlog.tags else {}
        filled = self.send_batches(side, backlog.topic, count, body=backlog.body, **options)
        wrong = self.wrongly_stored(side, [backlog.topic], self.plan.queues, 0, filled)
        if wrong:
            raise LoadFailed(f"the backlog of {side.label} could not be filled: {wrong}")

    def send_batches(self, side: Side, topic: str, count: int, **options: int) -> dict[str, Any]:
        return self.raw.run(
            side.broker, side.broker_name, FILL_TIMEOUT_S, topic=topic, queues=self.plan.queues, connections=8,
            batch=BACKLOG_BATCH, count=count, **options, **_signing(side),
        )  # fmt: skip

    def run(self, side: Side, workload: Workload, seconds: float, cut_s: float) -> dict[str, Any]:
        if workload.kind is LoadKind.JAVA_PUSH:
            return self._push(side, workload)
        if workload.kind is LoadKind.JAVA_SEND:
            settings = {"topic": SEND_TOPIC, "body": BODY_BYTES, "seconds": seconds, "warmup": cut_s}
            return self._java_run("send", seconds + cut_s, side, settings | workload.options)
        options: dict[str, Any] = {"topic": topics_name(workload), "body": BODY_BYTES, "queues": self.plan.queues}
        if workload.kind is LoadKind.RAW_PULL:
            options["mode"] = "pull"
        if workload.kind is LoadKind.RAW_FLOW:
            offsets = wire.max_offsets(side.broker, [FLOW_TOPIC], self.plan.queues)
            options |= {"mode": "flow", "offsets": ",".join(map(str, offsets))}
        options |= {"seconds": seconds, "warmup": cut_s, **workload.options, **_signing(side)}
        return self.raw.run(side.broker, side.broker_name, seconds + cut_s, **options)

    def _push(self, side: Side, workload: Workload) -> dict[str, Any]:
        assert workload.backlog is not None
        expected = backlog_size(workload.backlog, self.plan)
        self._groups += 1  # a group that has never read starts at the beginning
        settings = {"topic": workload.backlog.topic, "group": f"bench_push_{self._groups}", "timeout": PUSH_TIMEOUT_S}
        settings |= {"expected": expected, "skip": expected // 10, **workload.options}
        return self._java_run("push", PUSH_TIMEOUT_S, side, settings)

    def _java_run(self, verb: str, duration_s: float, side: Side, settings: dict[str, Any]) -> dict[str, Any]:
        if self._java is None:
            self._java = JavaLoad(self.plan.load_core, self._scratch)
        return self._java.run(verb, duration_s, namesrv=side.namesrv, **settings)

    def stored(self, side: Side, workload: Workload) -> int:
        """The number of stored messages when the broker has dispatched all; a void run may have left some."""
        topics, queues = topics_of(workload), self._queues(workload)
        deadline = time.monotonic() + DISPATCH_TIMEOUT_S
        stored = sum(wire.max_offsets(side.broker, topics, queues))
        while time.monotonic() < deadline:
            time.sleep(DISPATCH_PAUSE_S)
            before, stored = stored, sum(wire.max_offsets(side.broker, topics, queues))
            if stored == before:
                return stored
        raise LoadFailed(f"{side.label} still stores messages {DISPATCH_TIMEOUT_S:.0f} s after the last send")

    def wrong(self, side: Side, workload: Workload, before: int, result: dict[str, Any]) -> str:
        """The reason why a run is void, or an empty text. Waits until acknowledged messages can be read."""
        if result["errors"]:
            return f"{result['errors']} failed: {result['first_error']}"
        if not result["messages"]:
            return "no message in the measured window"
        if workload.backlog is None:
            return self.wrongly_stored(side, topics_of(workload), self._queues(workload), before, result)
        if "subscription" in workload.options:
            wanted = tagged(workload.backlog, self.plan, str(workload.options["subscription"]))
            if result["selected_per_pass"] != wanted:
                return f"{result['selected_per_pass']} messages were selected, not {wanted}"
        return ""

    def wrongly_stored(self, side: Side, topics: list[str], queues: int, before: int, result: dict[str, Any]) -> str:
        """Wait until the topics have grown by the number of acknowledged messages; returns a problem, or an empty text."""
        wanted = before + int(result["acked"])
        deadline = time.monotonic() + DISPATCH_TIMEOUT_S
        while True:
            stored = sum(wire.max_offsets(side.broker, topics, queues))
            if stored == wanted and not result["errors"]:
                return ""
            if stored > wanted or time.monotonic() > deadline or result["errors"]:
                return (
                    f"{result['acked']} acknowledged, {result['errors']} failed, but the offsets of {topics[0]} "
                    f"{f'and {len(topics) - 1} more ' if len(topics) > 1 else ''}grew by {stored - before} "
                    f"{result['first_error']}"
                )
            time.sleep(0.02)

    def _queues(self, workload: Workload) -> int:
        return int(workload.options.get("queues", self.plan.queues))


def _signing(side: Side) -> dict[str, str]:
    """Options of the raw load for a side that asks for accounts."""
    return {"account": wire.SENDER, "secret": wire.SENDER_SECRET} if side.accounts else {}


def topics_name(workload: Workload) -> str:
    """The topic for the generator; with several topics, the prefix of their names."""
    if workload.backlog:
        return workload.backlog.topic
    if workload.kind is LoadKind.RAW_FLOW:
        return FLOW_TOPIC
    return f"bench-{workload.name}" if workload.topics > 1 else SEND_TOPIC


def topics_of(workload: Workload) -> list[str]:
    name = topics_name(workload)
    return [f"{name}-{number}" for number in range(workload.topics)] if workload.topics > 1 else [name]


def backlog_size(backlog: Backlog, plan: BenchPlan) -> int:
    """Whole batches.

    >>> backlog_size(Backlog("t", part=0.5), BenchPlan(backlog=96))
    32
    """
    return int(plan.backlog * backlog.part) // BACKLOG_BATCH * BACKLOG_BATCH


def tagged(backlog: Backlog, plan: BenchPlan, tag: str) -> int:
    """How many messages of the backlog have the tag; the generator uses its tags in turn.

    >>> tagged(Backlog("t", tags=100), BenchPlan(backlog=320), "t042")
    3
    """
    return len(range(int(tag[1:]), backlog_size(backlog, plan), backlog.tags))
