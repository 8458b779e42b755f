"""Checks of what clients send: names, sizes, characters. Codes and limits are those of RocketMQ's proxy."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from rocketline.broker.grpc_config import GrpcConfig
from rocketline.protocol.names import MAX_GROUP_CHARS, MAX_TOPIC_CHARS, group_problem, topic_problem
from rocketline.proxy.problems import Problem
from rocketline.proxy.proto import Code

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SYSTEM_TOPICS = frozenset(
    {
        "TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)  # fmt: skip
_SYSTEM_TOPIC_PREFIX = "rmq_sys_"
_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

_RESERVED_WORDS = """TRACE_ON MSG_REGION KEYS TAGS WAIT DELAY RETRY_TOPIC ORIGIN_GROUP REAL_TOPIC REAL_QID TRAN_MSG PGROUP
MIN_OFFSET MAX_OFFSET BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME UNIQ_KEY
MAX_RECONSUME_TIMES CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME TRAN_PREPARED_QUEUE_OFFSET DUP_INFO EXTEND_UNIQ_INFO
INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE INNER_MULTI_QUEUE_OFFSET
TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_OUT_MS
TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID __CRC32#
_SYS_MSG_PRIORITY_"""
RESERVED = frozenset(_RESERVED_WORDS.split())
"""Names of properties that belong to RocketMQ: refused from clients, and not shown to them."""


MAX_RESOURCE_BYTES = 512
"""A name with its namespace. Answers repeat it for every queue and every message."""
MAX_ENDPOINTS_BYTES = 1024
"""Answers repeat them for every queue."""
MAX_ID_BYTES = 1024
MAX_HOST_BYTES = 1024
MAX_TRACE_BYTES = 8192
"""With the longest properties that a client may set, these stay below what brokers store."""


def checked_resource(resource: Any) -> str:
    """The name of a topic that clients may use, from a resource that answers repeat."""
    if resource.ByteSize() > MAX_RESOURCE_BYTES:
        raise Problem(Code.ILLEGAL_TOPIC, f"a topic and its namespace have at most {MAX_RESOURCE_BYTES} bytes")
    return checked_topic(resource.name)


def check_endpoints(endpoints: Any) -> None:
    if endpoints.ByteSize() > MAX_ENDPOINTS_BYTES:
        raise Problem(Code.ILLEGAL_ACCESS_POINT, f"endpoints have at most {MAX_ENDPOINTS_BYTES} bytes")


def checked_topic(name: str) -> str:
    """The name of a topic that clients may use."""
    if problem := _topic_problem(name):
        raise Problem(Code.ILLEGAL_TOPIC, problem)
    return name


@lru_cache(4096)
def _topic_problem(name: str) -> str | None:
    if not name or name.isspace():
        return "The specified topic is blank"
    if len(name) > MAX_TOPIC_CHARS:
        return f"The specified topic is longer than topic max length {MAX_TOPIC_CHARS}."
    if problem := topic_problem(name):
        return problem
    if name in _SYSTEM_TOPICS or name.startswith(_SYSTEM_TOPIC_PREFIX):
        return "cannot access system topic"
    return None


def checked_group(name: str) -> str:
    """The name of a consumer group that clients may use."""
    if not name or name.isspace():
        raise Problem(Code.ILLEGAL_CONSUMER_GROUP, "the specified group is blank")
    if problem := group_problem(name, MAX_GROUP_CHARS):
        raise Problem(Code.ILLEGAL_CONSUMER_GROUP, problem)
    if name.startswith(_SYSTEM_GROUP_PREFIX):
        raise Problem(Code.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group.")
    return name


def has_control(text: str) -> bool:
    return _CONTROL.search(text) is not None


def check_message(message: Any, config: GrpcConfig, now_ms: int) -> None:
    """Refuse a message to send that breaks a limit."""
    system = message.system_properties
    _check_body(message.body, config)
    properties = message.user_properties
    if properties or system.keys or system.tag:
        _check_words(system)
        _check_properties(properties, system, config)
    if not system.message_id or system.message_id.isspace() or has_control(system.message_id):
        raise Problem(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty, blank or have control characters")
    if len(system.message_id.encode()) > MAX_ID_BYTES:
        raise Problem(Code.ILLEGAL_MESSAGE_ID, f"a message id has at most {MAX_ID_BYTES} bytes")
    _check_size("born host", system.born_host, MAX_HOST_BYTES)
    if system.HasField("message_group"):
        _check_group(system.message_group, config)
    if system.HasField("trace_context"):
        if has_control(system.trace_context):
            raise Problem(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "the trace context cannot contain control character")
        _check_size("trace context", system.trace_context, MAX_TRACE_BYTES)
    if system.priority < 0 or system.delivery_attempt < 0:
        raise Problem(Code.BAD_REQUEST, "a priority and a delivery attempt are not below zero")
    if system.HasField("delivery_timestamp"):
        ahead_ms = system.delivery_timestamp.seconds * 1000 - now_ms
        if ahead_ms > config.max_delay_ms:
            raise Problem(
                Code.ILLEGAL_DELIVERY_TIME, f"the max delay time of message is too large, max is {config.max_delay_ms}"
            )
    if system.HasField("orphaned_transaction_recovery_duration"):
        seconds = system.orphaned_transaction_recovery_duration.seconds
        if not 0 <= seconds <= config.max_recovery_s:
            raise Problem(
                Code.BAD_REQUEST,
                f"the max transaction recovery time is {config.max_recovery_s} s, {seconds} s were asked",
            )


def _check_size(what: str, text: str, most: int) -> None:
    if len(text.encode()) > most:
        raise Problem(Code.MESSAGE_PROPERTIES_TOO_LARGE, f"a {what} has at most {most} bytes")


def _check_body(body: bytes, config: GrpcConfig) -> None:
    if not body:
        raise Problem(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(body) > config.max_body_bytes:
        raise Problem(
            Code.MESSAGE_BODY_TOO_LARGE,
            f"message body cannot exceed the max: {config.max_body_bytes}, it has {len(body)} bytes",
        )


def _check_words(system: Any) -> None:
    if system.tag:
        tag = system.tag
        if tag.isspace() or "|" in tag or has_control(tag):
            raise Problem(
                Code.ILLEGAL_MESSAGE_TAG, "tag cannot be the char sequence of whitespace, or have | or control"
            )
    for key in system.keys:
        if key and (key.isspace() or has_control(key)):
            raise Problem(Code.ILLEGAL_MESSAGE_KEY, "key cannot be the char sequence of whitespace, or have control")


def _check_properties(properties: Any, system: Any, config: GrpcConfig) -> None:
    if len(properties) > config.max_property_count:
        raise Problem(
            Code.MESSAGE_PROPERTIES_TOO_LARGE, f"too many user properties, max is {config.max_property_count}"
        )
    size = len(system.tag.encode()) + sum(len(key.encode()) + 1 for key in system.keys) - bool(system.keys)
    for name, value in properties.items():
        if name in RESERVED:
            raise Problem(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        if has_control(name) or has_control(value):
            raise Problem(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property {name[:80]!r} cannot contain control character"
            )
        size += len(name.encode()) + len(value.encode())
    if size > config.max_property_bytes:
        raise Problem(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the total size of user property is too large, max={config.max_property_bytes}",
        )


def _check_group(group: str, config: GrpcConfig) -> None:
    if not group or group.isspace() or has_control(group):
        raise Problem(Code.ILLEGAL_MESSAGE_GROUP, "message group cannot be empty, blank or have control characters")
    if len(group.encode()) >= config.max_group_bytes:
        raise Problem(Code.ILLEGAL_MESSAGE_GROUP, f"message group exceed the max size {config.max_group_bytes}")
