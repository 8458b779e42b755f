"""How a command of `rocketline pipeline` is run: its cluster, its session, its record, and what it prints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rocketline.cli.access import name_servers_and_context, spark_access
from rocketline.cli.tables import Output, Table, sentence, show
from rocketline.cli.usage import UsageProblem
from rocketline.pipelines.runs import RunRecord, note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketline.pipelines.outcome import Outcome


def cluster_of(namesrv: str | None, path: str | None, option: list[str] | None) -> tuple[str | None, dict[str, str]]:
    """(name servers to read from, options to reach them); None for files."""
    given, context = (namesrv, None) if path is not None else name_servers_and_context(namesrv)
    return given, spark_access(option or (), context=context)


def needed_cluster(namesrv: str | None, option: list[str] | None) -> tuple[str, dict[str, str]]:
    cluster, access = cluster_of(namesrv, None, option)
    if cluster is None:
        raise UsageProblem("which cluster? give --namesrv HOST:PORT, set NAMESRV_ADDR, or use a context")
    return cluster, access


def with_runtime(table_format: str | None, conf: list[str] | None, folder: str | None = None) -> list[str]:
    """Settings of Spark with those of a table format; ConfigError when it has no runtime here, or no such place."""
    given = list(conf or ())
    if table_format is None:
        return given
    from rocketline.spark.sessions import check_libraries

    check_libraries()
    import pyspark

    from rocketline.pipelines.tables.formats import check_place
    from rocketline.pipelines.tables.runtimes import format_settings

    if folder is not None:
        check_place(folder, table_format)
    mine = settings_of(given)
    more = format_settings(table_format, pyspark.__version__, mine)
    packages = {name: more[name] for name in more if name == "spark.jars.packages"}  # they have those of the user
    return [f"{name}={value}" for name, value in {**more, **mine, **packages}.items()]


def run_pipeline(
    name: str, master: str | None, conf: list[str] | None, output: Output, work: Callable[[SparkSession], Outcome]
) -> None:
    from rocketline.pipelines.failures import explained
    from rocketline.spark.sessions import open_session

    with recorded(name) as record, open_session(name, master, settings_of(conf)) as spark, explained():
        outcome = work(spark)
        note_outcome(record, outcome)
    show_outcome(outcome, output)


def note_outcome(record: RunRecord | None, outcome: Outcome) -> None:
    if record is not None:
        record.finish(outcome.title, outcome.columns, outcome.rows, is_bad=outcome.is_bad)


def show_outcome(outcome: Outcome, output: Output) -> None:
    """Print what came of a job; exit code 1 when it is bad."""
    tell(outcome.title)
    show([_table(outcome)], output)
    if outcome.is_bad:
        raise typer.Exit(1)


def _table(outcome: Outcome) -> Table:
    about = "; ".join(outcome.notes)
    if not outcome.columns:
        return sentence(f"{outcome.title}: {about}")
    return Table(outcome.columns, [tuple(row) for row in outcome.rows], about=about)


def settings_of(conf: list[str] | None) -> dict[str, str]:
    pairs = [item.partition("=") for item in conf or ()]
    for name, equals, _ in pairs:
        if not equals or not name.startswith("spark."):
            raise UsageProblem(f"--conf {name}: a setting like spark.executor.memory=2g is expected")
    return {name: value for name, _, value in pairs}


class Records:
    """Where runs of this process are recorded."""

    folder: Path | None = None


records = Records()


def recorded(job: str) -> AbstractContextManager[RunRecord | None]:
    """The record of a run, if one is kept."""
    if records.folder is None:
        return nullcontext()
    return RunRecord(records.folder, job, " ".join(sys.argv[1:]))


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
    note(text)
