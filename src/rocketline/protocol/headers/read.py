"""Reading: pull (11, 361), query by key (12), view by commit-log offset (33)."""

from __future__ import annotations

from msgspec import field

from rocketline.protocol.headers.base import ConsumerOffset64, Header, Int32, Int64, LogOffset64, QueueOffset64

COMMIT_OFFSET = 0x1
SUSPEND = 0x2
SUBSCRIPTION = 0x4
CLASS_FILTER = 0x8
LITE_PULL = 0x10
"""Bits of a pull's `sys_flag`: commit_offset is valid, the broker may wait, the subscription is in the request."""


class PullMessageHeader(Header):
    """11 and 361; `subscription` and `expression_type` count only with the SUBSCRIPTION bit."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: QueueOffset64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: ConsumerOffset64
    suspend_ms: Int64 = field(name="suspendTimeoutMillis")
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_forward_client_id: str | None = field(default=None, name="proxyFrowardClientId")
    broker_name: str | None = field(default=None, name="bname")
    bulk: bool = field(default=False, name="rocketlineBulk")
    """Ours: the answer may be longer than an Apache broker's. Apache's broker ignores it."""

    def encode(self) -> dict[str, str]:
        ext = {
            "consumerGroup": self.consumer_group,
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.queue_offset),
            "maxMsgNums": str(self.max_msg_nums),
            "sysFlag": str(self.sys_flag),
            "commitOffset": str(self.commit_offset),
            "suspendTimeoutMillis": str(self.suspend_ms),
            "subVersion": str(self.sub_version),
        }
        if self.subscription is not None:
            ext["subscription"] = self.subscription
        if self.expression_type is not None:
            ext["expressionType"] = self.expression_type
        if self.max_msg_bytes is not None:
            ext["maxMsgBytes"] = str(self.max_msg_bytes)
        if self.request_source is not None:
            ext["requestSource"] = str(self.request_source)
        if self.proxy_forward_client_id is not None:
            ext["proxyFrowardClientId"] = self.proxy_forward_client_id
        if self.broker_name is not None:
            ext["bname"] = self.broker_name
        if self.bulk:
            ext["rocketlineBulk"] = "true"
        return ext


class PullMessageResponseHeader(Header):
    """The four offsets of answers 0, 19, 20 and 21: a Java client throws when one is missing."""

    next_begin_offset: QueueOffset64
    min_offset: QueueOffset64
    max_offset: QueueOffset64
    suggest_which_broker_id: Int64 = 0
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None
    is_replica: bool = field(default=False, name="rocketlineReplica")
    """Of ours: not the master answers, and there is one. A client that took it for the master finds out."""

    def encode(self) -> dict[str, str]:
        ext = {
            "suggestWhichBrokerId": str(self.suggest_which_broker_id),
            "nextBeginOffset": str(self.next_begin_offset),
            "minOffset": str(self.min_offset),
            "maxOffset": str(self.max_offset),
        }
        if self.offset_delta is not None:
            ext["offsetDelta"] = str(self.offset_delta)
        if self.topic_sys_flag is not None:
            ext["topicSysFlag"] = str(self.topic_sys_flag)
        if self.group_sys_flag is not None:
            ext["groupSysFlag"] = str(self.group_sys_flag)
        if self.forbidden_type is not None:
            ext["forbiddenType"] = str(self.forbidden_type)
        if self.is_replica:
            ext["rocketlineReplica"] = "true"
        return ext


class QueryMessageHeader(Header):
    """12: messages under a key; `index_type` is "K" (key), "U" (unique id) or absent (clients before 5.4)."""

    topic: str
    key: str
    max_num: Int32
    begin_ms: Int64 = field(name="beginTimestamp")
    end_ms: Int64 = field(name="endTimestamp")
    unique_key_query: bool = field(default=False, name="_UNIQUE_KEY_QUERY")
    index_type: str | None = None


class QueryMessageResponseHeader(Header):
    index_last_update_ms: Int64 = field(name="indexLastUpdateTimestamp")
    index_last_update_log_offset: LogOffset64 = field(name="indexLastUpdatePhyoffset")


class ViewMessageByIdHeader(Header):
    """33: the message at a commit-log offset (the second half of an offset message id)."""

    log_offset: LogOffset64 = field(name="offset")
    topic: str | None = None
