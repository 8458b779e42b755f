"""A broker's settings: Apache's keys and defaults, except where Apache's default is unsafe (see docs/compat.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rocketline.auth.config import AuthConfig
from rocketline.auth.posture import refuse_open_bind
from rocketline.broker.grpc_config import GrpcConfig
from rocketline.broker.replication.config import BrokerRole, ReplicationConfig
from rocketline.coordination.config import CoordinationConfig
from rocketline.errors import ConfigError
from rocketline.metrics.config import MetricsConfig
from rocketline.protocol.bloom import BloomFilter
from rocketline.protocol.bodies import POP, PULL
from rocketline.protocol.names import topic_problem
from rocketline.protocol.namespaces import TRACE_TOPIC
from rocketline.protocol.pop_info import ORDER_REVIVE_QUEUE
from rocketline.settings import load, parse_properties, section, setting
from rocketline.store.config import StoreConfig
from rocketline.system.sockets import is_loopback
from rocketline.transport.server_config import ConnectionsConfig, TlsConfig

MESSAGE_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@dataclass(frozen=True)
class TopicConfigDefaults:
    auto_create: bool = setting(True, "autoCreateTopicEnable", "Create an unknown topic when a message for it arrives.")
    queue_count: int = setting(8, "defaultTopicQueueNums", "Queues of the template topic TBW102.")
    has_trace_topic: bool = setting(False, "traceTopicEnable", "Have a topic for the message traces of clients.")
    trace_topic: str = setting(TRACE_TOPIC, "msgTraceTopicName", "Name of that topic.")

    def __post_init__(self) -> None:
        _above_zero(defaultTopicQueueNums=self.queue_count)
        if self.has_trace_topic and (problem := topic_problem(self.trace_topic)):
            raise ConfigError(f"msgTraceTopicName: {problem}")


@dataclass(frozen=True)
class GroupConfigDefaults:
    auto_create: bool = setting(
        True, "autoCreateSubscriptionGroup", "Create an unknown consumer group when it first appears."
    )
    tells_members: bool = setting(
        True, "notifyConsumerIdsChangedEnable", "Tell the members of a group at once when one comes or goes."
    )


@dataclass(frozen=True)
class RegistrationConfig:
    namesrv: str = setting("", "namesrvAddr", "Name servers, `host:port` separated by `;`; empty: register nowhere.")
    interval_ms: int = setting(30_000, "registerNameServerPeriod", "Pause between two full registrations.")
    timeout_ms: int = setting(24_000, "registerBrokerTimeoutMills", "How long a name server may take to answer.")

    def __post_init__(self) -> None:
        _above_zero(registerNameServerPeriod=self.interval_ms, registerBrokerTimeoutMills=self.timeout_ms)

    @property
    def name_servers(self) -> list[str]:
        """Address of each name server."""
        return [address for item in self.namesrv.split(";") if (address := item.strip())]


@dataclass(frozen=True)
class FilterConfig:
    sql_enabled: bool = setting(True, "enablePropertyFilter", "Let consumers select messages with SQL92 expressions.")
    bitmaps: bool = setting(
        False, "enableCalcFilterBitMap", "Evaluate SQL92 filters when messages are dispatched; needs extended queues."
    )
    error_percent: int = setting(
        20, "maxErrorRateOfBloomFilter", "Messages in a hundred that a bitmap may wrongly let pass."
    )
    expected_groups: int = setting(
        32, "expectConsumerNumUseFilter", "Groups per topic for which that error rate is meant."
    )
    filters_retries: bool = setting(
        False, "filterSupportRetry", "Apply a SQL92 expression that is given for a retry topic; else all of it passes."
    )
    keep_dead_ms: int = setting(
        86_400_000, "filterDataCleanTimeSpan", "How long the filter of a group without members is kept."
    )
    save_ms: int = setting(10_000, None, "Pause between two saves of the filters.")

    def __post_init__(self) -> None:
        _above_zero(filterDataCleanTimeSpan=self.keep_dead_ms, save_ms=self.save_ms)
        BloomFilter.for_error_rate(self.error_percent, self.expected_groups)

    @property
    def bloom(self) -> BloomFilter:
        return BloomFilter.for_error_rate(self.error_percent, self.expected_groups)


@dataclass(frozen=True)
class TransactionConfig:
    refused: bool = setting(False, "rejectTransactionMessage", "Refuse transactional messages.")
    timeout_ms: int = setting(
        6_000, "transactionTimeOut", "Age at which the producers of an open half message are asked."
    )
    max_checks: int = setting(
        15, "transactionCheckMax", "How often producers are asked about a half message before it is put aside."
    )
    interval_ms: int = setting(30_000, "transactionCheckInterval", "Pause between two looks for such messages.")
    op_bytes: int = setting(
        4096,
        "transactionOpMsgMaxSize",
        "Ended transactions are noted together; a note of this size is written at once.",
    )
    op_interval_ms: int = setting(
        3_000, "transactionOpBatchInterval", "Longest that an ended transaction waits for it."
    )

    def __post_init__(self) -> None:
        _above_zero(
            transactionTimeOut=self.timeout_ms,
            transactionCheckMax=self.max_checks,
            transactionCheckInterval=self.interval_ms,
            transactionOpMsgMaxSize=self.op_bytes,
            transactionOpBatchInterval=self.op_interval_ms,
        )


@dataclass(frozen=True)
class PopConfig:
    """Pop mode: the broker shares messages out, and delivers again what is not acknowledged in time."""

    revive_queue_count: int = setting(8, "reviveQueueNum", "Queues of the topic that holds check points and acks.")
    retry_first_percent: int = setting(
        20, "popFromRetryProbability", "How many pops in a hundred look at redeliveries before anything else."
    )
    retry_v2: bool = setting(
        False, "enableRetryTopicV2", "Redeliver on %RETRY%group+topic, which no other pair of names can give."
    )
    reads_retry_v1: bool = setting(
        True, "retrieveMessageFromPopRetryTopicV1", "With that, still read %RETRY%group_topic every other time."
    )
    returns_retry_topic: bool = setting(
        False, "popResponseReturnActualRetryTopic", "Leave the retry topic's name in redelivered messages."
    )
    max_waiting_per_queue: int = setting(
        1024, "popPollingSize", "Pops held at once for one topic, group and queue; more are answered 209."
    )
    max_waiting: int = setting(100_000, "maxPopPollingSize", "Pops held at once in all.")
    merges_in_memory: bool = setting(
        False, "enablePopBufferMerge", "Match acks with check points in memory before either is written."
    )
    buffer_stay_ms: int = setting(10_000, "popCkStayBufferTime", "Longest that a check point is only in memory.")
    buffer_end_ms: int = setting(
        3_000, "popCkStayBufferTimeOut", "It is written this long before its invisible time ends."
    )
    max_buffered: int = setting(200_000, "popCkMaxBufferSize", "Check points that may be only in memory.")
    max_line: int = setting(20_000, "popCkOffsetMaxQueueSize", "Steps of one queue's offset that may wait for them.")
    limits_in_flight: bool = setting(
        False, "enablePopMessageThreshold", "Give nothing more of a queue with too many messages in flight."
    )
    max_in_flight: int = setting(10_000, "popInflightMessageThreshold", "How many those are.")
    init_by_memory: bool = setting(
        True, "initPopOffsetByCheckMsgInMem", "A group that starts at the end of a young queue gets all of it."
    )
    shares_queues: bool = setting(
        True,
        "serverLoadBalancerEnable",
        "Assign each member its share of the queues; false: all queues to every member.",
    )
    request_mode: str = setting(
        "PULL", "defaultMessageRequestMode", "PULL or POP, for groups without a mode of their own."
    )
    share_queue_count: int = setting(
        -1, "defaultPopShareQueueNum", "How many other members share a member's queues in pop mode; below 1: all."
    )
    save_order_ms: int = setting(10_000, None, "Pause between two saves of what is popped in order.")

    def __post_init__(self) -> None:
        _above_zero(
            reviveQueueNum=self.revive_queue_count,
            popPollingSize=self.max_waiting_per_queue,
            maxPopPollingSize=self.max_waiting,
            popCkStayBufferTime=self.buffer_stay_ms,
            popCkStayBufferTimeOut=self.buffer_end_ms,
            save_order_ms=self.save_order_ms,
        )
        if not 0 <= self.retry_first_percent <= 100:
            raise ConfigError(f"popFromRetryProbability={self.retry_first_percent} is not between 0 and 100")
        if self.revive_queue_count >= ORDER_REVIVE_QUEUE:
            raise ConfigError(f"reviveQueueNum={self.revive_queue_count} must be below {ORDER_REVIVE_QUEUE}")
        if self.request_mode not in (PULL, POP):
            raise ConfigError(f"defaultMessageRequestMode={self.request_mode!r} is neither {PULL} nor {POP}")


@dataclass(frozen=True)
class BrokerMetricsConfig(MetricsConfig):
    requests: bool = setting(True, "enableRequestMetrics", "Measure messages in and out.")
    lag: bool = setting(True, "enableLagAndDlqMetrics", "Measure how far groups are behind.")
    transactions: bool = setting(True, "enableTransactionMetrics", "Measure transactions.")
    store: bool = setting(True, "enableMessageStoreMetrics", "Measure the store and its timers.")
    pop: bool = setting(True, "enablePopMetrics", "Measure pop mode.")


AUTH_CACHES = (
    "aclCacheExpiredSecond", "aclCacheMaxNum", "aclCacheRefreshSecond", "userCacheExpiredSecond", "userCacheMaxNum",
    "userCacheRefreshSecond", "statefulAuthenticationCacheExpiredSecond", "statefulAuthenticationCacheMaxNum",
    "statefulAuthorizationCacheExpiredSecond", "statefulAuthorizationCacheMaxNum",
)  # fmt: skip
"""Keys of what Apache's brokers keep in front of their accounts."""


@dataclass(frozen=True)
class BrokerConfig:
    """All settings of a broker."""

    IGNORED: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(AUTH_CACHES, "Accounts are in memory, and every request is checked."),
        "bitMapLengthConsumeQueueExt": "maxErrorRateOfBloomFilter and expectConsumerNumUseFilter say how long bitmaps are, "
        "as with Apache.",
        "haMasterAddress": "Replicas ask the name servers where their master is.",
        "pullMessageThreadPoolNums": "One event loop serves all requests.",
        "sendMessageThreadPoolNums": "One event loop serves all requests.",
        "useReentrantLockWhenPutMessage": "Only the event loop appends, and needs no lock.",
    }
    """Keys of RocketMQ that files may have and that change nothing here, with the reason."""

    name: str = setting("broker-a", "brokerName", "Name of this broker, its own in the cluster.")
    cluster: str = setting("DefaultCluster", "brokerClusterName", "Cluster the broker belongs to.")
    broker_id: int = setting(
        0,
        "brokerId",
        "0: the master of its name. Replicas of it have the same brokerName, and a number each, from 1 on.",
    )
    bind_host: str = setting("127.0.0.1", "bindAddress", "Address to listen on; loopback unless told otherwise.")
    advertised_host: str = setting(
        "", "brokerIP1", "Address clients are told to use; empty: the bind address, or this host's when bound to all."
    )
    port: int = setting(10911, "listenPort", "Port to listen on; 0 means any free one.")
    advertised_port: int = setting(
        0,
        "rocketline.advertisedPort",
        "Port clients are told to use, where it is not the one listened on (a container's mapped port); 0: that one.",
    )
    store_root: str = setting("", "storePathRootDir", "Folder of the message store.")
    permission: int = setting(6, "brokerPermission", "4 readable + 2 writable.")
    region: str = setting("DefaultRegion", "regionId", "Region name given to producers for traces.")
    trace_on: bool = setting(True, "traceOn", "Whether clients may trace messages of this broker.")
    long_polling: bool = setting(
        True, "longPollingEnable", "Hold a pull that finds nothing until something arrives, for as long as it asks for."
    )
    slave_read: bool = setting(
        False, "slaveReadEnable", "Send groups to the brokers their settings name, above all when they lag behind."
    )
    corrects_as_slave: bool = setting(
        False, "offsetCheckInSlave", "A replica too tells consumers of an offset outside of the queue where to go on."
    )
    short_polling_ms: int = setting(
        1000, "shortPollingTimeMills", "How long a pull is held without long polling, whatever arrives."
    )
    max_held_pulls: int = setting(100_000, None, "Pulls held at once, over all connections.")
    max_connections: int = setting(
        10_000, "rocketline.maxConnections", "Connections served at once; further ones are closed."
    )
    fails_fast: bool = setting(True, "brokerFastFailureEnable", "Refuse sends that waited too long to be served.")
    send_wait_ms: int = setting(
        1_000, "waitTimeMillsInSendQueue", "How long that is; Apache's 200 is short for a broker with one event loop."
    )
    fast_path: bool = setting(
        True,
        "rocketline.fastPath",
        "Serve plain sends and pulls in compiled code; false: all take the general path.",
    )
    delay_levels: str = setting(MESSAGE_DELAY_LEVELS, "messageDelayLevel", "Delay of each level, 1 first.")
    flush_offsets_ms: int = setting(
        5_000, "flushConsumerOffsetInterval", "Pause between two saves of consumer offsets."
    )
    flush_delay_offsets_ms: int = setting(
        10_000, "flushDelayOffsetInterval", "Pause between two saves of delay offsets."
    )
    recall_enabled: bool = setting(
        False, "recallMessageEnable", "Let producers take back timer messages that are not delivered yet."
    )
    recall_when_read_only: bool = setting(
        True, "allowRecallWhenBrokerNotWriteable", "Let them do so also while the broker takes no other messages."
    )
    client_scan_ms: int = setting(10_000, None, "Pause between two looks for clients without heartbeat.")
    client_expiry_ms: int = setting(
        120_000, "channelExpiredTimeout", "A client without heartbeat for this long is gone."
    )
    queue_lock_ms: int = setting(
        60_000, "rocketmq.broker.rebalance.lockMaxLiveTime", "A queue lock that is not renewed for this long is free."
    )
    server_side_reset: bool = setting(
        True,
        "useServerSideResetOffset",
        "Reset offsets here and tell each consumer at its next pull; false: tell all consumers online, as 4.x does.",
    )
    stores_replies: bool = setting(
        True, "storeReplyMessageEnable", "Keep replies in the reply topic besides handing them to who asked."
    )
    topics: TopicConfigDefaults = section(TopicConfigDefaults)
    groups: GroupConfigDefaults = section(GroupConfigDefaults)
    replication: ReplicationConfig = section(ReplicationConfig)
    coordination: CoordinationConfig = section(CoordinationConfig)
    registration: RegistrationConfig = section(RegistrationConfig)
    filters: FilterConfig = section(FilterConfig)
    transactions: TransactionConfig = section(TransactionConfig)
    pop: PopConfig = section(PopConfig)
    metrics: BrokerMetricsConfig = section(BrokerMetricsConfig)
    auth: AuthConfig = section(AuthConfig)
    store: StoreConfig = section(StoreConfig)
    connections: ConnectionsConfig = section(ConnectionsConfig)
    tls: TlsConfig = section(TlsConfig)
    grpc: GrpcConfig = section(GrpcConfig)

    def __post_init__(self) -> None:
        for key, name in (("brokerName", self.name), ("brokerClusterName", self.cluster)):
            # Both are topics as well, and so folders.
            if not name or "/" in name or not name.isprintable() or name in (".", ".."):
                raise ConfigError(f"{key}={name!r} cannot be a name: it is empty or has a '/' or invisible characters")
        _above_zero(
            flushConsumerOffsetInterval=self.flush_offsets_ms,
            flushDelayOffsetInterval=self.flush_delay_offsets_ms,
            channelExpiredTimeout=self.client_expiry_ms,
            client_scan_ms=self.client_scan_ms,
            queue_lock_ms=self.queue_lock_ms,
            waitTimeMillsInSendQueue=self.send_wait_ms,
            max_connections=self.max_connections,
        )
        for key, port in (("listenPort", self.port), ("rocketline.advertisedPort", self.advertised_port)):
            if not 0 <= port <= 65535:
                raise ConfigError(f"{key}={port} is not a port")
        if self.broker_id < 0:
            raise ConfigError(f"brokerId={self.broker_id} must not be negative")
        if self.permission & ~6:
            raise ConfigError(f"brokerPermission={self.permission} must be 0, 2, 4 or 6")
        parse_delay_levels(self.delay_levels)

    @property
    def auth_folder(self) -> str:
        """Folder of users.json and acls.json."""
        return self.auth.path or str(Path(self.store_root) / "config")

    @property
    def ha_bind_host(self) -> str:
        """Where replicas connect."""
        return self.replication.ha_bind_host or self.bind_host

    @property
    def is_open(self) -> bool:
        """Whether other machines are served, at any port, and no accounts asked for."""
        return not (self.auth.enabled or (is_loopback(self.bind_host) and is_loopback(self.ha_bind_host)))

    def refuse_open_binds(self) -> None:
        """ConfigError when other machines are served without accounts and nobody said that this is wanted: the port of
        replicas gives out the whole log."""
        if not self.auth.enabled:
            for key, host in (("bindAddress", self.bind_host), ("rocketline.haBindAddress", self.ha_bind_host)):
                if not is_loopback(host):
                    refuse_open_bind(host, is_insecure=self.auth.insecure, key=key)
                    return

    @property
    def is_coordinated(self) -> bool:
        """Whether brokers of this name elect their master."""
        return bool(self.coordination.url)

    def refuse_contradictions(self) -> None:
        """ConfigError for roles that do not fit together: two masters of one name hide each other, and a broker that is half
        a slave takes messages that its master never sees."""
        wanted = self.replication
        for key, is_set in (
            ("enableControllerMode", wanted.has_controller),
            ("enableDLegerCommitLog", wanted.has_raft_log),
        ):
            if is_set:
                raise ConfigError(
                    f"{key}=true: rocketline has no such groups. Set {key}=false, and rocketline.coordination for brokers "
                    "that elect their master, or brokerRole and brokerId for fixed roles"
                )
        if self.is_coordinated:
            if self.store.transient_pool:
                raise ConfigError(
                    "rocketline.coordination: set transientStorePoolEnable=false, a replica has no use for it"
                )
            return
        is_slave = wanted.role is BrokerRole.SLAVE
        if is_slave and self.broker_id == 0:
            raise ConfigError(
                "brokerRole=SLAVE with brokerId=0: set brokerId to a number above zero, its own in the group"
            )
        if not is_slave and self.broker_id:
            raise ConfigError(
                f"brokerId={self.broker_id} with brokerRole={wanted.role.value}: set brokerRole=SLAVE for a replica, or "
                "brokerId=0 for the master"
            )
        if is_slave and self.store.transient_pool:
            raise ConfigError("brokerRole=SLAVE: set transientStorePoolEnable=false, a replica has no use for it")
        if is_slave and not self.registration.name_servers:
            raise ConfigError("brokerRole=SLAVE: set namesrvAddr, because name servers say where the master is")


def _above_zero(**values: int) -> None:
    for key, value in values.items():
        if value <= 0:
            raise ConfigError(f"{key}={value} must be above zero")


_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of each level.

    >>> parse_delay_levels("1s 2m")
    (1000, 120000)
    """
    try:
        levels = tuple(int(item[:-1]) * _UNITS_MS[item[-1]] for item in text.split())
    except (ValueError, KeyError, IndexError) as error:
        raise ConfigError(f"messageDelayLevel={text!r} is not a list such as '1s 5s 1m 2h'") from error
    if not levels or min(levels) < 0:
        raise ConfigError(f"messageDelayLevel={text!r} is empty or has a level below zero")
    return levels


def load_broker_config(path: Path, overrides: dict[str, str] | None = None) -> tuple[BrokerConfig, list[str]]:
    """(settings of an Apache `broker.conf`, keys in it that mean nothing to us); overrides win over the file."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    return load(BrokerConfig, {**parse_properties(text), **(overrides or {})}, str(path))
