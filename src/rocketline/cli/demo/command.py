"""`rocketline demo`: messages through a real cluster, and a summary at the end.

The servers run in a process of their own, as in production; producers and consumers run here. The demonstration has parts,
run one after the other on the same cluster. Each returns rows for the summary, and problems.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from rocketline.cli.options import Verbose

if TYPE_CHECKING:
    from rocketline.cli.demo.screen import Screen
    from rocketline.cli.servers.child import ChildCluster

MIB = 1 << 20
FAIL_EVERY = 200


@dataclass(frozen=True)
class Scale:
    """The numbers of messages, clients and orders."""

    messages: int
    producers: int
    consumers: int
    orders: int = 0


@dataclass
class PartResult:
    """Rows for the summary, and problems, of one part of the demonstration."""

    rows: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


Part = Callable[["ChildCluster", "Screen", Scale], Awaitable[PartResult]]


def demo(
    messages: Annotated[int, typer.Option(min=1, help="How many messages to send.")] = 20_000,
    producers: Annotated[int, typer.Option(min=1, max=64, help="Number of producers.")] = 8,
    consumers: Annotated[int, typer.Option(min=1, max=64, help="Number of consumers, all in one group.")] = 4,
    orders: Annotated[int, typer.Option(min=0, help="Orders that Spark makes into tables; 0: without Spark.")] = 2000,
    verbose: Verbose = 0,
) -> None:
    """Start a cluster, send and consume messages while the group changes, and count.

    Exit code 1 when a message was lost, or when many came twice.
    """
    from rocketline.cli.demo.screen import open_screen
    from rocketline.cli.logs import LoggingOptions, log_to_stderr
    from rocketline.cli.servers.child import ChildCluster
    from rocketline.cli.servers.serving import run

    log_to_stderr(LoggingOptions(verbose))
    scale = Scale(messages, producers, consumers, orders)
    with TemporaryDirectory(prefix="rocketline-demo-") as folder, open_screen() as screen:
        screen.say("starting a name server and a broker")
        with ChildCluster(["--data", folder]) as cluster:
            outcome = run(_play(cluster, screen, scale))
    if outcome is None:
        raise typer.Exit(130)
    screen.summary(outcome.rows, outcome.problems)
    if outcome.problems:
        raise typer.Exit(1)


async def _play(cluster: ChildCluster, screen: Screen, scale: Scale) -> PartResult:
    screen.say(f"ready after {cluster.start_s:.2f} s: name server at {cluster.namesrv}")
    whole = PartResult(
        [("cluster ready after", f"{cluster.start_s:.2f} s"), ("its memory when idle", _memory(cluster))]
    )
    for part in PARTS:
        outcome = await part(cluster, screen, scale)
        whole.rows += outcome.rows
        whole.problems += outcome.problems
    whole.rows.append(("its memory, at the end", _memory(cluster)))
    return whole


async def _send_and_consume(cluster: ChildCluster, screen: Screen, scale: Scale) -> PartResult:
    """Send and consume while one consumer leaves and another joins; some first deliveries fail."""
    from rocketline.cli.demo.journey import JourneyPlan, read_back, run_journey
    from rocketline.cli.demo.ledger import Ledger

    plan = JourneyPlan(scale.messages, scale.producers, scale.consumers, fail_every=FAIL_EVERY)
    ledger = Ledger(plan.messages, plan.body_bytes)
    screen.say(f"{plan.producers} producers send {plan.messages:,} messages to {plan.consumers} consumers")
    async with screen.progress(
        plan.messages, lambda: {"acknowledged": ledger.acknowledged, "consumed": ledger.consumed}
    ):
        report = await run_journey(cluster.namesrv, plan, ledger, screen.say)
    screen.say("reading every queue back from its beginning")
    stored, problems = await read_back(cluster.namesrv, plan.topic, ledger)
    rows = [
        ("messages sent", f"{ledger.sent:,}"),
        ("acknowledged", f"{ledger.acknowledged:,}"),
        ("consumed", f"{ledger.consumed:,}"),
        ("failed once, delivered again", f"{ledger.retried:,}"),
        ("duplicates", f"{ledger.duplicates:,} ({ledger.duplicates / max(ledger.consumed, 1):.2%})"),
        ("lost", f"{len(ledger.lost()):,}"),
        ("read back from the queues", f"{stored:,}"),
        ("sent per second", f"{ledger.acknowledged / max(report.produce_s, 1e-9):,.0f}"),
        ("sent and consumed per second", f"{ledger.consumed / max(report.total_s, 1e-9):,.0f}"),
    ]
    return PartResult(rows, report.problems + problems)


async def _orders_become_tables(cluster: ChildCluster, screen: Screen, scale: Scale) -> PartResult:
    """Let Spark make orders into bronze, silver and gold tables, and send the totals to a topic."""
    from rocketline.cli.demo.orders import orders_to_tables

    if not scale.orders:
        return PartResult()
    return PartResult(*await orders_to_tables(cluster, screen, scale.orders))


PARTS: tuple[Part, ...] = (_send_and_consume, _orders_become_tables)


def _memory(cluster: ChildCluster) -> str:
    used = cluster.memory_bytes
    return "not known here" if used is None else f"{used / MIB:.0f} MiB"
