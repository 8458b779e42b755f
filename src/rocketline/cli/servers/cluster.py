"""A name server and its brokers on one event loop, as `rocketline up` and tests run them.

`Cluster` starts a plan, the name server first because brokers need its port, and stops it in the reverse order, so that
brokers can still unregister. A stopped broker can be started again with the same folder and port.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from rocketline.broker import Broker
from rocketline.broker.config import BrokerConfig
from rocketline.cli.servers.election import all_led
from rocketline.cli.servers.fronts import local_front, show_front
from rocketline.cli.servers.plan import ClusterPlan, plan_cluster
from rocketline.errors import ConfigError
from rocketline.nameserver import NameServer

if TYPE_CHECKING:
    from rocketline.proxy.front import GrpcFront

__all__ = ["Cluster", "ClusterPlan", "plan_cluster"]


class Cluster:
    """The running servers of a plan; an async context manager."""

    def __init__(self, plan: ClusterPlan) -> None:
        self.data = plan.data
        self._configs = {config.name: config for config in plan.brokers}
        self._name_server = NameServer(plan.name_server)
        self._running: dict[str, Broker] = {}
        self._in_order: list[Broker] = []
        self._front_config = plan.brokers[0]
        self._front: GrpcFront | None = None

    @property
    def namesrv(self) -> str:
        """Address of the name server, as clients take it."""
        return self._name_server.address

    @property
    def brokers(self) -> list[Broker]:
        """The brokers that run now, by name."""
        return list(self._in_order)

    @property
    def grpc_address(self) -> str:
        """`host:port` for gRPC clients; "" when they are not served."""
        return self._front.address if self._front is not None else ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start all servers; when one cannot start, the others are stopped again."""
        await self._name_server.start()
        try:
            for name in self._configs:
                await self.start_broker(name)
            await all_led(self._name_server, self._configs.values())
            front = local_front(self._front_config, lambda: self._in_order)
            if front is not None:
                await front.start()
                self._front = front
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        front, self._front = self._front, None
        if front is not None:
            await front.close()
        results = await asyncio.gather(*map(self.stop_broker, list(self._running)), return_exceptions=True)
        await self._name_server.close()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def start_broker(self, name: str) -> None:
        """Start a broker that was stopped; one that runs is left alone."""
        config = self._config_of(name)
        if name in self._running:
            return
        registration = replace(config.registration, namesrv=self.namesrv)
        broker = Broker(replace(config, registration=registration))
        await broker.start()
        # Clients know this port: a restart must not change it.
        self._configs[name] = replace(config, port=broker.port)
        self._running[name] = broker
        self._sort()
        if self._front is not None:
            show_front(self._front, broker, lambda: self._in_order)

    async def stop_broker(self, name: str) -> None:
        """Stop a broker cleanly; one that does not run is left alone."""
        self._config_of(name)
        broker = self._running.pop(name, None)
        if broker is not None:
            self._sort()
            await broker.close()

    def _sort(self) -> None:
        self._in_order = [self._running[name] for name in sorted(self._running)]

    async def restart_broker(self, name: str) -> None:
        await self.stop_broker(name)
        await self.start_broker(name)

    def _config_of(self, name: str) -> BrokerConfig:
        if name not in self._configs:
            raise ConfigError(f"there is no broker {name!r} in this cluster, only {', '.join(sorted(self._configs))}")
        return self._configs[name]
