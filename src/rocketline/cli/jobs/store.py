"""`rocketline store`: inspecting the files of a store, and rebuilding its queues and index, without a broker.

`verify` and `dump` only read. Exit codes of `verify`: 0 sound (or repaired by the next start), 1 damaged, 2 no store, or one
that cannot be read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketline.cli.options import ConfigFile, OutputOption, Settings
from rocketline.cli.servers.flags import given_settings
from rocketline.cli.tables import Output, Stream, Table, show
from rocketline.cli.times import flag_value, parse_since_ms

if TYPE_CHECKING:
    from rocketline.broker.config import BrokerConfig
    from rocketline.protocol.records import Record
    from rocketline.store.recovery.scan import Gap
    from rocketline.store.tools.folder import StoreFolder
    from rocketline.store.tools.inspection import VerifyReport
    from rocketline.store.tools.rebuild import RebuildResult
    from rocketline.store.tools.selection import RecordSelection

DAMAGED = 1
NOT_READABLE = 2

store_app = typer.Typer(
    no_args_is_help=True, help="Inspect the files of a store, or rebuild its queues and index; without a broker."
)

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder given to `up --data`, a store root, or a commitlog folder.")
]


@store_app.command()
def verify(
    folder: Folder, output: OutputOption = Output.table, config: ConfigFile = None, settings: Settings = None
) -> None:
    """Check log, queues and index; change nothing. Exit code 0: sound, 1: damaged, 2: no store."""
    from rocketline.cli.jobs.progress import progress_bar
    from rocketline.store.tools import inspection

    broker = broker_config(config, settings)
    with _exit_2_if_unreadable(), progress_bar("verify") as progress:
        stores = stores_in(folder)
        show_reports((inspection.verify(store, broker.store, progress=progress) for store in stores), output)


@store_app.command()
def dump(
    folder: Folder,
    output: OutputOption = Output.table,
    offset: Annotated[int | None, typer.Option(min=0, help="The record at this log offset.")] = None,
    from_offset: Annotated[int | None, typer.Option("--from", min=0, help="Log offset to begin at.")] = None,
    to_offset: Annotated[int | None, typer.Option("--to", min=0, help="Log offset to end before.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only this queue.")] = None,
    queue_offset: Annotated[int | None, typer.Option(min=0, help="Only this queue offset.")] = None,
    key: Annotated[str | None, typer.Option(help="Only this unique id or key.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stored at or after; ISO 8601, ms, or 10m ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Stored at or before.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Show at most this many.", show_default="all")] = None,
) -> None:
    """Show records in the order of the log; damaged parts are named and skipped."""
    from rocketline.cli.servers.serving import stop_at_closed_output
    from rocketline.store.tools.selection import RecordSelection

    selection = RecordSelection(
        log_offset=offset,
        from_offset=from_offset,
        to_offset=to_offset,
        topic=topic,
        queue_id=queue,
        queue_offset=queue_offset,
        key=key,
        since_ms=flag_value("--since", parse_since_ms, since),
        until_ms=flag_value("--until", parse_since_ms, until),
    )
    with _exit_2_if_unreadable(), stop_at_closed_output():
        _show(islice(_selected(stores_in(folder), selection), limit), output)


@store_app.command()
def rebuild(
    folder: Folder, output: OutputOption = Output.table, config: ConfigFile = None, settings: Settings = None
) -> None:
    """Rebuild consume queues and key index from the log; the broker must be stopped."""
    from rocketline.broker.config import parse_delay_levels
    from rocketline.broker.delays.delay_levels import deliver_time_codes
    from rocketline.cli.jobs.progress import progress_bar
    from rocketline.store.tools.rebuild import rebuild as build

    broker = broker_config(config, settings)
    codes = deliver_time_codes(parse_delay_levels(broker.delay_levels))
    with _exit_2_if_unreadable():
        stores = stores_in(folder)
    with progress_bar("rebuild") as progress:
        show_rebuilds(((store, build(store, broker.store, codes, progress=progress)) for store in stores), output)


def show_reports(reports: Iterable[VerifyReport], output: Output) -> None:
    """Show what was found in each store; exit code 1 when one is damaged."""
    from rocketline.cli.jobs.store_text import REPORT_COLUMNS, report_lines, report_row
    from rocketline.store.tools.inspection import Verdict

    table, is_damaged = Table(REPORT_COLUMNS), False
    for report in reports:
        is_damaged |= report.verdict is Verdict.DAMAGED
        table.rows.append(report_row(report))
        if output is Output.table:
            print("\n".join(report_lines(report)), flush=True)
    if output is not Output.table:
        show([table], output)
    if is_damaged:
        raise typer.Exit(DAMAGED)


def show_rebuilds(results: Iterable[tuple[StoreFolder, RebuildResult]], output: Output) -> None:
    """Show what was rebuilt in each store."""
    from rocketline.cli.jobs.store_text import REBUILD_COLUMNS, rebuild_lines, rebuild_row

    table = Table(REBUILD_COLUMNS)
    for store, result in results:
        table.rows.append(rebuild_row(str(store.name), result))
        if output is Output.table:
            print("\n".join(rebuild_lines(str(store.name), result)), flush=True)
    if output is not Output.table:
        show([table], output)


def broker_config(file: Path | None, settings: list[str] | None) -> BrokerConfig:
    from rocketline.broker.config import BrokerConfig
    from rocketline.cli.servers.config_sources import merged_values
    from rocketline.settings import load

    flags = given_settings(BrokerConfig, settings)
    return load(BrokerConfig, merged_values(BrokerConfig, file, os.environ, flags))[0]


def stores_in(folder: Path) -> list[StoreFolder]:
    from rocketline.store.tools.folder import find_stores
    from rocketline.store.tools.read_only import ReadOnlyDisk

    return find_stores(ReadOnlyDisk(), folder.absolute())


def _selected(stores: list[StoreFolder], selection: RecordSelection) -> Iterator[Record | Gap]:
    from rocketline.store.tools.read_only import ReadOnlyDisk
    from rocketline.store.tools.selection import select

    for store in stores:
        yield from select(store, selection, ReadOnlyDisk())


def _show(found: Iterator[Record | Gap], output: Output) -> None:
    from rocketline.cli.jobs.store_text import RECORD_COLUMNS, print_table, record_fields, record_line

    if output is Output.table and sys.stdout.isatty():
        print_table(found)
        return
    stream = Stream(output, RECORD_COLUMNS)
    for item in found:
        stream.show(partial(record_fields, item), partial(record_line, item))


@contextmanager
def _exit_2_if_unreadable() -> Iterator[None]:
    """Exit with code 2 when a folder is no store or cannot be read; code 1 is for a damaged store."""
    from rocketline.errors import StoreError

    try:
        yield
    except (StoreError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(NOT_READABLE) from error
