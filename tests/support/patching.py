"""Replaced functions of the system and of modules, for the thread of the test alone.

Other threads of the process, such as those of a cluster that several tests share, go on with the real functions. They are
neither disturbed nor noticed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest


def patch_here(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, instead: Callable[..., Any]) -> None:
    """Until `monkeypatch` ends, this thread calls `instead` where it would call the function `name` of `owner`."""
    real, here = getattr(owner, name), threading.get_ident()

    def call(*args: Any, **named: Any) -> Any:
        return (instead if threading.get_ident() == here else real)(*args, **named)

    monkeypatch.setattr(owner, name, call)
