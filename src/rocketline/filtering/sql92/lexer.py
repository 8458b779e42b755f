"""Tokens of an expression, one at a time.

Tokens are read only as far as needed: Apache's parser stops after the first complete expression and one more token, and
whatever follows is ignored: `a = 1 foo #` is `a = 1`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rocketline.errors import InvalidExpression

MAX_CHARS = 65_536
"""Longest expression in characters; Apache has no limit."""

KEYWORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)

# Kinds of tokens besides the keywords and signs, which are their own kind.
END = "the end"
PROPERTY = "a property"
TEXT = "a string in quotes"
INTEGER = "a whole number"
DECIMAL = "a number"

# A line comment needs a line end, otherwise its dashes are signs. A 0 takes no suffix L: the L is a new token.
_PATTERN = (
    r"(?P<blank>(?:[ \t\n\r\f]|--[^\n\r]*[\n\r])+)"
    r"|(?P<decimal>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<integer>0|[1-9][0-9]*[lL]?)"
    r"|(?P<text>'[^']*(?:''[^']*)*')"
    r"|(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<sign><>|<=|>=|[=<>(),+-])"
)
_TOKEN = re.compile(_PATTERN)
_DOTTED_TOKEN = re.compile(
    _PATTERN.replace("(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)", r"(?P<word>[A-Za-z_$][A-Za-z0-9_$.]*)")
)


class Token(NamedTuple):
    kind: str
    text: str
    position: int


class Lexer:
    def __init__(self, text: str, *, dotted: bool = False) -> None:
        """`dotted`: names may have dots, which Apache's language does not know."""
        if len(text) > MAX_CHARS:
            raise InvalidExpression(f"the expression has {len(text)} characters, at most {MAX_CHARS} are allowed")
        self._text = text
        self._match = (_DOTTED_TOKEN if dotted else _TOKEN).match
        self._at = 0

    def next(self) -> Token:
        text = self._text
        while self._at < len(text):
            start = self._at
            found = self._match(text, start)
            if found is None:
                self._skip_comment(start)
                continue
            self._at = found.end()
            if found.lastgroup != "blank":
                return _token(found.lastgroup, found.group(), start)
        return Token(END, "", len(text))

    def _skip_comment(self, start: int) -> None:
        if self._text.startswith("/*", start):
            end = self._text.find("*/", start + 2)
            if end >= 0:
                self._at = end + 2
                return
            raise problem(self._text, start, "this comment does not end")
        if self._text[start] == "'":
            raise problem(self._text, start, "this string has no closing quote")
        raise problem(self._text, start, f"{self._text[start]!r} has no meaning here")


def _token(group: str | None, text: str, position: int) -> Token:
    if group == "word":
        upper = text.upper()
        return Token(upper if upper in KEYWORDS else PROPERTY, text, position)
    kinds = {"decimal": DECIMAL, "integer": INTEGER, "text": TEXT}
    return Token(kinds.get(group or "", text), text, position)


def problem(text: str, position: int, what: str) -> InvalidExpression:
    """An error with its position and the text found there."""
    near = text[position : position + 24]
    where = f"character {position + 1}" + (f", near {near!r}" if near else ", the end")
    return InvalidExpression(f"SQL92 expression, {where}: {what}", position)
