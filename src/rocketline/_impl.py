"""Chooses between Python functions and their compiled counterparts (`native/`), once for the whole process.

The compiled module is optional and is used when it was built. `ROCKETLINE_IMPL=python` does without it, `ROCKETLINE_IMPL=c`
fails when it is missing; `rocketline.__impl__` tells which one runs. The Python functions are the specification; a
compiled one handles the plain cases and leaves odd ones to Python.

    @compiled
    def is_sound_record(...): ...            # replaced by the compiled function of that name, where there is one

    serve_sends = compiled_only("serve_sends")    # None without the module: the fast path of a broker is compiled only
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from rocketline._sources import sources_hash

_F = TypeVar("_F", bound=Callable[..., Any])

PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
"""The Python and the compiled function of each name, for tests that compare them."""


def _load() -> Any:
    wanted = os.environ.get("ROCKETLINE_IMPL", "")
    if wanted not in ("", "c", "python"):
        raise ImportError(f"ROCKETLINE_IMPL={wanted!r}: 'c' or 'python' expected")
    if wanted == "python":
        return None
    try:
        module = import_module("rocketline._compiled")
    except ImportError as error:
        if wanted == "c":
            raise ImportError("ROCKETLINE_IMPL=c, but nothing was compiled: python hatch_build.py") from error
        return None
    native = Path(__file__).parents[2] / "native"
    # Only a checkout has the sources; there a module may be left over from an earlier state of them.
    if native.is_dir() and sources_hash(native) != module.SOURCES:
        if wanted == "c":
            raise ImportError(f"{module.__file__} was built from other sources: python hatch_build.py")
        return None
    return module


_module = _load()
NAME = "python" if _module is None else "c"
IS_FALLBACK = _module is None and os.environ.get("ROCKETLINE_IMPL") != "python"
"""Whether Python runs because there is no compiled module, and not because somebody wants it."""


def compiled(function: _F) -> _F:
    """The compiled function of the same name, or the Python function itself."""
    found: _F | None = getattr(_module, function.__name__, None)
    if found is None:
        return function
    PAIRS[function.__name__] = function, found
    return found


def compiled_only(name: str) -> Any:
    """A compiled function that has no Python counterpart; None without the compiled module."""
    return getattr(_module, name, None)
