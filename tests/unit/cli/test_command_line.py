"""The command line before any command does its work: help, mistakes, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from rocketline import __version__
from rocketline.cli import main as command_line
from rocketline.cli.failures import take_debug
from rocketline.cli.main import main
from rocketline.errors import ConfigError

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("command", ["up", "nameserver", "broker", "produce", "consume", "demo", "version"])
def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([command, "--help"]) == 0
    assert f"rocketline {command}" in capsys.readouterr().out


def test_version(rocketline: Run) -> None:
    result = rocketline("version")
    assert result.returncode == 0
    assert result.stdout.startswith("rocketline ")


def test_what_commands_tell_can_be_had_as_json(called: Callable[..., Any], tmp_path: Path) -> None:
    def told(*arguments: object) -> Any:
        result = called(*arguments, "--output", "json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    assert told("version")["version"] == __version__
    assert {row["file"] for row in told("examples", "copy", tmp_path / "mine")} >= {str(tmp_path / "mine" / "tail.py")}
    assert told("certs", tmp_path / "certs", "--client", "alice")[-1]["file"] == str(tmp_path / "certs" / "alice.pem")
    people = tmp_path / "users.json"
    (tmp_path / "password").write_text("long enough to be one")
    called("console", "users", "add", "ada", "--file", people, "--password-file", tmp_path / "password")
    assert told("console", "users", "list", "--file", people) == [{"name": "ada", "role": "viewer", "disabled": False}]


def test_a_flag_that_apache_calls_o_names_the_flag_for_json(called: Callable[..., Any]) -> None:
    result = called("admin", "brokerConsumeStats", "-b", "127.0.0.1:1", "-o", "json")
    assert (result.returncode, "--output json" in result.stderr) == (2, True), result.stderr


def test_the_package_can_be_run_as_a_module() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "rocketline", "version"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout.split()[0]) == (0, "rocketline")
    wrong = subprocess.run([sys.executable, "-m", "rocketline", "up", "--nonsense"], capture_output=True, check=False)
    assert wrong.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["fly"], "'fly'"),
        (["up", "--wings", "2"], "--wings"),
        (["up", "--brokers", "many"], "--brokers"),
        (["up", "--broker-port", "70000"], "--broker-port"),
        (["up", "--brokers", "27"], "from 1 to 26"),
        (["up", "--flush", "never"], "--flush"),
        (["up", "--set", "flushDiskType"], "KEY=VALUE"),
        (["up", "--set", "flushdisktype=SYNC_FLUSH"], "no setting 'flushdisktype'"),
        (["broker", "-n", "127.0.0.1:9876"], "--data DIR"),
        (["broker", "--data", "/nowhere"], "--namesrv HOST:PORT"),
        (["produce"], "TOPIC"),
        (["produce", "orders", "hello", "--property", "colour"], "NAME=VALUE"),
        (["produce", "orders", "--count", "3"], "--count"),
        (["consume", "orders", "--output", "xml"], "'--output'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    called: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], named: str
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    result = called(*arguments)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert named.lower() in line.lower()
    assert "--help`" in line
    assert result.stdout == ""


def _failing(error: BaseException) -> Callable[..., None]:
    def app(*_: object, **__: object) -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConfigError("the port\nis taken"), "error: the port is taken"),
        (PermissionError(13, "Permission denied", "/data"), "error: /data: Permission denied"),
        (ExceptionGroup("several", [ConfigError("the first")]), "error: the first"),
        (
            KeyError("x"),
            "error: unexpected KeyError: 'x'; run again with --debug and report what it shows",
        ),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: BaseException, line: str
) -> None:
    monkeypatch.setattr(command_line, "app", _failing(error))
    assert main(["version"]) == 1
    assert capsys.readouterr().err == line + "\n"


@pytest.mark.parametrize("arguments", [["--debug", "version"], ["version", "--debug"]])
def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.setattr(command_line, "app", _failing(ConfigError("broken")))
    with pytest.raises(ConfigError, match="broken"):
        main(arguments)


def test_debug_after_the_double_dash_is_a_message() -> None:
    assert take_debug(["produce", "t", "--", "--debug"]) == (False, ["produce", "t", "--", "--debug"])


@pytest.mark.parametrize("job", ["audit", "rebuild"])
def test_a_job_without_spark_names_the_extra(
    called: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: str
) -> None:
    from rocketline.spark import sessions

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(sessions, "version", missing)
    monkeypatch.setitem(sys.modules, f"rocketline.pipelines.{job}", None)  # it would import what is missing
    result = called("pipeline", job, tmp_path)
    (line,) = result.stderr.splitlines()
    assert (result.returncode, "install the extra `spark`" in line) == (1, True)
