"""What `rocketline version` prints: what a report of a problem needs first."""

from __future__ import annotations

import platform

from rocketline import __version__


def version_line() -> str:
    """Version, compiled or pure Python, the Python and the system.

    >>> version_line().startswith(f"rocketline {__version__}, ")
    True
    """
    from rocketline import _impl

    kind = "pure Python" if _impl.NAME == "python" else "compiled"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"rocketline {__version__}, {kind}, {python}, {platform.system()} {platform.machine()}"
