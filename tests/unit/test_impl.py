"""Which implementation runs, and that it can be chosen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from tests.support.compiled import needs_compiled

import rocketline
from rocketline import _impl


def run(wanted: str) -> subprocess.CompletedProcess[str]:
    code = "import rocketline, rocketline.protocol.records; print(rocketline.__impl__)"
    environment = dict(os.environ, ROCKETLINE_IMPL=wanted, PYTHONPATH=os.pathsep.join(sys.path))
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


def test_python_is_always_there() -> None:
    assert run("python").stdout.strip() == "python"


@needs_compiled
@pytest.mark.parametrize("wanted", ["c", ""])
def test_the_compiled_module_is_used_where_it_was_built(wanted: str) -> None:
    assert run(wanted).stdout.strip() == "c"


def test_an_unknown_choice_is_an_error() -> None:
    assert "ROCKETLINE_IMPL='rust'" in run("rust").stderr


@needs_compiled
def test_a_module_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_impl, "sources_hash", lambda _: "another state")
    monkeypatch.delenv("ROCKETLINE_IMPL", raising=False)
    assert _impl._load() is None
    monkeypatch.setenv("ROCKETLINE_IMPL", "c")
    with pytest.raises(ImportError, match="other sources"):
        _impl._load()


def test_ci_runs_with_the_compiled_module() -> None:
    if os.environ.get("CI") != "true" or os.environ.get("ROCKETLINE_IMPL") or shutil.which("cc") is None:
        pytest.skip("only where a compiler is for certain, and nobody chose otherwise")
    assert rocketline.__impl__ == "c"


@needs_compiled
def test_compiled_code_knows_the_same_layout_of_records() -> None:
    from rocketline import _compiled  # type: ignore[attr-defined]
    from rocketline.protocol import record_layout

    assert {name: getattr(record_layout, name) for name in _compiled.RECORD_LAYOUT} == _compiled.RECORD_LAYOUT
    heads = record_layout.HEAD_BYTES
    extra = record_layout.IPV6_EXTRA_BYTES
    assert [heads[0], heads[record_layout.BORN_IPV6]] == [record_layout.BODY_AT, record_layout.BODY_AT + extra]
