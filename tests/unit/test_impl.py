"""Which implementation runs, and that it can be chosen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from tests.support.twins import needs_twin

import rocketline
from rocketline import _impl


def run(wanted: str) -> subprocess.CompletedProcess[str]:
    code = "import rocketline, rocketline.protocol.records; print(rocketline.__impl__)"
    environment = dict(os.environ, ROCKETLINE_IMPL=wanted, PYTHONPATH=os.pathsep.join(sys.path))
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


def test_python_is_always_there() -> None:
    assert run("python").stdout.strip() == "python"


@needs_twin
@pytest.mark.parametrize("wanted", ["c", ""])
def test_the_twin_is_used_where_it_was_built(wanted: str) -> None:
    assert run(wanted).stdout.strip() == "c"


def test_an_unknown_choice_is_an_error() -> None:
    assert "ROCKETLINE_IMPL='rust'" in run("rust").stderr


@needs_twin
def test_a_twin_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_impl, "REVISION", -1)
    monkeypatch.delenv("ROCKETLINE_IMPL", raising=False)
    assert _impl._load() is None
    monkeypatch.setenv("ROCKETLINE_IMPL", "c")
    with pytest.raises(ImportError, match="other sources"):
        _impl._load()


def test_ci_runs_with_the_twin() -> None:
    if os.environ.get("CI") != "true" or os.environ.get("ROCKETLINE_IMPL") or shutil.which("cc") is None:
        pytest.skip("only where a compiler is for certain, and nobody chose otherwise")
    assert rocketline.__impl__ == "c"
