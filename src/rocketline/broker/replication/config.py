"""Settings of a group of brokers with copies of one log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rocketline.errors import ConfigError
from rocketline.settings import setting
from rocketline.system.networks import networks_of


class BrokerRole(Enum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class Strangers(Enum):
    """What becomes of replicas that do not say who they are, as Apache's do not."""

    AUTO = "auto"
    SERVE = "serve"
    REFUSE = "refuse"


@dataclass(frozen=True)
class ReplicationConfig:
    role: BrokerRole = setting(
        BrokerRole.ASYNC_MASTER,
        "brokerRole",
        "SLAVE: copy the log of the broker with the same brokerName and brokerId 0. SYNC_MASTER: answers wait for "
        "inSyncReplicas.",
    )
    ha_port: int = setting(
        -1,
        "haListenPort",
        "Port that replicas connect to; 0: any free one; -1: the one after listenPort, 0 with port 0.",
    )
    ha_host: str = setting("", "brokerIP2", "Address replicas are told to use; empty: as brokerIP1.")
    ha_bind_host: str = setting(
        "", "rocketline.haBindAddress", "Address to listen on for replicas; empty: as bindAddress."
    )
    apache_port: int = setting(
        -1,
        "rocketline.apacheSlavePort",
        "Port at which Apache's slaves ask for topics and timers, opened when the first of them comes; -1: 2 below "
        "listenPort, as they expect; 0: none.",
    )
    in_sync: int = setting(
        1,
        "inSyncReplicas",
        "With SYNC_MASTER: copies, this one included, that must have a message before its answer leaves.",
    )
    min_in_sync: int = setting(
        1, "minInSyncReplicas", "With elections: messages are refused while fewer members than this are in sync."
    )
    slave_timeout_ms: int = setting(
        3_000,
        "slaveTimeout",
        "How long answers wait for replicas; then they say FLUSH_SLAVE_TIMEOUT. The message stays.",
    )
    max_gap_bytes: int = setting(256 << 20, "haMaxGapNotInSync", "A replica farther behind than this is not in sync.")
    max_behind_ms: int = setting(
        5_000, "haMaxTimeSlaveNotCatchup", "With elections: a member that is behind for longer leaves the set in sync."
    )
    frame_bytes: int = setting(
        32 << 10, "haTransferBatchSize", "Bytes of the log in a frame to Apache's slaves; ours get up to 512 KiB."
    )
    heartbeat_ms: int = setting(
        5_000,
        "haSendHeartbeatInterval",
        "Pause after which something is sent to Apache's brokers; ours hear every second.",
    )
    silence_ms: int = setting(20_000, "haHousekeepingInterval", "A connection that is silent for longer is closed.")
    limits_flow: bool = setting(False, "haFlowControlEnable", "Limit what is sent to each replica.")
    max_bytes_per_s: int = setting(100 << 20, "maxHaTransferByteInSecond", "To so many bytes each second.")
    strangers: Strangers = setting(
        Strangers.AUTO,
        "rocketline.haStrangers",
        "Replicas that do not say who they are, as Apache's: `serve` or `refuse` them; `auto`: refuse them if accounts are "
        "asked for or TLS is enforced; with rocketline.insecure serve those of this machine, rocketline.adminFrom and "
        "rocketline.haTrusted. Their acknowledgements do not count.",
    )
    trusted: str = setting(
        "",
        "rocketline.haTrusted",
        "Addresses or networks of Apache's slaves whose acknowledgements count, separated by commas; one slave each.",
    )
    tables_ms: int = setting(
        3_000, "rocketline.copyTablesMs", "Pause of a replica between two looks at its master's tables."
    )
    acts_as_master: bool = setting(
        False,
        "enableSlaveActingMaster",
        "Let name servers show the replica with the lowest id as master that can only be read, while there is none.",
    )
    has_controller: bool = setting(
        False, "enableControllerMode", "Roles given out by an Apache controller; true: the broker does not start."
    )
    has_raft_log: bool = setting(
        False, "enableDLegerCommitLog", "A commit log agreed on by raft; true: the broker does not start."
    )

    def __post_init__(self) -> None:
        for key, value in (
            ("inSyncReplicas", self.in_sync),
            ("minInSyncReplicas", self.min_in_sync),
            ("slaveTimeout", self.slave_timeout_ms),
            ("haMaxTimeSlaveNotCatchup", self.max_behind_ms),
            ("haTransferBatchSize", self.frame_bytes),
            ("haSendHeartbeatInterval", self.heartbeat_ms),
            ("haHousekeepingInterval", self.silence_ms),
            ("maxHaTransferByteInSecond", self.max_bytes_per_s),
            ("rocketline.copyTablesMs", self.tables_ms),
        ):
            if value <= 0:
                raise ConfigError(f"{key}={value} must be above zero")
        for key, port in (("haListenPort", self.ha_port), ("rocketline.apacheSlavePort", self.apache_port)):
            if not -1 <= port <= 65535:
                raise ConfigError(f"{key}={port} is not a port")
        try:
            networks_of(self.trusted)
        except ValueError as error:
            raise ConfigError(f"rocketline.haTrusted={self.trusted!r}: {error}") from error
