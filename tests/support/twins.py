"""What comparing the compiled twin with Python takes."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from rocketline import _impl
from rocketline.errors import RocketlineError

needs_twin = pytest.mark.skipif(_impl.NAME != "c", reason="the compiled twin was not built, or is switched off")
unhurried = settings(deadline=None, max_examples=int(os.environ.get("TWIN_EXAMPLES", "150")))
few = settings(unhurried, max_examples=max(1, unhurried.max_examples // 5))
"""For whole brokers, and what other comparisons cover too."""

int16 = st.integers(-(1 << 15), (1 << 15) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
text = st.text(st.characters(exclude_categories=["Cs"]))
any_text = st.text()
word = st.text("kü#\N{GRINNING FACE}0123456789ABCDEF", max_size=40)


@contextmanager
def pure(module: Any, name: str) -> Iterator[None]:
    """Without one compiled function: with its Python function, or with None where Python has other code."""
    assert getattr(module, name) is not None
    with patch.object(module, name, _impl.TWINS.get(name, (None,))[0]):
        yield


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """The result, or the kind of the error."""
    try:
        return function(*args)
    except (RocketlineError, struct.error, ValueError) as error:
        return type(error)


def python(name: str) -> Callable[..., Any]:
    return _impl.TWINS[name][0]


def compiled(name: str) -> Callable[..., Any]:
    return _impl.TWINS[name][1]
