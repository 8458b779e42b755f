"""Apache's names of the version numbers in frames: each release has a number, and its snapshot the one before."""

from __future__ import annotations

import re

_RELEASE = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})", re.ASCII)

UNKNOWN = 32_767
"""Stands for a version that has no number; Apache's tools show it as HIGHER_VERSION. A low one would not do: brokers pass no
operator's request on to clients that are old."""
FIRST_REGULAR = 212
"""V4_0_0_SNAPSHOT; earlier numbers follow no rule."""
LAST = 611
"""V5_9_9."""


def version_name(number: int) -> str:
    """The name of a version number.

    >>> version_name(493), version_name(212), version_name(99), version_name(5000), version_name(UNKNOWN)
    ('v5_4_0', 'v4_0_0_snapshot', 'before_v4_0_0', 'higher_version', 'unknown')
    """
    if number == UNKNOWN:
        return "unknown"
    if number < FIRST_REGULAR:
        return "before_v4_0_0"
    if number > LAST:
        return "higher_version"
    release, is_final = divmod(number - FIRST_REGULAR, 2)
    return f"v{4 + release // 100}_{release // 10 % 10}_{release % 10}{'' if is_final else '_snapshot'}"


def version_number(text: str) -> int:
    """The number of a release that is written with points. UNKNOWN for any other text, and for releases that have none:
    those before 4, as of Node's client, and those with a part above 9.

    >>> version_number("5.4.0"), version_number("5.1.2") == version_number("5.1.1") + 2, version_number("5.1.12")
    (493, True, 32767)
    """
    found = _RELEASE.match(text)
    if found is None:
        return UNKNOWN
    major, minor, patch = (int(part) for part in found.groups())
    if not 4 <= major <= 5 or minor > 9 or patch > 9:
        return UNKNOWN
    return FIRST_REGULAR + 1 + 2 * ((major - 4) * 100 + minor * 10 + patch)
