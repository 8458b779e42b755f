"""Tools for your own tests: a real cluster on free ports, disks that fail on command, a clock that a test moves, and a
simulated world in which a day takes seconds.

Names are imported when they are first used: pytest loads the plugin in this folder into every test run on the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketline.clock import ManualClock
    from rocketline.testing.disks import FaultyDisk, MemoryDisk
    from rocketline.testing.local_cluster import LocalCluster
    from rocketline.testing.sim import SimWorld

__all__ = ["FaultyDisk", "LocalCluster", "ManualClock", "MemoryDisk", "SimWorld"]

_HOMES = {
    "FaultyDisk": "rocketline.testing.disks",
    "LocalCluster": "rocketline.testing.local_cluster",
    "ManualClock": "rocketline.clock",
    "MemoryDisk": "rocketline.testing.disks",
    "SimWorld": "rocketline.testing.sim",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
