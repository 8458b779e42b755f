"""Logs of a process: how much, in which form, and what is never in them."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.patience import PATIENCE_S
from tests.unit.cli.test_servers import serving

from rocketline import _impl
from rocketline.cli import logs
from rocketline.cli.logs import (
    AUDIT,
    JsonFormatter,
    LogFormat,
    LoggingOptions,
    LogLevel,
    log_server_to_stderr,
    log_to_stderr,
)
from rocketline.cli.servers.child import cli_command, cli_environment

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Lines = Callable[[], list[str]]
SECRET = "do-not-tell-anybody"


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], list[str]]]:
    """The lines so far; the loggers are as before at the end."""
    root, audit = logging.getLogger(), logging.getLogger(AUDIT)
    handlers, level, audit_level = root.handlers[:], root.level, audit.level
    root.handlers.clear()
    yield lambda: capsys.readouterr().err.splitlines()
    root.handlers[:] = handlers
    root.setLevel(level)
    audit.setLevel(audit_level)


def test_quiet_by_default(stderr: Lines) -> None:
    log_to_stderr(LoggingOptions())
    log = logging.getLogger("rocketline.somewhere")
    log.info("what happens")
    log.warning("what is wrong")
    logging.getLogger(AUDIT).info("who did it")
    assert [line.partition(": ")[2] for line in stderr()] == ["what is wrong", "who did it"]


def test_warnings_that_strangers_cause_fill_no_disk(stderr: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place of the code has its share; what operators and access control say is never left out."""
    now = 1000.0
    monkeypatch.setattr(logs, "monotonic", lambda: now)
    log_to_stderr(LoggingOptions())
    log, audit = logging.getLogger("rocketline.somewhere"), logging.getLogger(AUDIT)

    def close(number: int) -> None:
        log.warning("closing %d", number)

    def lines() -> list[str]:
        return [line.partition(": ")[2] for line in stderr()]

    for number in range(logs.MAX_LINES + 5):
        close(number)
        audit.info("who did it")
    log.warning("another place")
    shown = lines()
    assert [line for line in shown if "closing" in line] == [f"closing {number}" for number in range(logs.MAX_LINES)]
    assert (shown.count("who did it"), shown[-1]) == (logs.MAX_LINES + 5, "another place")
    now += logs.LINES_PAUSE_S
    close(1)
    close(2)
    assert lines() == ["closing 1 (and 5 lines like this before)", "closing 2"]


@pytest.mark.parametrize(
    ("verbose", "level", "shown"),
    [
        (0, None, ["warning"]),
        (1, None, ["info", "warning"]),
        (2, None, ["debug", "info", "warning"]),
        (5, None, ["debug", "info", "warning"]),
        (0, LogLevel.debug, ["debug", "info", "warning"]),
        (2, LogLevel.error, []),
    ],
)
def test_levels(stderr: Lines, verbose: int, level: LogLevel | None, shown: list[str]) -> None:
    log_to_stderr(LoggingOptions(verbose, level))
    log = logging.getLogger("rocketline.somewhere")
    for name in ("debug", "info", "warning"):
        getattr(log, name)("%s", name)
    assert [line.rpartition(" ")[2] for line in stderr()] == shown


def test_with_errors_only_changes_are_not_told(stderr: Lines) -> None:
    log_to_stderr(LoggingOptions(level=LogLevel.error))
    logging.getLogger(AUDIT).info("who did it")
    assert stderr() == []


def test_json_is_one_object_a_line(stderr: Lines) -> None:
    log_to_stderr(LoggingOptions(format=LogFormat.json))
    log = logging.getLogger("rocketline.somewhere")
    log.warning("two\nlines of %s", "Grüße")
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("it failed")
    log.warning("a change", extra={"fields": {"who": "me"}})
    first, second, third = map(json.loads, stderr())
    assert (first["level"], first["logger"], first["message"]) == (
        "WARNING", "rocketline.somewhere", "two\nlines of Grüße",
    )  # fmt: skip
    assert first["time"].endswith("Z")
    assert second["traceback"].endswith("ValueError: no")
    assert third["fields"] == {"who": "me"}


def test_a_record_that_cannot_be_json_is_still_a_line() -> None:
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "odd", None, None)
    record.fields = {"what": object()}
    assert json.loads(JsonFormatter().format(record))["message"] == "odd"


def test_a_broker_tells_changes_and_no_secrets(rocketline: Run, tmp_path: Path) -> None:
    """Everything is logged, everything goes wrong, and the header of the collector is nowhere."""
    conf, errors = tmp_path / "broker.conf", tmp_path / "errors"
    conf.write_text(f"listenPort=0\nmetricsGrpcExporterHeader=authorization:{SECRET}\nnobodyKnows=1\n")
    flags = ("broker", "-c", conf, "-n", "127.0.0.1:1", "--data", tmp_path / "data", "--log-format", "json")
    with errors.open("w") as stream:
        process = subprocess.Popen(
            cli_command(*map(str, flags), "--log-level", "debug"),
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
            env=cli_environment(),
        )
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip().rpartition("@")[2]
            shown = rocketline("admin", "getBrokerConfig", "-b", address)
            assert "metricsGrpcExporterHeader" in shown.stdout
            for arguments in (
                ("updateTopic", "-b", address, "-t", "orders"),
                ("updateTopic", "-b", address, "-t", "not/allowed"),
                ("updateBrokerConfig", "-b", address, "-k", "metricsGrpcExporterHeader", "-v", "x"),
            ):
                rocketline("admin", *arguments)
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)
    text = errors.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert SECRET not in text
    assert SECRET not in shown.stdout
    changes = [line["fields"] for line in lines if line["logger"] == AUDIT]
    assert [(line["what"], line["result"]) for line in changes] == [
        ("UPDATE_AND_CREATE_TOPIC", "SUCCESS"),
        ("UPDATE_AND_CREATE_TOPIC", "INVALID_PARAMETER"),
        ("UPDATE_BROKER_CONFIG", "NO_PERMISSION"),
    ]
    assert changes[0]["object"]["topic"] == "orders"


@pytest.mark.parametrize("is_fallback", [True, False])
def test_a_server_says_that_it_has_no_compiled_code(
    stderr: Lines, monkeypatch: pytest.MonkeyPatch, is_fallback: bool
) -> None:
    monkeypatch.setattr(_impl, "IS_FALLBACK", is_fallback)
    log_server_to_stderr(LoggingOptions())
    assert [("pure Python" in line) for line in stderr()] == [True] * is_fallback


def test_a_port_for_metrics_is_part_of_the_ready_line(tmp_path: Path) -> None:
    with serving("nameserver", "--port", 0, "--metrics-port", 0) as ready:
        assert ready.partition(" metrics=")[2].startswith("127.0.0.1:")
        namesrv = ready.split()[1].partition("=")[2]
        with serving("broker", "-n", namesrv, "--data", tmp_path, "--port", 0, "--metrics-port", 0) as line:
            assert line.partition(" metrics=")[2].startswith("127.0.0.1:")
