"""`rocketline demo`: what it shows, and that it fails when something is lost."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.cli.demo import command as demo
from rocketline.cli.demo.command import PartResult
from rocketline.cli.demo.screen import PlainScreen, Screen
from rocketline.cli.servers.child import cli_command, cli_environment

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_it_moves_messages_and_sums_up(rocketline: Run) -> None:
    result = rocketline("demo", "--messages", 400, "--producers", 3, "--consumers", 2, "--orders", 0)
    assert result.returncode == 0, result.stdout + result.stderr
    rows = dict(line.split("  ", 1) for line in result.stdout.splitlines() if "  " in line)
    sums = {name: value.strip() for name, value in rows.items()}
    assert [sums[name] for name in ("messages sent", "acknowledged", "consumed", "lost")] == ["400", "400", "400", "0"]
    assert "a consumer left" in result.stdout
    assert "a consumer joined" in result.stdout
    assert "nothing was lost" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_terminal_gets_bars_and_a_table() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        cli_command("demo", "--messages", "100", "--producers", "2", "--consumers", "2", "--orders", "0"),
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**cli_environment(), "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:
        pass  # how a terminal says that its other end is closed
    os.close(ours)
    assert process.wait(PATIENCE_S) == 0
    assert "━" in shown.decode()
    assert "nothing was lost" in shown.decode()


def test_a_loss_is_a_failure(called: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def loses(*_: object) -> PartResult:
        return PartResult([("lost", "1")], ["message 7 was lost"])

    monkeypatch.setattr(demo, "PARTS", (loses,))
    result = called("demo")
    assert result.returncode == 1
    assert "PROBLEM: message 7 was lost" in result.stdout


async def test_plain_progress_ends_with_the_last_count(capsys: pytest.CaptureFixture[str]) -> None:
    screen: Screen = PlainScreen()
    count = 0
    async with screen.progress(2_000, lambda: {"consumed": count}):
        count = 2_000
    assert capsys.readouterr().out == "consumed 2,000 of 2,000\n"
