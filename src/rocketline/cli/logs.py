"""Logs of a process, on standard error: lines for people, or one JSON object per line. Uses the standard library only.

By default only warnings and errors are shown, and the changes made by operators (`rocketline.audit`). Many of the warnings
are about what peers do, so their number is limited: nobody can fill a disk with them.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from time import monotonic

from rocketline import _impl

log = logging.getLogger(__name__)

AUDIT = "rocketline.audit"
MAX_LINES = 100
"""Of warnings and errors from one place of the code, in `LINES_PAUSE_S`. The audit log limits itself."""
LINES_PAUSE_S = 10.0
TEXT_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class LogFormat(StrEnum):
    text = "text"
    json = "json"


class LogLevel(StrEnum):
    error = "error"
    warning = "warning"
    info = "info"
    debug = "debug"


@dataclass(frozen=True)
class LoggingOptions:
    """The flags about logs: `-v` shows what happens, `-vv` everything; a `level`, if given, wins over `verbose`."""

    verbose: int = 0
    level: LogLevel | None = None
    format: LogFormat = LogFormat.text


class JsonFormatter(logging.Formatter):
    """A record as a JSON object: `time`, `level`, `logger` and `message`; if there are any, the `fields` of an audit line, a
    `traceback`, and the name of the `broker`, where several brokers write to one place."""

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


class FewLines(logging.Filter):
    """Counts warnings beyond the limit instead of showing them; the next one that is shown tells the number."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[tuple[str, int], tuple[float, int]] = {}
        """When the first line came, and how many there were since."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.name == AUDIT:
            return True
        place, now = (record.pathname, record.lineno), monotonic()
        began, count = self._places.get(place, (now, 0))
        if now - began >= LINES_PAUSE_S:
            if count > MAX_LINES:
                record.msg = f"{record.getMessage()} (and {count - MAX_LINES} lines like this before)"
                record.args = None
            began, count = now, 0
        self._places[place] = began, count + 1
        return count < MAX_LINES


def log_to_stderr(options: LoggingOptions, *, broker: str = "") -> None:
    """Set the logs of this process up. A `broker` that shares standard error with others has its name in every line."""
    handler = logging.StreamHandler(sys.stderr)
    text_format = TEXT_FORMAT.replace("%(name)s", f"{broker.replace('%', '%%')} %(name)s") if broker else TEXT_FORMAT
    handler.setFormatter(JsonFormatter(broker) if options.format is LogFormat.json else logging.Formatter(text_format))
    number = (logging.WARNING, logging.INFO, logging.DEBUG)[min(options.verbose, 2)]
    if options.level is not None:
        number = logging.getLevelNamesMapping()[options.level.upper()]
    if number > logging.DEBUG:
        handler.addFilter(FewLines())
    logging.basicConfig(level=number, handlers=[handler], force=True)
    logging.getLogger(AUDIT).setLevel(min(number, logging.INFO) if number <= logging.WARNING else number)


def log_server_to_stderr(options: LoggingOptions) -> None:
    """The same for a server that somebody starts; says when it has no compiled code."""
    log_to_stderr(options)
    if _impl.IS_FALLBACK:
        log.warning("no compiled code was found, so pure Python runs, which is slower; `pip install -v` says why")
