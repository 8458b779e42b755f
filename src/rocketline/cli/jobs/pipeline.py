"""`rocketline pipeline`: ready-made Spark jobs. Each reports its progress on stderr and prints a table at the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketline.cli.jobs.pipeline_options import (
    Access,
    AsOf,
    Conf,
    Master,
    Namesrv,
    Out,
    Rate,
    Since,
    Store,
    StorePath,
    ToNamesrv,
    Topics,
    ToTopic,
    Until,
    Where,
)
from rocketline.cli.jobs.pipeline_run import (
    cluster_of,
    needed_cluster,
    recorded,
    records,
    run_pipeline,
    settings_of,
    tell,
    with_runtime,
)
from rocketline.cli.options import ConfigFile, OutputOption, Settings
from rocketline.cli.tables import Ms, Output, Table, show
from rocketline.cli.usage import UsageProblem
from rocketline.errors import ConfigError
from rocketline.pipelines.runs import RUNS_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rocketline.pipelines.outcome import Outcome

pipeline_app = typer.Typer(
    no_args_is_help=True, help="Ready-made Spark jobs; they need Java and the extra `spark` of rocketline."
)


@pipeline_app.callback()
def pipelines(
    runs: Annotated[
        Path | None,
        typer.Option("--runs", metavar="DIR", envvar=RUNS_VARIABLE,
                     help="Keep a record of every run in this folder, for `pipeline runs` and the console."),
    ] = None,
) -> None:  # fmt: skip
    records.folder = runs


@pipeline_app.command("runs")
def list_runs(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Folder given to --runs.", show_default="--runs")
    ] = None,
    most: Annotated[int, typer.Option("--max", min=1, help="Runs shown at most.")] = 50,
    output: OutputOption = Output.table,
) -> None:
    """List recorded runs, the newest first: what runs, what is done, what failed, what was lost."""
    from rocketline.pipelines.runs import read_runs

    chosen = folder or records.folder
    if chosen is None:
        raise UsageProblem(f"which runs? name the folder that was given to --runs, or set {RUNS_VARIABLE}")
    try:
        found = read_runs(chosen, most=most)
    except OSError as error:
        raise UsageProblem(f"{chosen}: {error.strerror}") from error
    table = Table(("job", "state", "began", "ended", "rows", "behind", "progress", "outcome", "id"))
    for run in found:
        times = (Ms(run.began_ms), Ms(run.ended_ms or 0))
        table.rows.append((run.job, run.state, *times, run.rows, run.behind, run.progress, run.outcome, run.id))
    show([table], output)


@pipeline_app.command()
def medallion(
    target: Annotated[str, typer.Argument(metavar="DIR", help="Folder of the tables; also hdfs://, s3a://.")],
    namesrv: Namesrv = None,
    path: StorePath = None,
    topic: Annotated[str, typer.Option(help="Topic with orders as JSON.")] = "orders",
    to_topic: Annotated[str | None, typer.Option(help="Send totals of customers here.")] = None,
    to_namesrv: ToNamesrv = None,
    window: Annotated[str, typer.Option(help="Length of a window of the gold table.")] = "1 minute",
    late_after: Annotated[
        str, typer.Option(help="An order stored this long after its own time counts as late.")
    ] = "5 minutes",
    option: Access = None,
    master: Master = None,
    conf: Conf = None,
    output: OutputOption = Output.table,
) -> None:
    """Orders from a topic to bronze, silver and gold tables, and the totals back to a topic."""
    from rocketline.pipelines.medallion import GoldSettings
    from rocketline.pipelines.medallion import medallion as run
    from rocketline.pipelines.origin import Origin

    namesrv, access = cluster_of(namesrv, path, option)
    origin = Origin((topic,), namesrv=namesrv, path=path, access=access)
    gold = GoldSettings(window, late_after, to_namesrv or namesrv, to_topic)
    run_pipeline("medallion", master, conf, output, lambda spark: run(spark, origin, target, tell, gold))


@pipeline_app.command()
def archive(
    target: Annotated[str, typer.Argument(metavar="DIR", help="Folder of the archive; also hdfs://, s3a://.")],
    namesrv: Namesrv = None,
    path: StorePath = None,
    topic: Topics = None,
    pattern: Annotated[str | None, typer.Option(help="Topics by a regular expression.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Keep running until interrupted.")] = False,
    per_batch: Annotated[int, typer.Option(min=1, help="At most this many messages in one batch.")] = 1_000_000,
    option: Access = None,
    master: Master = None,
    conf: Conf = None,
    output: OutputOption = Output.table,
) -> None:
    """Copy topics, or a store's files, to partitioned Parquet, exactly once; every run adds what is new."""
    from rocketline.pipelines.archive import archive as run
    from rocketline.pipelines.origin import Origin

    namesrv, access = cluster_of(namesrv, path, option)
    origin = Origin(tuple(topic or ()), pattern, namesrv, path, access=access)
    run_pipeline(
        "archive",
        master,
        conf,
        output,
        lambda spark: run(spark, origin, target, tell, follow=follow, per_batch=per_batch),
    )


@pipeline_app.command()
def replay(
    namesrv: Namesrv = None,
    path: StorePath = None,
    topic: Topics = None,
    table_format: Annotated[
        str | None,
        typer.Option("--format", help="--path has tables of topics in this format: delta, parquet or iceberg."),
    ] = None,
    as_of: AsOf = None,
    to_namesrv: ToNamesrv = None,
    to_topic: ToTopic = None,
    since: Since = None,
    until: Until = None,
    where: Where = None,
    rate: Rate = None,
    keep_queues: Annotated[bool, typer.Option("--keep-queues", help="Send to queues of the same number.")] = False,
    option: Access = None,
    master: Master = None,
    conf: Conf = None,
    output: OutputOption = Output.table,
) -> None:
    """Send a range of a topic, of a store's files, or of tables, to another topic or cluster."""
    from rocketline.pipelines.origin import Origin
    from rocketline.pipelines.replay import replay as run

    namesrv, access = cluster_of(namesrv, path, option)
    origin = Origin(tuple(topic or ()), namesrv=namesrv, path=path, since=since, until=until, access=access)
    target = to_namesrv or namesrv
    if target is None:
        raise ConfigError("name the cluster to send to: --to-namesrv HOST:PORT")
    if (table_format or as_of) and (path is None or table_format is None):
        raise UsageProblem("messages of tables need --path DIR and --format")

    def stored(spark: SparkSession) -> DataFrame | None:
        if table_format is None or path is None:
            return None
        from rocketline.pipelines.tables.auditing import Window, stored_messages

        return Window.parse(since, until).of(stored_messages(spark, path, topic or (), table_format, as_of))

    run_pipeline(
        "replay",
        master,
        with_runtime(table_format, conf, path),
        output,
        lambda spark: run(
            spark,
            origin,
            target,
            tell,
            to_topic=to_topic,
            where=where,
            rate=rate,
            keep_queues=keep_queues,
            stored=stored(spark),
        ),
    )


@pipeline_app.command()
def dlq(
    namesrv: Namesrv = None,
    path: StorePath = None,
    group: Annotated[list[str] | None, typer.Option(help="A consumer group; repeatable.", show_default="all")] = None,
    error_property: Annotated[
        str | None, typer.Option(help="Property in which your programs store the reason.")
    ] = None,
    redrive: Annotated[
        str | None, typer.Option(metavar="SQL", help="Send the dead letters that this condition selects again.")
    ] = None,
    to_namesrv: ToNamesrv = None,
    rate: Rate = None,
    option: Access = None,
    master: Master = None,
    conf: Conf = None,
    output: OutputOption = Output.table,
) -> None:
    """Count dead letters by group, origin, error and hour; --redrive sends some again ("true": all)."""
    from rocketline.pipelines.dlq import dlq as run
    from rocketline.pipelines.dlq import dlq_origin

    namesrv, access = cluster_of(namesrv, path, option)

    def work(spark: SparkSession) -> Outcome:
        origin = dlq_origin(namesrv, path, group or (), access)
        return run(spark, origin, tell, error_property=error_property, redrive=redrive, namesrv=to_namesrv, rate=rate)

    run_pipeline("dlq", master, conf, output, work)


@pipeline_app.command()
def lag(
    group: Annotated[list[str], typer.Option(help="A consumer group; repeatable.")],
    namesrv: Namesrv = None,
    topic: Topics = None,
    times: Annotated[int, typer.Option(min=1, help="How many samples to take.")] = 5,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two samples.")] = 2.0,
    out: Out = None,
    option: Access = None,
    master: Master = None,
    conf: Conf = None,
    output: OutputOption = Output.table,
) -> None:
    """Show the lag of groups, their rates, and when they will have caught up."""
    from rocketline.pipelines.lag import lag as run

    cluster, access = needed_cluster(namesrv, option)
    run_pipeline(
        "lag",
        master,
        conf,
        output,
        lambda spark: run(
            spark, cluster, group, tell, topics=topic or (), times=times, every_s=every, out=out, access=access
        ),
    )


@pipeline_app.command()
def trace(
    namesrv: Namesrv = None,
    path: StorePath = None,
    topic: Annotated[str, typer.Option(help="The topic with traces.")] = "RMQ_SYS_TRACE_TOPIC",
    since: Since = None,
    until: Until = None,
    out: Out = None,
    option: Access = None,
    master: Master = None,
    conf: Conf = None,
    output: OutputOption = Output.table,
) -> None:
    """Percentiles of sending, end-to-end and handling times from message traces."""
    from rocketline.pipelines.origin import Origin
    from rocketline.pipelines.trace import trace as run

    namesrv, access = cluster_of(namesrv, path, option)
    origin = Origin((topic,), namesrv=namesrv, path=path, since=since, until=until, access=access)
    run_pipeline("trace", master, conf, output, lambda spark: run(spark, origin, tell, out=out))


@pipeline_app.command()
def audit(
    folder: Store,
    master: Master = None,
    conf: Conf = None,
    config: ConfigFile = None,
    settings: Settings = None,
    output: OutputOption = Output.table,
) -> None:
    """Check a store in parallel: checksums, offsets, queues and index. Exit code 1: damaged."""
    from rocketline.spark.sessions import check_libraries, open_session

    check_libraries()
    from rocketline.cli.jobs.store import broker_config, show_reports, stores_in
    from rocketline.pipelines.audit import audit as run
    from rocketline.pipelines.failures import explained

    broker, stores = broker_config(config, settings), stores_in(folder)
    with recorded("audit"), open_session("audit", master, settings_of(conf), tasks_only=True) as spark, explained():
        show_reports((run(spark, store, tell, broker.store) for store in stores), output)


@pipeline_app.command()
def rebuild(
    folder: Store,
    master: Master = None,
    conf: Conf = None,
    config: ConfigFile = None,
    settings: Settings = None,
    output: OutputOption = Output.table,
) -> None:
    """Rebuild consume queues and key index of a stopped store, in parallel."""
    from rocketline.spark.sessions import check_libraries, open_session

    check_libraries()
    from rocketline.cli.jobs.store import broker_config, show_rebuilds, stores_in
    from rocketline.pipelines.failures import explained
    from rocketline.pipelines.rebuild import rebuild as run

    broker, stores = broker_config(config, settings), stores_in(folder)
    with (
        recorded("rebuild"),
        open_session("rebuild", master, settings_of(conf), tasks_only=True) as spark,
        explained(),
    ):
        show_rebuilds(((store, run(spark, store, tell, broker)) for store in stores), output)


@pipeline_app.command()
def package(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A .zip for --py-files or .tar.gz for --archives.")],
) -> None:
    """Write the part of rocketline that executors need into one file."""
    from rocketline.pipelines.package import package as write

    parts = write(target)
    for name, files in parts:
        print(f"{name:<22} {files:>5} files")
    print(f"{target}: {target.stat().st_size:,} bytes")


@pipeline_app.command()
def project(
    target: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    namesrv: Annotated[str, typer.Option(metavar="HOST:PORT", help="Name server of the cluster.")] = "127.0.0.1:9876",
    topic: Annotated[str, typer.Option(help="Topic with orders as JSON.")] = "orders",
    to_topic: Annotated[str, typer.Option(help="Topic for parsed orders.")] = "orders_clean",
) -> None:
    """Write the medallion pipeline as a project for `spark-pipelines run`."""
    from rocketline.pipelines.declarative import write_project

    for path in write_project(target, namesrv, topic, to_topic):
        print(path)
    print(f"run it with: cd {target} && spark-pipelines run")
