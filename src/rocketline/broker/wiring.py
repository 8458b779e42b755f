"""The decorator for classes that hold what a part of a broker works with: fields are given once and stay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(eq_default=False, frozen_default=True, field_specifiers=(field,))
def wired(kind: type[T]) -> type[T]:
    """Make a dataclass with `__init__` and nothing else. Only the type checker forbids assignment to a field, and instances
    are neither compared nor printed: generating those methods for dozens of classes took a sixth of a broker's start."""
    if kind.__doc__ is None:
        kind.__doc__ = kind.__name__  # or its signature would be worked out
    return dataclass(repr=False, eq=False)(kind)
