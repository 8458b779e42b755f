"""Missing requirements are reported before Spark is started; wrong command lines are explained."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketline.cli.main import main
from rocketline.errors import ConfigError
from rocketline.pipelines.declarative import write_project
from rocketline.pipelines.orders import order_messages
from rocketline.pipelines.plot import plot_bars, plot_lines
from rocketline.spark import sessions

COMMANDS = (
    "medallion", "archive", "restore", "replay", "dlq", "lag", "trace", "audit", "rebuild", "package", "project",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_pipeline_explains_itself(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main(["pipeline", command, "--help"]) == 0
    assert f"rocketline pipeline {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "found"), [("pyspark", "3.5.1"), ("pandas", "1.5.3"), ("pandas", "3.0.0"), ("pyarrow", "4.0")]
)
def test_a_library_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch, name: str, found: str) -> None:
    real = sessions.version
    monkeypatch.setattr(sessions, "version", lambda asked: found if asked == name else real(asked))
    with pytest.raises(ConfigError, match=rf"{name} {found} is installed, pipelines need .*rocketline\[spark\]"):
        sessions.check_libraries()


def test_without_java_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="Spark needs Java 17"):
        sessions.check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="JAVA_HOME is"):
        sessions.check_java()


@pytest.mark.parametrize(
    ("master", "tasks_only", "is_quick"),
    [(None, True, True), ("spark://h:7077", True, True), ("sc://h:15002", True, False), ("local[1]", False, False)],
)
def test_a_jvm_that_only_hands_out_tasks_compiles_little(
    monkeypatch: pytest.MonkeyPatch, master: str | None, tasks_only: bool, is_quick: bool
) -> None:
    # A session that is never started: what it would have been started with.
    asked: dict[str, str] = {}

    def started(builder: Any, master: str) -> Any:
        asked.update(builder._options)
        raise ConfigError("not now")

    monkeypatch.setattr(sessions, "_started", started)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    mine = {"spark.driver.extraJavaOptions": "-Dmine"}
    with pytest.raises(ConfigError, match="not now"), sessions.open_session("x", master, mine, tasks_only=tasks_only):
        pass
    quick = [asked.get(f"spark.{side}.defaultJavaOptions") for side in ("driver", "executor")]
    assert all("TieredStopAtLevel=1" in (options or "") for options in quick) == is_quick
    assert asked["spark.driver.extraJavaOptions"] == "-Dmine"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["archive", "x"], "name either a cluster"),
        (["replay", "--path", "x"], "name the cluster to send to"),
        (["audit", "/nowhere/at/all"], "does not exist"),
        (["package", "x.rar"], "--py-files"),
        (
            ["medallion", "x", "--path", "y", "--window", "5 minuts"],
            "window '5 minuts' is not a length of time: write ",
        ),
        (["medallion", "x", "--path", "y", "--late-after", "soon"], "late_after 'soon' is not a length of time"),
        (["archive", "x", "--path", "y", "--conf", "cores"], "--conf cores"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert main(["pipeline", *arguments]) in (1, 2)
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert problem in error
    assert error.count("\n") == 1


def test_a_project_is_a_program_with_its_values(tmp_path: Path) -> None:
    paths = write_project(tmp_path / "shop", 'h:1"x', "orders", "out")
    program = paths[1].read_text()
    assert 'NAMESRV = "h:1\\"x"' in program
    compile(program, "medallion.py", "exec")
    assert subprocess.run([sys.executable, "-m", "py_compile", str(paths[1])]).returncode == 0
    with pytest.raises(ConfigError, match="is not empty"):
        write_project(tmp_path / "shop", "h:1", "a", "b")


def test_orders_come_twice_late_and_broken() -> None:
    now = datetime(2026, 1, 31, tzinfo=UTC)
    found = list(order_messages(400, now=now))
    assert len(found) == 416
    assert sum(b"no order" in order.body for order in found) == 2
    assert list(order_messages(400, now=now)) == found


def test_plots_are_pictures(tmp_path: Path) -> None:
    plot_lines(tmp_path / "a" / "lines.svg", "<lag>", {"g orders": [(0, 5), (2, 1)]}, "")
    plot_bars(tmp_path / "bars.svg", "times", {"orders": {"p50": 3.0, "p99": 9.0}}, "ms")
    assert "&lt;lag&gt;" in (tmp_path / "a" / "lines.svg").read_text()
    assert (tmp_path / "bars.svg").read_text().count("<rect") == 2
