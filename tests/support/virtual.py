"""The simulation's loop for tests that have routers instead of servers.

Servers are routers in `loop.servers` by (host, port). What is started inside `with belongs_to(name)` can be cut off from the
network (`hold_back`, `let_through`) or killed as a process would be.
"""

from __future__ import annotations

from rocketline.testing.sim import LoopClock, SimLoop, belongs_to
from rocketline.testing.sim.network import Address, Network, SimListener
from rocketline.transport import Channel, Limits, Router

LATENCY_S = 0.001
SERVERS = ""
"""The process, and so the host, that all routers belong to."""


class _RouterNetwork(Network):
    servers: dict[Address, Router]

    def listener_at(self, address: Address) -> SimListener | None:
        router = self.servers.get(address)
        if router is None:
            return None
        with belongs_to(SERVERS):  # a server's own tasks are not the client's
            listener = SimListener(self, SERVERS, address)
        listener.factory = lambda: Channel(router, Limits())
        return listener

    def _is_unreachable(self, own: str, address: Address) -> bool:
        return self.is_blocked(own, SERVERS)


class VirtualLoop(SimLoop):
    def __init__(self) -> None:
        super().__init__()
        self.servers: dict[Address, Router] = {}
        network = self.network = _RouterNetwork(self)
        network.servers = self.servers
        network.latency_s, network.split_share = (LATENCY_S, LATENCY_S), 0.0

    def hold_back(self, owner: str) -> None:
        """Nothing gets through to or from somebody's connections, until `let_through`; nothing is lost either."""
        self.network.block(owner, SERVERS)

    def let_through(self, owner: str) -> None:
        self.network.unblock(owner, SERVERS)

    def cut_all(self) -> None:
        """End every connection there is, as a network does that fails for a moment."""
        for connection in list(self.network.connections.values()):
            self.network.cut(connection)

    async def end(self, owner: str) -> None:
        """End somebody as kill -9 does: no word to anybody, but the system closes the connections."""
        self.kill(owner)
        await self.gone(owner)


__all__ = ["LoopClock", "VirtualLoop", "belongs_to"]
