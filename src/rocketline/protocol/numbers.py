"""Whole numbers out of texts that came from somebody: a property, a header field, a file.

`int()` is not for these. It takes blanks, underscores and the digits of all scripts, it raises for a text of more than 4,300
digits, and what it does take may be far beyond the 64 bits that records and frames have room for.
"""

from __future__ import annotations

import re

MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def read_number(text: str | None, lowest: int = 0, highest: int = MAX_INT64) -> int | None:
    """The number that a text says; None when it says none, or one out of bounds.

    >>> read_number("15"), read_number("-15"), read_number("-15", lowest=-20), read_number("9" * 5000), read_number("1_0")
    (15, None, -15, None, None)
    """
    if text is None or _WHOLE.fullmatch(text) is None:
        return None
    number = int(text)
    return number if lowest <= number <= highest else None
