"""What other parts of rocketline say, in the visitor's language.

Clients, admin and store give reasons as English sentences with values in them. A catalogue has these sentences with places
for the values. A sentence is recognised by its words, and its values go into the other language's sentence; a value that
is a sentence itself is put into that language too. What no catalogue knows, such as a broker's remark, stays as it came.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache, lru_cache
from importlib.resources import files

MOST_CHARS = 1000
"""Longer texts are no sentences of ours."""
MOST_NESTED = 4
WORD, ANY = r"\S+", ".+?"
"""What a place takes: `{word}` no blanks, all others anything."""
_PLACE = re.compile(r"\{(\w+)\}")


@cache
def _sentences(language: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """(pattern of the English sentence, the other language's sentence); those with the most words of their own first."""
    path = files("rocketline.console") / "texts" / f"said.{language}.toml"
    table: dict[str, str] = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    ordered = sorted(table.items(), key=lambda pair: -len(_PLACE.sub("", pair[0])))
    return tuple((re.compile(_pattern(english), re.DOTALL), other) for english, other in ordered)


def _pattern(english: str) -> str:
    parts = _PLACE.split(english)  # text, name, text, name, ..., text
    places = [f"(?P<{name}>{WORD if name == 'word' else ANY})" for name in parts[1::2]]
    return "".join(text + place for text, place in zip(map(re.escape, parts[::2]), [*places, ""]))


def said(text: str, language: str) -> str | None:
    """The text in this language; None when nobody knows its words there.

    >>> said("refused with 16: no permission", "zh")
    '拒绝，代码 16：no permission'
    """
    return text if language == "en" else _said(text, language, MOST_NESTED)


@lru_cache(maxsize=4000)
def _said(text: str, language: str, deeper: int) -> str | None:
    if len(text) > MOST_CHARS or not deeper:
        return None
    for pattern, other in _sentences(language):
        found = pattern.fullmatch(text)
        if found is not None:
            given = found.groupdict().items()
            return other.format(**{name: _said(value, language, deeper - 1) or value for name, value in given})
    return None
