"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import rocketline

SOURCE = Path(rocketline.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text("utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    if name.startswith(("rocketline.spark", "rocketline.pipelines", "rocketline.columns")):
        pytest.importorskip("pyarrow")
    assert doctest.testmod(import_module(name)).failed == 0
