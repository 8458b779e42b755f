"""The commands of `rocketline bench`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from rocketline.cli.access import ClusterAccess, cluster_access
from rocketline.cli.bench.figures import COLUMNS, BenchLimits, figures_row
from rocketline.cli.bench.work import LEAST_LATENCY_BYTES, Target, consume, latency, send
from rocketline.cli.options import ClusterFlags, OutputOption, takes_cluster
from rocketline.cli.tables import Output, Table, show
from rocketline.cli.times import flag_value, parse_duration_s
from rocketline.cli.usage import UsageProblem

bench_app = typer.Typer(
    no_args_is_help=True, help="Measure how fast a cluster is; the results are those of this machine and its network."
)

TOPIC = "rocketline_bench"
DEFAULT_TIME = "10s"

Topic = Annotated[str, typer.Option(help="The topic used.")]
Loopback = Annotated[bool, typer.Option("--loopback", help="Start a cluster of its own for this, on this machine.")]
Count = Annotated[int | None, typer.Option(min=1, show_default=False, help="End after this many messages.")]
Time = Annotated[
    str | None,
    typer.Option(
        "--time", metavar="DURATION", show_default=False, help=f"End after this time; default {DEFAULT_TIME}."
    ),
]
Size = Annotated[int, typer.Option(min=1, help="Bytes of each message.")]

Measure = Callable[[Target], Coroutine[Any, Any, None]]


@bench_app.command(name="send")
@takes_cluster
def bench_send(
    loopback: Loopback = False,
    topic: Topic = TOPIC,
    count: Count = None,
    time: Time = None,
    size: Size = 1024,
    in_flight: Annotated[int, typer.Option(min=1, help="Sends that wait for an answer at the same time.")] = 64,
    output: OutputOption = Output.table,
    *,
    flags: ClusterFlags,
) -> None:
    """Send messages; the rate, and the time to the acknowledgement."""
    limits = _limits(count, time)
    with _cluster(loopback, flags) as at:
        _measure(at, topic, output, lambda target: send(target, limits, size, in_flight))


@bench_app.command(name="consume")
@takes_cluster
def bench_consume(
    topic: Topic = TOPIC,
    count: Count = None,
    time: Time = None,
    output: OutputOption = Output.table,
    *,
    flags: ClusterFlags,
) -> None:
    """Read what a topic has, from its beginning; the rate, and the time of a poll. No group's progress changes."""
    limits = _limits(count, time)
    with _cluster(False, flags) as at:
        _measure(at, topic, output, lambda target: consume(target, limits))


@bench_app.command(name="latency")
@takes_cluster
def bench_latency(
    loopback: Loopback = False,
    topic: Topic = "rocketline_bench_latency",
    count: Count = None,
    time: Time = None,
    size: Annotated[int, typer.Option(min=LEAST_LATENCY_BYTES, help="Bytes of each message.")] = 128,
    rate: Annotated[float, typer.Option(min=0.1, help="Messages sent per second, at most.")] = 100.0,
    output: OutputOption = Output.table,
    *,
    flags: ClusterFlags,
) -> None:
    """Send and receive at a steady rate; the times from a send to its acknowledgement, and to the receiver."""
    limits = _limits(count, time)
    with _cluster(loopback, flags) as at:
        _measure(at, topic, output, lambda target: latency(target, limits, size, rate))


def _limits(count: int | None, time: str | None) -> BenchLimits:
    if count is None and time is None:
        time = DEFAULT_TIME
    seconds = flag_value("--time", parse_duration_s, time)
    if seconds == 0:
        raise UsageProblem(f"--time {time}: more than nothing is expected")
    return BenchLimits(count, seconds)


@contextmanager
def _cluster(loopback: bool, flags: ClusterFlags) -> Iterator[ClusterAccess]:
    """The cluster of the flags; with `loopback` a new one in a process of its own, which ends afterwards."""
    if not loopback:
        yield flags.access()
        return
    if flags.namesrv is not None:
        raise UsageProblem("--loopback starts a cluster of its own, so --namesrv has no effect: leave one out")
    from rocketline.cli.servers.child import ChildCluster

    with ChildCluster() as cluster:
        yield cluster_access(cluster.namesrv)


def _measure(cluster: ClusterAccess, topic: str, output: Output, measure: Measure) -> None:
    from rocketline.cli.explain import diagnosed
    from rocketline.cli.servers.serving import run
    from rocketline.client import ClientOptions

    target = Target(cluster.namesrv, ClientOptions(**cluster.access), topic)

    async def measured() -> bool:
        await diagnosed(cluster, measure(target))
        return True

    is_whole = run(measured())
    for figures in target.figures:
        if figures.seconds is None:
            figures.stop()
    show([Table(COLUMNS, [figures_row(figures) for figures in target.figures])], output)
    if not is_whole:  # Ctrl-C: what was measured until then
        raise typer.Exit(130)
