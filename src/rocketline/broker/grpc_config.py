"""Settings of the front for gRPC clients: RocketMQ's keys of its proxy, and some of ours.

They are among a broker's because the front may be in its process; the broker itself reads none of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketline.errors import ConfigError
from rocketline.settings import setting
from rocketline.transport.client import split_address


@dataclass(frozen=True)
class GrpcConfig:
    """What clients are promised, and what they may ask for."""

    port: int = setting(
        -1,
        "grpcServerPort",
        "Port for RocketMQ 5.x clients, which speak gRPC; 0: any free one, -1: they are not served.",
    )
    advertised: str = setting(
        "",
        "rocketline.grpcAdvertised",
        "`host:port` that gRPC clients are told to use. Empty: the address that they use already.",
    )
    invisible_ms: int = setting(
        60_000, "defaultInvisibleTimeMills", "How long a message is hidden at first that the server keeps hidden."
    )
    renew_ahead_ms: int = setting(10_000, "renewAheadTimeMillis", "That time is prolonged so long before it ends.")
    renew_interval_ms: int = setting(5_000, "renewSchedulePeriodMillis", "Pause between two looks for those.")
    renew_max_ms: int = setting(10_800_000, "renewMaxTimeMillis", "Longest that a message is kept hidden in this way.")
    min_poll_ms: int = setting(
        5_000, "grpcClientConsumerMinLongPollingTimeoutMillis", "Shortest time that a receive waits for a message."
    )
    max_poll_ms: int = setting(20_000, "grpcClientConsumerMaxLongPollingTimeoutMillis", "Longest time.")
    batch_size: int = setting(
        32, "grpcClientConsumerLongPollingBatchSize", "Messages that push consumers are told to ask for at once."
    )
    producer_attempts: int = setting(3, "grpcClientProducerMaxAttempts", "How often producers try to send a message.")
    max_body_bytes: int = setting(
        4 * 1024 * 1024, None, "Longest body of a message: maxMessageSize of the broker or the proxy."
    )
    max_property_count: int = setting(128, "userPropertyMaxNum", "Most user properties of a message.")
    max_property_bytes: int = setting(16_384, "maxUserPropertySize", "Longest properties, with tag and keys.")
    max_group_bytes: int = setting(64, "maxMessageGroupSize", "A message group is shorter than this.")
    min_invisible_ms: int = setting(
        10_000, "minInvisibleTimeMillsForRecv", "Shortest time a received message is hidden."
    )
    max_invisible_ms: int = setting(43_200_000, "maxInvisibleTimeMills", "Longest time.")
    max_delay_ms: int = setting(86_400_000, "maxDelayTimeMills", "How far ahead a delivery time may lie.")
    max_recovery_s: int = setting(
        3600, "maxTransactionRecoverySecond", "Longest time before producers are asked about a transaction."
    )
    relay_timeout_s: int = setting(
        5, "grpcProxyRelayRequestTimeoutInSeconds", "How long a client has to answer what an operator asks it."
    )
    max_clients: int = setting(100_000, None, "Clients that are remembered at once.")

    def __post_init__(self) -> None:
        for key, value in (
            ("defaultInvisibleTimeMills", self.invisible_ms),
            ("renewSchedulePeriodMillis", self.renew_interval_ms),
            ("grpcClientConsumerMinLongPollingTimeoutMillis", self.min_poll_ms),
            ("grpcClientConsumerLongPollingBatchSize", self.batch_size),
            ("grpcClientProducerMaxAttempts", self.producer_attempts),
        ):
            if value <= 0:
                raise ConfigError(f"{key}={value} must be above zero")
        if not -1 <= self.port <= 65535:
            raise ConfigError(f"grpcServerPort={self.port} is not a port")
        if self.advertised:
            split_advertised(self.advertised)


def split_advertised(text: str) -> tuple[str, int]:
    """(host, port) of `rocketline.grpcAdvertised`."""
    try:
        return split_address(text)
    except ValueError as error:
        raise ConfigError(f"rocketline.grpcAdvertised={text!r}: {error}") from error
