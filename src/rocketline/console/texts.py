"""The words of the console in each language: catalogues with the same keys."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

LANGUAGES = {"en": "English", "zh": "中文"}
DEFAULT = "en"


class Texts:
    """One language. A key that is missing is an error: there is a test for every key."""

    def __init__(self, language: str, table: dict[str, str]) -> None:
        self.language = language
        self.table = table

    def __call__(self, key: str, /, **values: object) -> str:
        text = self.table[key]
        return text.format(**values) if values else text

    def has(self, key: str) -> bool:
        return key in self.table


@cache
def texts_of(language: str) -> Texts:
    content = tomllib.loads((files("rocketline.console") / "texts" / f"{language}.toml").read_text(encoding="utf-8"))
    return Texts(language, dict(_flat("", content)))


def _flat(prefix: str, table: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = []
    for key, value in table.items():
        if isinstance(value, dict):
            pairs += _flat(f"{prefix}{key}.", value)
        else:
            pairs.append((prefix + key, value))
    return pairs


def wanted_language(setting: str, header: str) -> str:
    """The language somebody chose, else the first of their browser's that there is.

    >>> wanted_language("", "fr, zh-CN;q=0.8, en;q=0.7")
    'zh'
    """
    if setting in LANGUAGES:
        return setting
    for part in header[:200].split(","):
        code = part.partition(";")[0].strip().lower().partition("-")[0]
        if code in LANGUAGES:
            return code
    return DEFAULT
