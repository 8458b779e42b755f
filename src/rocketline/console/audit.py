"""The audit: one JSON line per change, per body read and per failed login. Bodies and secrets are never in it."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from rocketline.clock import SYSTEM_CLOCK
from rocketline.errors import ConfigError

log = logging.getLogger("rocketline.audit")

MAX_REMEMBERED = 1000
HIDDEN = frozenset({"body", "bodyHex", "password", "csrf", "confirm", "idempotencyKey"})
MAX_VALUE_CHARS = 200


class AuditLine(msgspec.Struct, rename="camel"):
    time_ms: int
    person: str
    role: str
    address: str
    cluster: str
    action: str
    object: str
    parameters: dict[str, str]
    ok: bool
    outcome: str

    @property
    def summary(self) -> str:
        """One line for people, in UTC."""
        moment = datetime.fromtimestamp(self.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        who = f"{self.person or '-'} ({self.role or '-'}, {self.address or '-'})"
        # What was typed into a form must not move the cursor of a terminal.
        text = f"{moment} {who} {self.action} {self.cluster} {self.object}: {self.outcome}"
        return "".join(char if char.isprintable() else "?" for char in text)


def read_audit(path: Path, person: str | None, action: str | None, last: int) -> Iterable[tuple[AuditLine, str]]:
    """(line, as it is written) of the newest lines of a file; a line that was cut by a full disk is left out."""
    found: deque[tuple[AuditLine, str]] = deque(maxlen=last)
    try:
        with path.open("rb") as file:
            for text in file:
                try:
                    line = msgspec.json.decode(text, type=AuditLine)
                except msgspec.DecodeError:
                    continue
                if person in (None, line.person) and action in (None, line.action):
                    found.append((line, text.decode("utf-8", "replace").rstrip("\n")))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    return found


class Audit:
    """The last lines in memory, and all of them in a file, if there is one."""

    def __init__(self, path: Path | None = None) -> None:
        self.lines: deque[AuditLine] = deque(maxlen=MAX_REMEMBERED)
        self._file: int | None = None
        self._is_cut = False
        """Whether the last line of the file is not whole."""
        self.problem = ""
        """Why the file lacks the last line; empty when it has it."""
        if path is not None:
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            except OSError as error:
                raise ConfigError(f"--audit {path}: {error.strerror}") from error

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def write(self, line: AuditLine) -> None:
        self.lines.append(line)
        log.info(
            "%s: %s %s %s: %s", line.person, line.action, line.cluster, line.object, line.outcome,
            extra={"fields": msgspec.to_builtins(line)},
        )  # fmt: skip
        if self._file is not None:
            self._append(self._file, msgspec.json.encode(line) + b"\n")

    def _append(self, file: int, line: bytes) -> None:
        """What is written down was done already, so a full disk is no failure of the change; it is told in the log."""
        try:
            written = os.write(file, b"\n" + line if self._is_cut else line)
        except OSError as error:
            written, self.problem = 0, error.strerror or str(error)
            log.error("the audit file lacks a line: %s", self.problem)
            return
        self._is_cut = written < len(line)
        self.problem = "the disk is full" if self._is_cut else ""


def audit_line(
    action: str, person: str, role: str, address: str, cluster: str = "", *,
    about: str = "", parameters: dict[str, object] | None = None, ok: bool, outcome: str,
) -> AuditLine:  # fmt: skip
    shown = {
        name: str(value)[:MAX_VALUE_CHARS]
        for name, value in (parameters or {}).items()
        if name not in HIDDEN and value not in (None, "", [], {})
    }
    return AuditLine(SYSTEM_CLOCK.now_ms(), person, role, address, cluster, action, about, shown, ok, outcome[:1000])
