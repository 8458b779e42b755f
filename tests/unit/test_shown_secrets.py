"""No object shows a secret: what is logged or raised may have objects in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import msgspec
import pytest

import rocketline

SECRET = "do-not-tell"
NAMES = re.compile(r"password|secret|token|ticket|proof|^init_user$|^inner_account$|^users$|^acls$")
HARMLESS = re.compile(r"_(file|env)$")
"""Where the secret is."""
TEXT, SEVERAL = re.compile(r"\b(str|bytes)\b"), re.compile("Mapping|dict|list")


def classes() -> Iterator[type[Any]]:
    """All with fields."""
    found: dict[type[Any], None] = {}
    for module in walk_packages(rocketline.__path__, "rocketline."):
        try:
            values = vars(import_module(module.name)).values()
        except ModuleNotFoundError:
            continue  # of an extra that is not installed
        for value in values:
            if isinstance(value, type) and value.__module__.startswith("rocketline"):
                found[value] = None
    return iter(found)


def secrets_of(kind: type[Any]) -> list[str]:
    """The fields that may be a secret, by their names and because they are text or bytes."""
    types: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        types |= {name: str(text) for name, text in vars(base).get("__annotations__", {}).items()}
    plain = (name for name in field_names(kind) if TEXT.search(types[name]) and not SEVERAL.search(types[name]))
    return [name for name in plain if NAMES.search(name) and not HARMLESS.search(name)]


def field_names(kind: type[Any]) -> list[str]:
    if is_dataclass(kind):
        return [field.name for field in fields(kind)]
    if issubclass(kind, msgspec.Struct):
        return list(kind.__struct_fields__)
    return list(getattr(kind, "_fields", ()))


def filled(kind: type[Any]) -> object:
    """An object with the secret wherever one may be."""
    values: dict[str, Any] = dict.fromkeys(field_names(kind), "") | dict.fromkeys(secrets_of(kind), SECRET)
    if issubclass(kind, tuple):
        return kind._make(values.values())  # type: ignore[attr-defined]
    if issubclass(kind, msgspec.Struct):
        return kind(**values)
    made = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


HOLDING = [kind for kind in classes() if secrets_of(kind)]


def test_there_are_some() -> None:
    assert {"Credentials", "User", "UserInfo", "AuthConfig", "TlsConfig"} <= {kind.__name__ for kind in HOLDING}


@pytest.mark.parametrize("kind", HOLDING, ids=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
def test_a_secret_is_not_shown(kind: type[Any]) -> None:
    assert SECRET not in repr(filled(kind))
