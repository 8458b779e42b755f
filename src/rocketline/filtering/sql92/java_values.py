"""Numbers and booleans from the text of a property, by the rules of Java's parsers.

For whole numbers Java accepts decimal digits of all scripts; for doubles it accepts blanks around them and the suffixes
`d` and `f`; it accepts no underscores. `FilterFailed` stands for its NumberFormatException.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import copysign, inf

from rocketline.errors import FilterFailed

_WHOLE = re.compile(r"[+-]?(\d+)")
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEX = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_SPECIAL = {"NaN": inf, "+NaN": inf, "-NaN": inf, "Infinity": inf, "+Infinity": inf, "-Infinity": -inf}
_NAN = frozenset(("NaN", "+NaN", "-NaN"))
_BLANKS = "".join(map(chr, range(0x21)))
_MAX_DIGITS = 19


def whole_number(bits: int) -> Callable[[str], int]:
    """A parser of signed whole numbers of `bits` bits."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    surely_fits = len(str(high)) - 1

    def parse(text: str) -> int:
        # The usual case, without the forms that only Python's int() accepts.
        if len(text) <= surely_fits and text.isdigit() and text.isascii():
            return int(text)
        value = _unusual_whole(text)
        if not low <= value <= high:
            raise FilterFailed(f"{text[:40]!r} does not fit {bits} bits")
        return value

    return parse


def _unusual_whole(text: str) -> int:
    found = _WHOLE.fullmatch(text)
    # Java reads single UTF-16 units, so digits beyond the basic plane are no digits for it.
    if found is None or max(text) > "\uffff":
        raise FilterFailed(f"{text[:40]!r} is not a whole number")
    digits = found[1].lstrip("0")
    if len(digits) > 2 * _MAX_DIGITS:
        raise FilterFailed(f"{text[:40]!r} is too large")
    value = int(digits or "0")
    return -value if text[0] == "-" else value


def double(text: str) -> float:
    """A double to compare with a finite one. For Java NaN is above all numbers, so it is infinity here."""
    text = text.strip(_BLANKS)
    found = _DECIMAL.fullmatch(text)
    if found is not None:
        return float(found[1])
    special = _SPECIAL.get(text)
    if special is not None:
        return special
    found = _HEX.fullmatch(text)
    if found is None:
        raise FilterFailed(f"{text[:40]!r} is not a number")
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return -inf if text[0] == "-" else inf


def double_rank(text: str) -> tuple[float, float]:
    """A double to compare with another one from text: NaN above infinity, 0.0 above -0.0."""
    value = double(text)
    if value == inf:
        return value, 1.0 if text.strip(_BLANKS) in _NAN else 0.0
    return value, copysign(1.0, value)


def boolean(text: str) -> bool:
    return text.lower() == "true"
