"""The front for gRPC clients as servers start it: beside brokers in one process, or over the network before a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from rocketline.broker.config import BrokerConfig
from rocketline.settings import load, values_of

if TYPE_CHECKING:
    from rocketline.broker import Broker
    from rocketline.proxy.front import GrpcFront
    from rocketline.proxy.server import Proxy


def local_front(config: BrokerConfig, brokers: Callable[[], Sequence[Broker]]) -> GrpcFront | None:
    """The front of brokers in this process, with the settings of the first; None when it is off."""
    if config.grpc.port < 0:
        return None
    from rocketline.proxy.backend import LocalBackend
    from rocketline.proxy.front import GrpcFront

    front = GrpcFront(
        LocalBackend(brokers),
        config.bind_host,
        replace(config.grpc, max_body_bytes=config.store.max_message_bytes),
        tls=config.tls,
        connections=config.connections,
        max_connections=config.max_connections,
    )
    for broker in brokers():
        show_front(front, broker, brokers)
    return front


def show_front(front: GrpcFront, broker: Broker, brokers: Callable[[], Sequence[Broker]]) -> None:
    """Have the front on the metrics page of a broker for as long as that is the first of its process: each has a page, and
    on several the same calls would count several times."""
    from rocketline.proxy.metrics import front_source

    broker.add_metrics(front_source(front, "local", lambda: brokers()[:1] == [broker]))


def remote_front(config: BrokerConfig, namesrv: str) -> Proxy | None:
    """The front of brokers in other processes, with the settings of the first; None when it is off."""
    if config.grpc.port < 0:
        return None
    from rocketline.proxy.config import ProxyConfig
    from rocketline.proxy.server import Proxy

    values = {**values_of(config), "namesrvAddr": namesrv, "metricsExporterType": "DISABLE"}
    proxy = load(ProxyConfig, values)[0]
    # The first broker writes its accounts; everybody else reads them.
    auth = replace(proxy.auth, path=config.auth_folder, is_follower=True)
    return Proxy(replace(proxy, auth=auth))


class FrontedBroker:
    """A broker, and if its settings say so the front for gRPC clients beside it; an async context manager."""

    def __init__(self, config: BrokerConfig) -> None:
        from rocketline.broker import Broker

        self._config = config
        self.broker = Broker(config)
        self._front: GrpcFront | None = None

    @property
    def name(self) -> str:
        return self.broker.name

    @property
    def address(self) -> str:
        return self.broker.address

    @property
    def metrics_address(self) -> str:
        return self.broker.metrics_address

    @property
    def grpc_address(self) -> str:
        """`host:port` for gRPC clients; "" when they are not served."""
        return self._front.address if self._front is not None else ""

    async def __aenter__(self) -> Self:
        await self.broker.start()
        try:
            front = local_front(self._config, lambda: [self.broker])
            if front is not None:
                await front.start()
                self._front = front
        except BaseException:
            await self.broker.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._front is not None:
            await self._front.close()
        await self.broker.close()
