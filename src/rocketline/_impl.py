"""Chooses between Python and the compiled twin (`native/`), for the whole process.

The twin is optional and is used when it was built. `ROCKETLINE_IMPL=python` does without it, `ROCKETLINE_IMPL=c` fails when
it is missing; `rocketline.__impl__` tells which one runs. Both give the same results: the Python functions are the
specification, the compiled ones take the plain cases and leave odd ones to them.

    @twin
    def is_sound_record(...): ...                # replaced by the compiled function of that name, when there is one

    _take_frames = quick("take_frames")          # a quick road with no Python function of its own: None without the twin
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

REVISION = 4
"""Of the functions in `native/`: a twin left over from another state of the source is not used."""

_F = TypeVar("_F", bound=Callable[..., Any])

TWINS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
"""The Python and the compiled function of every twin, for tests that compare them."""


def _load() -> Any:
    wanted = os.environ.get("ROCKETLINE_IMPL", "")
    if wanted not in ("", "c", "python"):
        raise ImportError(f"ROCKETLINE_IMPL={wanted!r}: 'c' or 'python' expected")
    if wanted == "python":
        return None
    try:
        compiled = import_module("rocketline._compiled")
    except ImportError as error:
        if wanted == "c":
            raise ImportError(
                "ROCKETLINE_IMPL=c, but the compiled twin was not built: python hatch_build.py"
            ) from error
        return None
    if compiled.REVISION != REVISION:
        if wanted == "c":
            raise ImportError(f"{compiled.__file__} was built from other sources: python hatch_build.py")
        return None
    return compiled


_compiled = _load()
NAME = "python" if _compiled is None else "c"


def twin(function: _F) -> _F:
    """The compiled function of the same name, or the Python function itself."""
    found: _F | None = getattr(_compiled, function.__name__, None)
    if found is None:
        return function
    TWINS[function.__name__] = function, found
    return found


def quick(name: str) -> Any:
    """A compiled function, or None."""
    return getattr(_compiled, name, None)
