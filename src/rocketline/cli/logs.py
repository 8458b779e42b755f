"""Logs of a process: standard library only, to standard error, as lines for people or as one JSON object a line.

Quiet unless asked: warnings and errors, and what operators change (`rocketline.audit`), which nobody should have to ask for.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import StrEnum

AUDIT = "rocketline.audit"
TEXT_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class LogFormat(StrEnum):
    text = "text"
    json = "json"


class LogLevel(StrEnum):
    error = "error"
    warning = "warning"
    info = "info"
    debug = "debug"


class JsonFormatter(logging.Formatter):
    """`time`, `level`, `logger`, `message`, and what the record brings along: `fields` of an audit line, a traceback; and
    `broker`, where several write to one place."""

    def __init__(self, broker: str = "") -> None:
        super().__init__()
        self._broker = broker

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._broker:
            line["broker"] = self._broker
        if isinstance(fields := getattr(record, "fields", None), dict):
            line["fields"] = fields
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_to_stderr(
    verbose: int = 0, level: LogLevel | None = None, log_format: LogFormat = LogFormat.text, *, broker: str = ""
) -> None:
    """Warnings only; with one `-v` what happens, with two everything, and a level said in words wins. A `broker` that shares
    standard error with others puts its name into every line."""
    handler = logging.StreamHandler(sys.stderr)
    text_format = TEXT_FORMAT.replace("%(name)s", f"{broker.replace('%', '%%')} %(name)s") if broker else TEXT_FORMAT
    handler.setFormatter(JsonFormatter(broker) if log_format is LogFormat.json else logging.Formatter(text_format))
    number = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    if level is not None:
        number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=number, handlers=[handler], force=True)
    logging.getLogger(AUDIT).setLevel(min(number, logging.INFO) if number <= logging.WARNING else number)
