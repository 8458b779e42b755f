"""Numbers out of texts from anywhere: bounded, and nothing that only Python takes for one."""

from __future__ import annotations

import pytest

from rocketline.protocol.numbers import MAX_INT64, read_number


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("15", 15), ("+15", 15), ("0015", 15), ("-0", 0), (str(MAX_INT64), MAX_INT64)],
)
def test_numbers(text: str, number: int) -> None:
    assert read_number(text) == number


NONE = ["", " ", "x", "1.5", "1e3", "0x10", "1_000", " 1", "1 ", "1\n", "1\0", "--1", "+", "-", "\u0663", "\u00b2"]
TOO_LARGE = ["-1", str(MAX_INT64 + 1), "9" * 20, "9" * 5000]


@pytest.mark.parametrize("text", [None, *NONE, *TOO_LARGE])
def test_what_is_none_or_does_not_fit(text: str | None) -> None:
    assert read_number(text) is None


def test_bounds() -> None:
    assert read_number("-5", lowest=-5) == -5
    assert read_number("-6", lowest=-5) is None
    assert read_number("65535", highest=65535) == 65535
    assert read_number("65536", highest=65535) is None
