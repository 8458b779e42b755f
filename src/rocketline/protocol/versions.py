"""Apache's names of the version numbers in frames: each release has a number, and its snapshot the one before."""

from __future__ import annotations

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
