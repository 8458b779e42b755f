"""Settings of a name server, under RocketMQ's keys.

An operator may change some of them while it runs (`RUNTIME_KEYS`): switches and intervals, but no address or path, because
a change comes over the network. A change is checked as a whole, makes a new object, and is not saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rocketline.auth.config import AuthConfig
from rocketline.errors import ConfigError
from rocketline.metrics.config import MetricsConfig
from rocketline.settings import parse_properties, section, setting, with_values
from rocketline.system.sockets import is_loopback
from rocketline.transport.server_config import ConnectionsConfig, TlsConfig

RUNTIME_KEYS = frozenset(
    {
        "deleteTopicWithBrokerRegistration",
        "enableAllTopicList",
        "enableTopicList",
        "needWaitForService",
        "notifyMinBrokerIdChanged",
        "orderMessageEnable",
        "returnOrderTopicConfigToBroker",
        "scanNotActiveBrokerInterval",
        "supportActingMaster",
        "waitSecondsForService",
    }
)


@dataclass(frozen=True)
class NameServerConfig:
    IGNORED: ClassVar[Mapping[str, str]] = {
        "enableLagAndDlqMetrics": "A name server knows no consumers' progress.",
        "enableMessageStoreMetrics": "A name server stores no messages.",
        "enablePopMetrics": "Only brokers are popped from.",
        "enableRequestMetrics": "No messages go through a name server.",
        "enableTransactionMetrics": "Only brokers have transactions.",
    }
    """Keys of RocketMQ that files may have and that change nothing here, with the reason."""

    host: str = setting("127.0.0.1", "bindAddress", "Address to listen on; by default loopback.")
    port: int = setting(9876, "listenPort", "Port to listen on; 0 takes any free one.")
    kv_config_path: str = setting(
        "", "kvConfigPath", "File that keeps the key-value settings; empty keeps them in memory only."
    )
    order_message_enable: bool = setting(
        False, "orderMessageEnable", "Add a topic's entry of namespace ORDER_TOPIC_CONFIG to its route."
    )
    return_order_topic_config_to_broker: bool = setting(
        True, "returnOrderTopicConfigToBroker", "Answer a broker's registration with namespace ORDER_TOPIC_CONFIG."
    )
    support_acting_master: bool = setting(
        False, "supportActingMaster", "Show the lowest slave of a broker group without master as its read-only master."
    )
    notify_min_broker_id_changed: bool = setting(
        False,
        "notifyMinBrokerIdChanged",
        "Tell a broker group when its lowest broker id changes; supportActingMaster does so too.",
    )
    delete_topic_with_broker_registration: bool = setting(
        False,
        "deleteTopicWithBrokerRegistration",
        "Drop a broker's topics that its registration does not list; its enableSingleTopicRegister must then be off.",
    )
    scan_interval_ms: int = setting(
        5000, "scanNotActiveBrokerInterval", "Milliseconds between two searches for brokers that fell silent."
    )
    enable_topic_list: bool = setting(True, "enableTopicList", "Answer requests for the topics of a cluster or unit.")
    enable_all_topic_list: bool = setting(True, "enableAllTopicList", "Answer requests for all topics.")
    need_wait_for_service: bool = setting(
        False, "needWaitForService", "Refuse route queries until waitSecondsForService have passed since the start."
    )
    wait_seconds_for_service: int = setting(
        45, "waitSecondsForService", "Seconds in which brokers may register before the first route is given out."
    )
    max_idle_s: int = setting(
        120, "serverChannelMaxIdleTimeSeconds", "Seconds without any traffic after which a connection is closed."
    )
    max_connections: int = setting(
        10_000, "rocketline.maxConnections", "Connections served at once; further ones are closed."
    )
    metrics: MetricsConfig = section(MetricsConfig)
    auth: AuthConfig = section(AuthConfig)
    connections: ConnectionsConfig = section(ConnectionsConfig)
    tls: TlsConfig = section(TlsConfig)

    def __post_init__(self) -> None:
        _check_range("listenPort", self.port, 0, 65535)
        _check_range("scanNotActiveBrokerInterval", self.scan_interval_ms, 100, 600_000)
        _check_range("waitSecondsForService", self.wait_seconds_for_service, 0, 3600)
        _check_range("serverChannelMaxIdleTimeSeconds", self.max_idle_s, 1, 86_400)
        _check_range("rocketline.maxConnections", self.max_connections, 1, 1_000_000)

    @property
    def auth_folder(self) -> str:
        """Where accounts are kept; "" when they are in memory only."""
        return self.auth.path or (str(Path(self.kv_config_path).parent) if self.kv_config_path else "")

    @property
    def is_open(self) -> bool:
        """Whether other machines are served, and no accounts asked for."""
        return not (self.auth.enabled or is_loopback(self.host))


def _check_range(name: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise ConfigError(f"{name}={value}: a value from {lowest} to {highest} is expected")


def with_changes(config: NameServerConfig, properties: str) -> NameServerConfig:
    """The settings after a change by an operator; ConfigError names the first key that is not allowed."""
    values = parse_properties(properties)
    for key in values:
        if key not in RUNTIME_KEYS:
            allowed = ", ".join(sorted(RUNTIME_KEYS))
            raise ConfigError(f"{key[:80]!r} cannot be changed while the name server runs; these can: {allowed}")
    return with_values(config, values)
