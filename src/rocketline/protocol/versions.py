"""Apache's names of the version numbers in frames: each release has a number, and its snapshot the one before."""

from __future__ import annotations

import re

from rocketline.protocol.command import VERSION

_RELEASE = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})", re.ASCII)

FIRST_REGULAR = 212
"""V4_0_0_SNAPSHOT; earlier numbers follow no rule."""
LAST = 611
"""V5_9_9."""


def version_name(number: int) -> str:
    """The name of a version number.

    >>> version_name(493), version_name(212), version_name(99), version_name(5000)
    ('v5_4_0', 'v4_0_0_snapshot', 'before_v4_0_0', 'higher_version')
    """
    if number < FIRST_REGULAR:
        return "before_v4_0_0"
    if number > LAST:
        return "higher_version"
    release, is_final = divmod(number - FIRST_REGULAR, 2)
    return f"v{4 + release // 100}_{release // 10 % 10}_{release % 10}{'' if is_final else '_snapshot'}"


def version_number(text: str) -> int:
    """The number of a release that is written with points; that of our own version for any other text.

    >>> version_number("5.4.0"), version_number("5.1.2") == version_number("5.1.1") + 2, version_number("abc") == VERSION
    (493, True, True)
    """
    found = _RELEASE.match(text)
    if found is None:
        return VERSION
    major, minor, patch = (min(int(part), 9) for part in found.groups())
    return FIRST_REGULAR + 1 + 2 * ((major - 4) * 100 + minor * 10 + patch) if major >= 4 else VERSION
