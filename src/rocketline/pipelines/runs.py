"""Records of the runs of pipelines, for whoever watches them: a file of JSON lines for each run, in one folder.

    {"at": 1795017089376, "kind": "start", "job": "archive", "command": "pipeline archive /data --namesrv ..."}
    {"at": 1795017091101, "kind": "progress", "text": "archive batch 0: 1,000 messages", "rows": 1000, "behind": 0}
    {"at": 1795017099823, "kind": "end", "state": "done", "text": "archive", "columns": ["topic"], "table": [["orders"]]}

A run that lives touches its file every few seconds, also when it has nothing to tell. One whose file is silent for
`LOST_AFTER_S` and has no end is lost: its process was killed, or its machine is gone. Old files are deleted, long ones cut.
A record that cannot be written never stops a run. This module needs no Spark.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from rocketline.files import replace_file

log = logging.getLogger(__name__)

RUNS_VARIABLE = "ROCKETLINE_RUNS"
LOST_AFTER_S = 30.0
TOUCH_EVERY_S = 5.0
MAX_RUNS = 500
MAX_FILE_BYTES = 1 << 20
MAX_TEXT_CHARS = 4000
MAX_TABLE_ROWS, MAX_COLUMNS, MAX_CELL_CHARS = 50, 30, 200
_SECRET = re.compile(r"([^\s=]*(?:secret|password|token|accesskey)[^\s=]*=)\S+", re.IGNORECASE)
_NAME = re.compile(r"\d{13}-[\w-]{1,40}-[0-9a-f]{8}\.jsonl")


class _Line(msgspec.Struct, omit_defaults=True):
    """One line of a record."""

    at: int
    kind: str
    job: str = ""
    command: str = ""
    state: str = ""
    text: str = ""
    rows: int | None = None
    behind: int | None = None
    spark_url: str | None = None
    columns: list[str] = msgspec.field(default_factory=list)
    table: list[list[Any]] = msgspec.field(default_factory=list)


@dataclass(frozen=True)
class Run:
    """What is known of one run."""

    id: str
    job: str
    state: str
    """`running`, `done`, `failed` or `lost`."""
    began_ms: int
    seen_ms: int
    """When it last gave a sign of life."""
    ended_ms: int | None = None
    rows: int | None = None
    """Messages or rows handled so far."""
    behind: int | None = None
    """Messages that it has not read yet, as far as it knows."""
    progress: str = ""
    outcome: str = ""
    command: str = ""
    spark_url: str | None = None
    columns: list[str] = field(default_factory=list)
    table: list[list[Any]] = field(default_factory=list)


class RunRecord:
    """Writes the record of one run; a context manager around the whole of it."""

    def __init__(self, folder: Path, job: str, command: str = "") -> None:
        self._folder = folder
        name = re.sub(r"[^\w-]", "_", job)[:40] or "job"
        self.path = folder / f"{_now_ms():013}-{name}-{secrets.token_hex(4)}.jsonl"
        self._start = _Line(_now_ms(), "start", job=job, command=_SECRET.sub(r"\1***", command)[:MAX_TEXT_CHARS])
        self._rows: int | None = None
        self._bytes = 0
        self._end: _Line | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._toucher = threading.Thread(target=self._touch, name=f"record of {job}", daemon=True)

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _prune(self._folder)
        except OSError as error:
            log.warning("%s: this run is not recorded: %s", self._folder, error)
        self._write(self._start)
        self._toucher.start()
        _current.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self in _current:
            _current.remove(self)
        self._stop.set()
        self._toucher.join()
        end = self._end or _Line(_now_ms(), "end", state="done")
        if isinstance(error, KeyboardInterrupt):
            end = _Line(_now_ms(), "end", state="done", text="stopped")
        elif error is not None and not isinstance(error, SystemExit):
            end = _Line(_now_ms(), "end", state="failed", text=f"{type(error).__name__}: {error}"[:MAX_TEXT_CHARS])
        end.rows = self._rows
        self._write(end)

    def progress(
        self, text: str, *, rows: int | None = None, behind: int | None = None, spark_url: str | None = None
    ) -> None:
        """A line of progress; `rows` is how many came since the line before."""
        if rows is not None:
            self._rows = rows = (self._rows or 0) + rows
        line = _Line(_now_ms(), "progress", text=text[:MAX_TEXT_CHARS], rows=rows, behind=behind, spark_url=spark_url)
        self._write(line)

    def finish(
        self, text: str, columns: Sequence[str] = (), table: Sequence[Sequence[Any]] = (), *, is_bad: bool = False
    ) -> None:
        """What came of it; written when the run is left."""
        cells = [[_plain(cell) for cell in row[:MAX_COLUMNS]] for row in table[:MAX_TABLE_ROWS]]
        state = "failed" if is_bad else "done"
        self._end = _Line(
            _now_ms(),
            "end",
            state=state,
            text=text[:MAX_TEXT_CHARS],
            columns=[str(name)[:MAX_CELL_CHARS] for name in columns[:MAX_COLUMNS]],
            table=cells,
        )

    def _write(self, line: _Line) -> None:
        data = msgspec.json.encode(line) + b"\n"
        with self._lock:
            try:
                if self._bytes + len(data) > MAX_FILE_BYTES:
                    first = msgspec.json.encode(self._start) + b"\n"
                    replace_file(self.path, first)
                    self._bytes = len(first)
                with self.path.open("ab") as file:
                    file.write(data)
                self._bytes += len(data)
            except OSError as error:
                log.warning("%s: this run is not recorded: %s", self.path, error)

    def _touch(self) -> None:
        while not self._stop.wait(TOUCH_EVERY_S):
            with suppress(OSError):
                os.utime(self.path)


_current: list[RunRecord] = []


def note(text: str, *, rows: int | None = None, behind: int | None = None, spark_url: str | None = None) -> None:
    """Progress of the run of this process, if it is recorded."""
    for record in _current:
        record.progress(text, rows=rows, behind=behind, spark_url=spark_url)


def note_batch(progress: Any) -> None:
    """A batch of a streaming query is done."""
    text = f"{progress.name} batch {progress.batchId}: {progress.numInputRows:,} messages"
    note(text, rows=progress.numInputRows, behind=behind_of(progress))


def _plain(cell: Any) -> Any:
    return cell if isinstance(cell, (int, float, bool, type(None))) else str(cell)[:MAX_CELL_CHARS]


def _now_ms() -> int:
    return int(time.time() * 1000)


def _prune(folder: Path) -> None:
    """Delete the oldest records, so that one more is not too many."""
    for path in _records(folder)[MAX_RUNS - 1 :]:
        with suppress(OSError):
            path.unlink()


def _records(folder: Path) -> list[Path]:
    """The files of runs, the newest first."""
    return sorted(
        (path for path in folder.iterdir() if _NAME.fullmatch(path.name)), key=lambda path: path.name, reverse=True
    )


def read_runs(folder: Path, now_ms: int | None = None, most: int = 200) -> list[Run]:
    """The last runs, the newest first; OSError when the folder cannot be read. Lines that are no records are left out."""
    now_ms = _now_ms() if now_ms is None else now_ms
    runs = (_read(path, now_ms) for path in _records(folder)[:most])
    return [run for run in runs if run is not None]


def _read(path: Path, now_ms: int) -> Run | None:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES)
        seen_ms = int(path.stat().st_mtime * 1000)
    except OSError:
        return None
    lines = list(_lines(data))
    if not lines or lines[0].kind != "start":
        return None
    start, last = lines[0], lines[-1]
    told = [line for line in lines if line.kind == "progress"]
    counted = [line for line in lines if line.rows is not None]
    end = last if last.kind == "end" else None
    silent = now_ms - seen_ms > LOST_AFTER_S * 1000
    state = end.state if end else "lost" if silent else "running"
    return Run(
        path.stem,
        start.job,
        state if state in ("running", "done", "failed", "lost") else "failed",
        start.at,
        seen_ms,
        end.at if end else None,
        counted[-1].rows if counted else None,
        next((line.behind for line in reversed(counted) if line is not end), None),
        told[-1].text if told else "",
        end.text if end else "",
        start.command,
        next((line.spark_url for line in reversed(told) if line.spark_url), None),
        end.columns if end else [],
        end.table if end else [],
    )


def _lines(data: bytes) -> Iterator[_Line]:
    for text in data.splitlines():
        try:
            yield msgspec.json.decode(text, type=_Line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # the last line of a run that was killed


def behind_of(progress: Any) -> int | None:
    """Messages that a streaming query has not read yet, from its progress; None when a source does not say."""
    total = 0
    for source in progress.sources:
        try:
            latest, end = _leaves(json.loads(source.latestOffset)), _leaves(json.loads(source.endOffset))
        except (TypeError, ValueError):
            return None
        # A queue whose end is not known was deleted, or has just appeared and will be read from its beginning on.
        total += sum(max(0, offset - end[queue]) for queue, offset in latest.items() if queue in end)
    return total


def _leaves(offsets: Any, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], int]:
    """The offset of each queue, as our sources write them: `{"topic": {"broker": {"0": 42}}}`."""
    if not isinstance(offsets, dict):
        is_offset = len(above) == 3 and isinstance(offsets, int) and not isinstance(offsets, bool)
        return {above: offsets} if is_offset else {}
    return {queue: offset for name, part in offsets.items() for queue, offset in _leaves(part, (*above, name)).items()}
