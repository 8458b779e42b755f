"""Which topics and groups have series, and labels for what is the broker's own."""

from __future__ import annotations

from rocketline.broker.parts import BrokerParts
from rocketline.broker.tables.groups import SYSTEM_PREFIX
from rocketline.message import DLQ_PREFIX, RETRY_PREFIX


def exists(parts: BrokerParts, topic: str, group: str = "") -> bool:
    """Whether a topic exists, and a group if one is named: what is deleted has no series."""
    if topic not in parts.topics.table and not parts.topics.is_system(topic):
        return False
    return not group or group in parts.groups.table or is_system_group(group)


def system_flag(parts: BrokerParts, topic: str, group: str = "") -> str:
    """Label of what belongs to the broker itself."""
    return flag(parts.topics.is_system(topic) or is_system_group(group))


def is_system_group(group: str) -> bool:
    return group.upper().startswith(SYSTEM_PREFIX)


def is_derived(topic: str) -> bool:
    """Whether a topic belongs to a group: its retries or dead letters."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def flag(value: bool) -> str:
    return "true" if value else "false"
