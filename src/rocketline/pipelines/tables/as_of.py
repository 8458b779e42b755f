"""Points in the history of a table: the number of a version or snapshot, or a time."""

from __future__ import annotations

from datetime import UTC, datetime

from rocketline.errors import ConfigError


def point(text: str) -> tuple[int | None, int]:
    """(version or snapshot, 0) or (None, milliseconds since 1970). A time without a zone is UTC.

    >>> point("17"), point("1970-01-01T00:00:01Z")
    ((17, 0), (None, 1000))
    """
    if text.isascii() and text.isdigit():
        return int(text), 0
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"--as-of {text}: the number of a version (Delta) or snapshot (Iceberg) is expected, or a time like "
            "2026-01-31T12:00:00Z"
        ) from None
    return None, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
