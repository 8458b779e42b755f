"""Times and durations as people write them on a command line. A mistake is an ArgumentTypeError, as argparse wants it."""

from __future__ import annotations

import re
import time
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from rocketline.cli.usage import UsageProblem

T = TypeVar("T")

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration_s(text: str) -> float:
    """
    >>> parse_duration_s("1h30m"), parse_duration_s("250ms")
    (5400.0, 0.25)
    """
    if not text or _PART.sub("", text):
        raise ArgumentTypeError(f"{text!r} is not a duration: 250ms, 30s, 5m, 1h30m or 2d is expected")
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))


def parse_time_ms(text: str) -> int:
    """Milliseconds since 1970 of `now`, a number, Apache's `yyyy-MM-dd#HH:mm:ss:SSS`, or ISO 8601.

    >>> parse_time_ms("1700000000000")
    1700000000000
    """
    if text.lower() == "now":
        return int(time.time() * 1000)
    if text.lstrip("-").isdecimal():
        return int(text)
    try:
        day, separator, clock = text.partition("#")
        if separator:
            hours, minutes, seconds, ms = ([*clock.split(":"), "0"])[:4]
            return int(datetime.fromisoformat(f"{day}T{hours}:{minutes}:{seconds}").timestamp() * 1000) + int(ms)
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise ArgumentTypeError(
            f"{text!r} is not a time: now, milliseconds, 2026-05-31#12:00:00:000 or 2026-05-31T12:00:00 is expected"
        ) from error


def parse_since_ms(text: str) -> int:
    """Milliseconds since 1970 of a time, or of a duration ago."""
    if _PART.match(text) and not _PART.sub("", text):
        return int((time.time() - parse_duration_s(text)) * 1000)
    try:
        return parse_time_ms(text)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{error}, or a duration such as 10m") from error


def flag_value(flag: str, parse: Callable[[str], T], text: str | None) -> T | None:
    """The value of a flag of typer; UsageProblem when it has none of this kind."""
    try:
        return None if text is None else parse(text)
    except ArgumentTypeError as error:
        raise UsageProblem(f"{flag}: {error}") from error
