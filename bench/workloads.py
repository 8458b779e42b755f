"""The workloads by name: what each one sends or reads, with which generator."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    RAW_SEND = "raw send"
    RAW_PULL = "raw pull"
    JAVA_SEND = "java send"
    JAVA_PUSH = "java push"

    @property
    def is_java(self) -> bool:
        return self in (Kind.JAVA_SEND, Kind.JAVA_PUSH)

    @property
    def reads(self) -> bool:
        return self in (Kind.RAW_PULL, Kind.JAVA_PUSH)


@dataclass(frozen=True)
class Workload:
    """`options` go to the generator as they are. `default`: measured unless --workloads says otherwise."""

    name: str
    what: str
    kind: Kind
    options: dict[str, int | bool] = field(default_factory=dict)
    default: bool = True

    @property
    def open_loop(self) -> bool:
        return "rate" in self.options


WORKLOADS = (
    Workload("raw-64", "64 connections, 1 send in flight each, 128 B", Kind.RAW_SEND, {"connections": 64}),
    Workload("raw-1", "1 connection, 1 send in flight, 128 B", Kind.RAW_SEND, {"connections": 1}),
    Workload(
        "raw-8x32", "8 connections, 32 sends in flight each, 128 B", Kind.RAW_SEND, {"connections": 8, "window": 32}
    ),
    Workload(
        "raw-batch",
        "8 connections, 1 batch of 32 in flight each, 128 B",
        Kind.RAW_SEND,
        {"connections": 8, "batch": 32},
    ),
    Workload(
        "raw-open-5k",
        "64 connections, 5,000 sends/s at even distances, 128 B; latency from when the send was due",
        Kind.RAW_SEND,
        {"connections": 64, "rate": 5000},
    ),
    Workload("raw-pull", "1 connection, a pull of 32 in flight per queue", Kind.RAW_PULL, {"connections": 1}),
    Workload("java-64", "Apache's client, 64 sync senders, 128 B", Kind.JAVA_SEND, {"threads": 64, "batch": 1}),
    Workload("java-1", "Apache's client, 1 sync sender, 128 B", Kind.JAVA_SEND, {"threads": 1, "batch": 1}),
    Workload("java-batch", "Apache's client, 8 senders, batches of 32", Kind.JAVA_SEND, {"threads": 8, "batch": 32}),
    Workload("java-push", "Apache's client, push consume of the backlog", Kind.JAVA_PUSH, {"threads": 20}),
    Workload(
        "raw-64-1k",
        "64 connections, 1 send in flight each, 1 KiB",
        Kind.RAW_SEND,
        {"connections": 64, "body": 1024},
        default=False,
    ),
    Workload(
        "raw-64-binary",
        "64 connections, 1 send in flight each, 128 B, binary headers",
        Kind.RAW_SEND,
        {"connections": 64, "binary": True},
        default=False,
    ),
    Workload(
        "raw-256",
        "256 connections, 1 send in flight each, 128 B",
        Kind.RAW_SEND,
        {"connections": 256},
        default=False,
    ),
    Workload(
        "raw-pull-8", "8 connections, one queue each, pulls of 32", Kind.RAW_PULL, {"connections": 8}, default=False
    ),
)


def choose(names: str | None, raw_only: bool) -> list[Workload]:
    """The workloads of a comma-separated list ("all" for every one), or the default set."""
    known = {workload.name: workload for workload in WORKLOADS}
    if names == "all":
        chosen = list(WORKLOADS)
    elif names:
        wanted = names.split(",")
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise ValueError(f"no such workload: {', '.join(unknown)}; there are {', '.join(known)}, and all")
        chosen = [known[name] for name in wanted]
    else:
        chosen = [workload for workload in WORKLOADS if workload.default]
    return [workload for workload in chosen if not (raw_only and workload.kind.is_java)]
