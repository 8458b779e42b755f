"""Headers between clients and brokers: heartbeats, group members, transactions, and requests of a broker to a client.

Heartbeats (34) and queue locks (41, 42) have no fields of their own.
"""

from __future__ import annotations

from msgspec import field

from rocketline.protocol.headers.base import Header, Int32, Int64, LogOffset64, QueueOffset64


class HeartbeatResponseHeader(Header):
    """34: whether the broker knows short heartbeats, and whether it wants the full subscription next time."""

    supports_v2: bool = field(default=False, name="IS_SUPPORT_HEART_BEAT_V2")
    subscription_changed: bool = field(default=True, name="IS_SUB_CHANGE")


class UnregisterClientHeader(Header):
    """35."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListHeader(Header):
    """38; a group without members is answered with code 1, never with an empty list."""

    consumer_group: str


class EndTransactionHeader(Header):
    """37; `commit_or_rollback` is 8 (commit), 12 (roll back) or 0 (not known yet)."""

    producer_group: str
    queue_offset: QueueOffset64 = field(name="tranStateTableOffset")
    log_offset: LogOffset64 = field(name="commitLogOffset")
    commit_or_rollback: Int32
    msg_id: str
    from_transaction_check: bool = False
    topic: str | None = None
    transaction_id: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class ResumeCheckHalfMessageHeader(Header):
    """323: let the broker ask again about a half message it gave up on."""

    msg_id: str
    topic: str | None = None


class CheckTransactionStateHeader(Header):
    """39, broker to client; the half message is the body."""

    queue_offset: QueueOffset64 = field(name="tranStateTableOffset")
    log_offset: LogOffset64 = field(name="commitLogOffset")
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class NotifyConsumerIdsChangedHeader(Header):
    """40, broker to client: membership changed, rebalance now."""

    consumer_group: str


class ResetOffsetHeader(Header):
    """220 (broker to client) and 222 (tool to broker)."""

    topic: str
    group: str
    timestamp_ms: Int64 = field(name="timestamp")
    is_force: bool = False
    queue_id: Int32 = -1
    offset: Int64 | None = None


class GetConsumerStatusHeader(Header):
    """221, broker to client."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfoHeader(Header):
    """307, relayed by the broker to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyHeader(Header):
    """309, relayed by the broker to the client with the stored message as body."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
