"""Rules for the names of topics and groups, and the names RocketMQ derives from them.

Names become folders of the store, so these rules also keep a hostile name (`../../x`) out of the file system.
"""

from __future__ import annotations

import re

from rocketline.message import DLQ_PREFIX, RETRY_PREFIX

MAX_TOPIC_CHARS = 127
MAX_DERIVED_TOPIC_CHARS = 255
MAX_GROUP_CHARS = 120
MAX_OLD_GROUP_CHARS = 255
"""Clients up to 4.9 allow longer group names; a broker accepts them."""

DEFAULT_TOPIC = "TBW102"
"""The template topic whose route and settings an unknown topic inherits."""

ASIDE_TOPIC = "rmq_sys_UNDELIVERABLE"
"""Where a broker keeps messages that it could not deliver and whose group it does not know."""

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
_LEGAL_DERIVED = re.compile(r"[%|a-zA-Z0-9_+-]+", re.ASCII)

NOT_SENDABLE = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "rmq_sys_wheel_timer",
        ASIDE_TOPIC,
    }
)


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def is_derived(topic: str) -> bool:
    """Whether this is the retry or dead-letter topic of a group."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def topic_problem(topic: str) -> str | None:
    """Why this cannot be a topic, or None when it can."""
    if not topic:
        return "the topic is empty: a message needs the name of one, such as 'orders'"
    legal, limit = (_LEGAL_DERIVED, MAX_DERIVED_TOPIC_CHARS) if is_derived(topic) else (_LEGAL, MAX_TOPIC_CHARS)
    if len(topic) > limit:
        return f"the topic is {len(topic)} characters long, the limit is {limit}"
    if not legal.fullmatch(topic):
        return f"the topic {topic!r} may only contain letters, digits, '_', '-', '%' and '|'"
    return None


def group_problem(group: str, limit: int = MAX_GROUP_CHARS) -> str | None:
    """Why this cannot be a group, or None when it can."""
    if not group:
        return "the group is empty"
    if len(group) > limit:
        return f"the group is {len(group)} characters long, the limit is {limit}"
    if not _LEGAL.fullmatch(group):
        return f"the group {group!r} may only contain letters, digits, '_', '-', '%' and '|'"
    return None
