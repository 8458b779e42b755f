"""Reader for JSON as Java's fastjson writes and accepts it.

Beyond standard JSON: bare integer keys (`{0:"a"}`), objects and arrays as keys (`{{"queueId":1}:5}`), unquoted names, single
quotes, superfluous commas, comments, raw control characters in strings, a few more escapes. The result is plain data: keys
are strings, an object used as key becomes its compact JSON text with sorted members, the last of duplicate members wins, and
`@type` is a member like any other. `$ref`, fastjson's pointer to an object written earlier, is refused.

Standard JSON is read by msgspec. Only what msgspec refuses is scanned here, token by token with an explicit stack, so deep
nesting is safe: time is linear, and depth and length are limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from rocketline.errors import ProtocolError

MAX_DEPTH = 64
"""Deepest nesting accepted. RocketMQ's own bodies stay below 8."""

MAX_LOOSE_CHARS = 1024 * 1024
"""Longest text that is scanned here, at less than a microsecond per character; standard JSON has no such limit."""


class FastJsonError(ProtocolError, ValueError):
    """Text that even the tolerant reader cannot read; the message names the position."""


def parse(text: bytes | str, max_depth: int = MAX_DEPTH, max_loose_chars: int = MAX_LOOSE_CHARS) -> Any:
    """The data of a JSON text; FastJsonError when it cannot be read.

    >>> parse(b"{0:'a',}")
    {'0': 'a'}
    >>> parse('{{"topic":"T","queueId":1}:5}')
    {'{"queueId":1,"topic":"T"}': 5}
    """
    if ("$ref" in text) if isinstance(text, str) else (b"$ref" in text):
        return _parse_loose(text, max_depth, max_loose_chars)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _parse_loose(text, max_depth, max_loose_chars)
    if _is_deeper(value, max_depth):
        raise _too_deep(max_depth)
    return value


def _parse_loose(text: bytes | str, max_depth: int, max_chars: int) -> Any:
    if len(text) > max_chars:
        raise FastJsonError(f"{len(text)} characters are not standard JSON, and at most {max_chars} may be otherwise")
    return _Builder(max_depth).build(_as_text(text))


def _as_text(text: bytes | str) -> str:
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")  # as Java does
    # C programs write a byte order mark at the start and NULs at the end.
    return text.removeprefix("\ufeff").rstrip("\0")


def _is_deeper(value: Any, max_depth: int) -> bool:
    level = [value]
    for _ in range(max_depth + 1):
        level = [item for item in level if item.__class__ is dict or item.__class__ is list]
        if not level:
            return False
        level = [child for item in level for child in (item.values() if item.__class__ is dict else item)]
    return True


def _too_deep(max_depth: int, position: int | None = None) -> FastJsonError:
    where = "" if position is None else f" at position {position}"
    return FastJsonError(f"nested deeper than {max_depth} levels{where}")


_TOKEN = re.compile(
    r"""(?:[ \t\r\n\f\b]++|//[^\n]*+|/\*.*?\*/)*+
    (?: (?P<mark>[{}\[\],:])
      | "(?P<string>(?:[^"\\]++|\\.)*+)"
      | '(?P<single>(?:[^'\\]++|\\.)*+)'
      | (?P<float>-?[0-9]++(?:\.[0-9]*+(?:[eE][+-]?[0-9]++)?|[eE][+-]?[0-9]++)[FD]?|-?[0-9]++[FD])
      | (?P<int>-?[0-9]++)[LSB]?
      | (?P<word>[^\W\d$][\w$]*+|\$[\w$]*+)
      | (?P<end>\Z)
      | (?P<odd>.)
    )""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT_ESCAPES = {
    '"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    **{str(digit): chr(digit) for digit in range(8)},
}  # fmt: skip
_WORDS = {"true": True, "false": False, "null": None}
_INFINITE = (float("inf"), float("-inf"))


def _unexpected(wanted: str, kind: str, text: str, position: int) -> FastJsonError:
    if kind == "end":
        return FastJsonError(f"{wanted} expected at position {position}, where the text ends")
    if kind == "odd" and text in "\"'":
        return FastJsonError(f"the string at position {position} has no end")
    shown = text if len(text) <= 40 else text[:40] + "..."
    return FastJsonError(f"{wanted} expected at position {position}, found {shown!r}")


def _string(text: str, position: int) -> str:
    if "\\" not in text:
        return text

    def unescape(found: re.Match[str]) -> str:
        code = found[1] or found[2]
        if code:
            return chr(int(code, 16))
        char = _SHORT_ESCAPES.get(found[3])
        if char is None:
            raise FastJsonError(f"unknown escape {found[0]!r} in the string at position {position}")
        return char

    text = _ESCAPE.sub(unescape, text)
    if _SURROGATE.search(text):
        # Two surrogate escapes form one character; a single one is replaced.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _scalar(kind: str, text: str, position: int) -> Any:
    if kind == "string" or kind == "single":
        return _string(text, position)
    if kind == "word" and text in _WORDS:
        return _WORDS[text]
    try:
        if kind == "int":
            return int(text)
        if kind == "float" and (value := float(text.rstrip("FD"))) not in _INFINITE:
            return value
    except ValueError:  # more digits than Python converts
        pass
    raise _unexpected("a value", kind, text, position)


class _OpenContainer:
    """An object or array that is not complete yet."""

    __slots__ = ("is_key", "items", "name")

    def __init__(self, items: Any, is_key: bool) -> None:
        self.items = items
        self.is_key = is_key
        self.name = ""


class _Builder:
    """Builds the data from tokens; `_state` is the method for the next token."""

    def __init__(self, max_depth: int) -> None:
        self._max_depth = max_depth
        self._open: list[_OpenContainer] = []
        self._inside_key = False
        self._result: Any = None
        self._state: Callable[[str, str, int], None] = self._value

    def build(self, text: str) -> Any:
        for found in _TOKEN.finditer(text):
            kind = found.lastgroup or "end"
            self._state(kind, found[kind], found.start(kind))
        return self._result

    def _value(self, kind: str, text: str, position: int) -> None:
        if kind != "mark":
            self._place(_scalar(kind, text, position))
        elif text in "{[":
            self._start(text, position, is_key=False)
        elif not (self._open and self._open[-1].items.__class__ is list and text in ",]"):
            raise _unexpected("a value", kind, text, position)
        elif text == "]":
            self._finish()

    def _name(self, kind: str, text: str, position: int) -> None:
        if kind == "mark":
            self._mark_for_name(text, position)
        elif kind == "string" or kind == "single":
            self._named(_string(text, position), position)
        elif kind == "int" or kind == "word" or kind == "float":
            self._named(text, position)
        else:
            raise _unexpected("a name", kind, text, position)

    def _mark_for_name(self, text: str, position: int) -> None:
        if text == "}":
            self._finish()
        elif text in "{[":
            if self._inside_key:
                # Each such level would double the escapes of the text inside.
                raise FastJsonError(f"an object as key inside another such key at position {position}")
            self._start(text, position, is_key=True)
        elif text != ",":
            raise _unexpected("a name", "mark", text, position)

    def _named(self, name: str, position: int) -> None:
        if name == "$ref":
            raise FastJsonError(f"a $ref at position {position}: references are not supported")
        self._open[-1].name = name
        self._state = self._colon

    def _colon(self, kind: str, text: str, position: int) -> None:
        if kind != "mark" or text != ":":
            raise _unexpected("':'", kind, text, position)
        self._state = self._value

    def _next(self, kind: str, text: str, position: int) -> None:
        in_list = self._open[-1].items.__class__ is list
        if kind == "mark" and text == ",":
            self._state = self._value if in_list else self._name
        elif kind == "mark" and text == ("]" if in_list else "}"):
            self._finish()
        else:
            raise _unexpected("',' or ']'" if in_list else "',' or '}'", kind, text, position)

    def _end(self, kind: str, text: str, position: int) -> None:
        if kind != "end":
            raise _unexpected("the end", kind, text, position)

    def _start(self, text: str, position: int, is_key: bool) -> None:
        if len(self._open) >= self._max_depth:
            raise _too_deep(self._max_depth, position)
        self._inside_key = self._inside_key or is_key
        self._open.append(_OpenContainer({} if text == "{" else [], is_key))
        self._state = self._name if text == "{" else self._value

    def _finish(self) -> None:
        done = self._open.pop()
        if done.is_key:
            self._inside_key = False
            self._open[-1].name = msgspec.json.encode(done.items, order="sorted").decode()
            self._state = self._colon
        else:
            self._place(done.items)

    def _place(self, value: Any) -> None:
        if not self._open:
            self._result = value
            self._state = self._end
            return
        top = self._open[-1]
        if top.items.__class__ is dict:
            top.items[top.name] = value
        else:
            top.items.append(value)
        self._state = self._next
