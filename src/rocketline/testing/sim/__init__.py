"""A whole cluster in one process on virtual time: real servers and clients, a network and disks that fail by a seed.

    def test_survives_a_power_cut():
        async def scenario(world: SimWorld) -> None:
            await world.start_name_server("n1")
            await world.start_broker("broker-a")
            ...
            world.crash("broker-a", power=True)
            await world.start_broker("broker-a")

        run_world(scenario, seed=7)

The same seed gives the same run; see `run_world` for what that needs.
"""

from rocketline.testing.sim.host_clock import HostClock
from rocketline.testing.sim.loop import LoopClock, SimLoop, belongs_to
from rocketline.testing.sim.network import Network, host_of
from rocketline.testing.sim.world import ProcessDied, SimWorld, run_world

__all__ = [
    "HostClock",
    "LoopClock",
    "Network",
    "ProcessDied",
    "SimLoop",
    "SimWorld",
    "belongs_to",
    "host_of",
    "run_world",
]
