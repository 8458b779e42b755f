"""Runs of Spark pipelines, as they write them down in a folder of this machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from rocketline.console.access import Role
from rocketline.console.endpoints import Input, View, reads
from rocketline.console.problems import Problem
from rocketline.pipelines.runs import read_runs

if TYPE_CHECKING:
    from rocketline.console.visit import Visit


class RunRow(View, kw_only=True):
    id: str
    job: str
    state: str
    began_ms: int
    seen_ms: int
    ended_ms: int | None
    rows: int | None
    behind: int | None
    progress: str
    outcome: str
    columns: list[str]
    table: list[list[Any]]
    spark_url: str | None
    command: str


class Jobs(View, kw_only=True):
    items: list[RunRow]


@reads("/jobs", Role.VIEWER, "jobs.html", of_console=True, live=True)
async def jobs(visit: Visit, wanted: Input) -> Jobs:
    """Runs, the newest first. One that gave no sign for 30 s is lost."""
    folder = visit.desk.config.runs
    if folder is None:
        raise Problem(404, "no_page")
    runs = await asyncio.to_thread(read_runs, folder, visit.now_ms)
    return Jobs(
        items=[
            RunRow(
                id=run.id,
                job=run.job,
                state=run.state,
                began_ms=run.began_ms,
                seen_ms=run.seen_ms,
                ended_ms=run.ended_ms,
                rows=run.rows,
                behind=run.behind,
                progress=run.progress,
                outcome=run.outcome,
                columns=list(run.columns),
                table=[list(row) for row in run.table],
                spark_url=run.spark_url,
                command=run.command,
            )
            for run in runs
        ]
    )
