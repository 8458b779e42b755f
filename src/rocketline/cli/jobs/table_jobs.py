"""`rocketline pipeline`: topics as tables, offloaded logs, and the ways back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketline.cli.access import spark_access
from rocketline.cli.jobs.pipeline import pipeline_app
from rocketline.cli.jobs.pipeline_options import (
    Access,
    AsOf,
    Conf,
    Master,
    Namesrv,
    Rate,
    Since,
    TableFormat,
    Topics,
    ToTopic,
    Until,
    Where,
)
from rocketline.cli.jobs.pipeline_run import (
    needed_cluster,
    note_outcome,
    recorded,
    run_pipeline,
    show_outcome,
    tell,
    with_runtime,
)
from rocketline.cli.options import ConfigFile, OutputOption, Settings
from rocketline.cli.tables import Output
from rocketline.cli.usage import UsageProblem
from rocketline.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketline.pipelines.outcome import Outcome


@pipeline_app.command()
def table(
    target: Annotated[
        str, typer.Argument(metavar="DIR", help="Folder of the tables; also hdfs://, s3a://, for Iceberg catalog:NAME.")
    ],
    topic: Annotated[str, typer.Option(help="The topic; its table is DIR/TOPIC.")],
    table_format: TableFormat,
    namesrv: Namesrv = None,
    body: Annotated[str, typer.Option(help="What bodies are: raw, json, avro or protobuf.")] = "raw",
    schema: Annotated[
        str | None, typer.Option(metavar="DDL", help="Columns of JSON bodies: 'customer string, amount double'.")
    ] = None,
    schema_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Schema of Avro (.avsc), or descriptors of Protobuf.")
    ] = None,
    message_type: Annotated[str | None, typer.Option(help="The message of Protobuf, with its package.")] = None,
    schema_registry: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Registry with the schemas of Avro bodies, by Confluent's interface."),
    ] = None,
    schema_subject: Annotated[
        str | None, typer.Option(help="Its newest schema gives the columns.", show_default="TOPIC-value")
    ] = None,
    wire: Annotated[
        str | None,
        typer.Option(help="How bodies begin: confluent (0, 4 bytes of id) or apicurio (0, 8 bytes of id)."),
    ] = None,
    keep_body: Annotated[bool, typer.Option(help="Keep the bytes of bodies too, for restore and audit-table.")] = True,
    merge_key: Annotated[
        list[str] | None,
        typer.Option(help="Keep only the latest row of each value here; repeatable. Not for Parquet."),
    ] = None,
    delete_when: Annotated[
        str | None, typer.Option(metavar="SQL", help="A row that deletes its key: \"op = 'd'\".")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Keep running until interrupted.")] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Write the table into fewer files at the end.")] = False,
    allow_loss: Annotated[bool, typer.Option("--allow-loss", help="Continue after messages that are gone.")] = False,
    per_batch: Annotated[int, typer.Option(min=1, help="At most this many messages in one batch.")] = 1_000_000,
    option: Access = None,
    master: Master = None,
    conf: Conf = None,
    output: OutputOption = Output.table,
) -> None:
    """Keep a table of a topic, exactly once: Delta Lake, Iceberg or Parquet; every run adds what is new."""
    from rocketline.pipelines.tables.decoding.choice import SchemaSource, decoding_for, wire_named
    from rocketline.pipelines.tables.table import TopicTable, keep_table

    cluster, access = needed_cluster(namesrv, option)
    wanted = TopicTable(
        cluster,
        topic,
        target,
        table_format,
        body,
        schema,
        keep_body,
        tuple(merge_key or ()),
        delete_when,
        per_batch,
        not allow_loss,
        access,
        decoding_for(body, topic, SchemaSource(schema_file, message_type, schema_registry, schema_subject, wire)),
        wire_named(wire) if body == "json" else None,
    )
    conf = with_runtime(table_format, conf)
    run_pipeline(
        "table", master, conf, output, lambda spark: keep_table(spark, wanted, tell, follow=follow, compact=compact)
    )


@pipeline_app.command()
def audit_table(
    target: Annotated[str, typer.Argument(metavar="DIR", help="Folder of the tables.")],
    topic: Annotated[str, typer.Option(help="The topic; its table is DIR/TOPIC.")],
    table_format: TableFormat,
    namesrv: Namesrv = None,
    as_of: AsOf = None,
    since: Since = None,
    until: Until = None,
    option: Access = None,
    master: Master = None,
    conf: Conf = None,
    output: OutputOption = Output.table,
) -> None:
    """Compare a table with what the topic still has: rows missing, twice or different. Exit code 1: they differ."""
    from rocketline.pipelines.tables.auditing import Window
    from rocketline.pipelines.tables.auditing import audit_table as run
    from rocketline.pipelines.tables.table import TopicTable

    cluster, access = needed_cluster(namesrv, option)
    wanted, window = TopicTable(cluster, topic, target, table_format, access=access), Window.parse(since, until)

    def work(spark: SparkSession) -> Outcome:
        return run(spark, wanted, tell, as_of=as_of, window=window)

    run_pipeline("audit-table", master, with_runtime(table_format, conf), output, work)


@pipeline_app.command()
def restore(
    source: Annotated[
        str,
        typer.Argument(metavar="DIR", help="Folder of an archive or of tables; with --from, a new folder for a store."),
    ],
    to_namesrv: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Cluster to send to.")] = None,
    from_address: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="URI", help="Make a store of what `offload` copied here, for a broker to serve."
        ),
    ] = None,
    topic: Topics = None,
    table_format: Annotated[
        str | None, typer.Option("--format", help="DIR has tables of topics in this format: delta, parquet or iceberg.")
    ] = None,
    as_of: AsOf = None,
    to_topic: ToTopic = None,
    where: Where = None,
    rate: Rate = None,
    option: Access = None,
    master: Master = None,
    conf: Conf = None,
    config: ConfigFile = None,
    settings: Settings = None,
    output: OutputOption = Output.table,
) -> None:
    """Send the messages of an archive, or of tables of topics, back into topics; or bring an offloaded log back."""
    if from_address is not None:
        if to_namesrv or topic or table_format or to_topic or where or rate:
            raise UsageProblem(
                "--from makes a store in DIR and sends nothing: leave out what says where and what to send"
            )
        _bring_back(from_address, Path(source), config, settings, output)
        return
    if as_of and not table_format:
        raise UsageProblem("--as-of needs --format: an archive has no versions")
    if to_namesrv is None:
        raise UsageProblem("to where? give --to-namesrv HOST:PORT; or --from URI, for an offloaded log")
    from rocketline.pipelines.archive import archived
    from rocketline.pipelines.archive import restore as run
    from rocketline.pipelines.tables.auditing import stored_messages

    access = spark_access(option or ())
    run_pipeline(
        "restore",
        master,
        with_runtime(table_format, conf, source),
        output,
        lambda spark: run(
            spark,
            source,
            stored_messages(spark, source, topic or (), table_format, as_of)
            if table_format
            else archived(spark, source),
            to_namesrv,
            tell,
            topics=tuple(topic or ()),
            to_topic=to_topic,
            where=where,
            rate=rate,
            access=access,
        ),
    )


@pipeline_app.command()
def offload(
    store: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder given to `up --data`, or a store root; a broker may have it open."),
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="URI", help="s3://bucket/folder, hdfs://host/folder, or a folder.")
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(
            metavar="URI", help="Copy nothing: read back what is there, and compare it. Exit code 1: damaged."
        ),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Copy finished log files and their queue units to an object store, once each; needs neither Spark nor a broker."""
    try:
        from rocketline.pipelines.offload import offload as run
        from rocketline.pipelines.offload import verify_offload
    except ImportError as error:
        raise ConfigError(f"offload needs {error.name}: pip install 'rocketline[arrow]'") from error

    with recorded("offload") as record:
        if verify is not None and store is None and to is None:
            outcome = verify_offload(verify, tell)
        elif verify is None and store is not None and to is not None:
            outcome = run(store, to, tell)
        else:
            raise UsageProblem("give --store DIR and --to URI to copy, or --verify URI alone to read back")
        note_outcome(record, outcome)
    show_outcome(outcome, output)


def _bring_back(address: str, folder: Path, config: Path | None, settings: list[str] | None, output: Output) -> None:
    from rocketline.cli.jobs.store import broker_config
    from rocketline.pipelines.bring_back import bring_back

    with recorded("restore") as record:
        outcome = bring_back(address, folder, tell, broker_config(config, settings))
        note_outcome(record, outcome)
    show_outcome(outcome, output)
