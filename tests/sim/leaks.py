"""What must not be left in a world whose servers and clients have been closed."""

from __future__ import annotations

import asyncio

from rocketline.testing.sim import SimWorld


def leaks(world: SimWorld) -> list[str]:
    found = []
    left = [task for task in asyncio.all_tasks(world.loop) if task is not asyncio.current_task()]
    if left:
        found.append(f"leak: {len(left)} tasks are left, among them {left[0]!r}")
    if world.network.connections:
        found.append(f"leak: {len(world.network.connections)} connections are left")
    return found
