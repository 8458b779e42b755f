"""What `rocketline version` prints: what a report of a problem needs first."""

from __future__ import annotations

import platform

from rocketline import __version__


def version_facts() -> dict[str, str]:
    """Version, compiled or pure Python, the Python and the system."""
    from rocketline import _impl

    return {
        "version": __version__,
        "code": "pure Python" if _impl.NAME == "python" else "compiled",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
    }


def version_line() -> str:
    """The same for people.

    >>> version_line().startswith(f"rocketline {__version__}, ")
    True
    """
    return f"rocketline {', '.join(version_facts().values())}"
