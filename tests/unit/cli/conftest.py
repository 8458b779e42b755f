"""Runs the command line as a child process or, where that makes no difference, faster in this one."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from tests.support.patience import PATIENCE_S

from rocketline.cli.contexts import CONFIG_VARIABLE
from rocketline.cli.entry import main
from rocketline.cli.servers.child import cli_command, cli_environment

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def no_contexts(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have contexts of their own."""
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path_factory.mktemp("config") / "contexts.json"))


@pytest.fixture
def rocketline() -> Run:
    """Runs `rocketline ARGUMENTS` to its end; its exit code and both outputs."""

    def run(*arguments: object, text: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            cli_command(*map(str, arguments)),
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env={**cli_environment(), **environment},
        )

    return run


@dataclass
class Result:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """Runs `rocketline ARGUMENTS` in this process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def call(*arguments: object) -> Result:
        code = main([str(argument) for argument in arguments])
        output = capsys.readouterr()
        return Result(code, output.out, output.err)

    yield call
    root.handlers[:] = handlers
    root.setLevel(level)
