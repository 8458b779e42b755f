"""The ports that replicas use: the HA port, and for Apache's slaves one that is two below the broker's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketline.auth.posture import admin_networks, is_near
from rocketline.broker.replication.config import BrokerRole, Strangers
from rocketline.broker.replication.source import ReplicationSource
from rocketline.errors import ConfigError
from rocketline.system.networks import networks_of
from rocketline.system.sockets import is_loopback
from rocketline.transport import RemotingServer, Router
from rocketline.transport.listening_sockets import ListeningSockets
from rocketline.transport.server_config import TlsMode
from rocketline.transport.server_tls import ServerTls

if TYPE_CHECKING:
    from rocketline.broker.config import BrokerConfig
    from rocketline.broker.parts import BrokerParts

log = logging.getLogger(__name__)

AUTO = -1
BELOW = 2
"""Apache's slaves ask for topics and timers so far below the port of their master."""


class HaPort:
    """Bound before the store is opened, because its address is told to others."""

    def __init__(self, config: BrokerConfig, host: str, tls: ServerTls | None) -> None:
        self._config = config
        self._replication = config.replication
        self._host = config.replication.ha_host or host
        self._bind_host = config.ha_bind_host
        self._broker_tls = tls
        wanted_mode = config.tls.with_file().mode_for(is_loopback=is_loopback(self._bind_host))
        is_enforced = tls is not None and wanted_mode is TlsMode.ENFORCING
        wanted = self._replication.strangers
        self.serves_strangers = (
            not (config.auth.enabled or is_enforced) if wanted is Strangers.AUTO else wanted is Strangers.SERVE
        )
        self._is_open_to_all = wanted is Strangers.SERVE or not config.is_open
        self._near = admin_networks(config.auth.admin_from) + networks_of(self._replication.trusted)
        # Apache's slaves know no TLS.
        self._tls = tls if is_enforced and not self.serves_strangers else None
        self._listening: ListeningSockets | None = None
        self._source: ReplicationSource | None = None
        self._for_apache: RemotingServer | None = None

    @property
    def has_tls(self) -> bool:
        return self._tls is not None

    @property
    def address(self) -> str:
        """What replicas are told; empty: nobody listens."""
        return "" if self._listening is None else f"{self._host}:{self._listening.port}"

    @property
    def _is_needed(self) -> bool:
        """Whether a broker without this port would not do what its settings say."""
        config = self._config
        return config.is_coordinated or config.replication.role is not BrokerRole.ASYNC_MASTER

    async def bind(self, broker_port: int) -> None:
        """Take the port, if there should be one. ConfigError when somebody else has it and it is needed."""
        port = self._replication.ha_port
        if port == AUTO:
            if not self._config.port and not self._is_needed:
                return  # on any free port, a broker for tests or a laptop: who has replicas says so
            port = broker_port + 1 if self._config.port else 0
        listening = ListeningSockets(self._bind_host, port)
        try:
            await listening.bind()
        except ConfigError as error:
            if self._is_needed or self._replication.ha_port != AUTO:
                raise ConfigError(f"haListenPort: {error}") from error
            log.info("no replica can follow this broker: %s", error)
            return
        self._listening = listening

    async def start(self, parts: BrokerParts, router: Router, broker_port: int) -> None:
        if self._listening is None:
            return
        source_parts = parts.roles.source_parts(serves_stranger=self._serves_stranger)
        self._source = parts.roles.source = ReplicationSource(source_parts, self._listening, self._tls)
        await self._source.start()
        if self.serves_strangers:
            self._source.on_stranger = lambda: self._serve_apache(router, broker_port)

    def _serves_stranger(self, ip: str) -> bool:
        """Whether a replica that does not say who it is gets the log. A server without accounts that other machines reach
        gives it to those that may also give it orders."""
        return self.serves_strangers and (self._is_open_to_all or is_near(ip, self._near))

    async def _serve_apache(self, router: Router, broker_port: int) -> None:
        """A slave of Apache's came: let it ask for topics and timers where it will."""
        port = self._replication.apache_port
        if self._for_apache is not None or not port:
            return
        if port == AUTO:
            port = broker_port - BELOW
        self._for_apache = RemotingServer(
            router,
            self._config.bind_host,
            port,
            max_connections=100,
            connections=self._config.connections,
            tls=self._broker_tls,
        )
        try:
            await self._for_apache.start()
        except ConfigError as error:
            log.error("Apache's slaves get no topics and no timers: %s", error)
        else:
            log.info("Apache's slaves ask for topics and timers at port %d", port)

    async def close(self) -> None:
        if self._for_apache is not None:
            await self._for_apache.close(grace_s=0)
            self._for_apache = None
        if self._source is not None:
            await self._source.close()
        elif self._listening is not None:
            await self._listening.close()
