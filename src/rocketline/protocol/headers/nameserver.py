"""Headers of requests to a name server, and of its answers.

Fields that may be empty have a default even where RocketMQ requires them: the binary header cannot hold an empty string.
"""

from __future__ import annotations

from msgspec import field

from rocketline.protocol.headers.base import Header, Int32, Int64, LogOffset64


class PutKvConfigHeader(Header):
    """100."""

    namespace: str
    key: str
    value: str


class GetKvConfigHeader(Header):
    """101."""

    namespace: str
    key: str


class GetKvConfigResponseHeader(Header):
    value: str | None = None


class DeleteKvConfigHeader(Header):
    """102."""

    namespace: str
    key: str


class GetKvListHeader(Header):
    """219."""

    namespace: str


class RegisterBrokerHeader(Header):
    """103; `body_crc32` 0 skips the check of the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64
    ha_server_addr: str = ""
    heartbeat_timeout_ms: Int64 | None = field(default=None, name="heartbeatTimeoutMillis")
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 = field(default=0, name="bodyCrc32")
    zone_name: str | None = field(default=None, name="__ZONE_NAME")


class RegisterBrokerResponseHeader(Header):
    """Both are set only for a slave whose master is alive."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerHeader(Header):
    """104."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class GetRouteHeader(Header):
    """105."""

    topic: str
    accept_standard_json_only: bool | None = None
    zone_mode: str | None = field(default=None, name="__ZONE_MODE")
    zone_name: str | None = field(default=None, name="__ZONE_NAME")


class WritePermOfBrokerHeader(Header):
    """205 (remove the write permission of a broker's topics) and 327 (restore it)."""

    broker_name: str


class WipeWritePermResponseHeader(Header):
    wipe_topic_count: Int32


class AddWritePermResponseHeader(Header):
    add_topic_count: Int32


class DeleteTopicInNameServerHeader(Header):
    """216; without a cluster the topic is deleted in all of them."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicHeader(Header):
    """217; the body is a route."""

    topic: str


class GetTopicsByClusterHeader(Header):
    """224."""

    cluster: str


class QueryDataVersionHeader(Header):
    """322; the body is the broker's data version."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(Header):
    changed: bool


class GetBrokerMemberGroupHeader(Header):
    """901."""

    cluster_name: str
    broker_name: str


class BrokerHeartbeatHeader(Header):
    """904."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: LogOffset64 | None = None
    confirm_offset: LogOffset64 | None = None
    heartbeat_timeout_ms: Int64 | None = field(default=None, name="heartbeatTimeoutMills")
    election_priority: Int32 | None = None


class NotifyMinBrokerIdChangeHeader(Header):
    """905, name server to broker."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
