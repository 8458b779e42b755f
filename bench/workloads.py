"""The workloads by name: what each one sends or reads, with which generator, and in which sets it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class LoadKind(Enum):
    RAW_SEND = "raw send"
    RAW_PULL = "raw pull"
    RAW_FLOW = "raw flow"
    JAVA_SEND = "java send"
    JAVA_PUSH = "java push"

    @property
    def is_java(self) -> bool:
        return self in (LoadKind.JAVA_SEND, LoadKind.JAVA_PUSH)

    @property
    def reads(self) -> bool:
        """Whether it reads a backlog and stores nothing."""
        return self in (LoadKind.RAW_PULL, LoadKind.JAVA_PUSH)


class FlushKind(Enum):
    """When brokers acknowledge a send: once the operating system has it, or once the disk has it."""

    ASYNC = "async"
    SYNC = "sync"


@dataclass(frozen=True)
class Backlog:
    """Messages stored before they are read: `part` of the planned number, with `tags` tags in turn."""

    topic: str
    body: int = 128
    tags: int = 0
    part: float = 1.0


PLAIN = Backlog("bench-backlog")
TAGGED = Backlog("bench-backlog-tags", tags=100)
KIBIBYTE = Backlog("bench-backlog-1k", body=1024, part=0.5)


@dataclass(frozen=True)
class Workload:
    """`options` go to the generator as they are.

    `default`: measured unless --workloads or --sets says otherwise; `quick`: also in the quick set. Workloads of one
    `family` that follow each other take turns pair by pair, so that they can be compared with each other. `cold`: the
    backlog is dropped from memory before each run.
    """

    name: str
    what: str
    kind: LoadKind
    options: dict[str, int | str | bool] = field(default_factory=dict)
    default: bool = True
    quick: bool = False
    flush: FlushKind = FlushKind.ASYNC
    family: str = ""
    backlog: Backlog | None = None
    cold: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it sends at a given rate: then latencies are the result, and not the rate."""
        return "rate" in self.options

    @property
    def topics(self) -> int:
        return int(self.options.get("topics", 1))


def _sends(name: str, what: str, *, quick: bool = False, default: bool = True, **options: int | bool) -> Workload:
    return Workload(name, what, LoadKind.RAW_SEND, dict(options), default, quick)


def _connections(count: int) -> Workload:
    what = f"{count:,} connections, 1 send in flight each, 128 B"
    return Workload(f"raw-{count}", what, LoadKind.RAW_SEND, {"connections": count}, family="connections")


def _topics(count: int) -> Workload:
    what = f"5,000 sends/s at even distances over {count:,} topics of 4 queues, 64 connections, 128 B"
    options: dict[str, int | str | bool] = {"connections": 64, "rate": 5000, "topics": count, "queues": 4}
    return Workload(f"topics-{count}", what, LoadKind.RAW_SEND, options)


def _java(name: str, what: str, *, quick: bool = False, **options: int) -> Workload:
    return Workload(name, f"Apache's client, {what}", LoadKind.JAVA_SEND, dict(options), quick=quick)


def _flow(name: str, what: str, **options: int) -> Workload:
    return Workload(name, what, LoadKind.RAW_FLOW, {"rate": 5000, **options})


WORKLOADS = (
    _sends("raw-64", "64 connections, 1 send in flight each, 128 B", quick=True, connections=64),
    _sends("raw-64-1k", "64 connections, 1 send in flight each, 1 KiB", connections=64, body=1024),
    _sends("raw-16", "16 connections, 1 send in flight each, 128 B", connections=16),
    _sends("raw-1", "1 connection, 1 send in flight, 128 B", quick=True, connections=1),
    _sends("raw-8x32", "8 connections, 32 sends in flight each, 128 B", quick=True, connections=8, window=32),
    _sends("raw-8x256", "8 connections, 256 sends in flight each, 128 B", connections=8, window=256),
    _sends("raw-batch", "8 connections, 1 batch of 32 in flight each, 128 B", quick=True, connections=8, batch=32),
    _sends("raw-batch-16", "8 connections, 1 batch of 16 in flight each, 128 B", connections=8, batch=16),
    _sends("raw-batch-256", "8 connections, 1 batch of 256 in flight each, 128 B", connections=8, batch=256),
    _sends(
        "raw-open-5k",
        "64 connections, 5,000 sends/s at even distances, 128 B; latency from when the send was due",
        connections=64,
        rate=5000,
    ),
    Workload(
        "raw-pull",
        "1 connection, a pull of 32 in flight per queue",
        LoadKind.RAW_PULL,
        {"connections": 1},
        quick=True,
        backlog=PLAIN,
    ),
    Workload(
        "filter-tag",
        "1 connection, a pull of 32 per queue for a tag that 1 of 100 messages has; msg/s counts what was passed",
        LoadKind.RAW_PULL,
        {"connections": 1, "subscription": "t042"},
        backlog=TAGGED,
    ),
    _flow(
        "e2e-5k",
        "8 connections send 5,000/s at even distances, 1 group waits for them; latency from due to received",
        connections=8,
        window=64,
    ),
    _flow(
        "fan-out-10",
        "1 connection sends 5,000/s, 10 groups wait for them; msg/s and CPU are of what was delivered",
        connections=1,
        window=256,
        groups=10,
    ),
    _java("java-64", "64 sync senders, 128 B", quick=True, threads=64, batch=1),
    _java("java-16", "16 sync senders, 128 B", threads=16, batch=1),
    _java("java-1", "1 sync sender, 128 B", threads=1, batch=1),
    _java("java-async", "1 async sender, 256 in flight, 128 B", threads=1, batch=1, window=256),
    _java("java-batch", "8 senders, batches of 32", quick=True, threads=8, batch=32),
    Workload(
        "java-push",
        "Apache's client, push consume of the backlog, 20 threads",
        LoadKind.JAVA_PUSH,
        {"threads": 20},
        quick=True,
        backlog=PLAIN,
    ),
    Workload(
        "java-push-1k-cold",
        "Apache's client, push consume of 1 KiB bodies that are on the disk only, 20 threads",
        LoadKind.JAVA_PUSH,
        {"threads": 20},
        backlog=KIBIBYTE,
        cold=True,
    ),
    _connections(10),
    _connections(100),
    _connections(1000),
    _topics(10),
    _topics(100),
    _topics(1000),
    Workload(
        "raw-sync-64",
        "64 connections, 1 send in flight each, 1 KiB, SYNC_FLUSH",
        LoadKind.RAW_SEND,
        {"connections": 64, "body": 1024},
        flush=FlushKind.SYNC,
    ),
    Workload(
        "java-sync-64",
        "Apache's client, 64 sync senders, 1 KiB, SYNC_FLUSH",
        LoadKind.JAVA_SEND,
        {"threads": 64, "batch": 1, "body": 1024},
        flush=FlushKind.SYNC,
    ),
    _sends(
        "raw-64-binary",
        "64 connections, 1 send in flight each, 128 B, binary headers",
        default=False,
        connections=64,
        binary=True,
    ),
    _sends("raw-256", "256 connections, 1 send in flight each, 128 B", default=False, connections=256),
    Workload(
        "raw-pull-8",
        "8 connections, one queue each, pulls of 32",
        LoadKind.RAW_PULL,
        {"connections": 8},
        default=False,
        backlog=PLAIN,
    ),
)
SETS = {
    "quick": [workload for workload in WORKLOADS if workload.quick],
    "default": [workload for workload in WORKLOADS if workload.default],
    "full": list(WORKLOADS),
}


def choose(names: str | None, raw_only: bool, chosen_set: str = "default") -> list[Workload]:
    """The workloads of a comma-separated list ("all" for every one), or of a set; always in the order above."""
    known = {workload.name for workload in WORKLOADS}
    if names == "all":
        wanted = known
    elif names:
        wanted = set(names.split(","))
    else:
        wanted = {workload.name for workload in SETS[chosen_set]}
    unknown = sorted(wanted - known)
    if unknown:
        there = ", ".join(workload.name for workload in WORKLOADS)
        raise ValueError(f"no such workload: {', '.join(unknown)}; there are {there}, and all")
    return [workload for workload in WORKLOADS if workload.name in wanted and not (raw_only and workload.kind.is_java)]


def families(workloads: list[Workload]) -> list[list[Workload]]:
    """The workloads in their order, neighbours of one family together."""
    groups: list[list[Workload]] = []
    for workload in workloads:
        if workload.family and groups and groups[-1][0].family == workload.family:
            groups[-1].append(workload)
        else:
            groups.append([workload])
    return groups
