"""Times as people give them: a clock time in their zone, milliseconds, or a time ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from rocketline.console.look import Look, zone_of
from rocketline.console.problems import field_problem

_AGO = re.compile(r"-(\d{1,6})([smhd])")
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment_ms(text: str, look: Look, now_ms: int, field: str) -> int | None:
    """`-10m`, `1764000000000` or `2026-11-18T12:00:00`; None for nothing."""
    text = text.strip()
    if not text:
        return None
    if found := _AGO.fullmatch(text):
        return max(0, now_ms - int(found[1]) * _UNITS[found[2]])
    if text.isdecimal() and text.isascii() and 9 < len(text) < 16:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise field_problem(field, look.t("problems.no_time")) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone_of(look.zone))
    try:
        return max(0, int(moment.astimezone(UTC).timestamp() * 1000))
    except OverflowError:
        raise field_problem(field, look.t("problems.no_time")) from None
