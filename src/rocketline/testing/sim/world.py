"""The world of a simulation: hosts with real name servers, brokers and clients on virtual time.

A host has a name, an address, and one process after the other (`m1#1`, `m1#2`, ...). The disk of a broker belongs to
its host and stays when the process dies: after a kill with all that was written, after a power cut with what was
flushed, and perhaps more.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from random import Random
from typing import Any, TypeVar

from rocketline.auth.config import AuthConfig
from rocketline.broker import Broker
from rocketline.broker.config import BrokerConfig
from rocketline.client.session import forget_session
from rocketline.coordination import Coordinator
from rocketline.coordination.memory import MemoryGroup
from rocketline.errors import ConfigError, RocketlineError
from rocketline.nameserver import NameServer, NameServerConfig
from rocketline.settings import load
from rocketline.store.flush.flusher import BackgroundTask
from rocketline.testing.disks import MemoryDisk
from rocketline.testing.sim.host_clock import HostClock
from rocketline.testing.sim.loop import SimLoop, belongs_to
from rocketline.testing.sim.worker import LoopWorker

T = TypeVar("T")

OPEN = {"rocketline.insecure": "true", "rocketline.adminFrom": "10.0.0.0/8"}
"""There are no strangers in a simulated network."""
NAME_SERVER_PORT = 9876
BROKER_PORT = 10911
STORE_ROOT = "/data"

SMALL_AND_SAFE = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": "131072",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}
"""Default settings of simulated brokers: what they acknowledge survives a power cut, and files are small."""


class ProcessDied(RocketlineError):
    """A process was killed before its work was done."""


class SimWorld:
    """Everything in one simulation; made by `run_world`."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop, self.seed = loop, seed
        self.network, self.clock = loop.network, loop.clock
        self.chance = Random(seed)
        self.brokers: dict[str, Broker] = {}
        """Running brokers, by host."""
        self.disks: dict[str, MemoryDisk] = {}
        self._name_servers: dict[str, NameServer] = {}
        self._name_server_hosts: list[str] = []
        self._broker_settings: dict[str, dict[str, str]] = {}
        self._groups: dict[str, MemoryGroup] = {}
        self._lives: Counter[str] = Counter()
        self._clients: dict[str, set[str]] = {}
        self._clocks: dict[str, HostClock] = {}

    # Processes

    def new_process(self, host: str) -> str:
        """The name of the next process of a host."""
        self._lives[host] += 1
        return f"{host}#{self._lives[host]}"

    def process_of(self, host: str) -> str:
        """The name of the current process of a host."""
        return f"{host}#{self._lives[host]}"

    def address_of(self, host: str) -> str:
        return self.network.address_of(host)

    def clock_of(self, host: str) -> HostClock:
        """The clock of a host, which its servers use."""
        return self._clocks.setdefault(host, HostClock(self.clock))

    async def inside(self, process: str, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as work of a process; ProcessDied when the process is killed before it is done."""
        with belongs_to(process):
            task = self.loop.create_task(work)
        try:
            return await task
        except asyncio.CancelledError:
            if task.cancelled() and self.network.is_dead(process):
                raise ProcessDied(f"{process} was killed") from None
            raise

    def crash(self, host: str, *, power: bool = False) -> None:
        """Kill the process of a host. Its connections are closed; with `power` they are not, and all or some of what was not
        flushed is lost from its disk."""
        process = self.process_of(host)
        if host in self.disks:
            disk = self.disks[host]
            self.disks[host] = disk.crash(self.chance.randrange(1 << 32)) if power else disk.after_kill()
        self.brokers.pop(host, None)
        self._name_servers.pop(host, None)
        self.loop.kill(process, silently=power)
        for client_id in self._clients.pop(process, ()):
            forget_session(self.loop, client_id)

    def owns_client(self, process: str, client_id: str) -> None:
        """Note that a client belongs to a process: after a kill, a client with the same id may be created."""
        self._clients.setdefault(process, set()).add(client_id)

    # Servers

    @property
    def namesrv(self) -> str:
        """All name servers, also those that do not run now, as clients take them."""
        return ";".join(f"{self.address_of(host)}:{NAME_SERVER_PORT}" for host in self._name_server_hosts)

    async def start_name_server(self, host: str) -> None:
        """Start a name server as a new process; it remembers nothing of an earlier one."""
        if host not in self._name_server_hosts:
            self._name_server_hosts.append(host)
        auth = load(AuthConfig, OPEN)[0]
        config = NameServerConfig(host=self.address_of(host), port=NAME_SERVER_PORT, auth=auth)
        server = NameServer(config, clock=self.clock_of(host))
        await self.inside(self.new_process(host), server.start())
        self._name_servers[host] = server

    def group(self, name: str) -> MemoryGroup:
        """The record that replicas of one name elect their master by; hosts in its `cut_off` do not reach it."""
        return self._groups.setdefault(name, MemoryGroup(self.clock))

    async def start_replica(self, host: str, group: str, settings: Mapping[str, str] | None = None) -> Broker:
        """Start a broker that is a member of a group with elections."""
        if settings is not None or host not in self._broker_settings:
            settings = {"brokerName": group, "rocketline.coordination": "etcd://simulated", **(settings or {})}
        return await self.start_broker(host, settings)

    async def start_broker(self, host: str, settings: Mapping[str, str] | None = None) -> Broker:
        """Start a broker, named as its host, as a new process; `settings` by RocketMQ keys are kept for later starts."""
        if settings is not None or host not in self._broker_settings:
            self._broker_settings[host] = {**SMALL_AND_SAFE, **(settings or {})}
        clock = self.clock_of(host)
        disk = self.disks.setdefault(host, MemoryDisk(clock))
        config = self._broker_config(host)
        chance = Random(self.chance.randrange(1 << 32))

        def worker(task: BackgroundTask) -> LoopWorker:
            return LoopWorker(task, chance)

        async def start() -> Broker:
            broker = Broker(
                config, clock=clock, disk=disk, random=chance, workers=worker, coordinators=self._coordinator
            )
            await broker.start()
            return broker

        broker = await self.inside(self.new_process(host), start())
        self.brokers[host] = broker
        return broker

    def _coordinator(self, config: BrokerConfig) -> Coordinator:
        host = next(host for host in self._broker_settings if self.address_of(host) == config.bind_host)
        return self.group(config.name).coordinator(host)

    def _broker_config(self, host: str) -> BrokerConfig:
        values = {
            **OPEN,
            "brokerName": host,
            **self._broker_settings[host],
            "bindAddress": self.address_of(host),
            "listenPort": str(BROKER_PORT),
            "storePathRootDir": STORE_ROOT,
            "namesrvAddr": self.namesrv,
        }
        config, unknown = load(BrokerConfig, values, f"settings of {host}")
        if unknown:
            raise ConfigError(f"settings of {host}: there is no setting {', '.join(unknown)}")
        return config

    def broker_address(self, host: str) -> str:
        return f"{self.address_of(host)}:{BROKER_PORT}"

    async def stop(self, host: str) -> None:
        """Stop a server cleanly."""
        server = self.brokers.pop(host, None) or self._name_servers.pop(host, None)
        if server is not None:
            await self.inside(self.process_of(host), server.close())

    async def close(self) -> None:
        """Stop all servers, brokers first."""
        for host in [*self.brokers, *self._name_servers]:
            await self.stop(host)


def run_world(scenario: Callable[[SimWorld], Awaitable[T]], seed: int = 0) -> T:
    """Run a scenario in a new world.

    The same seed gives the same run if the process has the same PYTHONHASHSEED (the order of sets of names depends
    on hashes) and the scenario takes its random numbers from `world.chance`.
    """

    async def main() -> T:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        world = SimWorld(loop, seed)
        try:
            return await scenario(world)
        finally:
            await world.close()

    before = random.getstate()
    random.seed(seed)
    try:
        with asyncio.Runner(loop_factory=lambda: SimLoop(seed)) as runner:
            return runner.run(main())
    finally:
        random.setstate(before)
