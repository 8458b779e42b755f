"""Which settings somebody goes by: reads of the fields of settings objects, noted while servers run.

A read counts when code of the package outside the modules that define settings asks for the field, or for a property that
is made of it. Checking a value, showing it and copying it do not count, nor does what the command line does with it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints
from unittest.mock import patch

import rocketline
from rocketline import settings

PACKAGE = str(Path(rocketline.__file__).parent)
NOT_SERVING = tuple(f"{PACKAGE}/{name}/" for name in ("cli", "testing"))
FOR_ALL_FIELDS = frozenset({"__init__", "__post_init__", "_load", "_secrets_of", "values_of", "with_values"})
"""Functions that look at every field, whether it means something or not."""

Setting = tuple[str, str]
"""(class, field)"""


def sections(kind: type[Any]) -> Iterator[type[Any]]:
    """The class and the classes of the sections inside it."""
    yield kind
    hints = get_type_hints(kind)
    for item in fields(kind):
        if is_dataclass(hints[item.name]):
            yield from sections(hints[item.name])


def all_settings(kind: type[Any]) -> set[Setting]:
    """Every setting of a class and of the sections inside it."""
    return {
        (section.__name__, item.name)
        for section in sections(kind)
        for item in fields(section)
        if not is_dataclass(get_type_hints(section)[item.name])
    }


@contextmanager
def noted_reads(*kinds: type[Any]) -> Iterator[set[Setting]]:
    """The settings of these classes that somebody went by, in the end."""
    seen: set[Setting] = set()
    watched = {section for kind in kinds for section in sections(kind)}
    defining = {base.__module__ for section in watched for base in section.__mro__ if is_dataclass(base)}
    modules = (settings, dataclasses, sys.modules[__name__], *(sys.modules[name] for name in defining))
    files = frozenset(str(module.__file__) for module in modules)
    with ExitStack() as patched:
        for section in watched:
            patched.enter_context(patch.object(section, "__getattribute__", _noting(section, seen, files)))
        yield seen


def _noting(section: type[Any], seen: set[Setting], files: frozenset[str]) -> Callable[[Any, str], Any]:
    names = {item.name for item in fields(section)}

    def read(self: Any, name: str) -> Any:
        if name in names and _counts(files):
            seen.add((type(self).__name__, name))
        return object.__getattribute__(self, name)

    return read


def _counts(files: frozenset[str]) -> bool:
    """Whether the code that asks, with the properties of settings in between left out, is a server's."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename in files:
        if frame.f_code.co_name in FOR_ALL_FIELDS or frame.f_back is None:
            return False
        frame = frame.f_back
    place = frame.f_code.co_filename
    return place.startswith(PACKAGE) and not place.startswith(NOT_SERVING)
